//! Why a server does not start, or an administrator's command does not work.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why a server does not start or stops; the words are for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process has the data directory.
    #[error(
        "{} is in use by another server{}; stop it first: segue serve --stop --data {}",
        path.display(), pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(), path.display()
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process.
        pid: Option<u32>,
    },
    /// Another version of the program wrote the data directory.
    #[error(
        "{} has format {found} and this program knows {known}; use the segue that wrote it",
        path.display()
    )]
    Version {
        /// The data directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// There is nothing there.
    #[error(
        "{} has no server's data; start a server there once: segue serve --data {}",
        path.display(), path.display()
    )]
    NoData {
        /// The data directory.
        path: PathBuf,
    },
    /// There is something else there.
    #[error("{} is not empty and not a server's data directory; choose another", path.display())]
    NotData {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory, or something in it, cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Data {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The metadata cannot be opened.
    #[error("cannot open the metadata in {}: {words}", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// Why.
        words: String,
    },
    /// The server's certificate authority cannot be opened.
    #[error("cannot use the server's identity in {}: {words}", path.display())]
    Identity {
        /// Its directory.
        path: PathBuf,
        /// Why.
        words: String,
    },
    /// The address is taken, or not ours.
    #[error("cannot listen on {listen}: {words}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why.
        words: String,
    },
}

impl ServeError {
    pub(crate) fn data(path: &Path, source: io::Error) -> ServeError {
        ServeError::Data { path: path.to_owned(), source }
    }

    /// The exit code of a command that fails so.
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::NoData { .. } => 3,
            ServeError::Data { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                8
            }
            _ => 1,
        }
    }
}
