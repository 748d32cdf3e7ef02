//! What calls took, beside outages and through them.

use std::time::Duration;

use serde::Serialize;

use crate::transport::figures::quantile;
use crate::transport::trace::Trace;

/// After an outage what waited goes first: until then calls are still of the outage.
const AFTER: Duration = Duration::from_secs(3);

/// A call that was answered, by the ride's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trip {
    pub(super) began: Duration,
    pub(super) ended: Duration,
}

/// What calls of one kind took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) kind: &'static str,
    /// Beside outages.
    pub(super) calls: usize,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    /// Under way in an outage, or begun just after it.
    pub(super) outage_calls: usize,
    pub(super) outage_max_ms: Option<f64>,
}

/// From when to when nothing gets through.
pub(super) fn outages(trace: &Trace) -> Vec<(Duration, Duration)> {
    let mut outages: Vec<(Duration, Duration)> = Vec::new();
    for (second, moment) in (0..).zip(&trace.moments) {
        let (from, to) = (Duration::from_secs(second), Duration::from_secs(second + 1));
        match outages.last_mut() {
            _ if !moment.is_outage() => {}
            Some((_, end)) if *end == from => *end = to,
            _ => outages.push((from, to)),
        }
    }
    outages
}

/// After each outage, until the first answer.
pub(super) fn returns_ms(outages: &[(Duration, Duration)], answers: &[Duration]) -> Vec<f64> {
    let first = |(_, end): &(Duration, Duration)| {
        let after = answers.iter().filter(|answer| *answer >= end).min()?;
        Some((*after - *end).as_secs_f64() * 1e3)
    };
    outages.iter().filter_map(first).collect()
}

/// Trips of one kind.
pub(super) fn latency(
    kind: &'static str,
    trips: &[Trip],
    outages: &[(Duration, Duration)],
) -> Latency {
    let of_outage = |trip: &&Trip| {
        outages.iter().any(|(from, to)| trip.ended >= *from && trip.began < *to + AFTER)
    };
    let (beyond, beside): (Vec<&Trip>, Vec<&Trip>) = trips.iter().partition(of_outage);
    let micros = |trips: &[&Trip]| -> Vec<u64> {
        let time = |trip: &&Trip| (trip.ended - trip.began).as_micros();
        trips.iter().map(|trip| u64::try_from(time(trip)).unwrap_or(u64::MAX)).collect()
    };
    let (beyond, beside) = (micros(&beyond), micros(&beside));
    Latency {
        kind,
        calls: beside.len(),
        p50_ms: quantile(&beside, 0.5),
        p99_ms: quantile(&beside, 0.99),
        max_ms: quantile(&beside, 1.0),
        outage_calls: beyond.len(),
        outage_max_ms: quantile(&beyond, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn calls_through_an_outage_are_counted_apart() {
        let trace = Trace::parse("0 9 9\n5 0 9\n7 9 9\n20 0 9\n21 end\n").unwrap();
        let outages = outages(&trace);
        assert_eq!(outages, [(5 * SECOND, 7 * SECOND), (20 * SECOND, 21 * SECOND)]);
        let trip = |began: u32, ms: u64| {
            let began = began * SECOND;
            Trip { began, ended: began + Duration::from_millis(ms) }
        };
        let trips = [trip(1, 100), trip(4, 3500), trip(8, 700), trip(12, 300)];
        let latency = latency("k", &trips, &outages);
        assert_eq!((latency.calls, latency.max_ms), (2, Some(300.0)));
        assert_eq!((latency.outage_calls, latency.outage_max_ms), (2, Some(3500.0)));
        let answers: Vec<Duration> = trips.iter().map(|trip| trip.ended).collect();
        assert_eq!(returns_ms(&outages, &answers), [500.0]);
    }
}
