//! Open files: reading, writing, and the kernel doing both by itself.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use segue_fuse::abi::{Attr, InHeader, fopen};
use segue_fuse::{Answer, Backing, Notifier, Open, SetAttr, SetTime};

use super::Flush;
use super::calls::Mirror;
use super::nodes::magic_link;

/// An open file of the source.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    /// What the kernel reads and writes instead of asking; it goes with the last of the files that
    /// have it.
    _backing: Option<Arc<Backing>>,
}

/// What the kernel reads and writes, by inode of the source.
pub(crate) type Backings = Mutex<HashMap<u64, Weak<Backing>>>;

impl Mirror {
    fn opened(&self, file: File) -> io::Result<Open> {
        let mut flags = fopen::KEEP_CACHE;
        if self.options.flush == Flush::Noflush {
            flags |= fopen::NOFLUSH;
        }
        let backing = match self.notifier() {
            Some(notifier) if self.options.passthrough => {
                // The kernel refuses the page cache's flag with it.
                flags -= fopen::KEEP_CACHE;
                Some(self.backing(notifier, &file)?)
            }
            _ => None,
        };
        let id = backing.as_ref().map(|backing| backing.id());
        Ok(Open {
            handle: self.files.insert(Opened { file, _backing: backing }),
            flags,
            backing: id,
        })
    }

    /// All who have an inode open at a time must have one backing file: another is the kernel's
    /// EIO, and a file that was closed is open until its release has come.
    fn backing(&self, notifier: &Notifier, file: &File) -> io::Result<Arc<Backing>> {
        let ino = file.metadata()?.ino();
        let mut backings = self.backings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backing) = backings.get(&ino).and_then(Weak::upgrade) {
            return Ok(backing);
        }
        let backing = Arc::new(notifier.open_backing(file.as_fd())?);
        backings.retain(|_, backing| backing.strong_count() > 0);
        backings.insert(ino, Arc::downgrade(&backing));
        Ok(backing)
    }

    fn reopen(&self, node: u64, flags: OFlags) -> io::Result<File> {
        // The magic link is followed; what it leads to is no symbolic link.
        let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        Ok(fs::open(magic_link(&*self.nodes.path(node)?), flags, Mode::empty())?.into())
    }

    pub(crate) fn open(&self, node: u64, flags: u32) -> io::Result<Answer> {
        let file = self.reopen(node, OFlags::from_bits_retain(flags))?;
        Ok(Answer::Open(self.opened(file)?))
    }

    pub(crate) fn create(
        &self,
        from: &InHeader,
        name: &OsStr,
        flags: u32,
        mode: u32,
    ) -> io::Result<Answer> {
        let flags = OFlags::from_bits_retain(flags) | OFlags::CREATE | OFlags::CLOEXEC;
        let dir = self.nodes.path(from.nodeid)?;
        let file = fs::openat(&*dir, name, flags, Mode::from_raw_mode(mode))?;
        self.give_to_caller(from, &file)?;
        let attr = self.nodes.lookup(from.nodeid, name)?;
        Ok(Answer::Created(self.entry(attr), self.opened(file.into())?))
    }

    pub(crate) fn give_to_caller(&self, from: &InHeader, file: impl AsFd) -> io::Result<()> {
        if from.uid != 0 || from.gid != 0 {
            let (uid, gid) = (Uid::from_raw(from.uid), Gid::from_raw(from.gid));
            fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    /// Calls `work` with the open file, or, without handles, with one opened for it.
    fn with_file<T>(
        &self,
        (node, handle): (u64, u64),
        access: OFlags,
        work: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.options.no_open {
            return work(&self.reopen(node, access)?);
        }
        work(&self.files.get(handle)?.file)
    }

    pub(crate) fn read(&self, at: (u64, u64), offset: u64, size: u32) -> io::Result<Answer> {
        self.with_file(at, OFlags::RDONLY, |file| {
            let mut data = Vec::with_capacity(size as usize);
            while data.len() < size as usize {
                let position = offset + data.len() as u64;
                let room = rustix::buffer::spare_capacity(&mut data);
                if rustix::io::pread(file, room, position)? == 0 {
                    break;
                }
            }
            // A vector may be larger than it was asked to be.
            data.truncate(size as usize);
            Ok(Answer::Data(data))
        })
    }

    pub(crate) fn write(&self, at: (u64, u64), offset: u64, data: &[u8]) -> io::Result<Answer> {
        self.with_file(at, OFlags::WRONLY, |file| {
            file.write_all_at(data, offset)?;
            Ok(Answer::Written(u32::try_from(data.len()).unwrap_or(u32::MAX)))
        })
    }

    pub(crate) fn sync(&self, at: (u64, u64), data_only: bool) -> io::Result<Answer> {
        self.with_file(at, OFlags::WRONLY, |file| {
            if data_only { file.sync_data() } else { file.sync_all() }
        })?;
        Ok(Answer::Empty)
    }

    pub(crate) fn set(&self, node: u64, set: &SetAttr) -> io::Result<Attr> {
        let path: Arc<_> = self.nodes.path(node)?;
        if let Some(mode) = set.mode {
            fs::chmod(magic_link(&path), Mode::from_raw_mode(mode))?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            fs::chownat(&*path, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = set.size {
            let at = (node, set.handle.unwrap_or(0));
            match set.handle {
                Some(_) => self.with_file(at, OFlags::WRONLY, |file| file.set_len(size))?,
                None => self.reopen(node, OFlags::WRONLY)?.set_len(size)?,
            }
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: time(set.atime), last_modification: time(set.mtime) };
            fs::utimensat(&*path, "", &times, AtFlags::EMPTY_PATH)?;
        }
        self.nodes.attr_of(&*path)
    }
}

fn time(set: Option<SetTime>) -> Timespec {
    match set {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(SetTime::At(seconds, nanos)) => Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
    }
}
