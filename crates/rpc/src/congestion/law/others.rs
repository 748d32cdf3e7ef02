//! Other senders that fill the queue: whether there are any, and our share beside them.

use std::time::{Duration, Instant};

use super::base::Why;
use super::{Law, PACKETS_START, Phase, Round, TARGET, Trip, bytes_in, scaled, since, time_for};

/// The time for which another sender's queue is filled as well.
const COMPETE: Duration = Duration::from_secs(20);
/// How often who stays behind others looks for the end of their queue.
const LOOK: Duration = Duration::from_secs(5);
/// The highest rate is reduced each so long, by a part: to a half within 12 s.
const PEAK_FOR: Duration = Duration::from_millis(500);
/// A rate that differs by less than this part is the same.
const SAME: u64 = 8;
/// Cubic's constant, packets a second cubed [RFC 9438].
const CUBIC: f64 = 0.4;

/// What a drain found of other senders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Others {
    /// The path with their queue, or the path that became longer.
    pub(super) longer: Trip,
    /// When that was measured.
    pub(super) at: Instant,
    /// How many drains found them since the first.
    pub(super) found: u32,
}

/// What we are beside others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Competition {
    until: Instant,
    /// A window, and the rate at which its packets arrived, once they did.
    from: (u64, Option<u64>),
    /// The rate without others, if it is known.
    former: Option<u64>,
    cubic: Cubic,
    others: Others,
}

impl Competition {
    /// The window that is half of the link, if its rate is known: on a path of `trip`.
    fn half(&self, trip: Duration) -> u64 {
        self.former.map_or(0, |former| bytes_in(former / 2, trip))
    }

    /// True if `arrival` is so much of the link that the window stays: some senders make room for
    /// whoever grows. Before others were found twice the path may only be longer.
    fn has_enough(&self, arrival: u64) -> bool {
        let most = self.former.map(|former| former - former * 3 / 8);
        self.others.found > 0 && most.is_some_and(|most| arrival > most)
    }

    /// What is sent from now on, after a loss, grows from `window` on a path of `trip`. False if
    /// the packet was sent before the last reduction: it met the same queue.
    pub(super) fn handle_loss(
        &mut self,
        now: Instant,
        sent: Instant,
        (window, trip): (u64, Duration),
    ) -> bool {
        let is_news = self.cubic.lost.is_none_or(|(at, _)| sent > at);
        if is_news {
            // We lose most while others' first growth fills the queue. From there Cubic's curve
            // takes half a minute to half of the link. One that aims there takes seconds.
            let half = if self.others.found == 0 { self.half(trip) } else { 0 };
            self.cubic = Cubic::at(now, window.max(half));
        }
        is_news
    }
}

/// The growth of a window beside other senders: TCP's usual one [RFC 9438].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cubic {
    /// When the last loss was, and the window before it. None before the first: growth is steep.
    lost: Option<(Instant, u64)>,
}

impl Cubic {
    /// Before the first loss.
    pub(super) const STEEP: Cubic = Cubic { lost: None };

    pub(super) fn at(now: Instant, window: u64) -> Cubic {
        Cubic { lost: Some((now, window)) }
    }

    /// The window `now`, which was `window` after the last round of `trip`.
    fn window(self, now: Instant, (window, packet): (u64, u64), trip: Duration) -> u64 {
        let Some((lost, before)) = self.lost else { return window + window / 2 };
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
        let is_alone = !matches!(self.phase, Phase::Compete(_)) && self.behind.is_none();
        if is_alone && since(now, self.peaked) > PEAK_FOR {
            self.peaked = now;
            self.peak -= self.peak / 32;
        }
        self.peak = rate.max(self.peak);
    }

    /// Takes in the length of the queue in a round. `is_reduced`: ours would have become shorter.
    pub(super) fn handle_queue(&mut self, now: Instant, queue: Duration, is_reduced: bool) {
        // Who stays behind has no queue to reduce.
        let is_theirs = match self.is_background {
            true => since(now, self.period_since) >= LOOK,
            false => is_reduced,
        };
        if is_theirs && queue > self.ours_at_most() {
            self.drain(now, Why::Period);
        }
    }

    /// The longest queue that is taken for ours. Beside others the rate is small, and says nothing
    /// of the link's time for a packet.
    pub(super) fn ours_at_most(&self) -> Duration {
        3 * self.target + time_for(self.packet(), self.peak.max(self.rate()))
    }

    /// The same after a drain: an echo errs by a timer, an acknowledgement by its delay as well.
    pub(super) fn ours_when_drained(&self) -> Duration {
        if !self.pace.is_heard() {
            return self.ours_at_most();
        }
        TARGET + TARGET / 2 + time_for(self.packet(), self.peak.max(self.rate()))
    }

    /// Others fill the queue: with two equal senders, half of it would be ours.
    pub(super) fn begin_to_compete(&mut self, now: Instant, others: Others) {
        let half = bytes_in(self.peak / 2, others.longer.time);
        self.window = self.window.max(half).max(PACKETS_START * self.packet());
        self.compete_from(now, Cubic::STEEP, others);
    }

    pub(super) fn compete_from(&mut self, now: Instant, cubic: Cubic, others: Others) {
        let until = now + COMPETE.max(10 * self.waited.unwrap_or_default());
        let former = (self.peak > self.acked() + self.acked() / 4).then_some(self.peak);
        let from = (self.window, None);
        self.phase = Phase::Compete(Competition { until, from, former, cubic, others });
    }

    /// Bytes a second that arrived over the last round trip.
    fn arrival(&self) -> u64 {
        self.pace.arrival().unwrap_or(self.rates[0])
    }

    pub(super) fn compete(&mut self, now: Instant, round: Round, mut competition: Competition) {
        let Competition { until, from: (window, rate), former, cubic, others } = competition;
        let is_back = former.is_some_and(|former| self.acked() >= former - former / 10);
        // What this round brought was sent by the window before.
        let sent_by = self.windows[1];
        if now >= until || is_back && others.found == 0 {
            let others = Others { found: others.found + 1, ..others };
            self.drain(now, Why::Others { window: self.window, others });
        } else if let Some(rate) = rate
            && (sent_by > window + window / 2 || sent_by < window - window / 3)
        {
            let arrival = self.arrival();
            if arrival.abs_diff(rate) < rate / SAME {
                // It is only our own queue that changes.
                self.drain(now, Why::Others { window: self.window, others });
            } else {
                competition.from = (sent_by, Some(arrival));
                if arrival > rate && arrival < rate + rate / 2 {
                    competition.cubic = Cubic::at(now, self.window);
                }
                self.phase = Phase::Compete(competition);
            }
        } else if round.lost == 0 && !round.limited && !competition.has_enough(self.arrival()) {
            let trip = self.trip();
            let grown = cubic.window(now, (self.window, self.packet()), trip);
            let half = if cubic == Cubic::STEEP { competition.half(trip) } else { 0 };
            self.window = grown.min(self.usable(round)).max(self.window).max(half);
            if rate.is_none() && sent_by >= window {
                competition.from = (sent_by, Some(self.arrival()));
                self.phase = Phase::Compete(competition);
            }
        }
        self.waited = None;
    }
}
