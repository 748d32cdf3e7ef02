//! Why a server does not start, or an administrator's command does not work.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The way out where a part of a data directory cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Remedy {
    /// Only another copy helps.
    #[error(
        "Restore the whole data directory, all files from one copy that was made while no server \
         ran on it, or restore the volumes from a backup"
    )]
    Copy,
    /// What is lost can be replaced, at a price.
    #[error(
        "Restore ca.key and ca.pem from a copy of this directory; without a copy, run segue \
         identity renew and give every host a new invite"
    )]
    Identity,
}

/// Why a server does not start or stops; the words are for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process has the data directory.
    #[error(
        "{} is in use by {}; wait until it has ended, or stop a server with: segue serve --stop \
         --data {}",
        path.display(),
        pid.map_or_else(|| "another process".to_owned(), process_words),
        path.display()
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process.
        pid: Option<u32>,
    },
    /// A program of another version wrote the data directory.
    #[error(
        "{} has format {found} (file VERSION), and this version of segue uses format {known}; use \
         the {} version of segue that wrote it",
        path.display(), if found > known { "newer" } else { "older" }
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
        "{} is not a server's data directory; to create one: segue serve --data {}",
        path.display(), path.display()
    )]
    NoData {
        /// The data directory.
        path: PathBuf,
    },
    /// There is something else there.
    #[error(
        "{} is not empty and is not a server's data directory; choose another directory",
        path.display()
    )]
    NotData {
        /// The directory.
        path: PathBuf,
    },
    /// A part of the data directory is missing, damaged, or of another one.
    #[error("{} {words}; nothing was changed. {remedy}", path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// What is wrong with it.
        words: String,
        /// The way out.
        remedy: Remedy,
    },
    /// The data directory, or something in it, cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Data {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The metadata cannot be written.
    #[error("cannot write the metadata in {}: {words}", path.display())]
    Meta {
        /// The file.
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

/// A process, with its command if that can be told.
fn process_words(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    match line.trim() {
        "" => format!("process {pid}"),
        line => format!("process {pid} ({line})"),
    }
}

impl ServeError {
    pub(crate) fn data(path: &Path, source: io::Error) -> ServeError {
        ServeError::Data { path: path.to_owned(), source }
    }

    pub(crate) fn part(path: &Path, words: impl Into<String>, remedy: Remedy) -> ServeError {
        ServeError::Part { path: path.to_owned(), words: words.into(), remedy }
    }

    /// The exit code of a command that fails so.
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::NoData { .. } => 3,
            ServeError::Part { .. } => 7,
            ServeError::Data { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                8
            }
            _ => 1,
        }
    }
}
