//! The calls that no safe binding has: fork, record locks, maps, and arguments that are wrong on
//! purpose.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};
use rustix::process::Pid;

fn checked(result: libc::c_long) -> Result<libc::c_long> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

fn last() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Forks a child that does `work` and exits.
pub(crate) fn fork_and_exit(work: impl FnOnce()) -> Result<Pid> {
    // SAFETY: the child runs only `work`, on a copy of this thread. Other threads of the parent
    // may have held locks: the allocator's are made whole by the C library, and no others are
    // shared with cases.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(last());
    }
    if let Some(child) = Pid::from_raw(pid) {
        return Ok(child);
    }
    work();
    // SAFETY: ends the child without running its parent's destructors and exit handlers.
    unsafe { libc::_exit(0) }
}

/// Closes every descriptor above the standard ones except `kept`.
pub(crate) fn close_all_but(kept: RawFd) {
    let kept = kept.cast_unsigned();
    // SAFETY: only a child calls this that uses none of the descriptors it inherited, and that
    // leaves without dropping what owns them.
    unsafe {
        libc::close_range(3, kept - 1, 0);
        libc::close_range(kept + 1, libc::c_uint::MAX, 0);
    }
}

/// Lets a signal pass without effect.
pub(crate) fn ignore_signal(signal: libc::c_int) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Sends this process SIGALRM after `seconds`, with a handler that does nothing: what waits then
/// is interrupted and is not begun again.
pub(crate) fn interrupt_after(seconds: u32) -> Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeros is an action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the action lives for the call, and its handler may run at any moment.
    checked(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut()) }.into())?;
    // SAFETY: no memory is passed.
    unsafe { libc::alarm(seconds) };
    Ok(())
}

/// Gives this process mounts of its own: what it mounts is seen by nobody else, and is gone with
/// it.
pub(crate) fn own_mounts() -> Result<()> {
    // SAFETY: descriptors and memory stay as they are; a case has only this thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
    let private = rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private | rustix::mount::MountPropagationFlags::REC)
}

/// Which lock call of fcntl is meant.
pub(crate) type LockCommand = libc::c_int;

/// `fcntl` with a lock; returns what it wrote back.
pub(crate) fn lock(
    fd: &OwnedFd,
    command: LockCommand,
    kind: libc::c_int,
    start: i64,
    length: i64,
) -> Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: i16::try_from(kind).unwrap_or(i16::MAX),
        l_whence: 0,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: `lock` lives for the call, and is what these commands read and write.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) }.into())?;
    Ok(lock)
}

/// `fcntl` with a number as its argument.
pub(crate) fn fcntl(fd: &OwnedFd, command: libc::c_int, argument: libc::c_int) -> Result<i64> {
    // SAFETY: the commands that cases use here take an integer.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) }.into())
}

pub(crate) fn truncate(path: &CStr, length: i64) -> Result<()> {
    // SAFETY: `path` is a C string.
    checked(unsafe { libc::truncate(path.as_ptr(), length) }.into()).map(drop)
}

pub(crate) fn ftruncate(fd: &OwnedFd, length: i64) -> Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::ftruncate(fd.as_raw_fd(), length) }.into()).map(drop)
}

pub(crate) fn fallocate(fd: &OwnedFd, mode: i32, offset: i64, length: i64) -> Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::fallocate(fd.as_raw_fd(), mode, offset, length) }.into()).map(drop)
}

pub(crate) fn lseek(fd: &OwnedFd, offset: i64, whence: i32) -> Result<i64> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::lseek(fd.as_raw_fd(), offset, whence) })
}

pub(crate) fn pread_at(fd: &OwnedFd, offset: i64) -> Result<i64> {
    let mut byte = 0_u8;
    let into = (&raw mut byte).cast();
    // SAFETY: one byte is read, into a variable that lives for the call.
    checked(unsafe { libc::pread(fd.as_raw_fd(), into, 1, offset) } as libc::c_long)
}

/// An ioctl that no file system knows.
pub(crate) fn unknown_ioctl(fd: &OwnedFd) -> Result<()> {
    // 'z' with 0xFE: in no list of assigned numbers.
    const UNKNOWN: libc::c_ulong = 0x7AFE;
    // SAFETY: an unknown request reads no argument.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), UNKNOWN, 0) }.into()).map(drop)
}

