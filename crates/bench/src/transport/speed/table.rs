//! One measurement as a line, and the table and plot of all.

use std::fmt;

use serde::Serialize;

use super::System;
use super::drive::Spent;
use super::load::Load;
use crate::measurement::{self, failures, figures_of, runs_and_scale};
use crate::plot::dots::{Panel, Row};
use crate::record::Context;
use crate::spread::{Spread, caption, times};

/// Calls a second that are asked for.
const ONE_MIN: f64 = 12_000.0;
const MANY_MIN: f64 = 60_000.0;
/// How much faster than sshfs bulk is to be.
const TIMES_SSHFS: f64 = 2.0;

/// One system under one load.
pub(super) type Measurement = measurement::Measurement<Loaded, Figures>;

/// Who carried what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Loaded {
    system: &'static str,
    load: Load,
}

impl Loaded {
    pub(super) fn new(system: System, load: Load) -> Loaded {
        Loaded { system: system.name(), load }
    }
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.system, self.load.words())
    }
}

/// What one measurement comes to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Calls a second, or MB a second.
    rate: f64,
    /// Processor time at the client: microseconds a call, or seconds a GB.
    client: f64,
    /// The same at the server.
    server: f64,
}

impl Figures {
    pub(super) fn of(spent: Spent, load: Load) -> Figures {
        let Spent { count, seconds, client, server } = spent;
        let count = count.max(1) as f64;
        // Bytes a megabyte; and bytes a gigabyte, or microseconds a second.
        let (unit, cost) = if load.is_bulk() { (1e6, 1e9) } else { (1.0, 1e6) };
        let each = |time: f64| time * cost / count;
        Figures { rate: count / unit / seconds, client: each(client), server: each(server) }
    }
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { rate, client, server } = self;
        write!(f, "{rate:.0}/s, processors {client:.2} and {server:.2}")
    }
}

/// A figure of one system under one load, in each repeat that succeeded.
fn spread(
    measured: &[Measurement],
    system: System,
    load: Load,
    figure: fn(&Figures) -> f64,
) -> Option<Spread> {
    Spread::over(figures_of(measured, Loaded::new(system, load)).map(figure))
}

fn rate(measured: &[Measurement], system: System, load: Load) -> Option<Spread> {
    spread(measured, system, load, |figures| figures.rate)
}

/// The table.
pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}{} At {scale} of the standard time and length. {ABOUT}\n\n{HEADING}",
        context.heading(),
        caption(runs)
    );
    for load in Load::ALL {
        for system in System::ALL {
            if let Some(rate) = rate(measured, system, load) {
                text.push_str(&line(measured, system, load, &rate));
            }
        }
    }
    text.push_str(&failures(measured));
    text
}

const ABOUT: &str = "\
    The transport between two processes on two hosts, without disk and mount, over links that \
    nothing slows. Calls: a question and its answer, 100 bytes together, a second, and \
    microseconds of a processor for each. Bulk: one body of 1 GB until the last answer, MB (10^6 \
    bytes) a second, and seconds of a processor for a GB. quinn: the QUIC library alone, as it \
    comes. sshfs: a file on a server that keeps it in memory. Processors: by process, without \
    what the kernel does for packets outside of any.";

const HEADING: &str = "\
    | load | system | rate | client | server | of quinn | of sshfs | target | met |\n\
    |---|---|--:|--:|--:|--:|--:|--:|---|\n";

fn line(measured: &[Measurement], system: System, load: Load, own: &Spread) -> String {
    let beside = |other: System| {
        let other = rate(measured, other, load).filter(|_| system == System::Segue);
        times(Some(own), other.as_ref())
    };
    let cost = |figure| {
        spread(measured, system, load, figure).map_or(String::new(), |spread| spread.cell(2))
    };
    let of_sshfs = beside(System::Sshfs);
    let (target, is_met) = match load {
        _ if system != System::Segue => (String::new(), None),
        Load::One => (format!("{ONE_MIN:.0}"), Some(own.median() >= ONE_MIN)),
        Load::Many => (format!("{MANY_MIN:.0}"), Some(own.median() >= MANY_MIN)),
        Load::Up | Load::Down => {
            (format!("{TIMES_SSHFS} of sshfs"), of_sshfs.map(|times| times >= TIMES_SSHFS))
        }
    };
    let times = |times: Option<f64>| times.map_or(String::new(), |times| format!("{times:.2}"));
    let is_met = is_met.map_or("", |is_met| if is_met { "yes" } else { "no" });
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {target} | {is_met} |\n",
        load.words(),
        system.name(),
        own.cell(0),
        cost(|figures| figures.client),
        cost(|figures| figures.server),
        times(beside(System::Quinn)),
        times(of_sshfs),
    )
}

/// A panel for each load.
pub(super) fn panels(measured: &[Measurement]) -> Vec<Panel> {
    let panel = |load: Load| {
        let target = || match load {
            Load::One => Some(ONE_MIN),
            Load::Many => Some(MANY_MIN),
            Load::Up | Load::Down => {
                Some(TIMES_SSHFS * rate(measured, System::Sshfs, load)?.median())
            }
        };
        let row = |system: System| {
            let value = Some(rate(measured, system, load)?);
            let target = target().filter(|_| system == System::Segue);
            Some(Row { value, target, ..Row::named(system.name()) })
        };
        let axis = if load.is_bulk() { "MB a second" } else { "calls a second" };
        Panel::new(load.words(), axis, System::ALL.into_iter().filter_map(row).collect())
    };
    Load::ALL.into_iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::wrong;

    fn measurement(system: System, load: Load, repeat: u32, count: u64) -> Measurement {
        let spent = Spent { count, seconds: 2.0, client: 1.0, server: 0.5 };
        let figures = Ok(Figures::of(spent, load));
        Measurement::new(Loaded::new(system, load), repeat, 1.0, figures)
    }

    #[test]
    fn a_row_has_medians_and_says_which_targets_are_met() {
        let measured = [
            measurement(System::Segue, Load::One, 1, 20_000),
            measurement(System::Segue, Load::One, 2, 40_000),
            measurement(System::Segue, Load::One, 3, 90_000),
            measurement(System::Quinn, Load::One, 1, 50_000),
            measurement(System::Segue, Load::Up, 1, 1_000_000_000),
            measurement(System::Sshfs, Load::Up, 1, 600_000_000),
        ];
        let table = markdown(&Context::of_test(), &measured);
        let one = "| calls, 1 in flight | segue | 20,000 (10,000-45,000) | 25.00 (11.11-50.00) \
                   | 12.50 (5.56-25.00) | 0.80 |  | 12000 | yes |";
        let up = "| up | segue | 500 | 1.00 | 0.50 |  | 1.67 | 2 of sshfs | no |";
        assert!(table.contains(one) && table.contains(up), "{table}");
    }

    #[test]
    fn what_failed_has_its_reason() {
        let down = Loaded::new(System::Quinn, Load::Down);
        let failed = Measurement::new(down, 1, 1.0, Err(wrong("it has gone away")));
        let table = markdown(&Context::of_test(), &[failed]);
        assert!(table.contains("\n* quinn down #1 failed: wrong answer: it has gone"), "{table}");
    }
}
