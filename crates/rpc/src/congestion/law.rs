//! The bytes that may be in flight, and their pace: the capacity of the path, and a short queue
//! before its slowest link.
//!
//! ```text
//!   pace   = arrival × (1 + (goal − wait) / (2 × delay))     while echoes come (`pace`)
//!   window = pace × (base + theirs + 2 × TARGET + ACK_DELAY) + 2 packets
//!
//!   window = rate × (base + TARGET) + 2 packets              before that
//! ```
//!
//! The other side tells how long our packets wait, and how fast they arrive ([`Echo`]). Neither
//! depends on the way back, so both directions may be full. The window only bounds what is sent if
//! the other side falls silent.
//!
//! Before the first echo, `rate` is the delivery of the last rounds, `base` the round trip of the
//! empty path. While the link is not full, delivery grows with the window, and so the window grows
//! with itself.
//!
//! ```text
//!            a queue, or no gain            each PERIOD
//!   Start ────────────────────────▶ Drain ◀────────────── Steady
//!     ▲                              │ │   the queue ends    ▲
//!     │ silence, outage              │ └─────────────────────┘
//!     └──────── from anywhere        │ it stays
//!                                    ▼  our window changes and the rate does not,
//!                                 Compete ──────────────────▶ Drain
//!                                       or the rate is back, or after a while
//! ```
//!
//! * **Start**: the window doubles each round.
//! * **Drain**: a sender that is never idle sees its own queue as a part of the path. So the window
//!   shrinks for a round until the queue is empty. The round trip is then the base. It rises by
//!   TARGET at most, unless we are alone: others' queue would be taken for the path.
//! * **Compete**: where a drain does not end the queue, another sender fills it, or the path is
//!   longer. The window is then TCP's usual one [RFC 9438]. Beside others a larger window brings a
//!   higher rate. If it does not, only our own queue changes: another drain finds the path.
//!
//! Losses alone do not shrink the window; a lower rate does. If a tenth or more is lost the queue
//! is shorter than TARGET, and TARGET is halved.

mod base;
mod others;
mod pace;
mod start;

use std::time::{Duration, Instant};

use self::base::Why;
use self::others::{Competition, Others};
use self::pace::Pace;
use super::stamps::Echo;

/// How long the queue should be, apart from a packet. Longer than a busy host's timers err.
const TARGET: Duration = Duration::from_millis(8);
/// So many more may be in flight: one that the link sends, and one behind it.
const PACKETS: u64 = 2;
/// The window at the start.
const PACKETS_START: u64 = 10;
/// Where the first round trip was longer the window starts with two: ten packets take ten seconds
/// at 9.6 kbit/s.
const SLOW: Duration = Duration::from_millis(400);
/// Packets are made smaller where a full one takes longer.
const PACKET_TIME: Duration = Duration::from_millis(25);
/// But not smaller than this, because each has headers and a seal.
const PACKET_MIN: u64 = 600;
/// Packets of a drain are smaller still. Beside others the rate is a share of the link's, and a
/// packet's time by it would hide their queue.
const PACKET_TIME_DRAINED: Duration = Duration::from_millis(4);
const PACKET_MIN_DRAINED: u64 = 150;
/// But not at fewer bytes a second than this: a thin link would carry mostly headers.
const RATE_THIN: u64 = 12 << 10;
/// A stamp goes along with so many packets.
const STAMP_PACKETS: u64 = 8;
/// The same where packets arrive sooner than the rate says.
const STAMP_PACKETS_EARLY: u64 = 1;
/// The shortest round: shorter ones tell more about timers than about the path.
const ROUND_MIN: Duration = Duration::from_millis(5);
/// How long a base counts.
const PERIOD: Duration = Duration::from_secs(10);
/// And at least for so many packets.
const PERIOD_PACKETS: u64 = 64;
/// A drain removes so much from the bytes in flight, besides the queue: others' queues as well.
const DRAIN: Duration = Duration::from_millis(60);
/// After so long without sending, the path may be another one.
const SILENCE: Duration = Duration::from_secs(2);
/// Packets that measure an empty path; a single one may have waited for a timer.
const PACKETS_DRAINED: u64 = 3;
/// The same, of echoes.
const ECHOES_DRAINED: u64 = 1;
/// The other side may put an acknowledgement off for so long.
const ACK_DELAY: Duration = Duration::from_millis(25);
/// If rounds gain less than this part, the link is full.
const GAIN: u64 = 4;
/// One of so many bytes lost in a round is too many.
const LOSS: u64 = 10;

