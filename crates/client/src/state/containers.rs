//! Container files: the local bytes of each inode, at the same offsets as in the file.
//!
//! A file whose cached bytes all go gets a container of another number (`core::client::places`);
//! the old one is removed when nobody needs it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek, syncfs};
use rustix::io::Errno;
use segue_core::cache::ContainerId;
use segue_core::types::Ino;

use super::directory::{sync_directory, sync_name};

/// Open files kept for reuse.
const OPEN_MAX: usize = 512;
/// Of more files than this their disk is synced at first: one by one takes longer.
const SYNC_MAX: usize = 32;

/// Which container.
pub(crate) type Key = (Ino, ContainerId);

/// One open container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    file: File,
    path: PathBuf,
    /// Its name is durable.
    is_named: AtomicBool,
    writing: Mutex<()>,
}

impl Container {
    /// Held while bytes are written and noted as valid, so that a late fill never lands on a
    /// newer write. Take it before the log and the core.
    pub(crate) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Reads `len` bytes at `offset`; what lies beyond the container's end is zeros.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        read_zeros(&self.file, offset, len)
    }

    /// Makes it `size` bytes long; new bytes are zeros.
    pub(crate) fn resize(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    /// Cuts off what is behind `size`, if there is anything.
    pub(crate) fn cut(&self, size: u64) -> io::Result<()> {
        if self.file.metadata()?.len() > size { self.file.set_len(size) } else { Ok(()) }
    }

    /// Makes `len` bytes at `offset` zeros that need no room.
    pub(crate) fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, offset, len)?)
    }

    /// The first run of bytes in `range` that take room here; empty, at its end, if none do. What
    /// lies before it reads as zeros.
    pub(crate) fn next_data(&self, range: Range<u64>) -> io::Result<Range<u64>> {
        // Nobody else relies on the descriptor's own offset.
        let start = match seek(&self.file, SeekFrom::Data(range.start)) {
            Ok(start) => start.min(range.end),
            Err(Errno::NXIO) => range.end,
            // A disk that knows nothing of holes.
            Err(Errno::INVAL) => return Ok(range),
            Err(error) => return Err(error.into()),
        };
        if start == range.end {
            return Ok(start..start);
        }
        Ok(start..seek(&self.file, SeekFrom::Hole(start))?.min(range.end))
    }

    /// Makes its bytes durable, and that there is a file that has them.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        if !self.is_named.load(Ordering::Relaxed) {
            sync_name(&self.path)?;
            self.is_named.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// `len` bytes at `offset`; what lies beyond the end of the file is zeros.
pub(super) fn read_zeros(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// All containers of a volume.
#[derive(Debug)]
pub(crate) struct Containers {
    root: PathBuf,
    open: Mutex<HashMap<Key, Arc<Container>>>,
    /// What was written and not synced, and whether the log has all of it.
    unsynced: Mutex<HashMap<Key, bool>>,
    /// Held from the beginning of a sync to its end: until then nobody knows what the disk has.
    syncing: Mutex<()>,
}

impl Containers {
    /// Containers below `root`.
    pub(crate) fn at(root: PathBuf) -> io::Result<Containers> {
        for first in 0..=255u8 {
            fs::create_dir_all(root.join(format!("{first:02x}")))?;
        }
        sync_directory(&root)?;
        Ok(Containers {
            root,
            open: Mutex::default(),
            unsynced: Mutex::default(),
            syncing: Mutex::default(),
        })
    }

    fn path(&self, key: Key) -> PathBuf {
        path_of(&self.root, key)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Key, Arc<Container>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsynced(&self) -> MutexGuard<'_, HashMap<Key, bool>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container with that number, made if there is none.
    pub(crate) fn open(&self, key: Key) -> io::Result<Arc<Container>> {
        let mut table = self.table();
        if let Some(container) = table.get(&key) {
            return Ok(Arc::clone(container));
        }
        if table.len() >= OPEN_MAX {
            table.retain(|_, container| Arc::strong_count(container) > 1);
        }
        let path = self.path(key);
        let file =
            File::options().create(true).read(true).write(true).truncate(false).open(&path)?;
        let (is_named, writing) = Default::default();
        let container = Arc::new(Container { id: key.1, file, path, is_named, writing });
        table.insert(key, Arc::clone(&container));
        Ok(container)
    }

    /// True if there is such a container.
    pub(crate) fn exists(&self, key: Key) -> bool {
        self.path(key).exists()
    }

    /// Notes that a container was written to; whether the log has what was written.
    pub(crate) fn is_unsynced(&self, key: Key, is_logged: bool) {
        let mut unsynced = self.unsynced();
        let was_logged = unsynced.entry(key).or_insert(true);
        *was_logged &= is_logged;
    }

    /// Makes durable what was written to containers and is not in the log.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.sync_those(|is_logged| !is_logged)
    }

    /// Makes durable all that was written to containers.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.sync_those(|_| true)
    }

    fn sync_those(&self, wanted: impl Fn(bool) -> bool) -> io::Result<()> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: HashMap<Key, bool> =
            self.unsynced().extract_if(|_, is_logged| wanted(*is_logged)).collect();
        if taken.len() > SYNC_MAX
            && let Ok(root) = File::open(&self.root)
            && let Err(error) = syncfs(root)
        {
            // It only saves the single ones most of their time.
            tracing::debug!("syncfs: {error}");
        }
        let synced = taken.keys().try_for_each(|key| match self.exists(*key) {
            true => self.open(*key)?.sync(),
            false => Ok(()),
        });
        if synced.is_err() {
            taken.into_iter().for_each(|(key, is_logged)| self.is_unsynced(key, is_logged));
        }
        synced
    }

    /// Removes a container that nobody needs. Who still reads it keeps it.
    pub(crate) fn remove(&self, key: Key) -> io::Result<()> {
        let mut table = self.table();
        table.remove(&key);
        self.unsynced().remove(&key);
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes on disk of all containers.
    pub(crate) fn bytes(&self) -> u64 {
        let mut bytes = 0;
        self.each(|_, path| bytes += path.metadata().map_or(0, |meta| meta.blocks() * 512));
        bytes
    }

    /// Tells of every container that there is. What is no container is told of without a key.
    pub(crate) fn each(&self, mut tell: impl FnMut(Option<Key>, &Path)) {
        for directory in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for file in fs::read_dir(directory.path()).into_iter().flatten().flatten() {
                tell(file.file_name().to_str().and_then(parse), &file.path());
            }
        }
    }
}

