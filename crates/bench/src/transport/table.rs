//! One measurement as a line, and the table and plot of all.

use std::fmt;

use serde::Serialize;

use super::System;
use super::figures::Figures;
use super::setting::Setting;
use crate::measurement::{self, failures, figures_of, kinds, runs_and_scale};
use crate::plot::dots::{Panel, Row};
use crate::record::Context;
use crate::spread::{Spread, caption};

/// Share of the link's rate that the bulk is to get, and that it should.
const GOODPUT: f64 = 0.90;
const GOODPUT_WISHED: f64 = 0.93;

/// One system on one link.
pub(super) type Measurement = measurement::Measurement<Asked, Figures>;

/// Who was asked, over which link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Asked {
    system: &'static str,
    #[serde(flatten)]
    setting: Setting,
    /// The queue as it was: some packets at least.
    queue_bytes: u64,
    target_ms: f64,
}

impl Asked {
    pub(super) fn new(system: System, setting: Setting) -> Asked {
        let (queue_bytes, target_ms) = (setting.queue_bytes(), setting.target_ms());
        Asked { system: system.name(), setting, queue_bytes, target_ms }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { rate_kb_per_s, rtt_ms, queue_seconds, direction } = self.setting;
        write!(f, "{} {rate_kb_per_s} KB/s, {rtt_ms} ms, ", self.system)?;
        write!(f, "queue {queue_seconds} s, {direction}")
    }
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [self.p50_ms, self.p99_ms, self.max_ms].map(ms);
        let bulk = self.goodput().map_or("-".into(), share);
        write!(f, "{p50} / {p99} / {max} ms, bulk {bulk}")
    }
}

/// Each figure's median for itself, of the repeats that succeeded.
fn median(measured: &[Measurement], asked: Asked) -> Option<Figures> {
    Figures::median(&figures_of(measured, asked).copied().collect::<Vec<_>>())
}

/// A trip in each repeat that succeeded, in milliseconds.
fn trips(measured: &[Measurement], asked: Asked, trip: fn(&Figures) -> f64) -> Option<Spread> {
    Spread::over(figures_of(measured, asked).map(trip))
}

/// The table.
pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}{} At {scale} of the standard time. {ABOUT}\n\n{HEADING}",
        context.heading(),
        caption(runs)
    );
    for asked in kinds(measured) {
        text.push_str(&line(measured, asked));
    }
    text.push_str(&failures(measured));
    text
}

const ABOUT: &str = "\
    Milliseconds of a round trip while bulk saturates the link. segue: a LOOKUP (class VALIDATE) \
    of 100 bytes with its answer, one in flight, every 50 ms or more, two packets' time at least; \
    the bulk is PUTs (STORE-DATA), FETCHes (FETCH), or both, over the same connection: one message \
    after the other, each a quarter of a second of the link but at least 64 KB, four under way. \
    cubic-uniform and bbr-uniform: the same messages, without classes, under Cubic or BBR of the \
    QUIC library. sshfs and rclone: the names and attributes of ten files, once a second, in a \
    directory that was never listed before, while a file is copied in; ≥: the copy was over \
    before the last answer. \
    Idle: the median without bulk. Target for p99: the link's round trip, two packets of 1,472 \
    bytes, 20 ms; late: the share that took longer. Up and down: the bulk's own bytes as they \
    arrive, as a share of the link's rate, of which 0.90 is the target and 0.93 wished; in \
    brackets all that the client sends or receives, with headers. Queue: seconds of the link's \
    rate, but 6,000 bytes at least. 1 KB = 1024 bytes.";

const HEADING: &str = "\
    | system | KB/s | rtt | queue | bulk | calls | idle | p50 | p99 | max | target | p99 met \
    | late | up | down | bulk met |\n\
    |---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|---|\n";

