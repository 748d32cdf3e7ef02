//! The round trip of the empty path, and the drains that measure it.

use std::time::Instant;

use super::others::{Cubic, Others};
use super::{Law, PACKETS, Phase, Round, Trip, lesser};

/// After so many drains in a row that found others we yield for a while: two senders with this law
/// may take each other for one of TCP's kind.
const FOUND_MAX: u32 = 3;

/// Why the queue is drained, and so what it means if it stays.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Why {
    /// Nobody else sends: the path is longer.
    Alone,
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
            // The visible queue is another sender's.
            Phase::Compete { .. } => self.begin_period(now, None),
            _ => self.begin_period(now, self.least),
        }
    }

    pub(super) fn drain(&mut self, now: Instant, why: Why) {
        // What is sent before waits behind our queue.
        let since = now + self.waited.unwrap_or_default();
        self.phase = Phase::Drain { since, packets: 0, least: None, why };
    }

    /// Ends a drain once enough packets, or echoes, found the queue gone.
    pub(super) fn handle_drained(&mut self, now: Instant, sent: Instant, trip: Trip, enough: u64) {
        let Phase::Drain { since, packets, least, why } = self.phase else { return };
        let packets = packets + u64::from(sent >= since);
        let least = lesser(least, trip);
        if packets < enough {
            self.phase = Phase::Drain { since, packets, least, why };
            return;
        }
        self.phase = Phase::Steady;
        self.round = Round::new(now, self.latest, true);
        let old = self.base().unwrap_or_default();
        let queued = old + old / 4 + 4 * self.target + self.packets(PACKETS);
        let longer = least.filter(|least| why != Why::Alone && least.time > queued);
        let is_same = |before: Trip, now: Trip| now.time.abs_diff(before.time) <= self.target;
        let found = match (why, longer) {
            (Why::Period, Some(longer)) => Some(Others { longer, found: 0 }),
            (Why::Others { others, .. }, Some(longer)) if !is_same(others.longer, longer) => {
                Some(Others { longer, found: others.found + 1 })
            }
            _ => None,
        };
        self.begin_period(now, if found.is_some() { None } else { least });
        match (found, why) {
            (Some(others), Why::Others { window, .. }) if others.found < FOUND_MAX => {
                self.window = self.window.max(window);
                self.compete_from(now, Cubic::at(now, window), others);
            }
            (Some(others), Why::Period) => self.begin_to_compete(now, others),
            _ => {}
        }
    }

    fn begin_period(&mut self, now: Instant, base: Option<Trip>) {
        self.base = base.or(self.base);
        self.least = None;
        self.period_since = now;
    }
}
