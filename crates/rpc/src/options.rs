//! How a connection sends: as a mount or server wants it, or an experiment.

use std::sync::Arc;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use segue_core::sched::Discipline;

use crate::congestion;

/// How a connection sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The order of messages.
    pub discipline: Discipline,
    /// The bytes in flight.
    pub control: Control,
}

/// The control of the bytes in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Control {
    /// Our own law: the capacity of the path, and a short queue.
    #[default]
    Law,
    /// Cubic [RFC 9438], as most of the Internet has it: for experiments.
    Cubic,
    /// BBR version 1, as QUIC's library has it: for experiments.
    Bbr,
}

impl Control {
    pub(crate) fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Control::Law => Arc::new(congestion::Factory),
            Control::Cubic => Arc::new(CubicConfig::default()),
            Control::Bbr => Arc::new(BbrConfig::default()),
        }
    }
}
