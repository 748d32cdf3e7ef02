//! The round trip of the empty path, and the drains that measure it.

use std::time::Instant;

use super::{Law, Phase, Round, Trip, lesser};

/// Packets that measure the path; a single one may have waited for a timer.
const PACKETS_DRAINED: u64 = 3;

impl Law {
    pub(super) fn end_period(&mut self, now: Instant) {
        match self.phase {
            Phase::Steady if self.window > self.drained() => self.drain(now),
            Phase::Drain { .. } => {}
            // The visible queue is another sender's.
            Phase::Compete { .. } => self.begin_period(now, None),
            _ => self.begin_period(now, self.least),
        }
    }

    pub(super) fn drain(&mut self, now: Instant) {
        self.phase = Phase::Drain { since: now, packets: 0, least: None };
    }

    /// Ends a drain once enough acknowledged packets found the queue gone.
    pub(super) fn handle_drained(&mut self, now: Instant, sent: Instant, trip: Trip) {
        let Phase::Drain { since, packets, least } = self.phase else { return };
        let packets = packets + u64::from(sent >= since);
        let least = lesser(least, trip);
        if packets < PACKETS_DRAINED {
            self.phase = Phase::Drain { since, packets, least };
        } else {
            self.phase = Phase::Steady;
            self.handle_base(now, least);
            self.begin_period(now, least);
            self.round = Round::new(now, self.latest, true);
        }
    }

    /// Decides whether a drain has found the path longer. If so the next rates tell why. Otherwise
    /// the queue was ours, and the link is slower.
    fn handle_base(&mut self, now: Instant, least: Option<Trip>) {
        let old = self.base().unwrap_or_default();
        if least.is_some_and(|trip| trip.time > old + old / 2 + 2 * self.target) {
            self.rebased = self.rebased.or(Some((now, self.base)));
            self.moved = true;
        } else if self.rebased.take().is_some() {
            self.peak = self.rate();
        }
    }

    fn begin_period(&mut self, now: Instant, base: Option<Trip>) {
        self.base = base.or(self.base);
        self.least = None;
        self.period_since = now;
    }
}
