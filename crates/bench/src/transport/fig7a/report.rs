//! One measurement as a line, the table of its parts, and the curves.

use std::fmt;

use serde::Serialize;

use super::{Figures, START_SECONDS, Second};
use crate::measurement::{self, failures, figures_of, firsts, kinds, runs_and_scale};
use crate::plot::lines::{Chart, Curve, Look};
use crate::record::Context;
use crate::spread::{Spread, caption, median};
use crate::transport::direction::Direction;
use crate::transport::variant::Variant;

/// One variant and direction once.
pub(super) type Measurement = measurement::Measurement<Bulk, Figures>;

/// What the questions were asked beside.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Bulk {
    system: &'static str,
    direction: Direction,
}

impl Bulk {
    pub(super) fn new(variant: Variant, direction: Direction) -> Bulk {
        Bulk { system: variant.name(), direction }
    }
}

impl fmt::Display for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.system, self.direction)
    }
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = PARTS.map(|part| Sum::of(self, part).map_or("-".into(), |sum| sum.words()));
        write!(f, "{}; used {:.2}", parts.join("; "), self.utilization)
    }
}

/// A part of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Before,
    /// Each second has another rate than the one before.
    Descent,
    /// From a second after the last step on.
    Hold,
}

const PARTS: [Part; 3] = [Part::Before, Part::Descent, Part::Hold];

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Before => "before, 512 KB/s",
            Part::Descent => "descent",
            Part::Hold => "after, 128 KB/s",
        }
    }

    /// Its seconds.
    fn of(self, seconds: &[Second]) -> Vec<Second> {
        let first = seconds.iter().position(|second| second.is_step).unwrap_or(seconds.len());
        let last = seconds.iter().rposition(|second| second.is_step).unwrap_or(seconds.len());
        let is_in = |number: usize| match self {
            Part::Before => (START_SECONDS..first).contains(&number),
            Part::Descent => (first..=last).contains(&number),
            Part::Hold => number > last,
        };
        let numbered = seconds.iter().enumerate();
        numbered.filter(|(number, _)| is_in(*number)).map(|(_, second)| *second).collect()
    }
}

/// What the seconds of a part come to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sum {
    seconds: usize,
    calls: usize,
    late: usize,
    /// Seconds in which each question was in time.
    good_seconds: usize,
    max_ms: f64,
    /// The most by which a question took longer than its target.
    over_ms: f64,
}

impl Sum {
    fn of(figures: &Figures, part: Part) -> Option<Sum> {
        let seconds = part.of(&figures.seconds);
        let asked: Vec<&Second> = seconds.iter().filter(|second| second.calls > 0).collect();
        let most = |figure: &dyn Fn(&Second) -> f64| {
            asked.iter().map(|second| figure(second)).fold(f64::NEG_INFINITY, f64::max)
        };
        (!asked.is_empty()).then(|| Sum {
            seconds: seconds.len(),
            calls: asked.iter().map(|second| second.calls).sum(),
            late: asked.iter().map(|second| second.late).sum(),
            good_seconds: asked.iter().filter(|second| second.late == 0).count(),
            max_ms: most(&|second| second.max_ms.unwrap_or(0.0)),
            over_ms: most(&|second| second.max_ms.unwrap_or(0.0) - second.target_ms),
        })
    }

    fn words(&self) -> String {
        let Sum { seconds, good_seconds, max_ms, .. } = self;
        format!("{good_seconds} of {seconds} s in time, {max_ms:.0} ms at most")
    }

    /// Each figure's median for itself.
    fn median(sums: &[Sum]) -> Option<Sum> {
        let each = |figure: fn(&Sum) -> f64| median(sums.iter().map(figure));
        let count = |figure: fn(&Sum) -> usize| median(sums.iter().map(figure));
        Some(Sum {
            seconds: count(|sum| sum.seconds)?,
            calls: count(|sum| sum.calls)?,
            late: count(|sum| sum.late)?,
            good_seconds: count(|sum| sum.good_seconds)?,
            max_ms: each(|sum| sum.max_ms)?,
            over_ms: each(|sum| sum.over_ms)?,
        })
    }
}

const ABOUT: &str = "\
    A LOOKUP (class VALIDATE) of 100 bytes with its answer, one in flight, every 50 ms or more, \
    beside four messages of 64 KB under way in one direction (up: PUT, down: FETCH), while the \
    link follows `crates/bench/traces/mfs-fig7a.txt`; 40 ms round trip, 256 KB of queue. Each \
    question is held against the second in which it is asked: round trip, two packets of 1,472 \
    bytes at that rate, 20 ms. Before: from the third second on. Descent: the seconds that have \
    another rate than the one before, from their first moment on. After: from a second after the \
    last step on. Good seconds: without a question that took longer. Over: what the slowest took \
    beyond its target (below zero: less). Used: bytes that the link carried in the bulk's \
    direction, with all headers, of those it could carry. 1 KB = 1024 bytes.";

const HEADING: &str = "\
    | system | bulk | part | questions | late | good seconds | max, ms | over, ms | used |\n\
    |---|---|---|--:|--:|--:|--:|--:|--:|\n";

