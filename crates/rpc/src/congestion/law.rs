//! A bound of what is in flight that keeps the queue before the slowest link short.
//!
//! Every second round trip the window becomes what would make the round trip `base + TARGET` long, as in
//! FAST TCP: it grows where the queue is shorter than that, by half where there is next to none, and
//! shrinks where it is longer.
//!
//! ```text
//!               queue > TARGET                  at its least, and the queue stays
//!   unbounded ──────────────────▶ bounded ─────────────────────────────────────▶ yielding
//!                                    ▲                                              │
//!                                    └───────────────── YIELD later ────────────────┘
//! ```
//!
//! Where the queue stays although the window is at its least, it is somebody else's, or the path
//! became longer: the law says nothing for a while then, so that nobody is starved. The base is the
//! least round trip of some ten seconds. A sender that is never idle would take its own queue for
//! a part of the path: so the queue is let run empty whenever the base is to be learnt anew.

use std::time::{Duration, Instant};

/// How long the queue may be: some packets at 64 KB/s, and more than a busy host's timers err.
const TARGET: Duration = Duration::from_millis(25);
/// How long a base counts, and then once more as the earlier one.
const BASE_FOR: Duration = Duration::from_secs(10);
/// In the first what was sent before is still on its way.
const DRAIN_ROUNDS: u32 = 3;
/// So many rounds with a queue and the least window, and it is not ours.
const ROUNDS_MAX: u32 = 16;
/// How long the law says nothing then.
const YIELD: Duration = Duration::from_secs(10);
/// The least window, in packets: the other side acknowledges every second one at once.
const PACKETS_MIN: u64 = 2;

#[derive(Clone, Debug)]
pub(super) struct Law {
    mtu: u64,
    /// Bytes; `u64::MAX` until there was a queue.
    window: u64,
    /// The least round trips of the present and the previous ten seconds.
    least: [Duration; 2],
    least_since: Instant,
    /// Rounds in which the queue is let run empty.
    drains: u32,
    /// The window was looked at in the round before.
    settles: bool,
    round_since: Instant,
    /// The lesser of the last two round trips: one alone may have waited for a timer.
    round: Duration,
    last: Duration,
    /// Rounds with a queue and the least window.
    crowded: u32,
    yields_until: Option<Instant>,
}

impl Law {
    pub(super) fn new(now: Instant, mtu: u16) -> Law {
        Law {
            mtu: u64::from(mtu),
            window: u64::MAX,
            least: [Duration::MAX; 2],
            least_since: now,
            drains: 0,
            settles: false,
            round_since: now,
            round: Duration::MAX,
            last: Duration::MAX,
            crowded: 0,
            yields_until: None,
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        match (self.yields_until, self.drains) {
            (Some(_), _) => u64::MAX,
            (None, 0) => self.window,
            (None, _) => self.least_window(),
        }
    }

    pub(super) fn handle_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu);
    }

    fn least_window(&self) -> u64 {
        PACKETS_MIN * self.mtu
    }

    /// What was `sent` then is acknowledged `now`. `allowed` is what may be in flight but for this
    /// law.
    pub(super) fn handle_ack(
        &mut self,
        (now, sent): (Instant, Instant),
        app_limited: bool,
        allowed: u64,
    ) {
        let trip = now.saturating_duration_since(sent);
        let [least, _] = &mut self.least;
        *least = trip.min(*least);
        self.round = trip.min(self.last);
        self.last = trip;
        if sent < self.round_since {
            return;
        }
        self.end_round(now, app_limited, allowed);
        self.round_since = now;
    }

    fn end_round(&mut self, now: Instant, app_limited: bool, allowed: u64) {
        let [present, before] = self.least;
        let base = present.min(before);
        let was_draining = self.drains > 0;
        self.drains = self.drains.saturating_sub(1);
        if now.saturating_duration_since(self.least_since) >= BASE_FOR {
            self.least = [self.round, present];
            self.least_since = now;
            self.drains = if self.window < allowed { DRAIN_ROUNDS } else { 0 };
        }
        if self.yields_until.is_some_and(|until| now < until) {
            return;
        }
        // What was done shows in the round after the next one.
        self.settles = was_draining || !self.settles;
        if was_draining || self.drains > 0 || !self.settles {
            return;
        }
        if self.yields_until.take().is_some() {
            self.window = allowed;
        }
        let (aim, before_round) = (base + TARGET, self.window);
        if self.round > aim {
            // Two packets take no longer than twice the base, in which one is.
            let is_least = self.window <= self.least_window();
            self.crowded = if is_least && self.round > aim + base { self.crowded + 1 } else { 0 };
            self.window = self.window.min(allowed);
            self.scale(aim);
        } else {
            self.crowded = 0;
            if !app_limited && self.window < allowed {
                self.scale(aim);
                if self.round < base + TARGET / 2 {
                    // Next to nothing waits: far from full, on a long path.
                    self.window = self.window.max(before_round.saturating_add(before_round / 2));
                }
            }
        }
        if self.crowded >= ROUNDS_MAX {
            self.crowded = 0;
            self.yields_until = Some(now + YIELD);
        }
    }

    /// Makes the window such that the round trip comes to `aim`.
    fn scale(&mut self, aim: Duration) {
        let (aim, round) = (aim.as_micros().max(1), self.round.as_micros().max(1));
        let scaled = u64::try_from(u128::from(self.window) * aim / round).unwrap_or(u64::MAX);
        self.window = scaled.min(self.window.saturating_mul(2)).max(self.least_window());
    }
}

#[cfg(test)]
mod tests;