fn path_of(root: &Path, (ino, id): Key) -> PathBuf {
    let directory = root.join(format!("{:02x}", ino.0 & 0xff));
    directory.join(format!("{:016x}-{:x}", ino.0, id.0))
}

/// A container of a cache directory that nobody uses, to be read only.
#[derive(Debug)]
pub(crate) enum ReadContainer {
    There(File),
    Missing,
}

/// Opens one without changing anything.
pub(crate) fn read_container(directory: &Path, key: Key) -> io::Result<ReadContainer> {
    match File::open(path_of(&directory.join("containers"), key)) {
        Ok(file) => Ok(ReadContainer::There(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReadContainer::Missing),
        Err(error) => Err(error),
    }
}

fn parse(name: &str) -> Option<Key> {
    let (ino, id) = name.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((Ino(number(ino)?), ContainerId(number(id)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (Ino(7), ContainerId(1));

    #[test]
    fn data_are_found_between_holes_and_behind_the_end_there_are_none() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let container = Containers::at(dir.path().into()).unwrap().open(KEY).unwrap();
        assert_eq!(container.next_data(0..MIB).unwrap(), MIB..MIB);
        container.write(&[1; 65_536], MIB).unwrap();
        container.resize(4 * MIB).unwrap();
        assert_eq!(container.next_data(0..8 * MIB).unwrap(), MIB..MIB + 65_536);
        assert_eq!(container.next_data(0..MIB + 10).unwrap(), MIB..MIB + 10);
        assert_eq!(container.next_data(MIB + 5..MIB + 10).unwrap(), MIB + 5..MIB + 10);
        assert_eq!(container.next_data(2 * MIB..8 * MIB).unwrap(), 8 * MIB..8 * MIB);
        container.zero(MIB, 4_096).unwrap();
        assert_eq!(container.next_data(0..8 * MIB).unwrap(), MIB + 4_096..MIB + 65_536);
    }

    #[test]
    fn a_file_has_as_many_containers_as_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let other = (Ino(7), ContainerId(0xabc));
        containers.open(KEY).unwrap().write(b"old", 0).unwrap();
        let kept = containers.open(KEY).unwrap();
        assert_eq!(containers.open(other).unwrap().read(0, 3).unwrap(), [0; 3]);
        containers.remove(KEY).unwrap();
        assert!(!containers.exists(KEY) && containers.exists(other));
        assert_eq!(kept.read(0, 3).unwrap(), b"old");
        let mut found = Vec::new();
        containers.each(|key, _| found.push(key));
        assert_eq!(found, [Some(other)]);
    }
}
