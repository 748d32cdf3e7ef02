//! Free space on the disk of a data directory, and the part of it that only removals get.
//!
//! ```text
//!   free bytes   taken from so many on
//!      80 MiB    everything
//!      64 MiB    chunks, but no record whose chunks are missing
//!      32 MiB    metadata, and copies of the live chunks of a pack that then goes
//!      16 MiB    the copies of chunks, and removals
//!       0        removals
//! ```
//!
//! Half of these bytes are in the file `reserve`, so that no other program takes it. The file
//! shrinks when the disk lacks space for a commit, and grows again when there is space. Without
//! it, a disk that another program filled could not even take the removal of a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};
use segue_core::namespace::Admits;

/// Bytes of the disk that chunks leave for metadata and compaction.
const CHUNKS_LEAVE: u64 = 64 << 20;
/// Most bytes of one append. A disk that may refuse an append takes no record for which it would be
/// needed: its host would send both again without end.
const APPEND_BYTES: u64 = 16 << 20;
/// Bytes that new metadata leave for removals. The log of SQLite takes up to half of them.
const METADATA_LEAVE: u64 = 32 << 20;
/// Bytes that compaction leaves: the log of SQLite until its pages are written back.
const COMPACTION_LEAVES: u64 = 16 << 20;
/// Longest file of the reserve.
const RESERVE_BYTES: u64 = 32 << 20;
/// Bytes that a commit finds available, as long as the reserve lasts.
pub(crate) const COMMIT_BYTES: u64 = 4 << 20;
/// The reserve is given back in such pieces: a program that fills the disk takes no more at once.
const PIECE_BYTES: u64 = 4 << 20;
/// The name of the file.
const RESERVE: &str = "reserve";

/// For what bytes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Chunks of a host or of a restore.
    Store,
    /// The live chunks of a pack, which goes when all of them are copied.
    Compaction,
}

impl Purpose {
    /// Bytes that stay free.
    fn leaves(self) -> u64 {
        match self {
            Purpose::Store => CHUNKS_LEAVE,
            Purpose::Compaction => COMPACTION_LEAVES,
        }
    }
}

/// The disk space of one directory.
pub(crate) struct DiskSpace {
    directory: PathBuf,
    /// The file of the reserve; `None` for directories without one.
    reserve: Option<Mutex<PathBuf>>,
}

impl DiskSpace {
    /// The disk space of the data directory that has `meta`.
    pub(crate) fn beside(meta: &Path) -> DiskSpace {
        let directory = meta.parent().unwrap_or(Path::new(".")).to_owned();
        let reserve = Some(Mutex::new(directory.join(RESERVE)));
        DiskSpace { directory, reserve }
    }

    /// The disk space of a directory that has no reserve.
    pub(crate) fn of(directory: &Path) -> DiskSpace {
        DiskSpace { directory: directory.to_owned(), reserve: None }
    }

    /// Bytes that are free, those of the reserve included.
    pub(crate) fn free(&self) -> io::Result<u64> {
        Ok(self.available()?.saturating_add(self.held()))
    }

    /// Changes that the disk has room for.
    pub(crate) fn admits(&self) -> Admits {
        match self.free() {
            Ok(free) if free < METADATA_LEAVE => Admits::Removals,
            Ok(free) if free < CHUNKS_LEAVE + APPEND_BYTES => Admits::Metadata,
            // A disk that does not answer refuses writes itself.
            Ok(_) | Err(_) => Admits::All,
        }
    }

    /// Sees that `bytes` can be written now. Fails if not enough would stay free.
    pub(crate) fn make(&self, bytes: u64, purpose: Purpose) -> io::Result<()> {
        match self.has(bytes, purpose)? {
            true => self.make_available(bytes),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// True if enough stays free beside `bytes`.
    pub(crate) fn has(&self, bytes: u64, purpose: Purpose) -> io::Result<bool> {
        Ok(self.free()? >= bytes.saturating_add(purpose.leaves()))
    }

    /// Gives back as much of the reserve as `bytes` more need. Little may be left of it.
    pub(crate) fn make_available(&self, bytes: u64) -> io::Result<()> {
        if self.available()? >= bytes {
            return Ok(());
        }
        let Some(path) = self.lock() else { return Ok(()) };
        // Another thread may have been here before the lock was taken.
        let lacking = bytes.saturating_sub(self.available()?);
        let held = bytes_of(&path);
        if lacking == 0 || held == 0 {
            return Ok(());
        }
        let left = held.saturating_sub(lacking.next_multiple_of(PIECE_BYTES));
        tracing::warn!("the disk of the data directory is full: {left} bytes are left in reserve");
        OpenOptions::new().write(true).open(&*path)?.set_len(left)
    }

    /// Fills the reserve as far as chunks would have room beside it.
    pub(crate) fn refill(&self) -> io::Result<()> {
        let Some(path) = self.lock() else { return Ok(()) };
        let held = bytes_of(&path);
        let spare = self.available()?.saturating_sub(CHUNKS_LEAVE + APPEND_BYTES);
        let wanted = RESERVE_BYTES.saturating_sub(held).min(spare) / PIECE_BYTES * PIECE_BYTES;
        if wanted == 0 {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&*path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, held + wanted) {
            // Such a file system cannot promise space.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            filled => Ok(filled?),
        }
    }

    fn available(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn held(&self) -> u64 {
        self.lock().map_or(0, |path| bytes_of(&path))
    }

    fn lock(&self) -> Option<MutexGuard<'_, PathBuf>> {
        let reserve = self.reserve.as_ref()?;
        Some(reserve.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes of the disk that a file takes.
fn bytes_of(path: &Path) -> u64 {
    File::open(path).and_then(|file| file.metadata()).map_or(0, |file| file.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_given_back_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskSpace::beside(&dir.path().join("meta.db"));
        disk.refill().unwrap();
        assert_eq!(disk.held(), RESERVE_BYTES);
        let (free, available) = (disk.free().unwrap(), disk.available().unwrap());
        assert!(free >= available);
        // Others use this disk, too. More than it has is never available.
        disk.make_available(1).unwrap();
        assert_eq!(disk.held(), RESERVE_BYTES);
        disk.make_available(available + (1 << 40)).unwrap();
        assert_eq!(disk.held(), 0);
        disk.make_available(available + (1 << 40)).unwrap();
    }

    #[test]
    fn compaction_leaves_less_than_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskSpace::of(dir.path());
        assert!(disk.has(1, Purpose::Store).unwrap());
        let most = disk.free().unwrap();
        // Other programs take and free less than this meanwhile.
        let between = most - (CHUNKS_LEAVE + COMPACTION_LEAVES) / 2;
        assert!(disk.has(between, Purpose::Compaction).unwrap());
        assert!(!disk.has(between, Purpose::Store).unwrap());
        let error = disk.make(between, Purpose::Store).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
