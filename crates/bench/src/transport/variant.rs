//! Which transport is under test: both ends are told, and make their connection by it.

use segue_core::sched::Discipline;
use segue_rpc::{Control, Options};

/// A transport under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Variant {
    /// As it is.
    Segue,
    /// Without classes, and without a law of its own.
    CubicUniform,
}

impl Variant {
    /// Each of them, in the order of reports.
    pub const ALL: [Variant; 2] = [Variant::Segue, Variant::CubicUniform];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Segue => "segue",
            Variant::CubicUniform => "cubic-uniform",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Variant::Segue => "Segue's transport as it is, without mount and disk",
            Variant::CubicUniform => "the same with QUIC's Cubic, and all messages in one class",
        }
    }

    pub(super) fn options(self) -> Options {
        match self {
            Variant::Segue => Options::default(),
            Variant::CubicUniform => {
                Options { discipline: Discipline::Uniform, control: Control::Cubic }
            }
        }
    }
}
