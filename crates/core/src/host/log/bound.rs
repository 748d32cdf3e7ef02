//! How writers are slowed when more waits for the server than may.
//!
//! ```text
//!   speed of writers
//!   any   ──────────────╮
//!                        ╲
//!   that of the link ─ ─ ─╲─ ─ ─     half-way: here writers and link are in step
//!   none                   ╰──
//!            3/4 of the bound   the bound
//! ```
//!
//! Below three quarters of the bound nobody is slowed. Above, whoever adds bytes waits for them,
//! longer the less room is left: where that makes writers as slow as the link, what waits stays
//! as much as it is. So nobody is stopped dead while the link takes something; who meets the bound
//! itself waits until there is room, and is refused only when there is no hope of any soon.

use std::time::Duration;

use crate::host::Host;

/// What writers are slowed towards while the link's own rate is not known, in bytes a second:
/// without a network nothing gets better by waiting, but a person may notice.
const RATE_UNKNOWN: u64 = 10 << 20;
/// Slower links than this do not make writers slower.
const RATE_MIN: u64 = 16 << 10;
/// A single call waits no longer.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The bound of what waits for the server, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound(pub u64);

impl Bound {
    /// True if nothing more is to be taken in.
    pub fn is_met(self, waiting: u64) -> bool {
        waiting >= self.0
    }

    /// True if writers are slowed.
    pub fn is_near(self, waiting: u64) -> bool {
        waiting > self.slow_from()
    }

    /// How long who adds `bytes` to the `waiting` ones waits, where the server takes `rate` bytes
    /// a second; 0: not known.
    pub fn delay(self, waiting: u64, bytes: u64, rate: u64) -> Duration {
        let above = waiting.saturating_sub(self.slow_from());
        let room = self.0.saturating_sub(waiting);
        if above == 0 {
            return Duration::ZERO;
        }
        let rate = if rate == 0 { RATE_UNKNOWN } else { rate.max(RATE_MIN) };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let nanos = nanos * u128::from(above) / u128::from(room.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(DELAY_MAX)
    }

    fn slow_from(self) -> u64 {
        self.0 - self.0 / 4
    }
}

/// Bytes that wait for the server, and whether their bound is met. The sum is kept roughly with
/// each change, and measured now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::host) struct Pending {
    bytes: u64,
    /// The bound is met, and the server takes nothing.
    is_stuck: bool,
}

impl Pending {
    /// `bytes` were added.
    pub(in crate::host) fn more(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The server has `bytes` of them, or they go nowhere.
    pub(in crate::host) fn less(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_stuck = false;
    }
}

/// How writers fare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Nothing slows them.
    Free,
    /// Their bytes are near the bound.
    Slowed,
    /// The bound is met, and nothing was sent for a while: writes fail with ENOSPC.
    Refused,
}

impl Host {
    /// Bytes that wait for the server, about. Of a store whose turn has not come, the bytes that
    /// the server has already do not count.
    pub fn pending_bytes(&self) -> u64 {
        self.pending.bytes.saturating_sub(self.ahead.sent())
    }

    /// Measures the pending bytes, of which `log` are the update log itself.
    pub fn measure_pending(&mut self, log: u64) {
        self.pending.bytes = log + self.unsafe_bytes();
    }

    /// How long a program waits that added `bytes`, where the server takes `rate` bytes a second
    /// (0: not known). `None`: until some bytes are sent.
    pub fn slow_down(&self, bytes: u64, rate: u64) -> Option<Duration> {
        let (bound, pending) = (self.settings.bound, self.pending_bytes());
        (!bound.is_met(pending)).then(|| bound.delay(pending, bytes, rate))
    }

    /// True if the pending bytes meet their bound.
    pub fn is_bound_met(&self) -> bool {
        self.settings.bound.is_met(self.pending_bytes())
    }

    /// True if the pending bytes are near their bound.
    pub fn is_near_bound(&self) -> bool {
        self.settings.bound.is_near(self.pending_bytes())
    }

    /// Refuses writes from now on, until the server takes something. False if they were refused
    /// before.
    pub fn refuse_writes(&mut self) -> bool {
        !std::mem::replace(&mut self.pending.is_stuck, true)
    }

    /// How writers fare.
    pub fn writers(&self) -> Writers {
        match self.is_bound_met() {
            true if self.pending.is_stuck => Writers::Refused,
            _ if self.is_near_bound() => Writers::Slowed,
            _ => Writers::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_program_is_slowed_near_the_bound_and_waits_at_it() {
        let mut core = Host::new(100, 1);
        core.settings.bound = Bound(64 * MB);
        let waits = |core: &mut Host, log| {
            core.measure_pending(log);
            core.slow_down(MB, MB)
        };
        assert_eq!(waits(&mut core, MB), Some(Duration::ZERO));
        assert!(waits(&mut core, 60 * MB).is_some_and(|wait| !wait.is_zero()));
        assert_eq!(waits(&mut core, 64 * MB), None);
    }

    proptest! {
        /// "near the bound writers are slowed, never refused silently": from nothing on, without a
        /// jump, and always for a while that ends.
        /// Proves S14.2.
        #[test]
        fn the_delay_grows_from_nothing_and_ends(
            bound in 1u64..1 << 40,
            waiting in 0u64..1 << 40,
            more in 0u64..1 << 20,
            bytes in 0u64..1 << 24,
            rate in 0u64..1 << 32,
        ) {
            let bound = Bound(bound);
            let delay = bound.delay(waiting, bytes, rate);
            prop_assert!(delay <= DELAY_MAX);
            prop_assert!(delay <= bound.delay(waiting + more, bytes, rate));
            prop_assert!(delay <= bound.delay(waiting, bytes + more, rate));
            prop_assert!(bound.is_near(waiting) || delay.is_zero());
            prop_assert!(!bound.is_met(waiting) || bound.is_near(waiting));
        }

        /// A writer that could fill anything, on a link of any speed that takes a write within the
        /// longest delay. On a slower one it meets the bound.
        /// Proves S14.2.
        #[test]
        fn writers_and_link_come_into_step_below_the_bound(rate in MB / 4..100 * MB) {
            let bound = Bound(64 * MB);
            let (mut waiting, mut written, mut seconds) = (0u64, 0u64, 0.0);
            let step = 128 << 10;
            while written < 400 * MB {
                waiting += step;
                written += step;
                let delay = bound.delay(waiting, step, rate).as_secs_f64() + 1e-6;
                waiting = waiting.saturating_sub((delay * rate as f64) as u64);
                seconds += delay;
                prop_assert!(!bound.is_met(waiting), "at {written} bytes");
            }
            let taken = (written - waiting) as f64;
            prop_assert!(taken / seconds <= rate as f64 * 1.01, "no faster than the link");
        }
    }
}
