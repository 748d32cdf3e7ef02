//! Other senders that fill the queue: whether there are any, and our share beside them.

use std::time::{Duration, Instant};

use super::base::Why;
use super::{Law, PACKETS, Phase, Round, Trip, bytes_in, scaled, since, time_for};

/// The time for which another sender's queue is filled as well.
const COMPETE: Duration = Duration::from_secs(20);
/// The highest rate is reduced each so long, by a part: to a half within 12 s.
const PEAK_FOR: Duration = Duration::from_millis(500);
/// Rounds with a queue of another sender.
const CROWDED_MAX: u32 = 4;
/// Cubic's constant, packets a second cubed [RFC 9438].
const CUBIC: f64 = 0.4;

/// What a drain found of other senders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Others {
    /// The path with their queue, or the path that became longer.
    pub(super) longer: Trip,
    /// How many drains found them since the first.
    pub(super) found: u32,
}

/// The growth of a window beside other senders: TCP's usual one [RFC 9438].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cubic {
    /// When the last loss was, and the window before it. None before the first: growth is steep.
    lost: Option<(Instant, u64)>,
}

impl Cubic {
    /// Before the first loss.
    const STEEP: Cubic = Cubic { lost: None };

    pub(super) fn at(now: Instant, window: u64) -> Cubic {
        Cubic { lost: Some((now, window)) }
    }

    /// True for a packet sent after the last reduction: one sent before met the same queue.
    pub(super) fn is_news(self, sent: Instant) -> bool {
        self.lost.is_none_or(|(at, _)| sent > at)
    }

    /// The window `now`, which was `window` after the last round of `trip`.
    fn window(self, now: Instant, (window, packet): (u64, u64), trip: Duration) -> u64 {
        let Some((lost, before)) = self.lost else { return window + window / 4 };
        let before = before as f64 / packet.max(1) as f64;
        let (time, trip) = (since(now, lost).as_secs_f64(), trip.as_secs_f64().max(1e-3));
        let cubic = CUBIC * (time - (before * 0.3 / CUBIC).cbrt()).powi(3) + before;
        // As Reno with the same mean.
        let reno = before * 0.7 + 0.53 * time / trip;
        scaled(packet, cubic.max(reno)).clamp(window, window + window / 2)
    }
}

impl Law {
    /// Takes in the rate of a full round. Beside others it says nothing against the highest one.
    pub(super) fn handle_peak(&mut self, now: Instant, rate: u64) {
        let is_alone = !matches!(self.phase, Phase::Compete { .. });
        if is_alone && since(now, self.peaked) > PEAK_FOR {
            self.peaked = now;
            self.peak -= self.peak / 32;
        }
        self.peak = rate.max(self.peak);
    }

    /// Takes in the length of our queue in a round. `is_reduced`: if it was ours, it would be gone.
    pub(super) fn handle_queue(&mut self, now: Instant, queue: Duration, is_reduced: bool) {
        // The queue that stays makes the rate small, and the time of packets long.
        let ours_at_peak = self.target + time_for(PACKETS * self.packet(), self.peak);
        let is_squeezed = self.acked() < self.peak - self.peak / 4;
        let is_crowded = is_reduced && is_squeezed && queue > 3 * ours_at_peak;
        self.crowded = if is_crowded { self.crowded + 1 } else { 0 };
        if self.crowded >= CROWDED_MAX {
            self.crowded = 0;
            self.drain(now, Why::Period);
        }
    }

    /// Others fill the queue: with two equal senders, half of it would be ours.
    pub(super) fn begin_to_compete(&mut self, now: Instant, others: Others) {
        let trip = self.base().unwrap_or_default() + self.waited.unwrap_or_default();
        self.window = self.window.max(bytes_in(self.peak / 2, trip));
        self.compete_from(now, Cubic::STEEP, others);
    }

    pub(super) fn compete_from(&mut self, now: Instant, cubic: Cubic, others: Others) {
        self.crowded = 0;
        let until = now + COMPETE.max(10 * self.waited.unwrap_or_default());
        self.phase = Phase::Compete { until, from: (self.window, self.acked()), cubic, others };
    }

    pub(super) fn compete(&mut self, now: Instant, round: Round) {
        let Phase::Compete { until, from: (window, rate), cubic, others } = self.phase else {
            return;
        };
        let is_back = others.found == 0 && self.acked() >= self.peak - self.peak / 10;
        if now >= until || is_back {
            self.drain(now, Why::Others { window: self.window, others });
        } else if self.window > 4 * window && self.acked() < 2 * rate {
            // It is only our own queue that grows: the link became slower.
            self.peak = self.acked();
            self.drain(now, Why::Alone);
        } else if round.lost == 0 && !round.limited {
            let trip = self.base().unwrap_or_default() + self.waited.unwrap_or_default();
            let grown = cubic.window(now, (self.window, self.packet()), trip);
            self.window = grown.min(self.usable(round)).max(self.window);
            if cubic == Cubic::STEEP && self.window > 2 * window {
                let cubic = Cubic::at(now, self.window);
                self.phase = Phase::Compete { until, from: (window, rate), cubic, others };
            }
        }
        self.waited = None;
    }
}
