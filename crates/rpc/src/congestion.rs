//! How much may be in flight: what the path holds and little more.
//!
//! QUIC's own Cubic fills whatever queue stands before the slowest link, often a second of it, and
//! nothing overtakes what is in there: not a question that a user waits for. So its window is
//! bounded by a law of delay (`law`), which keeps the queue at some milliseconds. Cubic stays
//! below that and answers losses.

mod law;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn_proto::RttEstimator;

use law::Law;

/// Makes controllers.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    cubic: Arc<CubicConfig>,
}

impl ControllerFactory for Bounded {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = Arc::clone(&self.cubic).build(now, mtu);
        Box::new(Control { law: Law::new(now, mtu), cubic })
    }
}

struct Control {
    cubic: Box<dyn Controller>,
    law: Law,
}

impl Controller for Control {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        // What the law holds back must not let Cubic grow without a measure.
        let is_held = self.law.window() < self.cubic.window();
        self.cubic.on_ack(now, sent, bytes, app_limited || is_held, rtt);
        self.law.handle_ack((now, sent), app_limited, self.cubic.window());
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.cubic.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.cubic.on_mtu_update(mtu);
        self.law.handle_mtu(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window().min(self.law.window())
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Control { cubic: self.cubic.clone_box(), law: self.law.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
