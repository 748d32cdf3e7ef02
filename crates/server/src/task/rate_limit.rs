//! A limit to the bytes that a task reads in a second, so that the disk stays free for hosts.

use std::time::{Duration, Instant};

/// Bytes a second that a task reads while the server serves, unless another rate is given: a part
/// of the rate of any disk.
pub(crate) const LIVE_RATE_BYTES: u64 = 50 << 20;
/// Longest sleep, so that a stop is noticed.
const NAP: Duration = Duration::from_millis(100);
/// A task that is further behind its rate does not catch up.
const BEHIND: Duration = Duration::from_secs(1);

/// A limit to bytes in a second.
pub(crate) struct RateLimit {
    rate_bytes: u64,
    began: Instant,
    bytes: u64,
}

impl RateLimit {
    /// `rate_bytes` a second, 0 for no limit.
    pub(crate) fn new(rate_bytes: u64) -> RateLimit {
        RateLimit { rate_bytes, began: Instant::now(), bytes: 0 }
    }

    /// Counts `bytes` and returns when they may have been read, or `goes_on` is false: then false.
    pub(crate) fn wait(&mut self, bytes: u64, goes_on: impl Fn() -> bool) -> bool {
        if self.rate_bytes == 0 {
            return goes_on();
        }
        let due = self.due(bytes, Instant::now());
        while goes_on()
            && let Some(left) = due.checked_duration_since(Instant::now())
            && !left.is_zero()
        {
            std::thread::sleep(left.min(NAP));
        }
        goes_on()
    }

    /// When `bytes` more may have been read.
    fn due(&mut self, bytes: u64, now: Instant) -> Instant {
        self.bytes += bytes;
        // Bytes over bytes a second; f64 is exact enough for a sleep.
        let due = self.began + Duration::from_secs_f64(self.bytes as f64 / self.rate_bytes as f64);
        if now > due + BEHIND {
            // What was not read then is not made up for now.
            (self.began, self.bytes) = (now, 0);
            return now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate holds over hours; a disk that stood still meanwhile neither earns a burst nor
    /// costs a wait.
    #[test]
    fn reading_keeps_to_its_rate() {
        let mut limit = RateLimit::new(1_000_000);
        let start = limit.began;
        let mut now = start;
        for second in 1..=3_600 {
            now = limit.due(1_000_000, now);
            assert_eq!(now - start, Duration::from_secs(second));
        }
        now += Duration::from_secs(60);
        assert_eq!(limit.due(1_000_000, now), now);
        assert_eq!(limit.due(1_000_000, now) - now, Duration::from_secs(1));
    }
}
