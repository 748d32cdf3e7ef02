//! The round trip of the empty path, and the drains that measure it.

use std::time::{Duration, Instant};

use super::others::{Cubic, Others};
use super::{Law, Phase, Round, Trip, lesser, time_for};

/// After so many drains in a row that found others we yield for a while: two senders with this law
/// may take each other for one of TCP's kind.
const FOUND_MAX: u32 = 3;

/// Two drains so far apart that find the same show a longer path: others' queue changes.
const APART: Duration = Duration::from_secs(1);

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
        let queued = old + self.ours_at_most();
        let longer = least.filter(|least| least.time > queued);
        let found = match (why, longer) {
            (Why::Period, Some(longer)) => Some(Others { longer, at: now, found: 0 }),
            (Why::Others { others, .. }, Some(longer)) => {
                let is_same = longer.time.abs_diff(others.longer.time) <= self.target / 2;
                let is_later = now.saturating_duration_since(others.at) >= APART;
                let news = Others { longer, at: now, ..others };
                if is_later { (!is_same).then_some(news) } else { Some(others) }
            }
            _ => None,
        };
        self.period_since = now;
        match (found, why, least) {
            (None, Why::Start | Why::Period, Some(Trip { time, bytes })) => {
                self.base = Some(Trip { time: time.min(old + self.target), bytes });
            }
            (None, Why::Others { .. }, Some(_)) => self.base = least,
            _ => {}
        }
        match (found, why) {
            (Some(others), Why::Others { window, .. }) if others.found < FOUND_MAX => {
                self.window = self.window.max(window);
                self.compete_from(now, Cubic::at(now, window), others);
            }
            (Some(others), Why::Period) => self.begin_to_compete(now, others),
            (None, Why::Start) if longer.is_some() => {
                self.waited = longer.map(|longer| longer.time);
                self.drain(now, Why::Period);
            }
            _ => {}
        }
    }
}
