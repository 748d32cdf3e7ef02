//! One ride as a line, the table of all, and the curves.

use std::fmt;

use serde::Serialize;

use super::Figures;
use super::trips::Latency;
use crate::measurement::{self, failures, figures_of, runs_and_scale};
use crate::plot::lines::{Chart, Curve, Look};
use crate::record::Context;
use crate::spread::{Spread, caption, median};

/// One ride.
pub(super) type Measurement = measurement::Measurement<Ride, Figures>;

/// All rides are alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ride {}

impl fmt::Display for Ride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("train")
    }
}

/// Acknowledged messages that the server has not.
fn lost(figures: &Figures) -> u64 {
    figures.acknowledged.saturating_sub(figures.arrived)
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { acknowledged, fetched, damaged, failed, connections, .. } = self;
        let [up, down] = self.utilization;
        write!(
            f,
            "{acknowledged} written, {} lost, {fetched} fetched, {damaged} damaged, \
             {failed} failed, {connections} connections, used {up:.2} up and {down:.2} down",
            lost(self)
        )
    }
}

const ABOUT: &str = "\
    The link follows `crates/bench/traces/train.txt`: 64 to 1,280 KB/s, 20 to 300 ms round trip, \
    3 of 100 packets lost, three tunnels in which nothing gets through; 128 KB of queue. Four PUTs \
    and four FETCHes of 32 KB under way without end, a FETCH of 16 KB each second, a LOOKUP of 100 \
    bytes each 100 ms, over one healing connection. Each message is noise of its own, named by \
    its checksum. Lost: acknowledged, but not at the server. Arrived again: was there already, \
    because its acknowledgement was lost with a connection. Cut: fetches that a lost connection \
    interrupted, begun anew. Used: bytes that the link carried, with all headers and those lost by \
    chance, of those that it could carry outside of tunnels. Back: from a tunnel's end to the \
    first answer, for each tunnel.";

const HEADING: &str = "\
    | ride | written | lost | arrived again | fetched | cut | damaged | failed calls | connections \
    | used up | used down | back after, ms |\n\
    |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";

const LATENCY_ABOUT: &str = "\
    A run is a ride. Milliseconds that calls took. Through a tunnel: under way in one, or begun \
    within three seconds after it.";

const LATENCY_HEADING: &str = "\
    | call, class | calls | p50 | p99 | max | through a tunnel: calls | max |\n\
    |---|--:|--:|--:|--:|--:|--:|\n";

/// The table.
pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!("{}Over {scale} of the trace. {ABOUT}\n\n{HEADING}", context.heading());
    for one in measured {
        match &one.figures {
            Some(figures) => text.push_str(&line(one.repeat, figures)),
            None => text.push_str(&format!("| {} | failed |{}\n", one.repeat, " |".repeat(10))),
        }
    }
    let about = format!("{} {LATENCY_ABOUT}", caption(runs));
    text.push_str(&format!("\n## By class\n\n{about}\n\n{LATENCY_HEADING}"));
    let rides: Vec<&Figures> = figures_of(measured, Ride {}).collect();
    let kinds = rides.first().map_or(0, |figures| figures.latencies.len());
    for kind in 0..kinds {
        let of = rides.iter().filter_map(|figures| figures.latencies.get(kind));
        text.push_str(&latency_line(&of.collect::<Vec<_>>()));
    }
    text.push_str(&failures(measured));
    text
}

fn line(ride: u32, figures: &Figures) -> String {
    let Figures { acknowledged, arrived_again, fetched, cut, damaged, failed, connections, .. } =
        figures;
    let [up, down] = figures.utilization;
    let back: Vec<String> = figures.returns_ms.iter().map(|ms| format!("{ms:.0}")).collect();
    format!(
        "| {ride} | {acknowledged} | {} | {arrived_again} | {fetched} | {cut} | {damaged} \
         | {failed} | {connections} | {up:.2} | {down:.2} | {} |\n",
        lost(figures),
        back.join(", ")
    )
}

fn latency_line(of: &[&Latency]) -> String {
    let each = |figure: fn(&Latency) -> Option<f64>| {
        let spread = Spread::over(of.iter().filter_map(|one| figure(one)));
        spread.map_or("-".to_owned(), |spread| spread.cell(0))
    };
    let count =
        |figure: fn(&Latency) -> usize| median(of.iter().map(|one| figure(one))).unwrap_or(0);
    format!(
        "| {} | {} | {} | {} | {} | {} | {} |\n",
        of.first().map_or("", |one| one.kind),
        count(|one| one.calls),
        each(|one| one.p50_ms),
        each(|one| one.p99_ms),
        each(|one| one.max_ms),
        count(|one| one.outage_calls),
        each(|one| one.outage_max_ms),
    )
}

/// The first ride: the use of the link, each way, and its share.
pub(super) fn charts(measured: &[Measurement]) -> Vec<Chart> {
    let Some(figures) = figures_of(measured, Ride {}).next() else { return Vec::new() };
    let known = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    let charts = |(title, used): (&str, &Vec<f64>)| {
        let curves = vec![
            Curve::steps("true bandwidth", Look::Grey, &known(&figures.rate_kb)),
            Curve::steps("used", Look::Blue, &known(used)),
        ];
        let share = Curve::share("used of the bandwidth", used, &figures.rate_kb);
        [
            Chart::new(title, ["seconds", "KB/s"], curves),
            Chart::beside(format!("{title}, share of the link"), ["seconds", "share"], vec![share]),
        ]
    };
    ["up", "down"].into_iter().zip(&figures.used_kb).flat_map(charts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results;

    #[test]
    fn a_ride_says_what_was_lost() {
        let latency = Latency {
            kind: "question",
            calls: 10,
            p50_ms: Some(60.0),
            p99_ms: None,
            max_ms: Some(90.4),
            outage_calls: 1,
            outage_max_ms: Some(9000.0),
        };
        let figures = Figures {
            acknowledged: 100,
            arrived: 98,
            fetched: 7,
            connections: 2,
            utilization: [0.9, 0.8],
            returns_ms: vec![250.0, 1200.4],
            latencies: vec![latency],
            ..Figures::default()
        };
        let measured = [Measurement::new(Ride {}, 1, 1.0, Ok(figures))];
        let line = results::line(&Context::of_test(), &measured[0]).unwrap();
        assert!(line.contains(r#""repeat":1,"scale":1.0,"acknowledged":100,"#), "{line}");
        let text = markdown(&Context::of_test(), &measured);
        let row = "| 1 | 100 | 2 | 0 | 7 | 0 | 0 | 0 | 2 | 0.90 | 0.80 | 250, 1200 |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| question | 10 | 60 | - | 90 | 1 | 9,000 |"), "{text}");
    }
}
