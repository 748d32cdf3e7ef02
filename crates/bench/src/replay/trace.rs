//! A trace: which files there are, and what applications do with them when.
//!
//! ```text
//!   application 0   ─R──RW────R─W─────────────────R─▶   as long as the trace
//!   application 1       ─R─R─W──R──▶
//! ```
//!
//! An access opens a file, reads or writes it from one end to the other, and closes it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

/// What [MFS table 3] says of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Parameters {
    /// From the first access to the last.
    pub(super) seconds: u32,
    pub(super) applications: u32,
    pub(super) files: u32,
    /// Of the files that are there before and that somebody reads or writes: what a file system
    /// fetches that knows whole files only.
    pub(super) file_bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
}

/// A file of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    /// In whose directory it lies.
    pub(super) application: usize,
    /// What is there before the trace begins; none: the trace makes the file.
    pub(super) bytes: Option<u64>,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// So many of its first bytes are read.
    Read { bytes: u64 },
    /// So many are written from there on.
    Write { from: u64, bytes: u64 },
}

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    /// When, from the start of the trace.
    pub(super) at: Duration,
    /// Its number among the trace's files.
    pub(super) file: usize,
    pub(super) act: Act,
}

/// What was done in some time on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) files: Vec<File>,
    /// What each application does, one after the other.
    pub(super) applications: Vec<Vec<Access>>,
}

impl Trace {
    pub(super) fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.applications.iter().flatten()
    }

    /// The rows of the table, counted.
    pub(super) fn parameters(&self) -> Parameters {
        let of = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let touched: BTreeSet<usize> = self.accesses().map(|access| access.file).collect();
        let size = |file: &usize| self.files.get(*file).and_then(|file| file.bytes);
        let bytes = |read: bool| -> u64 {
            let moved = self.accesses().map(|access| access.act.moved());
            moved.filter_map(|(is_read, bytes)| (is_read == read).then_some(bytes)).sum()
        };
        Parameters {
            seconds: u32::try_from(self.time().as_secs()).unwrap_or(u32::MAX),
            applications: of(self.applications.iter().filter(|one| !one.is_empty()).count()),
            files: of(touched.len()),
            file_bytes: touched.iter().filter_map(size).sum(),
            read_bytes: bytes(true),
            written_bytes: bytes(false),
        }
    }

    /// From the first access to the last.
    fn time(&self) -> Duration {
        let times = || self.accesses().map(|access| access.at);
        times().max().unwrap_or_default().saturating_sub(times().min().unwrap_or_default())
    }

    /// How large each file is at most, before the trace or after it.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.files.iter().map(|file| file.bytes.unwrap_or(0)).collect();
        for access in self.accesses() {
            if let (Act::Write { from, bytes }, Some(size)) =
                (access.act, sizes.get_mut(access.file))
            {
                *size = (*size).max(from + bytes);
            }
        }
        sizes
    }
}

impl Act {
    /// Whether it reads, and how many bytes.
    pub(super) fn moved(self) -> (bool, u64) {
        match self {
            Act::Read { bytes } => (true, bytes),
            Act::Write { bytes, .. } => (false, bytes),
        }
    }
}
