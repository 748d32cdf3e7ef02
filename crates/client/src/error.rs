//! The failures of a mount, with messages for the user.

use std::io;
use std::path::PathBuf;

/// Exit codes of the command line that a mount can end with.
const FAILED: u8 = 1;
const NOT_FOUND: u8 = 3;
const OFFLINE: u8 = 4;
const NOT_PERMITTED: u8 = 8;

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is not there.
    #[error("{path}: no such directory; create it first: mkdir {path}", path = .0.display())]
    NoMountpoint(PathBuf),
    /// It is something else.
    #[error("{path}: not a directory", path = .0.display())]
    NotDirectory(PathBuf),
    /// The kernel or fusermount3 refused.
    #[error("{path}: cannot mount: {reason}", path = mountpoint.display())]
    Fuse {
        /// Where.
        mountpoint: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The server cannot be reached.
    #[error(
        "{host}: the server cannot be reached: {reason}; check the name and the port, that 'segue \
         serve' runs there, and that no firewall blocks this UDP port"
    )]
    Offline {
        /// The server.
        host: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The server refused, or is not the one it should be.
    #[error("{host}: {reason}")]
    Denied {
        /// The server.
        host: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The server is not the one that the cache is of.
    #[error("{host}: {reason}")]
    OtherServer {
        /// The server.
        host: String,
        /// Which ones, and what to do.
        reason: String,
    },
    /// The server speaks another version.
    #[error("{host}: {reason}")]
    Protocol {
        /// The server.
        host: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The cache directory is unusable.
    #[error("{path}: {reason}", path = path.display())]
    State {
        /// Directory or file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Something else.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What went wrong.
        source: io::Error,
    },
}

impl MountError {
    /// The exit code of `segue mount`.
    pub fn exit_code(&self) -> u8 {
        match self {
            MountError::NoMountpoint(_) => NOT_FOUND,
            MountError::Offline { .. } => OFFLINE,
            MountError::Denied { .. } | MountError::OtherServer { .. } => NOT_PERMITTED,
            MountError::NotDirectory(_)
            | MountError::Fuse { .. }
            | MountError::Protocol { .. }
            | MountError::State { .. }
            | MountError::Io { .. } => FAILED,
        }
    }

    pub(crate) fn state(path: impl Into<PathBuf>, reason: impl ToString) -> MountError {
        MountError::State { path: path.into(), reason: reason.to_string() }
    }
}
