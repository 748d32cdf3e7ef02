//! The tables of `mfs-table2`, and the curves of `mfs-fig3`.

use super::cell::{Cell, Start, Test};
use super::paper;
use super::part::{Measurement, Part};
use super::{ALONE, LOCAL, savings};
use crate::measurement::{failures, kinds, runs_and_scale};
use crate::plot::Part as Drawing;
use crate::plot::dots::{Panel, Row};
use crate::plot::lines::{Chart, Curve, Look};
use crate::record::Context;
use crate::spread::{Spread, caption, shown, times};
use segue_bed::peer::system::{CONFIGURATIONS, System};

/// What the foreground may take beside the background, of its time alone; and the background, of
/// its time on the local disk.
const TARGET: f64 = 1.1;

const ABOUT: &str = "\
    Tests [MFS 3.4], two activities begun at once: G greps through 256 cached files of 8 KB, again \
    and again with a second between two passes, until the server has everything; R reads 16 files \
    of 1 MB that are not cached; C compiles 259 files and directories of 1,223 KB that are not \
    cached; W copies 16 files of 1 MB into the mount. All data are noise, another one in each run. \
    Of G a run's time is the mean of its passes, and beside it the slowest. The link has no delay \
    of its own. cache-size is 256M. Close: a close returns when the server \
    has the file, as the paper's synchronous write. Uniform: without priorities, on both sides. \
    Expired: each promise of the server counts for half a second, so that each pass asks for each \
    file; otherwise the files were looked at before, and nothing is asked. Log empty: from the \
    start until the server has everything. Alone: with async and priorities, nothing beside it and \
    no other bed on the machine; of G ten passes. Local: the same in a plain directory. Tests of \
    two activities had at most one other bed beside theirs.";

/// The link, where each direction has one of its own.
const EACH: &str = "\
    Each direction of the link has the rate. The paper's link seems to be shared: R and W, 16 s \
    each at 1,024 KB/s, take 34.7 s together.";
/// The link, where both directions are one.
const SHARED: &str = "\
    Both directions of the link share the rate and a queue. The paper's link seems to be such a \
    one: R and W, 16 s each at 1,024 KB/s, take 34.7 s together.";

/// What was measured, and the order in which it is told.
pub(super) struct Told<'a> {
    measured: &'a [Measurement],
    cells: Vec<Cell>,
    systems: Vec<System>,
    pub(super) rates: Vec<u64>,
    pub(super) tests: Vec<(Test, Start)>,
}

impl<'a> Told<'a> {
    pub(super) fn of(measured: &'a [Measurement]) -> Told<'a> {
        let cells = kinds(measured);
        let paired = || cells.iter().filter(|cell| Test::named(cell.test.name).is_some());
        let mut rates: Vec<u64> = paired().filter_map(|cell| cell.rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let named = |name: &&str| paired().any(|cell| cell.system.name() == *name);
        let systems = CONFIGURATIONS.iter().map(|one| one.name).filter(named);
        let systems = systems.filter_map(System::named).collect();
        let begun = |&(test, start): &(Test, Start)| {
            paired().any(|cell| cell.test == test && cell.start == start)
        };
        let all = |test: Test| test.starts().iter().map(move |start| (test, *start));
        let tests = Test::ALL.into_iter().flat_map(all).filter(begun).collect();
        Told { measured, systems, rates, tests, cells: cells.clone() }
    }

    pub(super) fn spread(&self, cell: Cell, part: Part) -> Option<Spread> {
        part.spread(self.measured, cell)
    }

    /// A part of a test by itself.
    pub(super) fn alone(
        &self,
        cell: Cell,
        part: Part,
        system: &str,
        rate: Option<u64>,
    ) -> Option<Spread> {
        let of_whom = if part == Part::Slowest { Part::Foreground } else { part };
        let name = of_whom.activity(cell);
        let of =
            |one: &&Cell| one.test.name == name && one.system.name() == system && one.rate == rate;
        // What is not of cached files begins in one way only.
        let mut found = self.cells.iter().filter(of);
        let same = found.clone().find(|one| one.start == cell.start);
        self.spread(*same.or_else(|| found.next())?, part)
    }
}

/// The tables.
pub(super) fn markdown(context: &Context, measured: &[Measurement], is_shared: bool) -> String {
    let told = Told::of(measured);
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}Seconds. {} At {scale} of the standard size. {ABOUT} {}\n",
        context.heading(),
        caption(runs),
        if is_shared { SHARED } else { EACH }
    );
    for &rate in &told.rates {
        text += &at_rate(&told, rate);
    }
    text += &savings::section(&told);
    text += &beside_the_paper(&told);
    text += &targets(&told);
    text + &failures(measured)
}

