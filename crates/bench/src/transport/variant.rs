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
    /// The same with BBR.
    BbrUniform,
}

impl Variant {
    /// Each of them, in the order of reports.
    pub const ALL: [Variant; 3] = [Variant::Segue, Variant::CubicUniform, Variant::BbrUniform];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Segue => "segue",
            Variant::CubicUniform => "cubic-uniform",
            Variant::BbrUniform => "bbr-uniform",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Variant::Segue => "Segue's transport as it is, without mount and disk",
            Variant::CubicUniform => "the same with QUIC's Cubic, and all messages in one class",
            Variant::BbrUniform => "the same with the QUIC library's BBR",
        }
    }

    pub(super) fn options(self) -> Options {
        match self {
            Variant::Segue => Options::default(),
            Variant::CubicUniform => uniform(Control::Cubic),
            Variant::BbrUniform => uniform(Control::Bbr),
        }
    }
}

fn uniform(control: Control) -> Options {
    Options { discipline: Discipline::Uniform, control }
}
