//! The pace of a sender that the other side tells how long its packets wait.
//!
//! ```text
//!   pace = arrival × (1 + (goal − wait) / (2 × delay))
//! ```
//!
//! `arrival` is the rate by the other side's clock. It is the link's while there is a queue. The
//! second factor brings the wait to its goal within two delays. The goal is a packet's own time and
//! 8 ms, less a quarter of the packet's time, but 4 ms at least. Neither factor depends on the way
//! back, so the other direction may be full.

use std::time::{Duration, Instant};

use super::{Law, Phase, per_second, scaled, since, time_for};
use crate::congestion::flight::stamp_period;
use crate::congestion::stamps::Echo;

/// The pace differs by this part at most, from the rate of arrival and from the pace before.
const STEP: f64 = 0.25;
/// A queue is brought to its goal within so many delays.
const DELAYS_TO_GOAL: f64 = 2.0;
/// The same, for one that is twice as long.
const DELAYS_TO_GOAL_LONG: f64 = 1.5;
/// After so many delays without a queue, the step doubles with each.
const DELAYS_CALM: f64 = 2.0;
/// Without an echo for so many delays, the law goes by acknowledgements.
const DELAYS_MISSED: u32 = 8;
/// A queue of our own is shorter by a quarter after so many.
const DELAYS_REDUCED: u32 = 4;
/// Each of the three times of the rates is as long as so many, and as [`SPAN`].
const DELAYS_RATES: u32 = 2;
/// Longer than the other side measures arrival for.
const SPAN: Duration = Duration::from_millis(50);
/// Arrival is believed up to so many times what is acknowledged: the other side may lie.
const BELIEVED: u64 = 4;

/// What the echoes tell.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    pace: Option<u64>,
    /// Bytes a second that arrived of late.
    arrival: Option<u64>,
    /// Without an echo until then the other side is silent.
    until: Option<Instant>,
    /// Since when no packet waits.
    calm: Option<Instant>,
    /// When our own queue would have become shorter than this. None unless the queue is twice as
    /// long as it should be.
    reduced: Option<(Instant, Duration)>,
    /// Arrival in bytes a second: the most of three times, the newest first.
    rates: [u64; 3],
    shifted: Option<Instant>,
    /// When the sender had too little to send, or held back.
    idle: Option<Instant>,
}

impl Pace {
    pub(super) fn told(self) -> Option<u64> {
        self.pace
    }

    /// Bytes a second that arrived over the last round trip, while echoes tell it.
    pub(super) fn arrival(self) -> Option<u64> {
        self.until.and(self.arrival)
    }

    /// True while echoes come.
    pub(super) fn is_heard(self) -> bool {
        self.until.is_some()
    }

    /// Arrival in bytes a second, while echoes tell it.
    pub(super) fn rate(self) -> Option<u64> {
        self.pace.and(self.rates.into_iter().max())
    }

    /// True once a queue is another sender's.
    pub(super) fn is_reduced(self, now: Instant) -> bool {
        self.reduced.is_some_and(|(at, _)| now >= at)
    }

    /// `is_full`: the round shows the link's rate.
    pub(super) fn end_round(&mut self, now: Instant, is_full: bool) {
        if self.until.is_some_and(|until| now > until) {
            self.until = None;
        }
        if !is_full {
            self.idle = Some(now);
        } else if self.until.is_none() {
            *self = Pace::default();
        }
    }

    /// Takes in a rate of arrival.
    fn handle_rate(&mut self, now: Instant, rate: u64, time: Duration, is_full: bool) {
        let is_over = self.shifted.is_none_or(|at| since(now, at) >= time);
        if is_over && is_full {
            let [one, two, _] = self.rates;
            self.rates = [0, one, two];
            self.shifted = Some(now);
        }
        self.rates[0] = self.rates[0].max(rate);
    }
}

impl Law {
    /// Who stays behind others sends a packet each delay all the same: else nothing would tell when
    /// they have gone.
    fn least_pace(&self, delay: Duration) -> u64 {
        if self.is_background { per_second(self.packet(), delay) } else { 0 }
    }

    /// Takes in what the other side tells of our packets.
    pub(super) fn steer(&mut self, now: Instant, wait: Duration, Echo { trip, rate, .. }: Echo) {
        let Some(rate) = rate.map(|rate| rate.min(BELIEVED * self.acked())) else { return };
        let delay = trip.max(self.base().unwrap_or_default()) + stamp_period(self.stamped(), rate);
        self.pace.until = Some(now + DELAYS_MISSED * delay);
        self.pace.arrival = Some(rate);
        let span = (DELAYS_RATES * delay).max(SPAN);
        let is_full = !self.round.limited
            && matches!(self.phase, Phase::Steady | Phase::Compete(_))
            && self.pace.idle.is_none_or(|at| since(now, at) > span);
        self.pace.handle_rate(now, rate, span, is_full);
        if !is_full && self.pace.pace.is_none() {
            return;
        }
        let own = time_for(self.packet(), rate);
        let goal = own + self.target.saturating_sub(own / 4).max(self.target / 2);
        let is_long = wait > 2 * goal;
        // A drain leaves a gap in what arrives. A long queue may be a slower link's.
        let rate = match wait > goal + self.target {
            true => rate,
            false => self.pace.rates.into_iter().max().unwrap_or(rate),
        };
        let is_calm = is_full && wait <= self.target / 4 + own;
        self.pace.calm = is_calm.then(|| self.pace.calm.unwrap_or(now));
        let reduced = self.pace.reduced.filter(|(_, before)| wait > *before - *before / 4);
        let reduced = reduced.unwrap_or((now + DELAYS_REDUCED * (delay + SPAN), wait));
        self.pace.reduced = is_long.then_some(reduced);
        let calm = self.pace.calm.map_or(Duration::ZERO, |at| since(now, at));
        let doublings = (calm.div_duration_f64(delay) - DELAYS_CALM).clamp(0.0, 8.0);
        let delays = if is_long { DELAYS_TO_GOAL_LONG } else { DELAYS_TO_GOAL };
        let missing = goal.as_secs_f64() - wait.as_secs_f64();
        let step = missing / (delays * delay.as_secs_f64()) * doublings.exp2();
        let step = step.clamp(-STEP, STEP);
        let pace = scaled(rate, 1.0 + step).max(self.least_pace(delay));
        self.pace.pace = Some(match self.pace.pace {
            Some(before) if !is_full && step > 0.0 => before.max(pace),
            Some(before) => pace.clamp(before - before / 4, before + before / 4),
            None => pace,
        });
    }
}
