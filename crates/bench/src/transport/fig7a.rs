//! The experiment `mfs-fig7a`: what a small question takes while the link becomes slower
//! [MFS figure 7(a)].
//!
//! Bulk goes in one direction as in `atp-latency`, and the same question is asked beside it. Each
//! is held against what the link allows in the second in which it is asked.

mod report;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use segue_rpc::{Body, CallError, Peer};
use serde::Serialize;
use tokio::task::JoinSet;

use self::report::Bulk;
use super::dial::PATIENCE;
use super::direction::Direction;
use super::drive::{MESSAGES, download, question, upload};
use super::pair::{self, Door};
use super::ride::ride;
use super::setting::{MARGIN, PACKET_BYTES, PACKETS};
use super::trace::{Moment, Trace, utilization};
use super::variant::Variant;
use super::wrong;
use crate::measurement::{Effort, Run};
use crate::plot::lines::Chart;
use crate::record::Context;
use crate::spread::median;
use segue_bed::{Bed, Host, Result, Rng};

const TRACE: &str = include_str!("../../traces/mfs-fig7a.txt");
/// What may wait before the link: what it carries in half a second when it is fast.
const QUEUE_BYTES: u64 = 256 << 10;
/// A quarter of a second of the link at its slowest, but no fragment.
const MESSAGE_BYTES: u64 = 64 << 10;
/// Between two questions.
const PACE: Duration = Duration::from_millis(50);
/// The first seconds: the start is not what is looked at.
const START_SECONDS: usize = 2;

/// A question that was answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trip {
    /// After the ride's start.
    pub(super) asked: Duration,
    pub(super) took: Duration,
}

/// The questions of one second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Second {
    rate_kb: f64,
    target_ms: f64,
    /// The link's rate changed when it began.
    is_step: bool,
    calls: usize,
    late: usize,
    p50_ms: Option<f64>,
    max_ms: Option<f64>,
    /// Share of the link that was used in the bulk's direction.
    used: Option<f64>,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    utilization: f64,
    seconds: Vec<Second>,
}

/// Measures and writes the results; the table.
pub(super) fn run(effort: &Effort, out: &Path, context: Context) -> Result<String> {
    let trace = Trace::parse(TRACE)?.scaled(effort.scale);
    let mut run = Run::create(out, "mfs-fig7a", context, effort.scale)?;
    for repeat in 1..=effort.repeats {
        for variant in [Variant::Segue, Variant::CubicUniform] {
            for direction in [Direction::Up, Direction::Down] {
                let figures = measure(variant, direction, &trace, effort.limit);
                run.add(Bulk::new(variant, direction), repeat, figures)?;
            }
        }
    }
    let Run { results, measured, .. } = run;
    let text = report::markdown(results.context(), &measured);
    results.finish(&text, &Chart::parts(report::charts(&measured)))?;
    Ok(text)
}

fn measure(
    variant: Variant,
    direction: Direction,
    trace: &Trace,
    limit: Duration,
) -> Result<Figures> {
    let link = trace.first()?.link(QUEUE_BYTES);
    let trace = trace.clone();
    pair::visit(&Bed::new()?, variant, link, limit, async move |door, host| {
        ask_along(door, host, direction, trace).await
    })
}

