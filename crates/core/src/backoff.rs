//! The wait before the next attempt to connect.

use std::time::Duration;

/// The first wait: a server that restarts is back about then.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait: a user notices it after the network is back.
const LONGEST: Duration = Duration::from_secs(5);

/// The longest wait after another copy of the same cache has taken the connection. Each copy has
/// so long to send a change, after which they are two hosts (docs/decisions/0036-copies.md).
const LONGEST_OF_COPIES: Duration = Duration::from_secs(60);

/// Waits that double from [`FIRST`] to the longest one. Each is cut by up to a half at random, so
/// that the hosts of a restarted server do not all come at once.
#[derive(Debug)]
pub struct Backoff {
    longest: Duration,
    failures: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { longest: LONGEST, failures: 0 }
    }
}

impl Backoff {
    /// The waits of a host of whose cache there is a running copy.
    pub fn of_copies() -> Backoff {
        Backoff { longest: LONGEST_OF_COPIES, failures: 0 }
    }

    /// The next wait; `random` is any number.
    pub fn next(&mut self, random: u32) -> Duration {
        let full = self.longest.min(FIRST * 2u32.saturating_pow(self.failures.min(16)));
        self.failures = self.failures.saturating_add(1);
        full - full / 2 * (random % 1024) / 1024
    }

    /// An attempt succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_longest_and_starts_again() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next(0).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.next(0), FIRST);
    }

    #[test]
    fn jitter_takes_at_most_half() {
        for random in [0, 1, 511, 1023, u32::MAX] {
            let mut backoff = Backoff { failures: 100, ..Backoff::default() };
            let wait = backoff.next(random);
            assert!(wait >= LONGEST / 2 && wait <= LONGEST, "{wait:?}");
        }
    }

    #[test]
    fn copies_of_a_cache_leave_each_other_more_and_more_time() {
        let mut backoff = Backoff::of_copies();
        assert_eq!(backoff.next(0), FIRST);
        let last = (0..12).map(|_| backoff.next(0)).last();
        assert_eq!(last, Some(LONGEST_OF_COPIES));
    }
}
