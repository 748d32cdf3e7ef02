//! What a request is called in words, for who asks why it took long.

use std::os::unix::ffi::OsStrExt;

use segue_fuse::{Call, Request};

use super::convert::ino;
use crate::waits::{Operation, hash};

pub(super) fn operation_of(request: &Request<'_>) -> Operation {
    let (name, child) = match &request.call {
        Call::Lookup { name } => ("lookup", Some(*name)),
        Call::Create { name, .. } => ("create", Some(*name)),
        Call::MkNod { name, .. } => ("mknod", Some(*name)),
        Call::MkDir { name, .. } => ("mkdir", Some(*name)),
        Call::Symlink { name, .. } => ("symlink", Some(*name)),
        Call::Link { name, .. } => ("link", Some(*name)),
        Call::Unlink { name } => ("unlink", Some(*name)),
        Call::RmDir { name } => ("rmdir", Some(*name)),
        Call::Rename { name, .. } => ("rename", Some(*name)),
        Call::GetAttr { .. } => ("getattr", None),
        Call::SetAttr(_) => ("setattr", None),
        Call::ReadLink => ("readlink", None),
        Call::Open { .. } => ("open", None),
        Call::Read { .. } => ("read", None),
        Call::Write { .. } => ("write", None),
        Call::Flush { .. } => ("close", None),
        Call::FSync { .. } | Call::FSyncDir { .. } => ("fsync", None),
        Call::OpenDir { .. } => ("opendir", None),
        Call::ReadDir { .. } | Call::ReadDirPlus { .. } => ("readdir", None),
        Call::FAllocate { .. } => ("fallocate", None),
        Call::LSeek { .. } => ("lseek", None),
        Call::CopyFileRange { .. } => ("copy_file_range", None),
        Call::GetXattr { .. } | Call::ListXattr { .. } => ("getxattr", None),
        Call::SetXattr { .. } | Call::RemoveXattr { .. } => ("setxattr", None),
        Call::StatFs => ("statfs", None),
        _ => ("other", None),
    };
    let (of, pid) = (ino(request.node()), request.header.pid);
    Operation { name, ino: of, child: child.map(|child| hash(child.as_bytes())), pid }
}
