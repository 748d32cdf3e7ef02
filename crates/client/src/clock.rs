//! The clock by which this host's leases and lifetimes run: it goes on while the host sleeps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use segue_core::nouns::{Time, Timestamp};

use crate::bandwidth::WeekTime;

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

/// The local time by this host's zone, as it is set now.
#[allow(unsafe_code)]
pub(crate) fn local_time() -> WeekTime {
    // SAFETY: all of it are numbers, and a pointer that may be null.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    let seconds = clock_gettime(ClockId::Realtime).tv_sec;
    // SAFETY: both are valid places for as long as the calls take; no thread sets the environment.
    let known = unsafe {
        // It looks what the zone is now, which localtime_r need not do again.
        libc::mktime(&raw mut time);
        !libc::localtime_r(&raw const seconds, &raw mut time).is_null()
    };
    let part = |number: libc::c_int| u32::try_from(number).unwrap_or(0);
    match known {
        true => {
            let (hour, minute, second) = (time.tm_hour, time.tm_min, time.tm_sec);
            // Days are counted from Sunday there.
            let day = part(time.tm_wday) + 6;
            WeekTime::new(day, (part(hour) * 60 + part(minute)) * 60 + part(second).min(59))
        }
        false => WeekTime(0),
    }
}

fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Wall-clock time, for files.
pub(crate) fn wall() -> Timestamp {
    timestamp(SystemTime::now())
}

/// Wall-clock time in milliseconds, for the last use of files.
pub(crate) fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `time` as files carry it.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let secs = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { secs: secs(after), nanos: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp { secs: -secs(before), nanos: 0 },
                nanos => Timestamp { secs: -secs(before) - 1, nanos: 1_000_000_000 - nanos },
            }
        }
    }
}