#[derive(Clone, Debug)]
pub(super) struct Law {
    /// The largest packet that the path carries, bytes.
    mtu: u64,
    window: u64,
    phase: Phase,
    /// The round trip of the empty path; none before the first one.
    base: Option<Trip>,
    period_since: Instant,
    /// The share of the last round trips that is the other side's queue.
    theirs: [Duration; 3],
    /// The wait of an echo since the round before.
    waited: Option<Duration>,
    /// The pace that keeps the wait as it should be, while echoes tell it.
    pace: Pace,
    /// Bytes a second of the last rounds in which the window was full, the newest first.
    rates: [u64; 3],
    /// A round since the start was full. Only full rounds show the capacity of the path.
    is_known: bool,
    round: Round,
    /// The present goal of [`full_target`](Law::full_target), or a part of it.
    target: Duration,
    /// The latest packet took less than half of the time that it takes at the rate: the link may
    /// carry far more by now.
    is_early: bool,
    /// All other senders go first.
    is_background: bool,
    /// What the last look at the queue found while we stayed behind others.
    behind: Option<Others>,
    /// The highest recent rate, and when it was reduced last.
    peak: u64,
    peaked: Instant,
    /// The windows of the last rounds, the newest first.
    windows: [u64; 2],
    last_sent: Instant,
    /// When the latest acknowledged packet was sent.
    latest: Instant,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Start {
        /// Rounds that brought no gain.
        full: u32,
        /// Packets in a row that found a queue.
        queued: u32,
    },
    Steady,
    Drain {
        began: Instant,
        /// Packets sent from then on find our queue gone: once it should be, or once a packet of
        /// this drain has come through it.
        since: Instant,
        /// How much of that arrived.
        packets: u64,
        least: Option<Trip>,
        why: Why,
    },
    Compete(Competition),
}

/// The time of a packet of so many bytes. A part of it is the link's time for these bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Trip {
    time: Duration,
    bytes: u64,
}

fn lesser(least: Option<Trip>, trip: Trip) -> Option<Trip> {
    Some(least.map_or(trip, |least| least.min(trip)))
}

#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    /// When the latest packet acknowledged before this round was sent.
    sent: Instant,
    delivered: u64,
    /// Bytes times the microseconds that they were in flight.
    flown: u128,
    lost: u64,
    /// The least round trip in it.
    least: Option<Trip>,
    /// The sender had too little to send.
    limited: bool,
}

impl Round {
    fn new(since: Instant, sent: Instant, limited: bool) -> Round {
        Round { since, sent, delivered: 0, flown: 0, lost: 0, least: None, limited }
    }

    /// How much was in flight on average.
    fn in_flight(&self, length: Duration) -> u64 {
        u64::try_from(self.flown / length.as_micros().max(1)).unwrap_or(u64::MAX)
    }
}

