//! The reason for which a task failed, for the administrator who asked for it.

use std::fmt::Display;
use std::io;
use std::path::Path;

use crate::admin::FailReason;
use crate::meta::{MetaFault, StoreError};

/// The reason, for programs and for people.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) reason: FailReason,
    pub(crate) words: String,
}

impl Failed {
    pub(crate) fn new(reason: FailReason, words: impl Into<String>) -> Failed {
        Failed { reason, words: words.into() }
    }

    /// `path` cannot be read or written.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Failed {
        Failed::disk(path, error)
    }

    /// The same, where something above the system says so.
    pub(crate) fn disk(path: &Path, error: &dyn Display) -> Failed {
        Failed::new(FailReason::Io, format!("cannot use {}: {error}", path.display()))
    }

    /// Nobody listens any more, or the server stops.
    pub(crate) fn stopped() -> Failed {
        Failed::new(FailReason::Io, "the server stopped before the end of this task")
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        let reason = match error {
            StoreError::Damaged(_) | StoreError::Read(_) => FailReason::Damaged,
            StoreError::Full | StoreError::Poisoned | StoreError::Chunks(_) => FailReason::Io,
        };
        Failed::new(reason, error.to_string())
    }
}

impl From<MetaFault> for Failed {
    fn from(fault: MetaFault) -> Failed {
        StoreError::from(fault).into()
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Failed {
        StoreError::from(error).into()
    }
}
