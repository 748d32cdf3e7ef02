//! The calls as cases write them: paths relative to the working directory, modes and ids as
//! numbers, errors as errno.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Result;
use rustix::path::Arg;

/// Opens, with mode 0644 for what it makes.
pub(crate) fn open(path: impl Arg, flags: OFlags) -> Result<OwnedFd> {
    open_mode(path, flags, 0o644)
}

pub(crate) fn open_mode(path: impl Arg, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
}

/// Makes a file that must not be there, open for reading and writing.
pub(crate) fn create(path: impl Arg, mode: u32) -> Result<OwnedFd> {
    open_mode(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, mode)
}

pub(crate) fn mkdir(path: impl Arg, mode: u32) -> Result<()> {
    fs::mkdir(path, Mode::from_raw_mode(mode))
}

pub(crate) fn mknod(path: impl Arg, kind: FileType, mode: u32, device: u64) -> Result<()> {
    fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device)
}

pub(crate) fn mkfifo(path: impl Arg, mode: u32) -> Result<()> {
    mknod(path, FileType::Fifo, mode, 0)
}

pub(crate) fn chmod(path: impl Arg, mode: u32) -> Result<()> {
    fs::chmod(path, Mode::from_raw_mode(mode))
}

pub(crate) fn fchmod(fd: impl AsFd, mode: u32) -> Result<()> {
    fs::fchmod(fd, Mode::from_raw_mode(mode))
}

/// Leaves out what is none, as -1 does.
pub(crate) fn chown(
    path: impl Arg,
    uid: impl Into<Option<u32>>,
    gid: impl Into<Option<u32>>,
) -> Result<()> {
    let (uid, gid) = (uid.into().map(Uid::from_raw), gid.into().map(Gid::from_raw));
    fs::chown(path, uid, gid)
}

/// Of the link itself.
pub(crate) fn lchown(
    path: impl Arg,
    uid: impl Into<Option<u32>>,
    gid: impl Into<Option<u32>>,
) -> Result<()> {
    let (uid, gid) = (uid.into().map(Uid::from_raw), gid.into().map(Gid::from_raw));
    fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

/// Seconds and nanoseconds; the latter may be `UTIME_NOW` or `UTIME_OMIT`.
pub(crate) type Moment = (i64, i64);

pub(crate) fn moments(access: Moment, change: Moment) -> Timestamps {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    Timestamps { last_access: time(access), last_modification: time(change) }
}

pub(crate) fn utimens(path: impl Arg, access: Moment, change: Moment) -> Result<()> {
    fs::utimensat(CWD, path, &moments(access, change), AtFlags::empty())
}

pub(crate) fn lutimens(path: impl Arg, access: Moment, change: Moment) -> Result<()> {
    fs::utimensat(CWD, path, &moments(access, change), AtFlags::SYMLINK_NOFOLLOW)
}

/// Reads `length` bytes at `offset`, fewer at the end.
pub(crate) fn pread(fd: impl AsFd, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let got = rustix::io::pread(fd, &mut bytes[..], offset)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Reads up to `length` bytes where the descriptor stands.
pub(crate) fn read(fd: impl AsFd, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let got = rustix::io::read(fd, &mut bytes[..])?;
    bytes.truncate(got);
    Ok(bytes)
}

pub(crate) fn readlink(path: impl Arg) -> Result<Vec<u8>> {
    fs::readlink(path, Vec::new()).map(std::ffi::CString::into_bytes)
}
