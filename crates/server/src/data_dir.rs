//! The server's data directory, held by one process at a time.
//!
//! ```text
//!   DATA/VERSION       what wrote it; a newer one is refused
//!   DATA/lock          flock, with the number of the process that holds it
//!   DATA/meta.db       metadata (SQLite)
//!   DATA/packs/        chunks
//!   DATA/identity/     the server's certificate authority
//!   DATA/control.sock  while it serves
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::ServeError;

/// Layout of the directory that this program reads and writes.
const FORMAT: u32 = 2;
/// First word of VERSION.
const WORD: &str = "segue-data";

/// A data directory that this process holds.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// Released by the kernel when it is closed.
    _lock: File,
}

impl DataDir {
    /// Opens `path`, which is made if it is not there.
    pub(crate) fn create(path: &Path) -> Result<DataDir, ServeError> {
        make(path)?;
        Self::hold(path)
    }

    /// Opens `path`, which has to be a data directory.
    pub(crate) fn open(path: &Path) -> Result<DataDir, ServeError> {
        if !path.join("VERSION").exists() {
            return Err(ServeError::NoData { path: path.to_owned() });
        }
        Self::hold(path)
    }

    fn hold(path: &Path) -> Result<DataDir, ServeError> {
        let fail = |error| ServeError::data(path, error);
        check_version(path)?;
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(fail)?;
        if let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(fail(error.into()));
            }
            let mut holder = String::new();
            lock.read_to_string(&mut holder).map_err(fail)?;
            let pid = holder.trim().parse().ok();
            return Err(ServeError::InUse { path: path.to_owned(), pid });
        }
        lock.set_len(0).and_then(|()| lock.rewind()).map_err(fail)?;
        writeln!(lock, "{}", std::process::id()).map_err(fail)?;
        write_version(path).map_err(fail)?;
        for part in ["packs", "identity"] {
            make(&path.join(part))?;
        }
        Ok(DataDir { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn make(path: &Path) -> Result<(), ServeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| ServeError::data(path, error))
}

/// Refuses what a newer program wrote, and what is something else altogether.
fn check_version(path: &Path) -> Result<(), ServeError> {
    let fail = |error| ServeError::data(path, error);
    let text = match std::fs::read_to_string(path.join("VERSION")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for entry in std::fs::read_dir(path).map_err(fail)? {
                // A start that was killed early leaves the lock and nothing else.
                if !["lock", "VERSION.new"]
                    .iter()
                    .any(|name| entry.as_ref().is_ok_and(|entry| entry.file_name() == *name))
                {
                    return Err(ServeError::NotData { path: path.to_owned() });
                }
            }
            return Ok(());
        }
        Err(error) => return Err(fail(error)),
    };
    let version = text.trim().strip_prefix(WORD).and_then(|rest| rest.trim().parse::<u32>().ok());
    match version {
        Some(FORMAT) => Ok(()),
        Some(found) => Err(ServeError::Version { path: path.to_owned(), found, known: FORMAT }),
        None => Err(ServeError::NotData { path: path.to_owned() }),
    }
}

fn write_version(path: &Path) -> io::Result<()> {
    let target = path.join("VERSION");
    if target.exists() {
        return Ok(());
    }
    let new = path.join("VERSION.new");
    let mut file = File::create(&new)?;
    writeln!(file, "{WORD} {FORMAT}")?;
    file.sync_all()?;
    std::fs::rename(new, target)?;
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_once_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let held = DataDir::create(&path).unwrap();
        match DataDir::open(&path) {
            Err(ServeError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(held);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn what_is_newer_or_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(ServeError::NoData { .. })));
        std::fs::write(dir.path().join("letters"), "mine").unwrap();
        assert!(matches!(DataDir::create(dir.path()), Err(ServeError::NotData { .. })));
        let path = dir.path().join("data");
        drop(DataDir::create(&path).unwrap());
        std::fs::write(path.join("VERSION"), "segue-data 3\n").unwrap();
        let refused = DataDir::create(&path).unwrap_err();
        assert!(matches!(refused, ServeError::Version { found: 3, known: 2, .. }));
    }
}
