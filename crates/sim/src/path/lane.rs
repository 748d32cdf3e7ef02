//! One direction of a path: a queue that drops its newest, a rate that changes, a delay.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::rng::Rng;

/// What IP and UDP add to a packet, bytes.
pub(crate) const HEADERS: u64 = 28;

/// What a lane is like.
#[derive(Clone, Debug)]
pub struct LaneSpec {
    /// Bytes a second, headers included, and for how long; the last one holds for ever.
    pub rates: Vec<(Duration, u64)>,
    /// How long a packet travels once it has left the queue, and from when on.
    pub delays: Vec<(Duration, Duration)>,
    /// How much may wait, bytes.
    pub queue: u64,
    /// Packets of a thousand that are lost by chance.
    pub loss: u64,
    /// At most so much is added to the delay by chance; packets stay in order.
    pub jitter: Duration,
}

/// The queue of one direction of a path, and the link behind it.
pub(crate) struct PathQueue {
    spec: LaneSpec,
    start: Instant,
    rng: Rng,
    /// When the link will have sent all that waits.
    free: Instant,
    /// When each waiting packet will have been sent, and its bytes.
    waiting: VecDeque<(Instant, u64)>,
    arrived: Instant,
    /// Bytes that the link sent.
    pub(crate) carried: u64,
}

impl PathQueue {
    pub(crate) fn new(spec: LaneSpec, start: Instant, seed: u64) -> PathQueue {
        let rng = Rng::new(seed);
        let waiting = VecDeque::new();
        PathQueue { spec, start, rng, free: start, waiting, arrived: start, carried: 0 }
    }

    /// Sends `bytes`: when they arrive, `None` if they are dropped.
    pub(crate) fn send(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let bytes = bytes + HEADERS;
        while self.waiting.front().is_some_and(|(sent, _)| *sent <= now) {
            self.waiting.pop_front();
        }
        let waits: u64 = self.waiting.iter().map(|(_, bytes)| bytes).sum();
        if waits + bytes > self.spec.queue {
            return None;
        }
        self.free = self.sent_after(self.free.max(now), bytes);
        self.waiting.push_back((self.free, bytes));
        self.carried += bytes;
        if self.rng.chance(self.spec.loss) {
            return None;
        }
        let jitter = u64::try_from(self.spec.jitter.as_micros()).unwrap_or(u64::MAX);
        let jitter = Duration::from_micros(if jitter > 0 { self.rng.below(jitter) } else { 0 });
        self.arrived = self.arrived.max(self.free + self.delay() + jitter);
        Some(self.arrived)
    }

    /// How long what is sent `now` would wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.free.saturating_duration_since(now)
    }

    fn delay(&self) -> Duration {
        let since = self.free.saturating_duration_since(self.start);
        let present = self.spec.delays.iter().rev().find(|(from, _)| *from <= since);
        present.map_or(Duration::ZERO, |(_, delay)| *delay)
    }

    /// When `bytes` are sent of which the first goes at `from`.
    fn sent_after(&self, from: Instant, bytes: u64) -> Instant {
        let (mut at, mut left) = (from, bytes as f64);
        let mut end = self.start;
        for (index, (length, rate)) in self.spec.rates.iter().enumerate() {
            end += *length;
            let is_last = index + 1 == self.spec.rates.len();
            if at >= end && !is_last {
                continue;
            }
            let room = (end.saturating_duration_since(at)).as_secs_f64() * *rate as f64;
            if is_last || room >= left {
                return at + Duration::from_secs_f64(left / (*rate).max(1) as f64);
            }
            left -= room;
            at = end;
        }
        at
    }

    /// Bytes that the link could have sent in a time.
    pub(crate) fn capacity(&self, from: Instant, to: Instant) -> u64 {
        let (mut sum, mut begin) = (0, self.start);
        for (index, (length, rate)) in self.spec.rates.iter().enumerate() {
            let is_last = index + 1 == self.spec.rates.len();
            let end = if is_last { to } else { begin + *length };
            let overlap = end.min(to).saturating_duration_since(begin.max(from));
            sum += overlap.as_micros() * u128::from(*rate) / 1_000_000;
            begin = end;
        }
        u64::try_from(sum).unwrap_or(u64::MAX)
    }
}
