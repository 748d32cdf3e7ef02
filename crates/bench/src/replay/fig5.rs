//! The tables and the dots of `mfs-fig5`.

use super::load::Load;
use super::measure::{Cell, Figures, Measurement};
use super::trace::{Access, Trace};
use crate::measurement::{failures, figures_of, kinds, runs_and_scale};
use crate::plot::dots::{Panel, Row};
use crate::record::Context;
use crate::spread::{Spread, caption, shown, times};
use segue_bed::peer::system::{CONFIGURATIONS, System};

/// What the others are compared with: as a file system without either would be.
const BASE: &str = "close-uniform";
/// What the paper has as best.
const BEST: &str = "async-priorities";

const ABOUT: &str = "\
    Traces [MFS 3.5] with the parameters of its table 3 (`mfs-table3`), played from an empty \
    cache; another noise in each run. Each application does one access after the other and thinks \
    between them as long as in the trace. The link has the rate both ways and no delay of its \
    own. cache-size is 256M. Close: a close returns when the server has the file, as the paper's \
    synchronous write. Uniform: without priorities, on both sides. Last read: from the start until \
    nobody reads any more. Last write: until the server has everything. Returned: until nobody \
    waits for a write any more. Link: what its rate takes for the bytes that are read, or written, \
    and nothing else; where that is later, when the trace itself reads or writes last. MFS fetches \
    and stores whole files, which is up to 4.5 times the bytes that are read; Segue moves the \
    bytes that are read or written, and its read-ahead.";

/// What the paper says of a trace at a rate.
struct Told {
    load: Load,
    rate: u64,
    says: &'static str,
}

/// [MFS 3.5], in words: the bars of its figure have no numbers.
const PAPER: [Told; 6] = [
    Told { load: Load::Writes, rate: 64, says: "last read 79 % less" },
    Told { load: Load::Writes, rate: 512, says: "last read 30 % less" },
    Told { load: Load::Heavy, rate: 64, says: "last read 2220 s, last write 2409 s" },
    Told { load: Load::Heavy, rate: 512, says: "async-uniform is best" },
    Told { load: Load::Reads, rate: 64, says: "little, slightly less of both" },
    Told { load: Load::Reads, rate: 512, says: "little, slightly less of both" },
];

/// The same as seconds until the last read, where the paper names them.
const LAST_READS: [(Load, u64, f64); 1] = [(Load::Heavy, 64, 2220.0)];

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Read,
    Write,
    Returned,
}

impl Part {
    const ALL: [Part; 3] = [Part::Read, Part::Write, Part::Returned];

    fn name(self) -> &'static str {
        match self {
            Part::Read => "last read",
            Part::Write => "last write",
            Part::Returned => "returned",
        }
    }

    fn of(self, figures: &Figures) -> f64 {
        match self {
            Part::Read => figures.last_read_seconds,
            Part::Write => figures.last_write_seconds,
            Part::Returned => figures.write_returned_seconds,
        }
    }

    fn spread(self, measured: &[Measurement], cell: Cell) -> Option<Spread> {
        Spread::over(figures_of(measured, cell).map(|figures| self.of(figures)))
    }

    /// What no order of calls is faster than.
    fn floor(self, trace: &Trace, rate: u64) -> Option<f64> {
        let is_of = |access: &&Access| access.act.moved().0 == (self == Part::Read);
        let accesses = || trace.accesses().filter(is_of);
        let bytes: u64 = accesses().map(|access| access.act.moved().1).sum();
        let last = accesses().map(|access| access.at).max()?.as_secs_f64();
        let seconds = (bytes as f64 / (rate * 1024) as f64).max(last);
        (self != Part::Returned).then_some(seconds)
    }
}

