//! The bytes that may be in flight: the capacity of the path and little more.
//!
//! QUIC's own control fills the queue before the slowest link, often with a second of bytes. No
//! message overtakes bytes in that queue, not even a question that a user waits for. So a law of
//! our own (`law`) bounds the bytes in flight, and [`Flight`] counts them. This file is the adaptor
//! between them and QUIC.

mod flight;
mod law;
mod stamps;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory};
use quinn::{AckFrequencyConfig, Connection, VarInt};
use quinn_proto::RttEstimator;
use tokio::sync::Notify;

pub use flight::{Flight, Room};
use law::Law;
pub use stamps::{Echo, Stamps};

/// The other side acknowledges when more packets than these have come, or after 25 ms. The pace
/// does not depend on it, and on a lossy path each acknowledgement lists the gaps of a round trip.
const ACK_PACKETS: u32 = 10;

/// How the other side should acknowledge what we send.
pub fn acks() -> AckFrequencyConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_PACKETS));
    acks
}

/// Makes a controller for each path of each connection.
#[derive(Debug, Default)]
pub struct Factory;

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let flight = Mutex::new(Flight::new(Law::new(now, mtu), now));
        Box::new(Control { shared: Arc::new(Shared { flight, room: Notify::new() }) })
    }
}

/// A path's flight: QUIC reports to it, and the writer asks it.
#[derive(Debug)]
pub struct Shared {
    flight: Mutex<Flight>,
    room: Notify,
}

impl Shared {
    /// The one of a connection's present path; `None` with another controller.
    pub(crate) fn of(connection: &Connection) -> Option<Arc<Shared>> {
        Shared::from(connection.congestion_state())
    }

    /// The one of a controller; `None` if it is another one.
    pub fn from(controller: Box<dyn Controller>) -> Option<Arc<Shared>> {
        Some(controller.into_any().downcast::<Control>().ok()?.shared)
    }

    /// Asks or tells it.
    pub fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when there may be more room.
    pub(crate) async fn freed(&self) {
        self.room.notified().await;
    }
}

struct Control {
    shared: Arc<Shared>,
}

impl Controller for Control {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.shared.flight().handle_sent(now, bytes);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.shared.flight().handle_ack(now, sent, bytes);
    }

    fn on_end_acks(
        &mut self,
        _now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.shared.flight().handle_acks_end(in_flight, app_limited);
        self.shared.room.notify_one();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.shared.flight().handle_loss(now, sent, lost_bytes, is_persistent_congestion);
        self.shared.room.notify_one();
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.shared.flight().law().handle_packet_size(mtu);
    }

    fn window(&self) -> u64 {
        self.shared.flight().window()
    }

    /// The same path under another name, as after a change of port: the flight goes on.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Control { shared: self.shared.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests;
