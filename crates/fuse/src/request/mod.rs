//! A request of the kernel, and its kinds.

mod decode;

use std::ffi::OsStr;

use crate::abi::{FileLock, InHeader, InitIn};

pub(crate) use decode::decode_parts;
pub use decode::{Dialect, Malformed, decode};

/// A request of the kernel. It borrows from the reader's buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The caller and the inode.
    pub header: InHeader,
    /// The call.
    pub call: Call<'a>,
    /// The caller's supplementary groups, as far as the kernel tells.
    pub groups: Vec<u32>,
}

impl Request<'_> {
    /// The number by which answers and interrupts name it.
    pub fn unique(&self) -> u64 {
        self.header.unique
    }

    /// The inode in question.
    pub fn node(&self) -> u64 {
        self.header.nodeid
    }
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time of applying it.
    Now,
    /// Seconds since 1970, negative before, and nanoseconds after that.
    At(i64, u32),
}

/// The attributes that SETATTR sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits, with the file's type as it is.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of access.
    pub atime: Option<SetTime>,
    /// Time of modification.
    pub mtime: Option<SetTime>,
    /// Time of change, where the kernel keeps it.
    pub ctime: Option<SetTime>,
    /// The open file that it came through.
    pub handle: Option<u64>,
    /// Set-id bits go with it.
    pub kill_suidgid: bool,
}

/// A lock: asked for, to be released (`F_UNLCK`), or inquired about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The open file.
    pub handle: u64,
    /// The lock's owner: a process for POSIX locks, an open file for OFD locks and flock(2).
    pub owner: u64,
    /// Range, kind and process.
    pub lock: FileLock,
    /// flock(2), not fcntl(2).
    pub is_flock: bool,
}

/// The requests. Names are without their NUL, flags as the system calls have them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are the system calls' parameters")]
pub enum Call<'a> {
    Lookup {
        name: &'a OsStr,
    },
    /// Nodes, and how many lookups of each the kernel releases; needs no answer.
    Forget(Vec<(u64, u64)>),
    GetAttr {
        handle: Option<u64>,
    },
    StatX {
        handle: Option<u64>,
        flags: u32,
        mask: u32,
    },
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    MkNod {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        device: u32,
    },
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    RmDir {
        name: &'a OsStr,
    },
    Rename {
        name: &'a OsStr,
        new_parent: u64,
        new_name: &'a OsStr,
        flags: u32,
    },
    /// The request's node is the directory.
    Link {
        node: u64,
        name: &'a OsStr,
    },
    Open {
        flags: u32,
        kill_suidgid: bool,
    },
    Create {
        name: &'a OsStr,
        flags: u32,
        mode: u32,
        umask: u32,
        kill_suidgid: bool,
    },
    /// A file without a name in the request's directory.
    TmpFile {
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        flags: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        flags: u32,
        from_cache: bool,
        kill_suidgid: bool,
    },
    Flush {
        handle: u64,
        lock_owner: u64,
    },
    Release {
        handle: u64,
        flags: u32,
        flush: bool,
        flock_owner: Option<u64>,
    },
    FSync {
        handle: u64,
        data_only: bool,
    },
    StatFs,
    SyncFs,
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: u32,
        kill_sgid: bool,
    },
    /// Size 0 asks how long it is.
    GetXattr {
        name: &'a OsStr,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a OsStr,
    },
    Access {
        mask: u32,
    },
    OpenDir {
        flags: u32,
    },
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReleaseDir {
        handle: u64,
    },
    FSyncDir {
        handle: u64,
        data_only: bool,
    },
    GetLock(Lock),
    SetLock {
        lock: Lock,
        wait: bool,
    },
    FAllocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    LSeek {
        handle: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        from: (u64, u64),
        to_node: u64,
        to: (u64, u64),
        length: u64,
        flags: u64,
        wide: bool,
    },
    IoCtl {
        handle: u64,
        flags: u32,
        command: u32,
        argument: u64,
        input: &'a [u8],
        output_max: u32,
    },
    /// With `notify` the kernel wants to hear of changes under `kernel_handle`.
    Poll {
        handle: u64,
        kernel_handle: u64,
        events: u32,
        notify: bool,
    },
    BMap {
        block: u64,
        block_bytes: u32,
    },
    /// Data that NOTIFY_RETRIEVE asked for; needs no answer.
    Retrieved {
        offset: u64,
        data: &'a [u8],
    },
    /// The request of that number is to end; needs no answer.
    Interrupt {
        unique: u64,
    },
    Init(InitIn),
    Destroy,
    /// A request that this binding does not speak: a newer one, or one for virtio-fs only.
    /// (SETUPMAPPING maps files into a guest's memory window, which /dev/fuse lacks.)
    Unknown,
}

#[cfg(test)]
mod tests;
