//! Container files: the local bytes of each inode, at the same offsets as in the file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use segue_core::types::Ino;

use super::directory::{sync_directory, sync_name};

/// Open files kept for reuse.
const OPEN_MAX: usize = 512;

/// One open container.
#[derive(Debug)]
pub(crate) struct Container {
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
        let mut bytes = vec![0; len];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
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

/// All containers of a volume.
#[derive(Debug)]
pub(crate) struct Containers {
    root: PathBuf,
    open: Mutex<HashMap<Ino, Arc<Container>>>,
}

impl Containers {
    /// Containers below `root`.
    pub(crate) fn at(root: PathBuf) -> io::Result<Containers> {
        for first in 0..=255u8 {
            fs::create_dir_all(root.join(format!("{first:02x}")))?;
        }
        sync_directory(&root)?;
        Ok(Containers { root, open: Mutex::new(HashMap::new()) })
    }

    fn path(&self, ino: Ino) -> PathBuf {
        self.root.join(format!("{:02x}", ino.0 & 0xff)).join(format!("{:016x}", ino.0))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Ino, Arc<Container>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container of `ino`, made if there is none.
    pub(crate) fn open(&self, ino: Ino) -> io::Result<Arc<Container>> {
        let mut table = self.table();
        if let Some(container) = table.get(&ino) {
            return Ok(Arc::clone(container));
        }
        if table.len() >= OPEN_MAX {
            table.retain(|_, container| Arc::strong_count(container) > 1);
        }
        let path = self.path(ino);
        let file =
            File::options().create(true).read(true).write(true).truncate(false).open(&path)?;
        let (is_named, writing) = Default::default();
        let container = Arc::new(Container { file, path, is_named, writing });
        table.insert(ino, Arc::clone(&container));
        Ok(container)
    }

    /// Starts `ino` over with an empty container. Who still reads the old one keeps it.
    pub(crate) fn replace(&self, ino: Ino) -> io::Result<()> {
        let mut table = self.table();
        table.remove(&ino);
        match fs::remove_file(self.path(ino)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes on disk of all containers.
    pub(crate) fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let directories = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let files = directories.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten());
        files.flatten().filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum()
    }

    /// Removes every container but those for which `keep` says otherwise.
    pub(crate) fn retain(&self, keep: impl Fn(Ino) -> bool) -> io::Result<()> {
        for directory in fs::read_dir(&self.root)?.flatten() {
            for file in fs::read_dir(directory.path())?.flatten() {
                let name = file.file_name();
                let ino = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
                if !ino.is_some_and(|ino| keep(Ino(ino))) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_found_between_holes_and_behind_the_end_there_are_none() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let container = Containers::at(dir.path().into()).unwrap().open(Ino(7)).unwrap();
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
}
