//! How a connection sends: as a mount or a server says, or an experiment.

use std::sync::Arc;

use quinn::congestion::{ControllerFactory, CubicConfig};
use segue_core::sched::Discipline;

use crate::congestion;

/// How a connection sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// What goes first.
    pub discipline: Discipline,
    /// How much is sent.
    pub control: Control,
}

/// What decides how much is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Control {
    /// Our own law: what the path holds, and a short queue.
    #[default]
    Law,
    /// Cubic [RFC 9438], as most of the Internet has it: for experiments.
    Cubic,
}

impl Control {
    pub(crate) fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Control::Law => Arc::new(congestion::Factory),
            Control::Cubic => Arc::new(CubicConfig::default()),
        }
    }
}