fn names(systems: &[System]) -> String {
    systems.iter().map(|system| system.name()).collect::<Vec<_>>().join(" | ")
}

fn at_rate(told: &Told<'_>, rate: u64) -> String {
    let is_paper = rate == paper::RATE;
    let ratio = if is_paper { " Behind ×: how many times the paper's mean it is." } else { "" };
    let mut text = format!(
        "\n## {rate} KB/s\n\n{}| test | activity | {} | alone | local |\n|---|---|{}--:|--:|\n",
        if is_paper { format!("{}\n\n", ratio.trim_start()) } else { String::new() },
        names(&told.systems),
        "--:|".repeat(told.systems.len())
    );
    for &(test, start) in &told.tests {
        for part in Part::of_test(test) {
            let cell = |system| Cell { test, start, system, rate: Some(rate) };
            let Some(first) = told.systems.first().map(|system| cell(*system)) else { continue };
            text += &format!("| {}{} | {} |", test.name, first.mark(), part.activity(first));
            for &system in &told.systems {
                let ours = told.spread(cell(system), part);
                let theirs = paper::comparable(test, part, system.name()).filter(|_| is_paper);
                let both = ours.as_ref().zip(theirs);
                let times = both.map(|(ours, (mean, _))| format!(" ×{:.2}", ours.median() / mean));
                text += &format!(" {}{} |", shown(ours), times.unwrap_or_default());
            }
            let alone = told.alone(first, part, ALONE, Some(rate));
            let local = told.alone(first, part, LOCAL, None);
            text += &format!(" {} | {} |\n", shown(alone), shown(local));
        }
    }
    text
}

/// What two configurations do to a time, here and there.
fn beside_the_paper(told: &Told<'_>) -> String {
    const EFFECTS: [(&str, &str, &str); 4] = [
        ("priorities, close", "close-priorities", "close-uniform"),
        ("priorities, async", "async-priorities", "async-uniform"),
        ("async, priorities", "async-priorities", "close-priorities"),
        ("both", "async-priorities", "close-uniform"),
    ];
    let heading: String = EFFECTS.iter().map(|(name, ..)| format!(" {name} | paper |")).collect();
    let mut text = format!(
        "\n## What priorities and asynchronous write-back do, beside the paper\n\n\
         Each time as a share of what it is without them, at {} KB/s, and the paper's.\n\n\
         | test | activity |{heading}\n|---|---|{}\n",
        paper::RATE,
        "--:|".repeat(2 * EFFECTS.len())
    );
    for &(test, start) in &told.tests {
        for part in [Part::Foreground, Part::Background] {
            let mut line = String::new();
            let cell = |system| Cell { test, start, system, rate: Some(paper::RATE) };
            for (_, with, without) in EFFECTS {
                let ours = |name| told.spread(cell(System::named(name)?), part);
                let theirs = |name| paper::figure(test.name, part, name).map(|(mean, _)| mean);
                let share = |times: Option<f64>| shown(times.map(|times| format!("{times:.2}")));
                let here = times(ours(with).as_ref(), ours(without).as_ref());
                let there = theirs(with).zip(theirs(without)).map(|(with, without)| with / without);
                line += &format!(" {} | {} |", share(here), share(there));
            }
            let Some(first) = told.systems.first().map(|system| cell(*system)) else { continue };
            let (mark, activity) = (first.mark(), part.activity(first));
            text += &format!("| {}{mark} | {activity} |{line}\n", test.name);
        }
    }
    text
}

fn targets(told: &Told<'_>) -> String {
    let count = told.systems.len();
    let mut text = format!(
        "\n## Targets\n\nThe foreground beside the background is to take at most {TARGET} times \
         its time alone, the background at most {TARGET} times its time on the local disk, at each \
         rate. Misses are bold.\n\n\
         | test | KB/s | foreground: {} | background: {} |\n|---|--:|{}\n",
        names(&told.systems),
        names(&told.systems),
        "--:|".repeat(2 * count)
    );
    for &(test, start) in &told.tests {
        for &rate in &told.rates {
            let mut cells = String::new();
            let mut mark = "";
            for (part, base, at) in
                [(Part::Foreground, ALONE, Some(rate)), (Part::Background, LOCAL, None)]
            {
                for &system in &told.systems {
                    let cell = Cell { test, start, system, rate: Some(rate) };
                    mark = cell.mark();
                    let (ours, base) = (told.spread(cell, part), told.alone(cell, part, base, at));
                    let times = times(ours.as_ref(), base.as_ref());
                    cells += &format!(" {} |", shown(times.map(judged)));
                }
            }
            text += &format!("| {}{mark} | {rate} |{cells}\n", test.name);
        }
    }
    text
}

