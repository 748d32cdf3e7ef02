//! The server's disk: how long changes wait for room on it.
//!
//! A close that waits hears at once that the disk is full. A change that nobody waits for is sent
//! again for a while, because removed files give their space back within half a minute. Then the
//! server refuses the change, and this host keeps it. Otherwise the changes behind it, removals
//! among them, would wait for as long as the disk is full.

use std::time::Duration;

use crate::types::Time;

/// A change that nobody waits for is sent again for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the server's disk takes chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerDisk {
    full_since: Option<Time>,
}

impl ServerDisk {
    /// The server took chunks.
    pub fn note_taken(&mut self) {
        self.full_since = None;
    }

    /// The server had no room for chunks.
    pub fn note_full(&mut self, now: Time) {
        self.full_since.get_or_insert(now);
    }

    /// True if the server is to say for good whether it refuses a change.
    pub fn decides(&self, now: Time, is_awaited: bool) -> bool {
        self.full_since.is_some_and(|since| is_awaited || now.since(since) >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S20.11.
    #[test]
    fn a_change_that_nobody_waits_for_has_a_minute() {
        let at = |seconds| Time(Duration::from_secs(seconds));
        let mut disk = ServerDisk::default();
        assert!(!disk.decides(at(5), true));
        disk.note_full(at(10));
        assert!(disk.decides(at(10), true) && !disk.decides(at(10), false));
        disk.note_full(at(60));
        assert!(!disk.decides(at(69), false) && disk.decides(at(70), false));
        disk.note_taken();
        disk.note_full(at(100));
        assert!(!disk.decides(at(159), false));
    }
}
