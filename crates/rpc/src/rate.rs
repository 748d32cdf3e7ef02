//! The delivery of a connection while it was busy, in one direction.
//!
//! An idle link does not show its capacity. So the rate is taken over runs of samples in each of
//! which bytes moved, once a run is long enough. It stays until the next such run. The rate is the
//! delivery, and less than the capacity of the link if the sender had too little to send.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Shorter runs tell more about windows that open than about the link.
const RUN_MIN: Duration = Duration::from_secs(1);
/// Samples that count: a few seconds, so that the rate follows the link.
const SAMPLES_MAX: usize = 12;
/// A rate that still counts as idle: signs of life, acknowledgements, a lookup now and then.
const IDLE_RATE: u64 = 4_000;

/// Measures from a count of bytes that is sampled now and then.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: Option<(u64, Instant)>,
    /// The present run.
    run: VecDeque<(u64, Duration)>,
    rate: u64,
}

impl Meter {
    /// Takes the count at `now`.
    pub(crate) fn handle(&mut self, total: u64, now: Instant) {
        let Some((before, at)) = self.last.replace((total, now)) else { return };
        let sample = (total.saturating_sub(before), now.saturating_duration_since(at));
        if per_second([sample].iter()) <= IDLE_RATE {
            self.run.clear();
            return;
        }
        if self.run.len() == SAMPLES_MAX {
            self.run.pop_front();
        }
        self.run.push_back(sample);
        if self.run.iter().map(|(_, time)| *time).sum::<Duration>() >= RUN_MIN {
            self.rate = per_second(self.run.iter());
        }
    }

    /// Bytes a second; 0 until there was a run.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }
}

fn per_second<'a>(samples: impl Iterator<Item = &'a (u64, Duration)>) -> u64 {
    let (bytes, time) = samples
        .fold((0, Duration::ZERO), |(bytes, time), sample| (bytes + sample.0, time + sample.1));
    u64::try_from(u128::from(bytes) * 1_000_000 / time.as_micros().max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate after each quarter of a second in which so many bytes moved.
    fn rates<const N: usize>(moved: [u64; N]) -> [u64; N] {
        let (mut now, mut total) = (Instant::now(), 0);
        let mut meter = Meter::default();
        meter.handle(total, now);
        moved.map(|bytes| {
            total += bytes;
            now += Duration::from_millis(250);
            meter.handle(total, now);
            meter.rate()
        })
    }

    #[test]
    fn rate_needs_a_second_of_traffic_and_stays() {
        let expected = [0, 0, 0, 200_000, 200_000, 200_000];
        assert_eq!(rates([50_000, 50_000, 50_000, 50_000, 0, 100]), expected);
    }

    #[test]
    fn short_bursts_say_nothing() {
        assert_eq!(rates([900_000, 0, 900_000, 900_000, 100, 900_000]), [0; 6]);
    }

    #[test]
    fn rate_follows_the_link() {
        let mut moved = [100_000; 4 + SAMPLES_MAX];
        moved[4..].fill(25_000);
        let rates = rates(moved);
        assert_eq!((rates[3], rates[3 + SAMPLES_MAX]), (400_000, 100_000));
    }
}
