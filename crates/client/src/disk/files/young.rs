//! The bytes of one container: a file, or memory for as long as they are few and the log has them.
//!
//! Most small files are gone a moment after they were made, or are written once. Making a file on
//! disk for one costs more than all the rest of its way. So its bytes stay in memory until the
//! index is to say that they are here, until something is written that the log lacks, or until they
//! are too many. A process that dies before has its log, from which they are written again, or the
//! server has them.
//!
//! Invariant: what is in memory only is in the log as it is, byte for byte. Where it becomes a file
//! it does so as a whole, or stays.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::rank::{Held, Ranked};

/// A longer file has its bytes on disk at once: the log would have all of them a second time.
pub(super) const FEW_MAX: usize = 64 << 10;
/// In all containers together no more bytes are in memory only: what a disk takes in a moment.
const ALL_MAX: usize = 64 << 20;

/// Bytes of one container.
#[derive(Debug)]
pub(super) struct Bytes {
    path: PathBuf,
    file: OnceLock<File>,
    young: Ranked<Young>,
    all: Arc<Totals>,
}

/// What all of them have together.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Files that are open.
    pub(super) files: AtomicUsize,
    /// Bytes that are in memory only.
    young: AtomicUsize,
}

impl Totals {
    /// Counts `now` bytes instead of `before`.
    fn count_change(&self, before: usize, now: usize) {
        self.young.fetch_add(now, Ordering::Relaxed);
        self.young.fetch_sub(before, Ordering::Relaxed);
    }
}

/// What is not in a file.
#[derive(Debug, Default)]
struct Young {
    /// All of them, without a hole.
    bytes: Vec<u8>,
    /// Nobody needs them but who has them open.
    is_gone: bool,
}

impl Bytes {
    /// None so far, and there is no file at `path`. They are counted in `all`.
    pub(super) fn new(path: PathBuf, all: &Arc<Totals>) -> Bytes {
        let (file, young) = Default::default();
        Bytes { path, file, young, all: Arc::clone(all) }
    }

    /// Those of the file at `path`, if there is one. They are counted in `all`.
    pub(super) fn open(path: PathBuf, all: &Arc<Totals>) -> io::Result<Bytes> {
        let bytes = Bytes::new(path, all);
        match File::options().read(true).write(true).open(&bytes.path) {
            Ok(file) => drop(bytes.attach_file(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(bytes)
    }

    fn attach_file(&self, file: File) -> &File {
        self.file.get_or_init(|| {
            self.all.files.fetch_add(1, Ordering::Relaxed);
            file
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_young(&self) -> bool {
        self.file.get().is_none()
    }

    /// The file, made now if there is none.
    pub(super) fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let mut young = self.lock();
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let mut options = File::options();
        let file = options.create(true).read(true).write(true).truncate(true).open(&self.path)?;
        let written = file.write_all_at(&young.bytes, 0);
        if young.is_gone || written.is_err() {
            fs::remove_file(&self.path)?;
        }
        written?;
        self.all.count_change(young.bytes.len(), 0);
        young.bytes = Vec::new();
        Ok(self.attach_file(file))
    }

    /// True if `len` bytes at `offset` could be written into memory.
    pub(super) fn takes(&self, offset: u64, len: usize) -> bool {
        self.young(|young| self.room_for(young, offset, len).is_some()).unwrap_or(false)
    }

    /// The range that `len` bytes at `offset` would take in memory, if there is room.
    fn room_for(&self, young: &[u8], offset: u64, len: usize) -> Option<(usize, usize)> {
        let at = usize::try_from(offset).ok().filter(|at| *at <= young.len())?;
        let end = at.checked_add(len).filter(|end| *end <= FEW_MAX)?;
        let more = end.saturating_sub(young.len());
        let all = self.all.young.load(Ordering::Relaxed) + more;
        (all <= ALL_MAX).then_some((at, end))
    }

    /// Writes into memory, if they still can be there.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> bool {
        let write = |young: &mut Vec<u8>| {
            let Some((at, end)) = self.room_for(young, offset, bytes.len()) else { return false };
            let before = young.len();
            young.resize(before.max(end), 0);
            self.all.count_change(before, young.len());
            young.get_mut(at..end).map(|place| place.copy_from_slice(bytes)).is_some()
        };
        self.young(write).unwrap_or(false)
    }

    /// `len` bytes at `offset`, with zeros behind the end; `None` if there is a file.
    pub(super) fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        self.young(|young| {
            let here = young.get(at..).unwrap_or_default();
            let mut bytes = here.get(..len).unwrap_or(here).to_vec();
            bytes.resize(len, 0);
            bytes
        })
    }

    /// How many there are; `None` if there is a file.
    pub(super) fn len(&self) -> Option<u64> {
        self.young(|young| young.len() as u64)
    }

    /// Cuts off what is behind `size`; false if there is a file.
    pub(super) fn cut(&self, size: u64) -> bool {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let cut = |young: &mut Vec<u8>| {
            let before = young.len();
            young.truncate(size);
            self.all.count_change(before, young.len());
        };
        self.young(cut).is_some()
    }

    /// The room that they take, where they are.
    pub(super) fn room(&self) -> io::Result<u64> {
        match self.len() {
            Some(len) => Ok(len),
            None => Ok(room(&self.file()?.metadata()?)),
        }
    }

    /// What `look` sees in memory; `None` if there is a file.
    fn young<R>(&self, look: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        if self.file.get().is_some() {
            return None;
        }
        let mut young = self.lock();
        self.is_young().then(|| look(&mut young.bytes))
    }

    /// Nobody needs them any more but who has them open. False if there is a file to be removed.
    pub(super) fn let_go(&self) -> bool {
        let mut young = self.lock();
        young.is_gone = self.is_young();
        young.is_gone
    }

    fn lock(&self) -> Held<'_, Young> {
        self.young.lock()
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        match self.young(|young| young.len()) {
            None => drop(self.all.files.fetch_sub(1, Ordering::Relaxed)),
            Some(len) => self.all.count_change(len, 0),
        }
    }
}

/// The room that a file takes.
pub(super) fn room(meta: &Metadata) -> u64 {
    meta.blocks() * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &Path) -> Bytes {
        Bytes::open(path.into(), &Arc::default()).unwrap()
    }

    #[test]
    fn few_bytes_have_no_file_until_one_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("container");
        let bytes = at(&path);
        assert!(bytes.write(b"first", 0) && bytes.write(b"STRETCHED", 2));
        assert!(bytes.is_young() && !path.exists());
        assert_eq!(bytes.read(0, 20).unwrap(), b"fiSTRETCHED\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes.read(9, 1).unwrap(), b"E");
        assert_eq!(bytes.read(100, 1).unwrap(), b"\0");
        assert!(bytes.cut(5) && bytes.cut(50));
        bytes.file().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"fiSTR");
        assert!(!bytes.write(b"!", 5) && !bytes.cut(1) && !bytes.let_go());
        assert!(bytes.read(0, 1).is_none() && bytes.len().is_none());
    }