fn line(measured: &[Measurement], asked: Asked) -> String {
    let Asked { system, setting, target_ms: target, .. } = asked;
    let Setting { rate_kb_per_s, rtt_ms, queue_seconds, direction } = setting;
    let start =
        format!("| {system} | {rate_kb_per_s} | {rtt_ms} | {queue_seconds} | {direction} |");
    let Some(figures) = median(measured, asked) else {
        return format!("{start} failed |{}\n", " |".repeat(10));
    };
    let Figures { calls, idle_ms, p99_ms, late, bulk_ended, .. } = figures;
    let beside_bulk = |trip: fn(&Figures) -> f64| {
        let spread = trips(measured, asked, trip);
        let digits = |spread: &Spread| usize::from(spread.median() < 100.0);
        let trip = spread.map_or(String::new(), |spread| spread.cell(digits(&spread)));
        format!("{}{trip}", if bulk_ended { "≥ " } else { "" })
    };
    // What a file system does takes several round trips: the target is not meant for it.
    let is_call = figures.goodput().is_some();
    let of_calls = |text: String| if is_call { text } else { "-".into() };
    format!(
        "{start} {calls} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        ms(idle_ms),
        beside_bulk(|one| one.p50_ms),
        beside_bulk(|one| one.p99_ms),
        beside_bulk(|one| one.max_ms),
        of_calls(ms(target)),
        of_calls(if p99_ms <= target { "yes" } else { "no" }.into()),
        of_calls(share(late)),
        carried(figures.up_share, figures.sent_share),
        carried(figures.down_share, figures.received_share),
        figures.goodput().map_or("-", verdict),
    )
}

fn verdict(goodput: f64) -> &'static str {
    if goodput >= GOODPUT_WISHED {
        "as wished"
    } else if goodput >= GOODPUT {
        "yes"
    } else {
        "no"
    }
}

fn carried(bulk: Option<f64>, all: f64) -> String {
    format!("{} ({})", bulk.map_or("-".into(), share), share(all))
}

fn share(share: f64) -> String {
    format!("{share:.2}")
}

fn ms(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// A panel for each kind of link and bulk: the 99th of 100 trips beside its target, and the 50th.
pub(super) fn panels(measured: &[Measurement]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for asked in kinds(measured) {
        let Asked { system, setting, .. } = asked;
        let Setting { rate_kb_per_s, rtt_ms, queue_seconds, direction } = setting;
        let title = format!("bulk {direction}, round trip {rtt_ms} ms, queue {queue_seconds} s");
        let is_call = median(measured, asked).is_some_and(|figures| figures.goodput().is_some());
        let row = Row {
            value: trips(measured, asked, |figures| figures.p99_ms),
            later: trips(measured, asked, |figures| figures.p50_ms).map(|trips| trips.median()),
            target: is_call.then_some(asked.target_ms),
            ..Row::named(format!("{system} {rate_kb_per_s} KB/s"))
        };
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.rows.push(row),
            None => {
                let panel = Panel::new(title, "milliseconds, 99 of 100 take at most", vec![row]);
                panels.push(Panel { later: "50 of 100", ..panel });
            }
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::super::direction::Direction;
    use super::super::drive::Driven;
    use super::super::variant::Variant;
    use super::super::wrong;
    use super::*;

    fn measurement(repeat: u32, trip_us: u64, up: f64) -> Measurement {
        let setting = Setting::new(64.0, 40, 0.4, Direction::Up).unwrap();
        let rate = setting.rate() as f64;
        let driven = Driven {
            idle_us: vec![42_000],
            calls_us: vec![50_000, trip_us],
            up: up * rate,
            down: 0.0,
            sent: rate,
            received: 0.04 * rate,
        };
        let figures = Figures::of_calls(&driven, &setting);
        let asked = Asked::new(System::Transport(Variant::Segue), setting);
        Measurement::new(asked, repeat, 1.0, figures)
    }

    #[test]
    fn a_row_has_medians_and_says_which_targets_are_met() {
        let measured = [
            measurement(1, 90_000, 0.95),
            measurement(2, 120_000, 0.92),
            measurement(3, 130_000, 0.91),
        ];
        let table = markdown(&Context::of_test(), &measured);
        let row = "| segue | 64 | 40 | 0.4 | up | 2 | 42.0 | 50.0 (50.0-50.0) | 120 (90-130) \
                   | 120 (90-130) | 105 | no";
        let expected = format!("{row} | 0.50 | 0.92 (1.00) | - (0.04) | yes |");
        assert!(table.contains(&expected), "{table}");
    }

    #[test]
    fn what_failed_has_its_reason() {
        let setting = Setting::new(64.0, 40, 0.4, Direction::Up).unwrap();
        let asked = Asked::new(System::Transport(Variant::Segue), setting);
        let failed = Measurement::new(asked, 1, 1.0, Err(wrong("gone")));
        let table = markdown(&Context::of_test(), &[failed]);
        let failure = "\n* segue 64 KB/s, 40 ms, queue 0.4 s, up #1 failed: wrong answer: gone\n";
        assert!(table.contains(failure), "{table}");
        let columns = |line: &str| line.matches('|').count();
        let row = table.lines().find(|line| line.starts_with("| segue")).unwrap();
        assert_eq!(columns(row), columns(HEADING.lines().next().unwrap()), "{row}");
    }
}
