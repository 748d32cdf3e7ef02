//! The inodes that the kernel knows, each as an open path of the source tree.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat};
use segue_fuse::abi::{Attr, ROOT};

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
        Ok(Nodes { known: RwLock::new(HashMap::from([(ROOT, node)])), root: number })
    }

    /// The open path of `node`.
    pub(crate) fn path(&self, node: u64) -> io::Result<Arc<OwnedFd>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let node = known.get(&node).ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))?;
        Ok(node.path.clone())
    }

    /// Finds `name` in `parent` and counts one lookup by the kernel.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> io::Result<Attr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = openat(&*self.path(parent)?, name, flags, Mode::empty())?;
        let attr = self.attr_of(&path)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(&attr.ino) {
            Some(node) => node.lookups += 1,
            None => {
                known.insert(attr.ino, Node { path: Arc::new(path), lookups: 1 });
            }
        }
        Ok(attr)
    }

    /// Takes back `lookups` of `node`.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = known.get_mut(&node) else { return };
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups == 0 && node != ROOT {
            let gone = known.remove(&node);
            drop(known);
            // Closed when the table is free again: it may be what deletes a large file.
            drop(gone);
        }
    }

    pub(crate) fn attr(&self, node: u64) -> io::Result<Attr> {
        self.attr_of(&*self.path(node)?)
    }

    pub(crate) fn attr_of(&self, file: impl AsFd) -> io::Result<Attr> {
        Ok(attr(&statat(file, "", AtFlags::EMPTY_PATH)?, self.root))
    }

    /// The kernel's number for the inode `number` of the source tree.
    pub(crate) fn number(&self, number: u64) -> u64 {
        if number == self.root { ROOT } else { number }
    }
}

/// A path by which calls without an `*at` form reach an open path.
pub(crate) fn magic_link(path: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", path.as_raw_fd())
}

fn attr(stat: &Stat, root: u64) -> Attr {
    let nanos = |nanos: u64| u32::try_from(nanos).unwrap_or(0);
    Attr {
        ino: if stat.st_ino == root { ROOT } else { stat.st_ino },
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: stat.st_atime.cast_unsigned(),
        mtime: stat.st_mtime.cast_unsigned(),
        ctime: stat.st_ctime.cast_unsigned(),
        atimensec: nanos(stat.st_atime_nsec),
        mtimensec: nanos(stat.st_mtime_nsec),
        ctimensec: nanos(stat.st_ctime_nsec),
        mode: stat.st_mode,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}