/// The table of medians, and each second of the first success.
pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}{} Over {scale} of the trace. {ABOUT}\n\n{HEADING}",
        context.heading(),
        caption(runs)
    );
    for bulk in kinds(measured) {
        let figures = figures_of(measured, bulk);
        let used = Spread::over(figures.clone().map(|one| one.utilization));
        for part in PARTS {
            let sums: Vec<Sum> = figures.clone().filter_map(|one| Sum::of(one, part)).collect();
            if let (Some(sum), Some(used)) = (Sum::median(&sums), &used) {
                text.push_str(&line(bulk, part, (&sum, &sums), used));
            }
        }
    }
    text.push_str(&failures(measured));
    for (bulk, figures) in firsts(measured) {
        text.push_str(&seconds(bulk, figures));
    }
    text
}

/// A part's medians, with the ranges over the repeats.
fn line(bulk: Bulk, part: Part, (sum, sums): (&Sum, &[Sum]), used: &Spread) -> String {
    let Bulk { system, direction } = bulk;
    let Sum { seconds, calls, late, good_seconds, .. } = sum;
    let late = *late as f64 / *calls as f64;
    let cell = |figure: fn(&Sum) -> f64| {
        Spread::over(sums.iter().map(figure)).map_or(String::new(), |spread| spread.cell(0))
    };
    format!(
        "| {system} | {direction} | {} | {calls} | {late:.2} | {good_seconds} of {seconds} \
         | {} | {} | {} |\n",
        part.name(),
        cell(|sum| sum.max_ms),
        cell(|sum| sum.over_ms),
        used.cell(2)
    )
}

/// A line for each second until the rate holds.
fn seconds(Bulk { system, direction }: Bulk, figures: &Figures) -> String {
    let last = figures.seconds.iter().rposition(|second| second.is_step).unwrap_or(0);
    let mut text = format!(
        "\n## {system}, {direction}, second by second (the first run)\n\n\
         | second | KB/s | questions | p50, ms | max, ms | target, ms | late | used |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for (number, second) in figures.seconds.iter().enumerate().take(last + 6) {
        let Second { rate_kb, target_ms, calls, late, p50_ms, max_ms, used, .. } = second;
        let known = |figure: &Option<f64>, digits: usize| {
            figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
        };
        let (p50, max, used) = (known(p50_ms, 0), known(max_ms, 0), known(used, 2));
        text.push_str(&format!(
            "| {number} | {rate_kb} | {calls} | {p50} | {max} | {target_ms:.0} | {late} \
             | {used} |\n"
        ));
    }
    text
}

/// Three charts for each system and direction: the questions, the link, and its share that was
/// used.
pub(super) fn charts(measured: &[Measurement]) -> Vec<Chart> {
    let charts = |(Bulk { system, direction }, figures): (Bulk, &Figures)| {
        let of = |figure: &dyn Fn(&Second) -> Option<f64>| {
            figures.seconds.iter().map(figure).collect::<Vec<_>>()
        };
        let targets = of(&|second| Some(second.target_ms));
        let slowest = of(&|second| second.max_ms);
        let rates = of(&|second| Some(second.rate_kb));
        let used = of(&|one| one.used.map(|used| used * one.rate_kb));
        let shares = of(&|second| second.used);
        let title = |of: &str| format!("{system}, bulk {direction}: {of}");
        [
            Chart::new(
                title("questions"),
                ["seconds", "milliseconds"],
                vec![
                    Curve::steps("target", Look::Grey, &targets),
                    Curve::steps("slowest question of the second", Look::Blue, &slowest),
                ],
            ),
            Chart::new(
                title("link"),
                ["seconds", "KB/s"],
                vec![
                    Curve::steps("true bandwidth", Look::Grey, &rates),
                    Curve::steps("used", Look::Blue, &used),
                ],
            ),
            Chart::beside(
                title("share of the link"),
                ["seconds", "share"],
                vec![Curve::steps("used of the bandwidth", Look::Blue, &shares)],
            ),
        ]
    };
    firsts(measured).into_iter().flat_map(charts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(rate_kb: f64, is_step: bool, late: usize, max_ms: f64) -> Second {
        let target_ms = 70.0;
        let (p50_ms, max_ms) = (Some(50.0), Some(max_ms));
        Second { rate_kb, target_ms, is_step, calls: 10, late, p50_ms, max_ms, used: Some(0.9) }
    }

    fn measurement() -> Measurement {
        let mut seconds = vec![second(512.0, false, 5, 500.0); START_SECONDS];
        seconds.push(second(512.0, false, 0, 60.0));
        seconds.push(second(320.0, true, 2, 110.0));
        seconds.push(second(128.0, true, 0, 65.0));
        seconds.push(second(128.0, false, 1, 75.0));
        let figures = Figures { utilization: 0.93, seconds };
        Measurement::new(Bulk::new(Variant::Segue, Direction::Up), 1, 1.0, Ok(figures))
    }

    #[test]
    fn a_part_says_how_late_its_questions_are() {
        let text = markdown(&Context::of_test(), &[measurement()]);
        for line in [
            "| segue | up | before, 512 KB/s | 10 | 0.00 | 1 of 1 | 60 | -10 | 0.93 |",
            "| segue | up | descent | 20 | 0.10 | 1 of 2 | 110 | 40 | 0.93 |",
            "| segue | up | after, 128 KB/s | 10 | 0.10 | 0 of 1 | 75 | 5 | 0.93 |",
            "| 3 | 320 | 10 | 50 | 110 | 70 | 2 | 0.90 |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(charts(&[measurement()]).len(), 3);
    }
}
