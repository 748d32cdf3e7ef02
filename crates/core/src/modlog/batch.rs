//! How much one batch carries when nobody waits for it.
//!
//! A large batch shares one round trip and one commit among many records; but whoever begins to
//! wait then waits for what is under way. So a batch is as large as what gets through in
//! [`TARGET`] on this link, whatever that is: it grows while it takes less, and shrinks when it
//! takes much more. The round trip is not counted: no size changes it.

use std::time::Duration;

/// What a batch may take, beside the round trip.
const TARGET: Duration = Duration::from_millis(400);
/// At least this: some dozen small records, a quarter of a second at 64 KB/s.
const BYTES_MIN: u64 = 16 << 10;
/// At most this: it has to fit into a message, and into memory on both sides.
const BYTES_MAX: u64 = 4 << 20;

/// The size of the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchSize {
    bytes: u64,
}

impl Default for BatchSize {
    fn default() -> BatchSize {
        BatchSize { bytes: 256 << 10 }
    }
}

impl BatchSize {
    /// What the next batch may weigh.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// A batch that weighed `bytes` was answered after `took`, of which the link's `round_trip`
    /// is a part.
    pub fn answered(&mut self, bytes: u64, took: Duration, round_trip: Duration) {
        let took = took.saturating_sub(round_trip);
        // One that was not full says nothing of what a full one would take.
        let was_full = bytes > self.bytes / 2;
        if took > 2 * TARGET {
            self.bytes = (self.bytes / 2).max(BYTES_MIN);
        } else if took < TARGET && was_full {
            self.bytes = (self.bytes * 2).min(BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a link of `rate` bytes a second makes of it.
    fn settled_at(rate: u64, round_trip: Duration) -> u64 {
        let mut size = BatchSize::default();
        for _ in 0..20 {
            let sending = Duration::from_secs_f64(size.bytes() as f64 / rate as f64);
            size.answered(size.bytes(), sending + round_trip, round_trip);
        }
        size.bytes()
    }

    #[test]
    fn a_batch_is_what_gets_through_in_its_time_on_any_link() {
        for rate in [64 << 10, 256 << 10, 1 << 20, 5 << 20] {
            for round_trip in [0, 100, 2000].map(Duration::from_millis) {
                let bytes = settled_at(rate, round_trip);
                let took = Duration::from_secs_f64(bytes as f64 / rate as f64);
                assert!(took >= TARGET / 2 && took <= 2 * TARGET, "{rate}: {bytes} in {took:?}");
            }
        }
        assert_eq!(settled_at(1 << 40, Duration::ZERO), BYTES_MAX);
        assert_eq!(settled_at(1 << 10, Duration::ZERO), BYTES_MIN);
    }

    #[test]
    fn a_batch_that_was_not_full_makes_the_next_no_larger() {
        let mut size = BatchSize::default();
        size.answered(1000, Duration::ZERO, Duration::ZERO);
        assert_eq!(size, BatchSize::default());
    }
}
