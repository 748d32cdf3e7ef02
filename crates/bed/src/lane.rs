//! One direction of a relayed link, as a machine without clock or threads.
//!
//! ```text
//!  push ──▶ queue (tail drop) ──▶ serialiser (rate or trace) ──▶ flight (delay, jitter) ──▶ poll
//!                                                           └──▶ lost
//! ```
//!
//! A packet uses its time on the link before it is lost, as on a radio. Packets stay in order,
//! also under jitter, except for those chosen to be reordered: they are held back so that later
//! ones overtake them. Time is an argument: the duration since the relay started.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::link::LinkSpec;
use super::rng::Rng;

/// Held back at least this long when reordered, so that something can overtake it.
const REORDER_HOLD: Duration = Duration::from_millis(10);

/// A link without a rate keeps at most this many bytes in the air.
const FLIGHT_BYTES_MAX: u64 = 64 << 20;

const NEVER: Duration = Duration::MAX;

/// The packets of one direction: queued, or in flight.
#[derive(Debug)]
pub(crate) struct RelayQueue {
    link: LinkSpec,
    down: bool,
    rng: Rng,
    queue: VecDeque<Vec<u8>>,
    queued_bytes: u64,
    /// Bytes of the queue's head that the serialiser still has to send.
    head_left: f64,
    /// The serialiser's work is accounted for up to here.
    clock: Duration,
    trace_start: Duration,
    /// Ordered by due time, then by arrival.
    flight: BTreeMap<(Duration, u64), Vec<u8>>,
    flight_bytes: u64,
    launched: u64,
    /// Bytes that the serialiser has sent, those that were lost after it too.
    carried: u64,
    last_due: Duration,
}

impl RelayQueue {
    pub(crate) fn new(link: LinkSpec, seed: u64) -> RelayQueue {
        RelayQueue {
            link,
            down: false,
            rng: Rng::new(seed),
            queue: VecDeque::new(),
            queued_bytes: 0,
            head_left: 0.0,
            clock: Duration::ZERO,
            trace_start: Duration::ZERO,
            flight: BTreeMap::new(),
            flight_bytes: 0,
            launched: 0,
            carried: 0,
            last_due: Duration::ZERO,
        }
    }

    /// Changes the link under the packets that are on it; a trace starts anew.
    pub(crate) fn set_link(&mut self, link: LinkSpec, now: Duration) {
        self.settle(now);
        self.link = link;
        self.trace_start = now;
    }

    /// Down loses everything that is on the link and all that comes.
    pub(crate) fn set_down(&mut self, down: bool) {
        self.down = down;
        if down {
            self.queue.clear();
            self.queued_bytes = 0;
            self.flight.clear();
            self.flight_bytes = 0;
        }
    }

    /// Takes a packet in at `now`, or drops it because the queue is full.
    pub(crate) fn push(&mut self, packet: Vec<u8>, now: Duration) {
        self.advance(now);
        let bytes = packet.len() as u64;
        let full = self.queued_bytes + bytes > self.link.queue_bytes()
            || self.flight_bytes + bytes > FLIGHT_BYTES_MAX;
        if self.down || full {
            return;
        }
        if self.queue.is_empty() {
            self.clock = self.clock.max(now);
            self.head_left = packet.len() as f64;
        }
        self.queued_bytes += bytes;
        self.queue.push_back(packet);
        self.advance(now);
    }

    /// Bytes of packets that the link has sent by `now`.
    pub(crate) fn carried(&mut self, now: Duration) -> u64 {
        self.advance(now);
        self.carried
    }

    /// The next packet that has arrived at the other end by `now`.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.advance(now);
        let entry = self.flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        let packet = entry.remove();
        self.flight_bytes -= packet.len() as u64;
        Some(packet)
    }

    /// When to poll again, if anything is on the link.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let arrival = self.flight.keys().next().map(|(due, _)| *due);
        let sent = (!self.queue.is_empty()).then(|| {
            let (rate, until) = self.rate_at(self.clock);
            self.head_finish(rate).min(until)
        });
        arrival.into_iter().chain(sent).min()
    }

    /// Moves every packet that the serialiser has finished by `now` into the air.
    fn advance(&mut self, now: Duration) {
        while !self.queue.is_empty() {
            let (rate, until) = self.rate_at(self.clock);
            let finish = self.head_finish(rate);
            if finish <= until.min(now) {
                self.clock = finish;
                self.launch_head();
            } else if until <= now {
                self.spend(rate, until);
            } else {
                break;
            }
        }
    }

    /// Accounts for a part of the head's time, so that the rate can change at `now`.
    fn settle(&mut self, now: Duration) {
        self.advance(now);
        if !self.queue.is_empty() {
            let (rate, _) = self.rate_at(self.clock);
            self.spend(rate, now);
        }
    }

    fn spend(&mut self, rate: Option<u64>, until: Duration) {
        let elapsed = until.saturating_sub(self.clock).as_secs_f64();
        self.head_left = (self.head_left - elapsed * rate.unwrap_or(0) as f64).max(0.0);
        self.clock = self.clock.max(until);
    }

    fn head_finish(&self, rate: Option<u64>) -> Duration {
        match rate {
            None => self.clock,
            Some(0) => NEVER,
            Some(rate) => self.clock + Duration::from_secs_f64(self.head_left / rate as f64),
        }
    }

    fn launch_head(&mut self) {
        let Some(packet) = self.queue.pop_front() else { return };
        self.queued_bytes -= packet.len() as u64;
        self.carried += packet.len() as u64;
        self.head_left = self.queue.front().map_or(0.0, |next| next.len() as f64);
        if self.rng.unit() < self.link.loss {
            return;
        }
        let due = self.due();
        self.flight_bytes += packet.len() as u64;
        self.flight.insert((due, self.launched), packet);
        self.launched += 1;
    }

    fn due(&mut self) -> Duration {
        let arrives = self.clock + self.link.delay + self.link.jitter.mul_f64(self.rng.unit());
        if self.rng.unit() < self.link.reorder {
            return arrives + REORDER_HOLD + self.link.delay / 2;
        }
        self.last_due = self.last_due.max(arrives);
        self.last_due
    }

    /// The rate at `time` (none: unlimited) and until when it holds.
    fn rate_at(&self, time: Duration) -> (Option<u64>, Duration) {
        let period: Duration = self.link.trace.iter().map(|(term, _)| *term).sum();
        if period.is_zero() {
            return (self.link.rate, NEVER);
        }
        let since = time.saturating_sub(self.trace_start).as_nanos();
        let mut left = since % period.as_nanos();
        for (term, rate) in &self.link.trace {
            if left < term.as_nanos() {
                let rest = u64::try_from(term.as_nanos() - left).unwrap_or(u64::MAX);
                return (Some(*rate), time + Duration::from_nanos(rest));
            }
            left -= term.as_nanos();
        }
        (self.link.rate, NEVER)
    }
}

#[cfg(test)]
mod tests;
