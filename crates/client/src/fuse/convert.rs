//! Kernel types to core's and back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use segue_core::host::cache::{Nodes, Way};
use segue_core::nouns::{Attr, Ino, Kind, NAME_MAX, Name, NewNode, Timestamp};
use segue_core::refusal::Refusal;
use segue_core::wire::Space;
use segue_fuse::abi::{self, fopen};
use segue_fuse::{Answer, Entry, Errno, Open, Outcome, SetTime};

use crate::mount::{OpenMode, Opened, Shared};

/// Unit of `st_blocks`.
const BLOCK: u64 = 512;

pub(super) fn errno(refusal: Refusal) -> Errno {
    Errno::new(refusal.errno())
}

pub(super) fn outcome<T>(result: Result<T, Refusal>, answer: impl FnOnce(T) -> Answer) -> Outcome {
    result.map(answer).map_err(errno)
}

pub(super) fn empty(result: Result<(), Refusal>) -> Outcome {
    outcome(result, |()| Answer::Empty)
}

/// An inode that a name was made for.
pub(super) fn made(mount: &Shared, result: Result<Attr, Refusal>) -> Outcome {
    outcome(result, |found| Answer::Entry(entry(&found, mount.kernel.made(found.ino))))
}

/// Attributes of what the kernel calls `node`.
pub(super) fn attributes(mount: &Shared, node: u64, result: Result<Attr, Refusal>) -> Outcome {
    outcome(result, |found| {
        let (found, ttl) = mount.kernel.as_seen(node, found);
        Answer::Attr(attr(&found), ttl)
    })
}

/// The same after a change of them: the kernel takes them in whatever it forgot meanwhile.
pub(super) fn changed(mount: &Shared, node: u64, result: Result<Attr, Refusal>) -> Outcome {
    outcome(result, |found| {
        let (found, ttl) = mount.kernel.as_seen(node, found);
        Answer::Attr(attr(&found), mount.kernel.within_lease(ttl))
    })
}

/// An extended attribute's value or a list of them, for a caller with room for `size` bytes.
pub(super) fn sized(result: Result<Vec<u8>, Refusal>, size: u32) -> Outcome {
    match (result, size) {
        (Err(refusal), _) => Err(errno(refusal)),
        (Ok(value), 0) => Ok(Answer::XattrSize(u32::try_from(value.len()).unwrap_or(u32::MAX))),
        (Ok(value), size) if value.len() > size as usize => Err(errno(Refusal::AttributeTooLarge)),
        (Ok(value), _) => Ok(Answer::Data(value)),
    }
}

/// Inode numbers are never used again, so every inode is of the first generation.
pub(super) fn entry(found: &Attr, (node, ttl): (u64, Duration)) -> Entry {
    let (name_ttl, attr_ttl) = (ttl, ttl);
    Entry { node, generation: 0, name_ttl, attr_ttl, attr: attr(found) }
}

pub(super) fn opened(opened: Opened) -> Open {
    let mut flags = 0;
    if opened.handle.keeps_pages {
        flags |= fopen::KEEP_CACHE;
    }
    if !opened.writable {
        // There will be nothing to flush.
        flags |= fopen::NOFLUSH;
    }
    if opened.handle.way == Way::Direct {
        flags |= fopen::DIRECT_IO;
    }
    Open { handle: opened.handle.number, flags, backing: opened.backing }
}

pub(super) fn name(name: &OsStr) -> Result<Name, Refusal> {
    Ok(Name::new(name.as_bytes())?)
}

pub(super) fn kind_mode(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    }
}

pub(super) fn node(mode: u32, device: u32) -> Result<NewNode, Refusal> {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Ok(NewNode::File),
        libc::S_IFIFO => Ok(NewNode::Fifo),
        libc::S_IFSOCK => Ok(NewNode::Socket),
        libc::S_IFCHR => Ok(NewNode::CharDevice(device)),
        libc::S_IFBLK => Ok(NewNode::BlockDevice(device)),
        _ => Err(Refusal::Invalid),
    }
}

pub(super) fn open_mode(flags: u32, kills_set_ids: bool) -> OpenMode {
    let flags = flags.cast_signed();
    OpenMode {
        writable: flags & libc::O_ACCMODE != libc::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        direct: flags & libc::O_DIRECT != 0,
        synchronous: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
        kills_set_ids,
    }
}

pub(super) fn time(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::At(secs, nanos) => Timestamp { secs, nanos },
        SetTime::Now => now,
    }
}

pub(super) fn attr(attr: &Attr) -> abi::Attr {
    abi::Attr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.allocated.div_ceil(BLOCK),
        atime: attr.atime.secs.cast_unsigned(),
        mtime: attr.mtime.secs.cast_unsigned(),
        ctime: attr.ctime.secs.cast_unsigned(),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: kind_mode(attr.kind) | attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn stat_fs(space: Space) -> abi::StatFs {
    const BLOCK: u32 = 4096;
    let blocks = |bytes: u64| bytes / u64::from(BLOCK);
    let (total, free) = (blocks(space.total_bytes), blocks(space.free_bytes));
    abi::StatFs {
        blocks: total,
        bfree: free,
        bavail: free,
        // Where inodes are not limited by themselves each takes space.
        files: space.inodes.saturating_add(free.min(space.free_inodes)),
        ffree: free.min(space.free_inodes),
        bsize: BLOCK,
        namelen: u32::try_from(NAME_MAX).unwrap_or(255),
        frsize: BLOCK,
        ..abi::StatFs::default()
    }
}

/// The inode that the kernel calls `node`.
pub(super) fn ino(node: u64) -> Ino {
    Nodes::ino(node)
}
