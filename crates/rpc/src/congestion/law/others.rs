//! Other senders that fill the queue: whether there are any, and our share beside them.

use std::time::{Duration, Instant};

use super::{Law, PACKETS, PERIOD, PERIOD_PACKETS, Phase, Round, bytes_in, since, time_for};

/// The time that tells whether a path became longer or is shared.
const LOOK: Duration = Duration::from_secs(3);
/// The time for which another sender's queue is filled as well.
const COMPETE: Duration = Duration::from_secs(20);
/// Rounds with a queue of another sender.
const CROWDED_MAX: u32 = 4;
/// The same, soon after another sender was found.
const CROWDED_AGAIN: u32 = 2;

impl Law {
    /// Takes in the length of our queue in a round. `is_reduced`: all of its packets were sent
    /// after the window became as it should be.
    pub(super) fn handle_queue(&mut self, now: Instant, queue: Duration, is_reduced: bool) {
        // The queue that stays makes the rate small, and the time of packets long.
        let ours_at_peak = self.target + time_for(PACKETS * self.packet, self.peak);
        let is_crowded = queue > 2 * ours_at_peak + self.base().unwrap_or_default() / 2;
        let is_again = self.competed.is_some_and(|(at, _)| since(now, at) < PERIOD);
        let is_reduced = is_again || is_reduced;
        self.crowded = if is_crowded && is_reduced { self.crowded + 1 } else { 0 };
        match self.competed {
            Some((_, window)) if is_again && self.crowded >= CROWDED_AGAIN => {
                self.begin_to_compete(now, window);
            }
            _ => self.look_for_others(now),
        }
    }

    /// Decides whether a lasting queue is another sender's, or the path became longer.
    fn look_for_others(&mut self, now: Instant) {
        if self.crowded >= CROWDED_MAX {
            self.crowded = 0;
            self.rebased = Some((now, self.base));
            self.drain(now);
        } else if let Some((at, base)) = self.rebased
            && since(now, at) > LOOK.max(self.packets(PERIOD_PACKETS) / 4)
        {
            // On a path that is only longer the rate comes back.
            let [rate, _, before] = self.rates;
            let is_growing = rate > before + before / 16 && since(now, at) < PERIOD;
            if self.rate() >= self.peak / 2 {
                self.rebased = None;
            } else if !is_growing {
                self.rebased = None;
                let trip = self.base().unwrap_or_default();
                self.base = base;
                self.begin_to_compete(now, bytes_in(self.peak / 4, trip));
            }
        }
    }

    fn begin_to_compete(&mut self, now: Instant, window: u64) {
        self.crowded = 0;
        self.window = self.window.max(window);
        let from = (self.window, self.rate());
        self.phase = Phase::Compete { until: now + COMPETE, lost: false, from };
    }

    pub(super) fn compete(&mut self, now: Instant, round: Round) {
        let Phase::Compete { until, lost, from: (window, rate) } = self.phase else { return };
        if now >= until {
            self.competed = Some((now, self.window));
            self.phase = Phase::Steady;
        } else if self.window > 4 * window && self.rate() < 2 * rate {
            // It is only our own queue that grows: the link became slower.
            self.peak = self.rate();
            self.drain(now);
        } else if round.lost == 0 && !round.limited {
            let steep = if lost { 0 } else { self.window / 4 };
            let grown = self.window + steep.max(self.packet);
            self.window = grown.min(self.usable(round)).max(self.window);
        }
    }
}
