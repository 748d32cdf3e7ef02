//! How much one batch carries when nobody waits for it, and one group of the chunks before it.
//!
//! A large batch shares one round trip and one commit among many records; but whoever begins to
//! wait then waits for what is under way. So a batch is as large as what gets through in
//! [`TARGET`] on this link, whatever that is: it grows while it takes less, and shrinks when it
//! takes much more. The round trip is not counted: no size changes it.

use std::time::Duration;

use crate::host::log::Lane;

/// What a batch may take, beside the round trip.
const TARGET: Duration = Duration::from_millis(400);
/// At least this: some dozen small records, a quarter of a second at 64 KB/s.
const BYTES_MIN: u64 = 16 << 10;
/// At most this: it has to fit into a message, and into memory on both sides.
pub(in crate::host) const BYTES_MAX: u64 = 4 << 20;

/// Chunks are offered and sent in groups of about this many bytes at most..
const GROUP_MAX: usize = 8 << 20;
/// ..and at least this many.
const GROUP_MIN: usize = 64 << 10;
/// A group is what the link carries in such a time, or in a few round trips: behind those on their
/// way small changes wait, of which many are made later.
const GROUP_TIME: Duration = Duration::from_millis(250);
/// While one group is asked about and answered the other is sent.
const GROUP_TRIPS: u32 = 3;

/// Of about how many bytes a group of chunks is on a link, if it is known, of so many bytes a
/// second and such a round trip, others' queue included.
pub fn group_bytes(link: Option<(u64, Duration)>) -> usize {
    let Some((rate, round_trip)) = link else { return GROUP_MIN };
    let millis = GROUP_TIME.max(GROUP_TRIPS * round_trip).as_millis();
    let bytes = u128::from(rate) * millis / 1_000;
    usize::try_from(bytes).unwrap_or(GROUP_MAX).clamp(GROUP_MIN, GROUP_MAX)
}

/// The sizes of the next batches, by lane.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::host) struct BatchSizes {
    metadata: BatchSize,
    pulled: BatchSize,
    fast: BatchSize,
    data: BatchSize,
}

impl BatchSizes {
    /// That of a lane.
    pub(in crate::host) fn of(&mut self, lane: Lane) -> &mut BatchSize {
        match lane {
            Lane::Metadata => &mut self.metadata,
            Lane::Pulled => &mut self.pulled,
            Lane::Fast => &mut self.fast,
            Lane::Data => &mut self.data,
        }
    }
}

/// The size of the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) struct BatchSize {
    bytes: u64,
}

impl Default for BatchSize {
    fn default() -> BatchSize {
        BatchSize { bytes: 256 << 10 }
    }
}

impl BatchSize {
    /// What the next batch may weigh.
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// A batch that weighed `bytes` was answered after `took`, of which the link's `round_trip`
    /// is a part.
    pub(super) fn answered(&mut self, bytes: u64, took: Duration, round_trip: Duration) {
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

    /// Two of them are on their way when a small change is made.
    #[test]
    fn behind_groups_of_chunks_nothing_waits_for_long() {
        let rates = [8 << 10, 64 << 10, 1 << 20, 12 << 20, 1 << 40];
        for (rate, trip) in rates.into_iter().flat_map(|rate| [0, 20, 600].map(|ms| (rate, ms))) {
            let bytes = group_bytes(Some((rate, Duration::from_millis(trip)))) as u64;
            let ahead = Duration::from_secs_f64(bytes as f64 / rate as f64);
            let most = Duration::from_millis(250.max(3 * trip));
            assert!(ahead <= most || bytes == 64 << 10, "{rate}, {trip} ms: {ahead:?}");
            // And the link is never without: one is asked about while the other is sent.
            let trip = Duration::from_millis(trip);
            assert!(ahead > 2 * trip || bytes == 8 << 20, "{rate}, {trip:?}: {ahead:?}");
        }
        assert_eq!(group_bytes(None), 64 << 10);
    }

    #[test]
    fn a_batch_that_was_not_full_makes_the_next_no_larger() {
        let mut size = BatchSize::default();
        size.answered(1000, Duration::ZERO, Duration::ZERO);
        assert_eq!(size, BatchSize::default());
    }
}