impl Law {
    pub(super) fn new(now: Instant, packet: u16) -> Law {
        let packet = u64::from(packet);
        Law {
            mtu: packet,
            window: PACKETS_START * packet,
            phase: Phase::Start { full: 0, queued: 0 },
            base: None,
            period_since: now,
            theirs: [Duration::ZERO; 3],
            waited: None,
            pace: Pace::default(),
            rates: [0; 3],
            is_known: false,
            round: Round::new(now, now, true),
            target: TARGET,
            is_early: false,
            is_background: false,
            behind: None,
            peak: 0,
            peaked: now,
            windows: [0; 2],
            last_sent: now,
            latest: now,
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        match self.phase {
            Phase::Drain { .. } => self.drained(),
            _ => self.window,
        }
    }

    /// The bytes recently allowed in flight. After a reduction the excess is sent already, and
    /// messages with a waiter do not wait for its arrival.
    pub(super) fn ceiling(&self) -> u64 {
        self.windows.into_iter().chain([self.window]).max().unwrap_or(0)
    }

    /// Bytes a second to be sent at most; `None`: all at once.
    pub(super) fn pace(&self) -> Option<u64> {
        let rate = self.rate();
        let base = self.base()?;
        match self.phase {
            _ if rate == 0 => None,
            Phase::Start { .. } => Some(per_second(2 * self.window, base)),
            Phase::Compete(_) => None,
            // At the rate of a sign of life each few seconds, a packet would take minutes.
            _ if !self.is_known => None,
            Phase::Steady | Phase::Drain { .. } => {
                if let Some(pace) = self.pace.told() {
                    return Some(pace);
                }
                let trip = base + self.theirs() + self.target + self.packets(PACKETS);
                Some(per_second(self.window + self.window / 20, trip))
            }
        }
    }

    /// The size of a packet that is sent on this path, bytes: less than the path allows where it
    /// takes long.
    pub(super) fn packet(&self) -> u64 {
        let (time, least) = match self.phase {
            Phase::Drain { .. } if self.rate() >= RATE_THIN => {
                (PACKET_TIME_DRAINED, PACKET_MIN_DRAINED)
            }
            _ if self.is_known && !self.is_learning() => (PACKET_TIME, PACKET_MIN),
            _ => return self.mtu,
        };
        self.mtu.min(bytes_in(self.rate(), time).max(least))
    }

    /// The largest packet that the path carries, bytes.
    pub(super) fn packet_max(&self) -> u64 {
        self.mtu
    }

    /// Bytes a second that the path delivered when it was busy last; 0 before that.
    pub(super) fn rate(&self) -> u64 {
        self.pace.rate().unwrap_or_else(|| self.acked())
    }

    /// The same by acknowledgements alone.
    fn acked(&self) -> u64 {
        self.rates.into_iter().max().unwrap_or(0)
    }

    /// True at the start, and after a silence: the rate is then that of a few bytes.
    pub(super) fn is_learning(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
    }

    /// So many bytes have a stamp.
    pub(super) fn stamped(&self) -> u64 {
        let packets = if self.is_early { STAMP_PACKETS_EARLY } else { STAMP_PACKETS };
        packets * self.packet()
    }

    /// The round trip of the empty path, as far as it is known.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base.map(|base| base.time)
    }

    /// The round trip with the queue of this round, as far as it is known.
    fn trip(&self) -> Duration {
        self.base().unwrap_or_default() + self.waited.unwrap_or_default()
    }

    /// From now on all other senders go first, or not.
    pub(super) fn set_background(&mut self, now: Instant, is_background: bool) {
        if self.is_background == is_background {
            return;
        }
        self.is_background = is_background;
        self.behind = None;
        self.target = self.full_target();
        if matches!(self.phase, Phase::Compete(_)) {
            self.drain(now, Why::Period);
        }
    }

    /// How long the queue should be, apart from a packet.
    fn full_target(&self) -> Duration {
        if self.is_background { TARGET / 2 } else { TARGET }
    }

    pub(super) fn handle_packet_size(&mut self, packet: u16) {
        self.mtu = u64::from(packet);
    }

    /// Something was sent.
    pub(super) fn handle_sent(&mut self, now: Instant) {
        let silence = SILENCE.max(4 * (self.base().unwrap_or_default() + self.packets(PACKETS)));
        if since(now, self.last_sent) > silence {
            self.restart(PACKETS_START, now);
        }
        self.last_sent = now;
    }

