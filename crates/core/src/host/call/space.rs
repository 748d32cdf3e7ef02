//! Free space on the cache's disk. Writes are refused while little is free, so that accepted
//! changes can still be logged and sent.

use std::time::Duration;

use crate::host::Host;
use crate::nouns::Time;

/// Writes are refused while the cache's disk has less than this many bytes free.
pub const DISK_RESERVE: u64 = 64 << 20;
/// The free space is looked up this often. In between, reserved bytes are subtracted.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);

/// What is known of the free space.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::host) struct FreeSpace {
    looked_up: Option<Time>,
    bytes: u64,
}

impl FreeSpace {
    /// The disk has so many bytes free.
    pub(in crate::host) fn told(&mut self, bytes: u64, now: Time) {
        *self = FreeSpace { looked_up: Some(now), bytes };
    }

    /// The space is to be looked up before it is used.
    pub(in crate::host) fn forget(&mut self) {
        self.looked_up = None;
    }

    /// Reserves `more` bytes. `None`: look the free space up first. False: they are not there.
    fn reserve(&mut self, more: u64, now: Time) -> Option<bool> {
        let since = now.since(self.looked_up?);
        let is_enough = self.bytes >= DISK_RESERVE.saturating_add(more);
        match is_enough {
            _ if since >= LOOK_UP_EVERY => None,
            true => {
                self.bytes -= more;
                Some(true)
            }
            // Something may have gone since.
            false if since > Duration::ZERO => None,
            false => Some(false),
        }
    }
}

impl Host {
    /// Reserves `more` bytes on the cache's disk. `None`: [tell](Host::told_free) the free space
    /// first. False: they are not there.
    pub fn reserve_space(&mut self, more: u64, now: Time) -> Option<bool> {
        self.space.reserve(more, now)
    }

    /// The cache's disk has so many bytes free.
    pub fn told_free(&mut self, bytes: u64, now: Time) {
        self.space.told(bytes, now);
    }

    /// Data were removed from the cache's disk.
    pub fn freed(&mut self) {
        self.space.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(Duration::from_millis(millis))
    }

    #[test]
    fn space_is_looked_up_now_and_then_and_before_anything_is_refused() {
        let mut space = FreeSpace::default();
        assert_eq!(space.reserve(1, at(0)), None);
        space.told(DISK_RESERVE + 10, at(0));
        assert_eq!(space.reserve(7, at(50)), Some(true));
        assert_eq!(space.reserve(3, at(99)), Some(true));
        assert_eq!(space.reserve(1, at(99)), None, "there may be more by now");
        space.told(DISK_RESERVE, at(99));
        assert_eq!(space.reserve(1, at(99)), Some(false));
        assert_eq!(space.reserve(0, at(99)), Some(true));
        assert_eq!(space.reserve(0, at(199)), None, "that is too long ago");
        space.told(DISK_RESERVE + 1, at(199));
        space.forget();
        assert_eq!(space.reserve(1, at(199)), None);
        assert_eq!(space.reserve(u64::MAX, at(300)), None, "no overflow");
    }
}
