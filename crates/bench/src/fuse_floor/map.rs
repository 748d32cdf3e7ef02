//! Files mapped into memory.

#![allow(unsafe_code, reason = "maps are their system calls")]

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared map of a whole file.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u8>,
    len: usize,
}

impl Map {
    /// Maps `file`, which is `len` bytes long and stays so.
    pub(super) fn new(file: &File, len: usize, writable: bool) -> io::Result<Map> {
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        // SAFETY: a new map, at an address of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { start, len })
    }

    /// One byte of each page, added up.
    pub(super) fn touch(&self) -> u64 {
        let pages = (0..self.len).step_by(4096);
        // SAFETY: within the map; volatile, since the file may change under it.
        pages.map(|at| u64::from(unsafe { self.start.add(at).read_volatile() })).sum()
    }

    /// Sets all bytes; the map must be writable.
    pub(super) fn fill(&mut self, byte: u8) {
        // SAFETY: the map is `len` long, and nobody has a reference into it.
        unsafe { self.start.write_bytes(byte, self.len) };
    }

    /// Writes back what was changed, and waits for it.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the map is `len` long.
        unsafe { msync(self.start.as_ptr().cast(), self.len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and nobody has a reference into it.
        let done = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "a map of ours can be unmapped");
    }
}
