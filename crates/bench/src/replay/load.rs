//! The three traces of [MFS table 3].

use super::generate::generate;
use super::trace::{Parameters, Trace};
use crate::workload::scaled;

/// Of each application.
const FILES_MIN: u32 = 4;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Mostly reads.
    Reads,
    /// Mostly writes.
    Writes,
    /// More than ordinary of everything.
    Heavy,
}

impl Load {
    pub(super) const ALL: [Load; 3] = [Load::Reads, Load::Writes, Load::Heavy];

    /// The one called `name`.
    pub(super) fn named(name: &str) -> Option<Load> {
        Load::ALL.into_iter().find(|load| load.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Load::Reads => "mostly-reads",
            Load::Writes => "mostly-writes",
            Load::Heavy => "heavy-load",
        }
    }

    /// Its column of the table. At `scale` that share of time, files and bytes, so that as much
    /// happens in a second and files are as large; and as many applications, for as much to
    /// contend, as far as there are files for them.
    pub(super) fn parameters(self, scale: f64) -> Parameters {
        let (seconds, applications, files, bytes) = match self {
            Load::Reads => (101, 25, 2952, [46.61, 10.82, 3.44]),
            Load::Writes => (106, 15, 276, [16.51, 12.74, 19.92]),
            Load::Heavy => (34, 41, 3312, [125.31, 27.82, 9.59]),
        };
        let [file_bytes, read_bytes, written_bytes] = bytes.map(|megabytes| {
            // Positive and far below 2^53.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let bytes = (megabytes * f64::from(1 << 20) * scale) as u64;
            bytes
        });
        let [seconds, files] = [seconds, files].map(|count| scaled(count, scale));
        let applications = (files / FILES_MIN).clamp(1, applications);
        Parameters { seconds, applications, files, file_bytes, read_bytes, written_bytes }
    }

    /// The trace: the same each time.
    pub(super) fn trace(self, scale: f64) -> Trace {
        let seed = match self {
            Load::Reads => 31,
            Load::Writes => 32,
            Load::Heavy => 33,
        };
        generate(self.parameters(scale), seed)
    }
}