    #[test]
    fn holes_and_many_bytes_are_for_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = at(&dir.path().join("container"));
        let writes = |len, at, can| {
            assert_eq!((bytes.takes(at, len), bytes.write(&vec![7; len], at)), (can, can));
        };
        writes(1, 1, false);
        writes(FEW_MAX + 1, 0, false);
        writes(FEW_MAX, 0, true);
        writes(1, FEW_MAX as u64, false);
        bytes.file().unwrap();
        writes(1, 0, false);
    }

    /// Of a machine's memory no more than a bound is taken, however many containers there are.
    #[test]
    fn all_together_have_no_more_than_is_allowed_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let all = Arc::default();
        let open = |number: usize| Bytes::open(dir.path().join(number.to_string()), &all).unwrap();
        let full = |held: &[Bytes]| held.iter().filter(|bytes| bytes.is_young()).count() * FEW_MAX;
        let held: Vec<Bytes> = (0..ALL_MAX / FEW_MAX).map(open).collect();
        held.iter().for_each(|bytes| assert!(bytes.write(&[7; FEW_MAX], 0)));
        let one_more = open(held.len());
        let is_full = || !one_more.takes(0, 1);
        assert!(is_full() && !one_more.write(&[7], 0) && one_more.write(&[], 0));
        assert!(held[0].write(&[8; FEW_MAX], 0), "it takes no more");
        held[0].file().unwrap();
        assert!(!is_full() && all.young.load(Ordering::Relaxed) == full(&held));
        assert!(held[1].cut(7) && one_more.write(&[7; FEW_MAX], 0) && held[2].let_go());
        drop((one_more, held));
        assert_eq!(all.young.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_gone_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("container");
        let bytes = at(&path);
        assert!(bytes.write(b"kept by its reader", 0) && bytes.let_go());
        let mut read = [0; 4];
        bytes.file().unwrap().read_exact_at(&mut read, 0).unwrap();
        assert_eq!((&read, path.exists()), (b"kept", false));
    }

    #[test]
    fn open_files_are_counted_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (path, all) = (dir.path().join("container"), Arc::<Totals>::default());
        let files = || all.files.load(Ordering::Relaxed);
        let bytes = Bytes::open(path.clone(), &all).unwrap();
        assert_eq!(files(), 0);
        bytes.file().unwrap();
        let again = Bytes::open(path, &all).unwrap();
        assert_eq!(files(), 2);
        drop((bytes, again));
        assert_eq!(files(), 0);
    }
}