/// The tables.
pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}Seconds. {} At {scale} of the standard size. {ABOUT}\n",
        context.heading(),
        caption(runs)
    );
    let cells = kinds(measured);
    let systems = systems(&cells);
    for (rate, cells) in by_rate(&cells) {
        text += &format!("\n## {rate} KB/s\n\n{}", heading(&["trace", ""], &systems, "link"));
        for (load, part) in rows(&cells) {
            let floor = part.floor(&load.trace(scale), rate).map(|seconds| format!("{seconds:.0}"));
            let cell = |&system: &System| {
                format!(" {} |", shown(part.spread(measured, Cell { load, system, rate })))
            };
            let cells: String = systems.iter().map(cell).collect();
            text += &format!("| {} | {} |{cells} {} |\n", load.name(), part.name(), shown(floor));
        }
        text += &traffic(measured, &systems, rate, &cells);
    }
    text += &beside_the_paper(measured, &systems, &cells);
    text + &failures(measured)
}

/// Segue's configurations in their order, then the others.
fn systems(cells: &[Cell]) -> Vec<System> {
    let place = |system: &System| {
        let place = CONFIGURATIONS.iter().position(|one| one.name == system.name());
        (place.unwrap_or(CONFIGURATIONS.len()), system.name())
    };
    let mut systems: Vec<System> = cells.iter().map(|cell| cell.system).collect();
    systems.sort_by_key(place);
    systems.dedup();
    systems
}

/// What was measured at each rate, whatever order that was done in.
fn by_rate(cells: &[Cell]) -> Vec<(u64, Vec<Cell>)> {
    let mut rates: Vec<u64> = cells.iter().map(|cell| cell.rate).collect();
    rates.sort_unstable();
    rates.dedup();
    let at = |rate| cells.iter().copied().filter(|cell| cell.rate == rate).collect();
    rates.into_iter().map(|rate| (rate, at(rate))).collect()
}

/// The traces among `cells`, in the paper's order.
fn loads(cells: &[Cell]) -> impl Iterator<Item = Load> {
    Load::ALL.into_iter().filter(|load| cells.iter().any(|cell| cell.load == *load))
}

fn rows(cells: &[Cell]) -> impl Iterator<Item = (Load, Part)> {
    loads(cells).flat_map(|load| Part::ALL.into_iter().map(move |part| (load, part)))
}

fn heading(keys: &[&str], systems: &[System], last: &str) -> String {
    let keys_and_systems = keys.iter().copied().chain(systems.iter().map(|one| one.name()));
    let names: String = keys_and_systems.map(|name| format!(" {name} |")).collect();
    let lines = format!("{}{}", "---|".repeat(keys.len()), "--:|".repeat(systems.len() + 1));
    format!("|{names} {last} |\n|{lines}\n")
}

/// What went over the link, in MB up and down.
fn traffic(measured: &[Measurement], systems: &[System], rate: u64, cells: &[Cell]) -> String {
    let mut text = String::new();
    for load in loads(cells) {
        let mut line = String::new();
        for &system in systems {
            let middle = |bytes: fn(&Figures) -> u64| {
                let figures = figures_of(measured, Cell { load, system, rate });
                let spread =
                    Spread::over(figures.map(|one| bytes(one) as f64 / f64::from(1 << 20)));
                shown(spread.map(|spread| format!("{:.1}", spread.median())))
            };
            let (up, down) = (middle(|one| one.sent_bytes), middle(|one| one.received_bytes));
            line += &format!(" {up} / {down} |");
        }
        text += &format!("| {} | MB up / down |{line} |\n", load.name());
    }
    text
}