async fn ask_along(door: &Door, host: Host, direction: Direction, trace: Trace) -> Result<Figures> {
    let peer =
        segue_rpc::dial(&door.target, Some(&door.identity), PATIENCE).await.map_err(wrong)?;
    let mut bulk = JoinSet::new();
    let counted = Arc::new(AtomicU64::new(0));
    for _ in 0..MESSAGES {
        match direction {
            Direction::Down => bulk.spawn(download(peer.clone(), MESSAGE_BYTES, counted.clone())),
            _ => bulk.spawn(upload(peer.clone(), MESSAGE_BYTES)),
        };
    }
    let start = Instant::now();
    let riding = trace.clone();
    let riding =
        tokio::task::spawn_blocking(move || ride(&host, &riding, QUEUE_BYTES, start, || ()));
    let trips = ask(&peer, start, trace.time()).await.map_err(wrong)?;
    let seconds = riding.await.map_err(wrong)??;
    if let Some(ended) = bulk.try_join_next() {
        return Err(wrong(format!("the bulk has ended: {ended:?}")));
    }
    let way = usize::from(direction == Direction::Down);
    let carried: Vec<u64> = seconds.iter().map(|second| second.carried[way]).collect();
    let (used, all) = utilization(&carried, &trace.capacity());
    Ok(Figures { utilization: all, seconds: by_second(&trace, &trips, &used) })
}

/// Asks until `time` after `start`.
async fn ask(
    peer: &Peer,
    start: Instant,
    time: Duration,
) -> std::result::Result<Vec<Trip>, CallError> {
    let question = question().map_err(|error| CallError::Protocol(error.to_string()))?;
    // At random, or the questions might come each time at the same place of a packet.
    let mut rng = Rng::new(1);
    let mut trips = Vec::new();
    while start.elapsed() < time {
        let asked = start.elapsed();
        peer.call(&question, Body::Empty).await?;
        trips.push(Trip { asked, took: start.elapsed() - asked });
        let next = start + asked + PACE.mul_f64(1.0 + rng.unit() / 2.0);
        tokio::time::sleep_until(next.into()).await;
    }
    Ok(trips)
}

/// What a question may take: the round trip, two packets' time, and 20 ms.
fn target(moment: &Moment) -> Duration {
    let packets = f64::from(PACKETS * PACKET_BYTES) / moment.bytes().max(1) as f64;
    Duration::from_millis(moment.rtt_ms) + Duration::from_secs_f64(packets) + MARGIN
}

/// Each second's questions against what its link allows; a question belongs to the second in which
/// it is asked.
fn by_second(trace: &Trace, trips: &[Trip], used: &[Option<f64>]) -> Vec<Second> {
    let mut before = None;
    let second = |(number, moment): (usize, &Moment)| {
        let of = |trip: &&Trip| trip.asked.as_secs() == number as u64;
        let mut took: Vec<Duration> = trips.iter().filter(of).map(|trip| trip.took).collect();
        took.sort_unstable();
        let target = target(moment);
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let rate_kb = moment.rate_kb_per_s;
        Second {
            rate_kb,
            target_ms: ms(&target),
            is_step: before.replace(rate_kb).is_some_and(|before| before != rate_kb),
            calls: took.len(),
            late: took.iter().filter(|took| **took > target).count(),
            p50_ms: median(took.iter().map(ms)),
            max_ms: took.last().map(ms),
            used: used.get(number).copied().flatten(),
        }
    };
    trace.moments.iter().enumerate().map(second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_held_against_the_link_of_its_second() {
        let trace = Trace::parse("0 512 40\n1 128 40\n3 end\n").unwrap();
        let trip = |asked, took| Trip {
            asked: Duration::from_millis(asked),
            took: Duration::from_millis(took),
        };
        let trips = [trip(100, 50), trip(900, 70), trip(1100, 70), trip(1500, 90)];
        let seconds = by_second(&trace, &trips, &[Some(0.5), None, Some(1.0)]);
        let short = |second: &Second| (second.is_step, second.calls, second.late);
        assert_eq!(
            seconds.iter().map(short).collect::<Vec<_>>(),
            [(false, 2, 1), (true, 2, 1), (false, 0, 0)]
        );
        // Two packets take 5.6 ms, and 22.5 ms.
        assert_eq!(seconds[0].target_ms.round(), 66.0);
        assert_eq!(seconds[1].target_ms.round(), 82.0);
        assert_eq!((seconds[1].max_ms, seconds[2].max_ms), (Some(90.0), None));
    }
}
