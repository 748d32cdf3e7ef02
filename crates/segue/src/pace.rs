//! The rate at which pending changes reach the server, and an estimate of the time left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use segue_client::quantity;

use crate::output::Share;

/// The rate is an average over this time: long enough for one or two batches on a slow link.
const WINDOW: Duration = Duration::from_secs(15);
/// A rate over a shorter time means nothing.
const SHORTEST: Duration = Duration::from_millis(900);

/// The text if nothing was sent in the window.
pub(crate) const NOTHING: &str = "nothing sent recently";

/// Samples of the amount sent, each with its time.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Pending records and bytes at the last sample.
    waiting: Option<(u64, u64)>,
    /// Records and bytes sent since the first sample.
    gone: (u64, u64),
    seen: VecDeque<(Instant, (u64, u64))>,
}

impl Pace {
    /// Takes a sample: `records` with `bytes` are pending `now`. Returns the rate and the time left
    /// as text; empty while neither is known.
    pub(crate) fn words(&mut self, now: Instant, records: u64, bytes: u64) -> String {
        if let Some((before_records, before_bytes)) = self.waiting.replace((records, bytes)) {
            // New changes between two samples hide some of the sent ones; later samples correct it.
            self.gone.0 += before_records.saturating_sub(records);
            self.gone.1 += before_bytes.saturating_sub(bytes);
        }
        self.seen.push_back((now, self.gone));
        while self.seen.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.seen.pop_front();
        }
        let Some((first, gone)) = self.seen.front().copied() else { return String::new() };
        let passed = now.duration_since(first);
        if passed < SHORTEST {
            return String::new();
        }
        let of_records = left(records, self.gone.0 - gone.0, passed);
        let of_bytes = left(bytes, self.gone.1 - gone.1, passed);
        let rate = match per_second(self.gone.1 - gone.1, passed) {
            0 => format!("{} changes/s", per_second(self.gone.0 - gone.0, passed)),
            rate => format!("{}/s", quantity::bytes(rate)),
        };
        match (of_records, of_bytes) {
            (Some(records), Some(bytes)) => {
                format!("{rate}, about {} left", quantity::age(records.max(bytes)))
            }
            (Some(time), None) | (None, Some(time)) => {
                format!("{rate}, about {} left", quantity::age(time))
            }
            (None, None) => NOTHING.to_owned(),
        }
    }
}

impl Pace {
    /// How much of the pending changes has gone: of their data, if they have data.
    pub(crate) fn share(&self) -> Share {
        let (records, bytes) = self.waiting.unwrap_or_default();
        let of = |done: u64, left: u64| Share { done, whole: done.saturating_add(left) };
        match of(self.gone.1, bytes) {
            Share { whole: 0, .. } => of(self.gone.0, records),
            share => share,
        }
    }
}

fn per_second(amount: u64, passed: Duration) -> u64 {
    let nanos = u128::from(amount) * 1_000_000_000 / passed.as_nanos().max(1);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// The time for `amount` at the rate of `went` in `passed`.
fn left(amount: u64, went: u64, passed: Duration) -> Option<Duration> {
    if went == 0 {
        return None;
    }
    let millis = passed.as_millis() * u128::from(amount) / u128::from(went);
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn it_says_how_fast_it_goes_and_how_long_it_takes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert_eq!(pace.words(start, 100, 100 * MB), "");
        assert_eq!(
            pace.words(at(10), 90, 80 * MB),
            "2.0 MiB/s, about 1 min left",
            "by the records"
        );
        // New changes make the wait longer and leave the rate as it is.
        assert_eq!(pace.words(at(10), 90, 180 * MB), "2.0 MiB/s, about 1 min left");
        assert_eq!(pace.words(at(20), 10, 20 * MB), "9.0 MiB/s, about 2 s left");
        // The rate covers the window only.
        assert_eq!(pace.words(at(40), 10, 20 * MB), "nothing sent recently");
    }

    #[test]
    fn changes_without_data_are_counted() {
        let start = Instant::now();
        let mut pace = Pace::default();
        pace.words(start, 1000, 0);
        let words = pace.words(start + Duration::from_secs(2), 400, 0);
        assert_eq!(words, "300 changes/s, about 1 s left");
    }
}
