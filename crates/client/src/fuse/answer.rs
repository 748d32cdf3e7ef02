//! What the kernel's flags mean, and how results become replies.

use fuser::{
    FopenFlags, Generation, OpenAccMode, OpenFlags, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr,
};
use segue_core::modlog::NewNode;
use segue_core::refusal::Refusal;
use segue_core::types::Attr;

use super::convert::{attr, errno};
use crate::mount::{OpenMode, Opened, Shared};

/// Inode numbers are never used again, so every inode is of the first generation.
pub(super) const GENERATION: Generation = Generation(0);

pub(super) fn answer_entry(mount: &Shared, reply: ReplyEntry, result: Result<Attr, Refusal>) {
    match result {
        Ok(found) => {
            let ttl = mount.kernel_lifetime(found.ino);
            reply.entry(&ttl, &attr(&found), GENERATION);
        }
        Err(refusal) => reply.error(errno(refusal)),
    }
}

pub(super) fn answer_attr(mount: &Shared, reply: ReplyAttr, result: Result<Attr, Refusal>) {
    match result {
        Ok(found) => reply.attr(&mount.kernel_lifetime(found.ino), &attr(&found)),
        Err(refusal) => reply.error(errno(refusal)),
    }
}

pub(super) fn answer_empty(reply: ReplyEmpty, result: Result<(), Refusal>) {
    match result {
        Ok(()) => reply.ok(),
        Err(refusal) => reply.error(errno(refusal)),
    }
}

pub(super) fn answer_xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Refusal>) {
    match (result, size) {
        (Err(refusal), _) => reply.error(errno(refusal)),
        (Ok(value), 0) => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        (Ok(value), size) if value.len() > size as usize => {
            reply.error(errno(Refusal::AttributeTooLarge));
        }
        (Ok(value), _) => reply.data(&value),
    }
}

pub(super) fn open_flags(opened: Opened) -> FopenFlags {
    if opened.keep_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
}

pub(super) fn open_mode(flags: i32) -> OpenMode {
    OpenMode {
        writable: OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        synchronous: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
    }
}

pub(super) fn node(mode: u32, rdev: u32) -> Result<NewNode, Refusal> {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Ok(NewNode::File),
        libc::S_IFIFO => Ok(NewNode::Fifo),
        libc::S_IFSOCK => Ok(NewNode::Socket),
        libc::S_IFCHR => Ok(NewNode::CharDevice(rdev)),
        libc::S_IFBLK => Ok(NewNode::BlockDevice(rdev)),
        _ => Err(Refusal::Invalid),
    }
}
