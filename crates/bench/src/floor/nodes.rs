//! The inodes that the kernel knows, each as an open path of the source tree.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat};

/// Every inode that the kernel holds, by its number in the source tree; the root is 1.
///
/// The open path keeps an inode's number from being used again while the kernel knows it.
#[derive(Debug)]
pub(crate) struct Nodes {
    known: RwLock<HashMap<u64, Node>>,
    root: u64,
}

#[derive(Debug)]
struct Node {
    path: Arc<OwnedFd>,
    lookups: u64,
}

impl Nodes {
    pub(crate) fn new(source: &Path) -> io::Result<Nodes> {
        let root = openat(rustix::fs::CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let number = rustix::fs::fstat(&root)?.st_ino;
        let node = Node { path: Arc::new(root), lookups: 1 };
        let known = RwLock::new(HashMap::from([(INodeNo::ROOT.0, node)]));
        Ok(Nodes { known, root: number })
    }

    /// The open path of `ino`.
    pub(crate) fn path(&self, ino: INodeNo) -> io::Result<Arc<OwnedFd>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let node = known.get(&ino.0).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))?;
        Ok(node.path.clone())
    }

    /// Finds `name` in `parent` and counts one lookup by the kernel.
    pub(crate) fn lookup(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = openat(&*self.path(parent)?, name, flags, Mode::empty())?;
        let attr = self.attr_of(&path)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let node = Node { path: Arc::new(path), lookups: 0 };
        known.entry(attr.ino.0).or_insert(node).lookups += 1;
        Ok(attr)
    }

    /// Takes back `lookups` of `ino`.
    pub(crate) fn forget(&self, ino: INodeNo, lookups: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(node) = known.get_mut(&ino.0) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 && ino != INodeNo::ROOT {
            known.remove(&ino.0);
        }
    }

    pub(crate) fn attr(&self, ino: INodeNo) -> io::Result<FileAttr> {
        self.attr_of(&*self.path(ino)?)
    }

    pub(crate) fn attr_of(&self, file: impl std::os::fd::AsFd) -> io::Result<FileAttr> {
        Ok(attr(&statat(file, "", AtFlags::EMPTY_PATH)?, self.root))
    }

    /// The kernel's number for the inode `number` of the source tree.
    pub(crate) fn number(&self, number: u64) -> INodeNo {
        if number == self.root { INodeNo::ROOT } else { INodeNo(number) }
    }
}

/// A path by which calls without an `*at` form reach an open path.
pub(crate) fn magic_link(path: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", path.as_raw_fd())
}

pub(crate) fn kind(file_type: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Source;
    match file_type {
        Source::Directory => FileType::Directory,
        Source::Symlink => FileType::Symlink,
        Source::Fifo => FileType::NamedPipe,
        Source::Socket => FileType::Socket,
        Source::CharacterDevice => FileType::CharDevice,
        Source::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attr(stat: &Stat, root: u64) -> FileAttr {
    let ino = if stat.st_ino == root { INodeNo::ROOT } else { INodeNo(stat.st_ino) };
    FileAttr {
        ino,
        size: stat.st_size.unsigned_abs(),
        blocks: stat.st_blocks.unsigned_abs(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: std::time::UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

fn time(seconds: i64, nanos: impl TryInto<u64>) -> std::time::SystemTime {
    let nanos = std::time::Duration::from_nanos(nanos.try_into().unwrap_or(0));
    let whole = std::time::Duration::from_secs(seconds.unsigned_abs());
    let epoch = std::time::UNIX_EPOCH;
    if seconds < 0 { epoch - whole + nanos } else { epoch + whole + nanos }
}
