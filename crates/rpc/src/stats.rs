//! A connection's report about itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use segue_core::nouns::Class;

use crate::congestion::Shared;
use crate::rate::Meter;

/// A connection at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The round trip of the empty path, as far as it is known.
    pub base_rtt: Option<Duration>,
    /// Estimated bytes a second that the path carries to the other side; 0 until known.
    pub rate: u64,
    /// Bytes a second that reached the other side during the last busy time; 0 until measured.
    pub bandwidth_up: u64,
    /// The same from the other side.
    pub bandwidth_down: u64,
    /// UDP payload sent.
    pub sent_bytes: u64,
    /// UDP payload received.
    pub received_bytes: u64,
    /// Bytes of bodies that were read here.
    pub body_bytes: u64,
    /// Bytes waiting in our queue, by class in the order of [`Class::ALL`].
    pub queued: [u64; Class::ALL.len()],
    /// Bytes handed to QUIC so far, by class in the order of [`Class::ALL`].
    pub sent: [u64; Class::ALL.len()],
    /// Messages, calls and replies, that were handed to QUIC as a whole, by class likewise.
    pub sent_messages: [u64; Class::ALL.len()],
}

/// Counts kept by a connection's tasks, readable by all. Each stands for itself; their order is not
/// promised.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queued: [AtomicU64; Class::ALL.len()],
    sent: [AtomicU64; Class::ALL.len()],
    messages: [AtomicU64; Class::ALL.len()],
    received: AtomicU64,
    meters: Mutex<Meters>,
}

#[derive(Debug, Default)]
struct Meters {
    up: Meter,
    down: Meter,
}

impl Counters {
    pub(crate) fn set_queued(&self, queued: [u64; Class::ALL.len()]) {
        for (counter, bytes) in self.queued.iter().zip(queued) {
            counter.store(bytes, Relaxed);
        }
    }

    pub(crate) fn sent(&self, class: Class, bytes: usize) {
        if let Some(counter) = self.sent.get(class as usize) {
            counter.fetch_add(bytes as u64, Relaxed);
        }
    }

    pub(crate) fn sent_whole(&self, class: Class, count: u64) {
        if let Some(counter) = self.messages.get(class as usize) {
            counter.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Takes a sample of the rates.
    ///
    /// QUIC takes bytes as fast as the other side acknowledges them. A count of packets would
    /// include acknowledgements of the other direction, and retransmissions.
    pub(crate) fn measure(&self, now: Instant) {
        let mut meters = self.meters();
        meters.up.handle(self.sent.iter().map(|counter| counter.load(Relaxed)).sum(), now);
        meters.down.handle(self.received.load(Relaxed), now);
    }

    fn meters(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self, connection: &quinn::Connection) -> LinkStats {
        let path = Shared::of(connection);
        let known = path.map(|path| {
            let flight = path.flight();
            (flight.rate(), flight.base(), flight.is_learning())
        });
        let (rate, base_rtt, is_learning) = known.unwrap_or((0, None, true));
        let connection = connection.stats();
        let meters = self.meters();
        // A few packets tell nothing yet; the earlier delivery does.
        let rate = if is_learning { meters.up.rate() } else { rate };
        LinkStats {
            rtt: connection.path.rtt,
            base_rtt,
            rate,
            bandwidth_up: meters.up.rate(),
            bandwidth_down: meters.down.rate(),
            sent_bytes: connection.udp_tx.bytes,
            received_bytes: connection.udp_rx.bytes,
            body_bytes: self.received.load(Relaxed),
            queued: self.queued.each_ref().map(|counter| counter.load(Relaxed)),
            sent: self.sent.each_ref().map(|counter| counter.load(Relaxed)),
            sent_messages: self.messages.each_ref().map(|counter| counter.load(Relaxed)),
        }
    }
}
