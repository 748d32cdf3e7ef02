//! The clock by which this host's leases and lifetimes run: it goes on while the host sleeps.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use segue_core::types::Time;

/// A moment, and how long it is ago.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Duration,
}

impl Clock {
    /// The moment is now.
    pub(crate) fn start() -> Clock {
        Clock { started: since_boot() }
    }

    /// The time since then.
    pub(crate) fn now(&self) -> Time {
        Time(since_boot().saturating_sub(self.started))
    }
}

/// For how long this host has slept since it was started, to the millisecond or so.
pub(crate) fn slept() -> Duration {
    let awake = read(ClockId::Monotonic);
    since_boot().saturating_sub(awake)
}

fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}
