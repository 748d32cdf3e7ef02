//! The start: the window doubles each round, until the link is full.

use std::time::{Duration, Instant};

use super::base::Why;
use super::{GAIN, Law, PACKETS, Phase, Round, per_second, since};

/// Packets in a row that found a queue end the steep growth.
pub(super) const QUEUED_MAX: u32 = 8;
/// The same, of echoes.
pub(super) const QUEUED_ECHOES: u32 = 2;
/// So many full rounds without a gain do so, too.
const FULL_MAX: u32 = 3;

impl Law {
    /// Grows as long as growth brings a gain.
    pub(super) fn start(&mut self, now: Instant, full: u32, round: Round) {
        let [rate, before, _] = self.rates;
        let full = if rate < before + before / GAIN { full + 1 } else { 0 };
        if full >= FULL_MAX {
            return self.end_start(now);
        }
        self.phase = Phase::Start { full, queued: 0 };
        self.window = (2 * self.window).min(self.usable(round)).max(self.window);
    }

    /// Looks for the first queue: so many waits in a row.
    pub(super) fn handle_start(&mut self, now: Instant, wait: Duration, most: u32) {
        let Phase::Start { full, queued } = self.phase else { return };
        let is_queued = wait > self.target + self.packets(PACKETS);
        let queued = if is_queued { queued + 1 } else { 0 };
        self.phase = Phase::Start { full, queued };
        if queued >= most {
            self.end_start(now);
        }
    }

    pub(super) fn end_start(&mut self, now: Instant) {
        let length = since(now, self.round.since);
        let present = per_second(self.round.delivered, length);
        self.window = self.aim(self.rate().max(present)).min(self.window);
        self.waited = None;
        self.drain(now, Why::Start);
    }
}
