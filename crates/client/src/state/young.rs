//! The bytes of one container: a file, or memory for as long as they are few and the log has them.
//!
//! Most small files are gone a moment after they were made, or are written once. Making a file on
//! disk for one costs more than all the rest of its way. So its bytes stay in memory until the index
//! is to say that they are here, until something is written that the log lacks, or until they are
//! too many. A process that dies before has its log, from which they are written again, or the
//! server has them.
//!
//! Invariant: what is in memory only is in the log as it is, byte for byte. Where it becomes a file
//! it does so as a whole, or stays.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use segue_core::modlog::INLINE_MAX;

/// Bytes of one container.
#[derive(Debug)]
pub(super) struct Bytes {
    path: PathBuf,
    file: OnceLock<File>,
    young: Mutex<Young>,
    /// How many such files are open.
    files: Arc<AtomicUsize>,
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
    /// Those of the file at `path`, if there is one. It is counted in `files`.
    pub(super) fn open(path: PathBuf, files: &Arc<AtomicUsize>) -> io::Result<Bytes> {
        let bytes = Bytes {
            path,
            file: OnceLock::new(),
            young: Mutex::default(),
            files: Arc::clone(files),
        };
        match File::options().read(true).write(true).open(&bytes.path) {
            Ok(file) => drop(bytes.has_file(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(bytes)
    }

    fn has_file(&self, file: File) -> &File {
        self.file.get_or_init(|| {
            self.files.fetch_add(1, Ordering::Relaxed);
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
        young.bytes = Vec::new();
        Ok(self.has_file(file))
    }

    /// Writes into memory, if they still can be there.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> bool {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.saturating_add(bytes.len());
        let write = |young: &mut Vec<u8>| {
            if at > young.len() || end > INLINE_MAX {
                return false;
            }
            young.resize(young.len().max(end), 0);
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
        self.young(|young| young.truncate(size)).is_some()
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

    fn lock(&self) -> MutexGuard<'_, Young> {
        self.young.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if !self.is_young() {
            self.files.fetch_sub(1, Ordering::Relaxed);
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
        assert!(!bytes.write(&[7], 1) && !bytes.write(&[7; INLINE_MAX + 1], 0));
        assert!(bytes.write(&[7; INLINE_MAX], 0) && !bytes.write(&[7], INLINE_MAX as u64));
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
        let (path, files) = (dir.path().join("container"), Arc::default());
        let bytes = Bytes::open(path.clone(), &files).unwrap();
        assert_eq!(files.load(Ordering::Relaxed), 0);
        bytes.file().unwrap();
        let again = Bytes::open(path, &files).unwrap();
        assert_eq!(files.load(Ordering::Relaxed), 2);
        drop((bytes, again));
        assert_eq!(files.load(Ordering::Relaxed), 0);
    }
}
