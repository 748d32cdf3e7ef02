//! The tables of `mfs-table2`, and the curves of `mfs-fig3`.

use super::cell::{Cell, Start, Test};
use super::paper;
use super::part::{Measurement, Part};
use super::{ALONE, LOCAL};
use crate::measurement::{failures, kinds, repeats_and_scale};
use crate::plot::lines::{Chart, Curve, Look};
use crate::record::Context;
use crate::spread::{Spread, shown, times};
use segue_bed::peer::system::{CONFIGURATIONS, System};

/// What the foreground may take beside the background, of its time alone; and the background, of
/// its time on the local disk.
const TARGET: f64 = 1.1;

const ABOUT: &str = "\
    Tests [MFS 3.4], two activities begun at once: G greps three times through 256 cached files of \
    8 KB, R reads 16 files of 1 MB that are not cached, C compiles 259 files and directories of \
    1,223 KB that are not cached, W copies 16 files of 1 MB into the mount. All data are noise, \
    another one in each run. The link has the rate both ways and no delay of its own. cache-size is \
    256M. Expired: mounted just before, so that nothing is promised of what is cached; otherwise it \
    was looked at before. Log empty: from the start until the server has everything. Alone: with \
    async and priorities, and nothing beside it. Local: in a plain directory, nothing beside it.";

/// What was measured, and the order in which it is told.
struct Told<'a> {
    measured: &'a [Measurement],
    cells: Vec<Cell>,
    systems: Vec<System>,
    rates: Vec<u64>,
    tests: Vec<(Test, Start)>,
}

impl<'a> Told<'a> {
    fn of(measured: &'a [Measurement]) -> Told<'a> {
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

    fn spread(&self, cell: Cell, part: Part) -> Option<Spread> {
        part.spread(self.measured, cell)
    }

    /// A part of a test by itself.
    fn alone(&self, cell: Cell, part: Part, system: &str, rate: Option<u64>) -> Option<Spread> {
        let name = part.activity(cell);
        let of =
            |one: &&Cell| one.test.name == name && one.system.name() == system && one.rate == rate;
        // What is not of cached files begins in one way only.
        let mut found = self.cells.iter().filter(of);
        let same = found.clone().find(|one| one.start == cell.start);
        self.spread(*same.or_else(|| found.next())?, part)
    }
}

/// The tables.
pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let told = Told::of(measured);
    let (repeats, scale) = repeats_and_scale(measured);
    let mut text = format!(
        "{}Seconds: means (and standard deviations) of {repeats}, at {scale} of the standard size. \
         {ABOUT}\n",
        context.heading()
    );
    for &rate in &told.rates {
        text += &at_rate(&told, rate);
    }
    text += &beside_the_paper(&told);
    text += &targets(&told);
    text + &failures(measured)
}

fn names(systems: &[System]) -> String {
    systems.iter().map(|system| system.name()).collect::<Vec<_>>().join(" | ")
}

fn at_rate(told: &Told<'_>, rate: u64) -> String {
    let is_paper = rate == paper::RATE;
    let ratio = if is_paper { " Behind ×: how many times the paper's time it is." } else { "" };
    let mut text = format!(
        "\n## {rate} KB/s\n\n{}| test | activity | {} | alone | local |\n|---|---|{}--:|--:|\n",
        if is_paper { format!("{}\n\n", ratio.trim_start()) } else { String::new() },
        names(&told.systems),
        "--:|".repeat(told.systems.len())
    );
    for &(test, start) in &told.tests {
        for part in Part::ALL {
            let cell = |system| Cell { test, start, system, rate: Some(rate) };
            let Some(first) = told.systems.first().map(|system| cell(*system)) else { continue };
            text += &format!("| {}{} | {} |", test.name, first.mark(), part.activity(first));
            for &system in &told.systems {
                let ours = told.spread(cell(system), part);
                let theirs = paper::spread(test.name, part, system.name()).filter(|_| is_paper);
                let times = times(ours, theirs).map(|times| format!(" ×{times:.2}"));
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
        ("priorities, sync", "sync-priorities", "sync-uniform"),
        ("priorities, async", "async-priorities", "async-uniform"),
        ("async, priorities", "async-priorities", "sync-priorities"),
        ("both", "async-priorities", "sync-uniform"),
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
                let theirs = |name| paper::spread(test.name, part, name);
                let share = |times: Option<f64>| shown(times.map(|times| format!("{times:.2}")));
                let (here, there) =
                    (times(ours(with), ours(without)), times(theirs(with), theirs(without)));
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
        "\n## Targets\n\nThe foreground beside the background is to take at most {TARGET} times what \
         it takes alone, the background at most {TARGET} times what it takes on the local disk, at \
         each rate. What misses is bold.\n\n\
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
                    let times = times(told.spread(cell, part), told.alone(cell, part, base, at));
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

/// [MFS figure 3]: how many times as fast each part is as without priorities and with synchronous
/// writes on the slowest link; cached files are to be asked for, as there.
pub(super) fn charts(measured: &[Measurement]) -> Vec<Chart> {
    const CURVES: [(&str, Look, &str); 3] = [
        ("uniform: grey", Look::Grey, "sync-uniform"),
        ("priorities: blue", Look::Blue, "sync-priorities"),
        ("async: thick", Look::Dark, "async-priorities"),
    ];
    let told = Told::of(measured);
    let Some(&slowest) = told.rates.first() else { return Vec::new() };
    let mut charts = Vec::new();
    for &(test, start) in &told.tests {
        if test.starts().last() != Some(&start) {
            continue;
        }
        for part in [Part::Foreground, Part::Background] {
            let spread = |name: &str, rate| {
                let cell = Cell { test, start, system: System::named(name)?, rate: Some(rate) };
                told.spread(cell, part)
            };
            let base = spread("sync-uniform", slowest);
            let curve = |(name, look, system): (&'static str, Look, &str)| {
                let point = |&rate: &u64| Some((rate as f64, times(base, spread(system, rate))?));
                Curve { name, look, pieces: vec![told.rates.iter().filter_map(point).collect()] }
            };
            let first = Cell { test, start, system: System::Segue(CONFIGURATIONS[0]), rate: None };
            charts.push(Chart {
                title: format!("{} ({})", test.name, part.activity(first)),
                axes: ["KB/s", "times as fast"],
                curves: CURVES.into_iter().map(curve).collect(),
            });
        }
    }
    charts
}