    /// There was room and nothing to send.
    pub(super) fn handle_idle(&mut self) {
        self.round.limited = true;
    }

    /// `bytes`, sent then, were acknowledged `now`.
    pub(super) fn handle_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        let trip = Trip { time: since(now, sent), bytes };
        if self.base.is_none() && trip.time > SLOW {
            self.window = PACKETS * self.packet();
            self.phase = Phase::Steady;
        }
        self.base = lesser(self.base, trip);
        if bytes >= self.packet() / 2 && self.is_known {
            self.is_early = 2 * trip.time < time_for(bytes, self.rate());
        }
        self.latest = self.latest.max(sent);
        self.round.delivered += bytes;
        self.round.flown += u128::from(bytes) * trip.time.as_micros();
        self.round.least = lesser(self.round.least, trip);
        if !self.pace.is_heard() {
            let base = self.base().unwrap_or_default();
            self.handle_start(now, trip.time.saturating_sub(base), start::QUEUED_MAX);
            self.handle_drained(now, sent, trip, PACKETS_DRAINED);
        }
        let length = since(now, self.round.since);
        if sent >= self.round.since && length >= ROUND_MIN {
            let round = std::mem::replace(&mut self.round, Round::new(now, self.latest, false));
            self.end_round(now, round, length);
        }
    }

    /// The other side answered a stamp.
    pub(super) fn handle_echo(&mut self, now: Instant, echo: Echo) {
        let [one, two, _] = self.theirs;
        self.theirs = [echo.theirs, one, two];
        let trip = Trip { time: echo.trip.saturating_sub(echo.theirs), bytes: 0 };
        self.base = lesser(self.base, trip);
        let wait = trip.time.saturating_sub(self.base().unwrap_or_default());
        self.waited = Some(self.waited.map_or(wait, |waited| waited.min(wait)));
        self.steer(now, wait, echo);
        self.handle_start(now, wait, start::QUEUED_ECHOES);
        let sent = now.checked_sub(echo.trip).unwrap_or(now);
        self.handle_drained(now, sent, trip, ECHOES_DRAINED);
    }

    /// The share of a round trip that is the other side's queue.
    fn theirs(&self) -> Duration {
        self.theirs.into_iter().min().unwrap_or_default()
    }

    /// `bytes`, the last sent then, were lost; `all`: nothing arrived for several timeouts.
    pub(super) fn handle_loss(&mut self, now: Instant, sent: Instant, bytes: u64, all: bool) {
        self.round.lost += bytes;
        let trip = self.trip();
        if all {
            self.restart(PACKETS, now);
        } else if matches!(self.phase, Phase::Start { .. }) && self.round.lost > self.window / LOSS
        {
            self.end_start(now);
        } else if let Phase::Compete(competition) = &mut self.phase
            && competition.handle_loss(now, sent, (self.window, trip))
        {
            self.window = (self.window * 7 / 10).max(self.least_window());
        }
    }

    /// Begins to learn the path anew.
    fn restart(&mut self, packets: u64, now: Instant) {
        self.window = self.window.min(packets * self.packet());
        self.phase = Phase::Start { full: 0, queued: 0 };
        self.rates = [0; 3];
        self.pace = Pace::default();
        self.is_known = false;
        self.round = Round::new(now, self.latest, true);
    }

    fn least_window(&self) -> u64 {
        PACKETS * self.packet()
    }

    /// The window at which the queue is gone.
    fn drained(&self) -> u64 {
        let base = self.base().unwrap_or_default().saturating_sub(DRAIN);
        bytes_in(self.rate(), base).min(self.window).max(self.least_window())
    }

    /// The window at which the queue is as long as it should be.
    fn aim(&self, rate: u64) -> u64 {
        let Trip { time, bytes } = self.base.unwrap_or(Trip { time: Duration::ZERO, bytes: 0 });
        let path = bytes_in(rate, time).saturating_sub(bytes);
        path + bytes_in(rate, self.theirs() + self.target) + self.least_window()
    }

    fn end_round(&mut self, now: Instant, mut round: Round, length: Duration) {
        let all = round.delivered + round.lost;
        // A sign of life comes alone. Packets are some bytes shorter than they may be.
        round.limited |= all < self.packet() / 2;
        let is_lossy = round.lost * LOSS > all && all > LOSS * self.packet();
        self.target = match is_lossy {
            true => (self.target / 2).max(self.full_target() / 16),
            false => (self.target + TARGET / 20).min(self.full_target()),
        };
        // Packets lost by chance had their place in the link too.
        let carried = if is_lossy { round.delivered } else { all };
        // Acknowledgements that come together cover packets whose sending took time.
        let spread = since(self.latest, round.sent);
        let rate = per_second(carried, length.max(spread));
        let is_full = !round.limited && !matches!(self.phase, Phase::Drain { .. });
        if is_full {
            self.rates = [rate, self.rates[0], self.rates[1]];
            self.is_known = true;
            self.handle_peak(now, rate);
        } else {
            self.rates[0] = self.rates[0].max(rate);
        }
        self.pace.end_round(now, is_full);
        self.windows = [self.window, self.windows[0]];
        match self.phase {
            Phase::Start { full, .. } if !round.limited => self.start(now, full, round),
            Phase::Steady if !round.limited => self.follow(now, round, length),
            Phase::Compete(competition) => self.compete(now, round, competition),
            _ => {}
        }
        if since(now, self.period_since) >= PERIOD.max(self.packets(PERIOD_PACKETS)) {
            self.end_period(now);
        }
    }

    /// The least length of our queue.
    fn queue(&self, round: Round) -> Duration {
        let (Some(base), Some(least)) = (self.base, round.least) else { return Duration::ZERO };
        let seen = least.time.saturating_sub(base.time + self.theirs());
        self.waited.unwrap_or(seen)
    }

    /// The largest useful window: a host that is slower than the link does not fill its window.
    fn usable(&self, round: Round) -> u64 {
        2 * (round.delivered + round.lost) + PACKETS_START * self.packet()
    }

    /// The time that `packets` take at the present rate.
    fn packets(&self, packets: u64) -> Duration {
        match self.rate() {
            0 => Duration::ZERO,
            rate => time_for(packets * self.packet(), rate),
        }
    }

    fn follow(&mut self, now: Instant, round: Round, length: Duration) {
        let queue = self.queue(round);
        let is_reduced = match self.pace.told() {
            Some(pace) => {
                let trip = self.base().unwrap_or_default() + self.theirs() + 2 * self.target;
                self.window = bytes_in(pace, trip + ACK_DELAY) + self.least_window();
                self.pace.is_reduced(now)
            }
            None => {
                self.follow_acks(queue, round, length);
                false
            }
        };
        self.waited = None;
        self.handle_queue(now, queue, is_reduced);
    }

    /// Without echoes.
    fn follow_acks(&mut self, queue: Duration, round: Round, length: Duration) {
        let ours = self.target + self.packets(PACKETS);
        // One slow round is the host's; a long queue is the link's.
        let rate = if queue > 2 * ours { self.rates[0] } else { self.rate() };
        let (aim, before) = (self.aim(rate), self.window);
        // The pace may keep a window from being used, and a queue shows only some rounds after
        // its cause.
        let used = round.in_flight(length);
        let most = self.aim(rate + rate / GAIN).max(used + used / 4);
        let most = most.min(before + before / 4).min(self.usable(round));
        self.window = if queue < self.target / 2 { aim.max(most) } else { aim };
    }
}

fn since(now: Instant, at: Instant) -> Duration {
    now.saturating_duration_since(at)
}

/// `value` times a factor that is not negative.
// The cast saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64
}

pub(super) fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX)
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000 / time.as_micros().max(1)).unwrap_or(u64::MAX)
}

pub(super) fn time_for(bytes: u64, rate: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / rate.max(1))
}

#[cfg(test)]
mod tests;