/// How much less each takes than [`BASE`], and what the paper says.
fn beside_the_paper(measured: &[Measurement], systems: &[System], cells: &[Cell]) -> String {
    let others: Vec<System> =
        systems.iter().copied().filter(|system| system.name() != BASE).collect();
    let mut text = format!(
        "\n## Less than with {BASE}, beside the paper\n\n\
         The paper's percentages are \"the decrease in the time spent to read all the files\". It \
         does not say between which two of the four; they are taken for {BEST} against {BASE}. Its \
         seconds are those of {BEST}. Below 0: more.\n\n{}",
        heading(&["trace", "KB/s", ""], &others, "paper")
    );
    let Some(base) = System::named(BASE) else { return text };
    for (rate, cells) in by_rate(cells) {
        for (load, part) in rows(&cells).filter(|(_, part)| *part != Part::Returned) {
            let spread = |system| part.spread(measured, Cell { load, system, rate });
            let less = |&system: &System| {
                // Plus 0, or what rounds to none would have a sign.
                let percent = |times: f64| (100.0 * (1.0 - times)).round() + 0.0;
                let less = times(spread(system).as_ref(), spread(base).as_ref()).map(percent);
                format!(" {} |", shown(less.map(|less| format!("{less} %"))))
            };
            let line: String = others.iter().map(less).collect();
            let told = PAPER.iter().find(|told| (told.load, told.rate) == (load, rate));
            let told = told.filter(|_| part == Part::Read).map_or("", |told| told.says);
            text += &format!("| {} | {rate} | {} |{line} {told} |\n", load.name(), part.name());
        }
    }
    text
}

/// As in the figure: for each trace and rate the time to the last read, and to the last write.
pub(super) fn panels(measured: &[Measurement]) -> Vec<Panel> {
    let cells = kinds(measured);
    let (_, scale) = runs_and_scale(measured);
    let mut panels = Vec::new();
    for (rate, cells) in by_rate(&cells) {
        for load in loads(&cells) {
            let row = |system: System| {
                let spread = |part: Part| part.spread(measured, Cell { load, system, rate });
                // The paper's is a single figure, of its best configuration at full size.
                let is_best = system.name() == BEST && scale == 1.0;
                let paper = LAST_READS.iter().find(|(of, at, _)| (*of, *at) == (load, rate));
                Row {
                    value: spread(Part::Read),
                    later: spread(Part::Write).map(|spread| spread.median()),
                    paper: paper.filter(|_| is_best).map(|(.., seconds)| (*seconds, 0.0)),
                    ..Row::named(system.name())
                }
            };
            let title = format!("{}, {rate} KB/s", load.name());
            let rows = systems(&cells).into_iter().map(row).collect();
            let panel = Panel::new(title, "seconds until the last read", rows);
            panels.push(Panel { later: "last write", ..panel });
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_bed::Error;

    #[test]
    fn what_is_saved_stands_beside_the_paper() {
        let cell = |name| {
            let system = System::named(name).unwrap();
            Cell { load: Load::Writes, system, rate: 64 }
        };
        let figures = |read, write| Figures {
            last_read_seconds: read,
            last_write_seconds: write,
            write_returned_seconds: 100.0,
            sent_bytes: 20 << 20,
            received_bytes: 13 << 20,
        };
        let measured = [
            Measurement::new(cell(BASE), 1, 1.0, Ok(figures(1000.0, 800.0))),
            Measurement::new(cell("async-uniform"), 1, 1.0, Err(Error::Wrong("gone".into()))),
            Measurement::new(cell(BEST), 1, 1.0, Ok(figures(250.0, 880.0))),
        ];
        let text = markdown(&Context::of_test(), &measured);
        for row in [
            "| mostly-writes | last read | 1,000.0 | - | 250.0 | 204 |",
            "| mostly-writes | last write | 800.0 | - | 880.0 | 319 |",
            "| mostly-writes | MB up / down | 20.0 / 13.0 | - / - | 20.0 / 13.0 | |",
            "| mostly-writes | 64 | last read | - | 75 % | last read 79 % less |",
            "| mostly-writes | 64 | last write | - | -10 % |  |",
            "* mostly-writes, async-uniform, 64 KB/s #1 failed: ",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        let [panel] = panels(&measured).try_into().unwrap();
        assert_eq!(panel.rows.len(), 3);
        let values = panel.rows[0].value.as_ref().map(Spread::median);
        assert_eq!((values, panel.rows[0].later), (Some(1000.0), Some(800.0)));
        // Of that trace and rate the paper has no seconds.
        assert_eq!(panel.rows[2].paper, None);
    }
}
