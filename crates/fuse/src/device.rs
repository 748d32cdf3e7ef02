//! /dev/fuse: requests come out, answers and notifications go in.

#![allow(unsafe_code, reason = "the device's ioctls are its system calls")]

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use zerocopy::IntoBytes;

use crate::abi::{BackingMap, OutHeader};
use crate::answer::{Outcome, encode};

const CLONE: libc::c_ulong = 0x8004_e500;
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// The device, connected to a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    pub(crate) fn new(device: OwnedFd) -> Device {
        Device(device)
    }

    /// Opens it, connected to nothing yet.
    pub(crate) fn open() -> io::Result<OwnedFd> {
        Ok(File::options().read(true).write(true).open("/dev/fuse")?.into())
    }

    /// Another descriptor of the same mount, with a queue of sent requests of its own.
    pub(crate) fn another(&self) -> io::Result<Device> {
        let other = Device::open()?;
        let source = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: the descriptor is open, and the ioctl reads one u32 that outlives the call.
        let done = unsafe { libc::ioctl(other.as_raw_fd(), CLONE, &raw const source) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Device(other)) }
    }

    /// Reads one request. `None`: the mount is gone.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => return Ok(Some(read)),
                // The request was withdrawn before it was read.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {}
                // ENODEV: unmounted; ECONNABORTED: aborted.
                Err(rustix::io::Errno::NODEV | rustix::io::Errno::CONNABORTED) => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers request `unique`.
    pub(crate) fn answer(&self, unique: u64, outcome: &Outcome) {
        let sent = match outcome {
            Ok(answer) => {
                let (fixed, data) = encode(answer);
                self.send(unique, 0, fixed.bytes(), data)
            }
            Err(errno) => self.send(unique, -errno.raw(), &[], &[]),
        };
        match sent {
            Ok(()) => {}
            // The request was given up meanwhile (ENOENT), or the mount is gone (ENODEV).
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
            Err(error) => {
                tracing::error!(unique, "the kernel rejected an answer: {error}");
                // It may not even have seen whose it is, and then somebody waits for another.
                self.send(unique, -libc::EIO, &[], &[]).ok();
            }
        }
    }

    /// Sends a notification to the kernel.
    pub(crate) fn notify(&self, code: i32, fixed: &[u8], data: &[u8]) -> io::Result<()> {
        self.send(0, code, fixed, data)
    }

    pub(crate) fn send(
        &self,
        unique: u64,
        error: i32,
        fixed: &[u8],
        data: &[u8],
    ) -> io::Result<()> {
        let len = size_of::<OutHeader>() + fixed.len() + data.len();
        let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let header = OutHeader { len, error, unique };
        let parts = [header.as_bytes(), fixed, data].map(IoSlice::new);
        rustix::io::writev(&self.0, &parts)?;
        Ok(())
    }

    pub(crate) fn open_backing(&self, file: RawFd) -> io::Result<i32> {
        let map = BackingMap { fd: file, ..BackingMap::default() };
        // SAFETY: both descriptors are open, and the ioctl reads one BackingMap that outlives
        // the call.
        let id = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_OPEN, &raw const map) };
        if id < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
    }

    pub(crate) fn close_backing(&self, id: i32) -> io::Result<()> {
        let id = id.cast_unsigned();
        // SAFETY: the descriptor is open, and the ioctl reads one u32 that outlives the call.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_CLOSE, &raw const id) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