fn judged(times: f64) -> String {
    let digits = if times < 100.0 { 2 } else { 0 };
    if times > TARGET { format!("**{times:.digits$}**") } else { format!("{times:.digits$}") }
}

/// The plot: the times at the fastest rate, then the curves of figure 3.
pub(super) fn parts(measured: &[Measurement]) -> Vec<Drawing> {
    let told = Told::of(measured);
    let mut parts = Panel::parts(panels(&told));
    parts.extend(Chart::parts(charts(&told)));
    parts
}

/// The times at the fastest rate beside the targets, and beside the paper's if that is its rate.
fn panels(told: &Told<'_>) -> Vec<Panel> {
    let Some(&rate) = told.rates.last() else { return Vec::new() };
    let mut panels = Vec::new();
    for &(test, start) in &told.tests {
        for (part, base, at) in
            [(Part::Foreground, ALONE, Some(rate)), (Part::Background, LOCAL, None)]
        {
            let cell = |system| Cell { test, start, system, rate: Some(rate) };
            let row = |&system: &System| {
                let alone = told.alone(cell(system), part, base, at);
                let paper = paper::comparable(test, part, system.name());
                Row {
                    value: told.spread(cell(system), part),
                    target: alone.map(|alone| TARGET * alone.median()),
                    paper: paper.filter(|_| rate == paper::RATE),
                    ..Row::named(system.name())
                }
            };
            let Some(first) = told.systems.first().map(|system| cell(*system)) else { continue };
            let title =
                format!("{}{}: {}, {rate} KB/s", test.name, first.mark(), part.activity(first));
            panels.push(Panel::new(title, "seconds", told.systems.iter().map(row).collect()));
        }
    }
    panels
}

/// [MFS figure 3]: how many times as fast each part is as without priorities and with writes that
/// close waits for, on the slowest link; cached files are to be asked for, as there. Below each
/// chart is the effect of priorities at each rate: curves with and without them lie on each other.
fn charts(told: &Told<'_>) -> Vec<Chart> {
    let Some(&slowest) = told.rates.first() else { return Vec::new() };
    let mut charts = Vec::new();
    for &(test, start) in &told.tests {
        if test.starts().last() != Some(&start) {
            continue;
        }
        for part in [Part::Foreground, Part::Background] {
            let first = Cell { test, start, system: System::Segue(CONFIGURATIONS[0]), rate: None };
            let title = format!("{}: {}", test.name, part.activity(first));
            let spread = |name: &str, rate| {
                let cell = Cell { test, start, system: System::named(name)?, rate: Some(rate) };
                told.spread(cell, part)
            };
            // How many times as fast `system` is as `base`, by rate.
            let curve = |name, look, system: &str, base: &dyn Fn(u64) -> Option<Spread>| {
                let point = |&rate: &u64| {
                    let speed = times(base(rate).as_ref(), spread(system, rate).as_ref())?;
                    Some((rate as f64, speed))
                };
                Curve { name, look, pieces: vec![told.rates.iter().filter_map(point).collect()] }
            };
            let slow = |_| spread("close-uniform", slowest);
            let speeds = vec![
                curve("close-uniform", Look::Grey, "close-uniform", &slow),
                curve("close-priorities", Look::Blue, "close-priorities", &slow),
                curve("async-priorities", Look::Dark, "async-priorities", &slow),
            ];
            if speeds.iter().all(|curve| curve.pieces.iter().all(Vec::is_empty)) {
                continue;
            }
            let [close, uniform] =
                ["close-uniform", "async-uniform"].map(|name| move |rate| spread(name, rate));
            let effects = vec![
                curve("without priorities", Look::Grey, "close-uniform", &close),
                curve("with, close", Look::Blue, "close-priorities", &close),
                curve("with, async", Look::Dark, "async-priorities", &uniform),
            ];
            let speed = format!("{title}, beside close-uniform at {slowest} KB/s");
            let chart = Chart::new(speed, ["KB/s", "times as fast"], speeds);
            charts.push(chart.logarithmic_if_needed());
            let effect = format!("{title}, with priorities beside without");
            charts.push(Chart::beside(effect, ["KB/s", "times as fast"], effects));
        }
    }
    charts
}
