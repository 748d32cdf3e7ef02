//! One inode, and what it can be.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_fuse::abi::{Attr, StatX, SxTime};
use segue_fuse::{Entry, Errno, SetAttr, SetTime};

use crate::data::{Data, PAGE};
use crate::locks::Locks;

/// Only this kernel changes anything, and it knows what it changed.
pub(crate) const TTL: Duration = Duration::from_secs(3600);
/// Everything that `poll(2)` may wait for.
pub(crate) const READY: u32 =
    (libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM) as u32;
const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Seconds since 1970 and nanoseconds.
pub(crate) type Time = (i64, u32);

pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (i64::try_from(since.as_secs()).unwrap(), since.subsec_nanos())
}

pub(crate) enum Kind {
    File(Data),
    Directory(Directory),
    Link(Vec<u8>),
    /// A fifo, socket or device, which the kernel handles alone.
    Special,
}

/// Names, each with a number that readers of the directory go on from.
pub(crate) struct Directory {
    pub(crate) parent: u64,
    pub(crate) names: BTreeMap<Vec<u8>, (u64, u64)>,
    pub(crate) order: BTreeMap<u64, Vec<u8>>,
    /// The newest name's number.
    pub(crate) last: u64,
}

impl Directory {
    pub(crate) fn new(parent: u64) -> Directory {
        // 1 and 2 are the numbers of "." and "..".
        Directory { parent, names: BTreeMap::new(), order: BTreeMap::new(), last: 2 }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.names.get(name).map(|(_, ino)| *ino)
    }

    pub(crate) fn add(&mut self, name: &[u8], ino: u64) {
        self.last += 1;
        self.names.insert(name.to_vec(), (self.last, ino));
        self.order.insert(self.last, name.to_vec());
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some((number, _)) = self.names.remove(name) {
            self.order.remove(&number);
        }
    }
}

pub(crate) struct Node {
    pub(crate) ino: u64,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) locks: Locks,
    /// So often has the kernel been told of it, and has not let go.
    pub(crate) lookups: u64,
    pub(crate) opens: u64,
    /// What poll(2) finds, and the kernel's numbers for those who wait for more.
    pub(crate) ready: u32,
    pub(crate) polls: Vec<u64>,
}

impl Node {
    pub(crate) fn new(ino: u64, kind: Kind, mode: u32, (uid, gid): (u32, u32)) -> Node {
        let (time, is_dir) = (now(), matches!(kind, Kind::Directory(_)));
        Node {
            ino,
            kind,
            mode,
            nlink: if is_dir { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            xattrs: BTreeMap::new(),
            locks: Locks::default(),
            lookups: 0,
            opens: 0,
            ready: READY,
            polls: Vec::new(),
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    pub(crate) fn directory(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::new(libc::ENOTDIR)),
        }
    }

    pub(crate) fn data(&mut self) -> Result<&mut Data, Errno> {
        match &mut self.kind {
            Kind::File(data) => Ok(data),
            Kind::Directory(_) => Err(Errno::new(libc::EISDIR)),
            _ => Err(Errno::new(libc::EINVAL)),
        }
    }

    pub(crate) fn pages(&self) -> u64 {
        if let Kind::File(data) = &self.kind { data.pages() } else { 0 }
    }

    pub(crate) fn attr(&self) -> Attr {
        let size = match &self.kind {
            Kind::File(data) => data.size,
            Kind::Directory(directory) => 20 * directory.names.len() as u64,
            Kind::Link(target) => target.len() as u64,
            Kind::Special => 0,
        };
        Attr {
            ino: self.ino,
            size,
            blocks: self.pages() * (PAGE / 512),
            atime: self.atime.0.cast_unsigned(),
            mtime: self.mtime.0.cast_unsigned(),
            ctime: self.ctime.0.cast_unsigned(),
            atimensec: self.atime.1,
            mtimensec: self.mtime.1,
            ctimensec: self.ctime.1,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: 4096,
            flags: 0,
        }
    }

    pub(crate) fn statx(&self) -> StatX {
        let time = |(tv_sec, tv_nsec): Time| SxTime { tv_sec, tv_nsec, reserved: 0 };
        let attr = self.attr();
        StatX {
            mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: u16::try_from(attr.mode).unwrap(),
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(self.atime),
            btime: time(self.btime),
            ctime: time(self.ctime),
            mtime: time(self.mtime),
            rdev_major: self.rdev >> 8 & 0xfff,
            rdev_minor: self.rdev & 0xff | self.rdev >> 12 & !0xff,
            ..StatX::default()
        }
    }

    /// An entry for it, which the kernel will let go of again.
    pub(crate) fn entry(&mut self) -> Entry {
        self.lookups += 1;
        Entry { node: self.ino, generation: 1, name_ttl: TTL, attr_ttl: TTL, attr: self.attr() }
    }

    pub(crate) fn changed(&mut self) {
        self.ctime = now();
    }

    pub(crate) fn modified(&mut self) {
        self.mtime = now();
        self.ctime = self.mtime;
    }

    /// As time of access is kept by default: if it is before a change, or a day old.
    pub(crate) fn accessed(&mut self) {
        let now = now();
        let is_due = self.atime <= self.mtime || self.atime <= self.ctime;
        if is_due || self.atime.0 + 86_400 < now.0 {
            self.atime = now;
        }
    }

    /// What runs as somebody must not be what somebody else wrote.
    pub(crate) fn kill_set_ids(&mut self) {
        let lost = match self.mode {
            _ if self.is_dir() => 0,
            mode if mode & libc::S_IXGRP != 0 => SET_IDS,
            _ => libc::S_ISUID,
        };
        self.mode &= !lost;
        self.xattrs.remove(b"security.capability".as_slice());
    }

    pub(crate) fn set(&mut self, set: &SetAttr) {
        let now = now();
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(secs, nanos) => (secs, nanos),
        };
        let is_chown = set.uid.is_some() || set.gid.is_some();
        // Nothing is set where the kernel wants just what a chown(2) to nobody else does.
        let is_idle = SetAttr { ctime: None, handle: None, ..*set } == SetAttr::default();
        if is_chown || is_idle || set.kill_suidgid {
            self.kill_set_ids();
        }
        if let Some(mode) = set.mode {
            self.mode = self.mode & libc::S_IFMT | mode & 0o7777;
        }
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
        self.ctime = now;
        if set.size.is_some() {
            self.mtime = now;
        }
        self.atime = set.atime.map_or(self.atime, time);
        self.mtime = set.mtime.map_or(self.mtime, time);
        self.ctime = set.ctime.map_or(self.ctime, time);
    }
}
