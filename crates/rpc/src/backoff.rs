//! The wait before the next attempt to connect.

use std::time::Duration;

/// The first wait: a server that restarts is back about then.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait: a user notices it after the network is back.
const LONGEST: Duration = Duration::from_secs(5);

/// Waits that double from [`FIRST`] to [`LONGEST`]. Each is cut by up to a half at random, so that
/// the hosts of a restarted server do not all come at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next wait; `random` is any number.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let full = LONGEST.min(FIRST * 2u32.saturating_pow(self.failures.min(16)));
        self.failures = self.failures.saturating_add(1);
        full - full / 2 * (random % 1024) / 1024
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Any number.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the wait is the whole one.
    let _ = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
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
            let mut backoff = Backoff { failures: 100 };
            let wait = backoff.next(random);
            assert!(wait >= LONGEST / 2 && wait <= LONGEST, "{wait:?}");
        }
    }
}
