//! The floor's operations: each is the same operation on the source tree.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileHandle, FileType, INodeNo, RenameFlags, Request, TimeOrNow};
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType as SourceType, Gid, Mode, OFlags, Timespec, Timestamps, Uid,
};

use super::nodes::{Nodes, kind, magic_link};
use segue_bed::handles::Handles;

/// A directory's entry: number, kind, name.
pub(crate) type Entry = (INodeNo, FileType, OsString);

/// A directory's entries as they were when it was opened.
pub(crate) type Listing = Vec<Entry>;

#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) nodes: Nodes,
    pub(crate) files: Handles<File>,
    pub(crate) listings: Handles<Listing>,
    /// How long the kernel may rely on names and attributes.
    pub(crate) ttl: Duration,
}

/// What `setattr` changes.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
}

impl Mirror {
    pub(crate) fn new(source: &Path, ttl: Duration) -> io::Result<Mirror> {
        let nodes = Nodes::new(source)?;
        Ok(Mirror { nodes, files: Handles::new(), listings: Handles::new(), ttl })
    }

    /// Looks up what `make` makes as `name` in `parent`, once it belongs to the caller.
    pub(crate) fn made(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        make: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> io::Result<FileAttr> {
        let dir = self.nodes.path(parent)?;
        make(&dir)?;
        if request.uid() != 0 || request.gid() != 0 {
            let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
            fs::chownat(&*dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        self.nodes.lookup(parent, name)
    }

    pub(crate) fn mknod(
        &self,
        request: &Request,
        at: (INodeNo, &OsStr),
        mode: u32,
        device: u32,
    ) -> io::Result<FileAttr> {
        let (kind, mode) = (SourceType::from_raw_mode(mode), Mode::from_raw_mode(mode));
        self.made(request, at, |dir| fs::mknodat(dir, at.1, kind, mode, device.into()))
    }

    pub(crate) fn link(
        &self,
        ino: INodeNo,
        (dir, name): (INodeNo, &OsStr),
    ) -> io::Result<FileAttr> {
        let from = magic_link(&*self.nodes.path(ino)?);
        fs::linkat(CWD, from, &*self.nodes.path(dir)?, name, AtFlags::SYMLINK_FOLLOW)?;
        self.nodes.lookup(dir, name)
    }

    pub(crate) fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> io::Result<()> {
        let flags = fs::RenameFlags::from_bits_retain(flags.bits());
        let dirs = (self.nodes.path(from.0)?, self.nodes.path(to.0)?);
        Ok(fs::renameat_with(&*dirs.0, from.1, &*dirs.1, to.1, flags)?)
    }

    pub(crate) fn remove(&self, (dir, name): (INodeNo, &OsStr), flags: AtFlags) -> io::Result<()> {
        Ok(fs::unlinkat(&*self.nodes.path(dir)?, name, flags)?)
    }

    pub(crate) fn readlink(&self, ino: INodeNo) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(&*self.nodes.path(ino)?, "", Vec::new())?.into_bytes())
    }

    pub(crate) fn open(&self, ino: INodeNo, flags: i32) -> io::Result<FileHandle> {
        // The magic link is followed; what it leads to is no symbolic link.
        let flags = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::NOFOLLOW;
        let path = magic_link(&*self.nodes.path(ino)?);
        let file = fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(FileHandle(self.files.insert(file.into())))
    }

    pub(crate) fn create(
        &self,
        request: &Request,
        at: (INodeNo, &OsStr),
        mode: u32,
        flags: i32,
    ) -> io::Result<(FileAttr, FileHandle)> {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
        let dir = self.nodes.path(at.0)?;
        let file = fs::openat(&*dir, at.1, flags, Mode::from_raw_mode(mode))?;
        let attr = self.made(request, at, |_| Ok(()))?;
        Ok((attr, FileHandle(self.files.insert(file.into()))))
    }

    pub(crate) fn set(
        &self,
        ino: INodeNo,
        handle: Option<FileHandle>,
        changes: Changes,
    ) -> io::Result<FileAttr> {
        let path = self.nodes.path(ino)?;
        if let Some(mode) = changes.mode {
            fs::chmod(magic_link(&path), Mode::from_raw_mode(mode))?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            fs::chownat(&*path, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = changes.size {
            match handle {
                Some(handle) => self.files.get(handle.0)?.set_len(size)?,
                None => File::options().write(true).open(magic_link(&path))?.set_len(size)?,
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.atime),
                last_modification: timespec(changes.mtime),
            };
            fs::utimensat(&*path, "", &times, AtFlags::EMPTY_PATH)?;
        }
        self.nodes.attr_of(&*path)
    }

    pub(crate) fn list(&self, ino: INodeNo) -> io::Result<FileHandle> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(&*self.nodes.path(ino)?, ".", flags, Mode::empty())?;
        let entries = Dir::new(dir)?.map(|entry| {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_os_string();
            Ok((self.nodes.number(entry.ino()), kind(entry.file_type()), name))
        });
        Ok(FileHandle(self.listings.insert(entries.collect::<io::Result<_>>()?)))
    }

    /// The path by which the extended attributes of `ino` are reached.
    pub(crate) fn xattr_path(&self, ino: INodeNo) -> io::Result<String> {
        Ok(magic_link(&*self.nodes.path(ino)?))
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => Timespec {
            tv_sec: i64::try_from(since(time).as_secs()).unwrap_or(i64::MAX),
            tv_nsec: since(time).subsec_nanos().into(),
        },
    }
}