/// An address where nothing is mapped.
fn nowhere<T>() -> *mut T {
    ptr::without_provenance_mut(usize::MAX & !0xFFFF)
}

/// `write` from an address where nothing is.
pub(crate) fn write_from_nowhere(fd: &OwnedFd, length: usize) -> Result<i64> {
    // SAFETY: the kernel checks the address and refuses it.
    checked(unsafe { libc::write(fd.as_raw_fd(), nowhere(), length) } as libc::c_long)
}

/// `read` to an address where nothing is.
pub(crate) fn read_to_nowhere(fd: &OwnedFd, length: usize) -> Result<i64> {
    // SAFETY: the kernel checks the address and refuses it.
    checked(unsafe { libc::read(fd.as_raw_fd(), nowhere(), length) } as libc::c_long)
}

/// A path that is at an address where nothing is, for the calls that take one path.
pub(crate) fn call_with_no_path(number: libc::c_long) -> Result<()> {
    // SAFETY: the kernel checks the address and refuses it; the other arguments are zero.
    checked(unsafe { libc::syscall(number, nowhere::<u8>(), 0, 0, 0) }).map(drop)
}

/// `close` of a number that is no descriptor of this process.
pub(crate) fn bad_descriptor() -> BorrowedFd<'static> {
    const FAR_ABOVE_THE_LIMIT: RawFd = 0x3FFF_FFFF;
    // SAFETY: nothing opens or closes this number, it is beyond every limit; calls say EBADF.
    unsafe { BorrowedFd::borrow_raw(FAR_ABOVE_THE_LIMIT) }
}

/// A file in memory.
#[derive(Debug)]
pub(crate) struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    /// Maps `length` bytes from `offset`, to be read and, if `writable`, written.
    pub(crate) fn new(
        fd: &OwnedFd,
        offset: u64,
        length: usize,
        flags: MapFlags,
        writable: bool,
    ) -> Result<Map> {
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        let protection = ProtFlags::READ | write;
        // SAFETY: a new range of addresses, used through `Map` only.
        let start = unsafe { mmap(ptr::null_mut(), length, protection, flags, fd, offset)? };
        Ok(Map { start: start.cast(), length })
    }

    /// Memory of no file, at the start of a page.
    pub(crate) fn anonymous(length: usize) -> Result<Map> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new range of addresses, used through `Map` only.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE)? };
        Ok(Map { start: start.cast(), length })
    }

    /// `write` of all of it; the kernel reads the memory itself.
    pub(crate) fn write_to(&self, fd: &OwnedFd) -> Result<i64> {
        // SAFETY: the range that this map owns.
        checked(unsafe { libc::write(fd.as_raw_fd(), self.start.cast(), self.length) } as _)
    }

    /// `pread` into all of it; the kernel writes the memory itself.
    pub(crate) fn read_from(&self, fd: &OwnedFd, offset: i64) -> Result<i64> {
        let into = self.start.cast();
        // SAFETY: the range that this map owns.
        checked(unsafe { libc::pread(fd.as_raw_fd(), into, self.length, offset) } as _)
    }

    /// One byte, read from memory each time: others change it.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.length, "outside the map");
        // SAFETY: inside the map, by the line above. Past the file's end it is a SIGBUS, which
        // ends the process as cases expect.
        unsafe { self.start.add(at).read_volatile() }
    }

    /// Copies out of the map.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        range.map(|at| self.byte(at)).collect()
    }

    /// Writes into the map, which must have been made writable.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length, "outside the map");
        for (offset, &byte) in bytes.iter().enumerate() {
            // SAFETY: inside the map, by the line above.
            unsafe { self.start.add(at + offset).write_volatile(byte) };
        }
    }

    /// `msync` of all of it.
    pub(crate) fn sync(&self, flags: MsyncFlags) -> Result<()> {
        // SAFETY: the range that this map owns.
        unsafe { msync(self.start.cast(), self.length, flags) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range that this map owns, and that nobody uses from here on.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}
