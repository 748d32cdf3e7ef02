//! The experiments whose link changes under the connection.

use std::path::Path;

use super::{fig2, fig7a, train};
use crate::measurement::Effort;
use crate::record::Context;
use segue_bed::Result;

/// An experiment whose link changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Varying {
    /// Modeless against modal adaptation.
    Fig2,
    /// Questions while the link becomes slower.
    Fig7a,
    /// A ride with tunnels.
    Train,
}

impl Varying {
    /// Each of them.
    pub const ALL: [Varying; 3] = [Varying::Fig2, Varying::Fig7a, Varying::Train];

    /// Its name on the command line, and part of its results' names.
    pub const fn name(self) -> &'static str {
        match self {
            Varying::Fig2 => "mfs-fig2",
            Varying::Fig7a => "mfs-fig7a",
            Varying::Train => "train",
        }
    }

    /// What it is, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Varying::Fig2 => "modeless against modal adaptation, as in figure 2 of MFS",
            Varying::Fig7a => "questions beside bulk while the link becomes slower, as in 7(a)",
            Varying::Train => "bulk both ways, write-back and questions through tunnels",
        }
    }

    /// Measures, writes the results into `out` and returns the table.
    pub fn run(self, effort: &Effort, out: &Path, context: Context) -> Result<String> {
        match self {
            Varying::Fig2 => fig2::run(effort, out, context),
            Varying::Fig7a => fig7a::run(effort, out, context),
            Varying::Train => train::run(effort, out, context),
        }
    }
}
