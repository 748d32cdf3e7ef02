//! The round trip of the empty path, and the drains that measure it.

use std::time::{Duration, Instant};

use super::others::{Cubic, Others};
use super::{Law, PACKETS_DRAINED, Phase, Round, TARGET, Trip, time_for};

/// After so many drains in a row that found others we yield for a while: two senders with this law
/// may take each other for one of TCP's kind.
const FOUND_MAX: u32 = 3;

/// Two drains so far apart that find the same show a longer path: others' queue changes.
const APART: Duration = Duration::from_secs(1);

/// So many looks in a row after the first, of 5 s each, show a longer path to who stays behind. The
/// queue of a sender of TCP's kind stays the same for some seconds only.
const LOOKS_SAME: u32 = 5;

/// Why the queue is drained, and so what it means if it stays.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Why {
    /// After the start: others need time to make room for us.
    Start,
    /// To measure the path: somebody else sends, or the path is longer.
    Period,
    /// Others filled the queue before, beside such a window of ours: they still do.
    Others { window: u64, others: Others },
}

impl Law {
    pub(super) fn end_period(&mut self, now: Instant) {
        match self.phase {
            Phase::Steady if self.window > self.drained() => self.drain(now, Why::Period),
            Phase::Drain { .. } => {}
            _ => self.period_since = now,
        }
    }

    pub(super) fn drain(&mut self, now: Instant, why: Why) {
        // What is sent before waits behind our queue.
        let base = self.base().unwrap_or_default();
        let in_flight = time_for(self.ceiling(), self.rate()).saturating_sub(base);
        let since = now + self.waited.unwrap_or_default().max(in_flight);
        self.phase = Phase::Drain { began: now, since, packets: 0, least: None, why };
    }

    /// Ends a drain once enough packets, or echoes, found the queue gone.
    pub(super) fn handle_drained(&mut self, now: Instant, sent: Instant, trip: Trip, enough: u64) {
        let Phase::Drain { began, since, packets, least, why } = self.phase else { return };
        let since = if sent >= began { since.min(now) } else { since };
        let packets = packets + u64::from(sent >= since);
        let least = least.map_or(trip, |least| least.min(trip));
        let queued = self.base().unwrap_or_default() + self.ours_when_drained();
        // One may be late by a busy host's timers.
        let enough = if least.time > queued { enough.max(PACKETS_DRAINED) } else { enough };
        if packets < enough {
            self.phase = Phase::Drain { began, since, packets, least: Some(least), why };
            return;
        }
        self.phase = Phase::Steady;
        self.round = Round::new(now, self.latest, true);
        self.period_since = now;
        if self.is_background && least.time > queued {
            return self.stay_behind(now, least);
        }
        self.behind = None;
        match (why, least.time > queued) {
            (Why::Period, true) => {
                self.begin_to_compete(now, Others { longer: least, at: now, found: 0 });
            }
            (Why::Start, true) => {
                self.waited = Some(least.time);
                self.drain(now, Why::Period);
            }
            (Why::Start | Why::Period, false) => self.raise_base(least),
            (Why::Others { window, others }, true) => self.find_again(now, window, others, least),
            (Why::Others { .. }, false) => self.base = Some(least),
        }
    }

    /// Takes `trip` as the base, but no more than TARGET above the one before: a part of it may be
    /// others' queue.
    fn raise_base(&mut self, trip: Trip) {
        let most = self.base().unwrap_or_default() + self.target;
        self.base = Some(Trip { time: trip.time.min(most), ..trip });
    }

    /// Others fill the queue, and go first. Who yields has no queue of its own, so each look tells
    /// the path with theirs.
    fn stay_behind(&mut self, now: Instant, longer: Trip) {
        let new = Others { longer, at: now, found: 0 };
        let others = self.behind.filter(|others| self.is_path(*others, longer)).unwrap_or(new);
        self.behind = Some(Others { found: others.found + 1, ..others });
        if others.found >= LOOKS_SAME {
            self.base = Some(longer);
            self.behind = None;
        }
    }

    /// True if a drain found what another did.
    fn is_path(&self, others: Others, longer: Trip) -> bool {
        let most = if self.is_background { TARGET } else { self.target };
        longer.time.abs_diff(others.longer.time) <= most / 2
    }

    /// A drain beside others found the queue again. Others' queue changes, a longer path does not.
    fn find_again(&mut self, now: Instant, window: u64, mut others: Others, longer: Trip) {
        if now.saturating_duration_since(others.at) >= APART {
            if self.is_path(others, longer) {
                self.base = Some(longer);
                return;
            }
            others = Others { longer, at: now, ..others };
        }
        if others.found < FOUND_MAX {
            self.window = self.window.max(window);
            self.compete_from(now, Cubic::at(now, window), others);
        }
    }
}
