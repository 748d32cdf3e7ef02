//! What a connection reports about itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use segue_core::types::Class;

/// A connection at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// What the link takes, in bytes a second: one congestion window each round trip.
    pub bandwidth: u64,
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
}

/// Counts kept by a connection's tasks, read by anybody. Each stands for itself, so no order
/// among them is promised.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queued: [AtomicU64; Class::ALL.len()],
    sent: [AtomicU64; Class::ALL.len()],
    received: AtomicU64,
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

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn report(&self, connection: &quinn::ConnectionStats) -> LinkStats {
        let rtt = connection.path.rtt;
        let rtt_us = u128::max(rtt.as_micros(), 1);
        let bandwidth = u128::from(connection.path.cwnd) * 1_000_000 / rtt_us;
        LinkStats {
            rtt,
            bandwidth: u64::try_from(bandwidth).unwrap_or(u64::MAX),
            sent_bytes: connection.udp_tx.bytes,
            received_bytes: connection.udp_rx.bytes,
            body_bytes: self.received.load(Relaxed),
            queued: self.queued.each_ref().map(|counter| counter.load(Relaxed)),
            sent: self.sent.each_ref().map(|counter| counter.load(Relaxed)),
        }
    }
}
