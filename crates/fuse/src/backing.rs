//! Passthrough: files that the kernel reads and writes in the file system's stead.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::device::Device;

/// The kernel's number of a backing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackingId(pub(crate) i32);

/// A file that the kernel accepts as a backing file, until this is dropped. Files that were opened
/// with it keep it.
#[derive(Debug)]
pub struct Backing {
    device: Arc<Device>,
    id: BackingId,
}

impl Backing {
    /// Registers `file` with the kernel. Needs CAP_SYS_ADMIN.
    pub(crate) fn open(device: Arc<Device>, file: BorrowedFd<'_>) -> io::Result<Backing> {
        let id = device.open_backing(file.as_raw_fd())?;
        Ok(Backing { device, id: BackingId(id) })
    }

    /// For answers to OPEN and CREATE. All opens of one inode at a time take the same.
    pub fn id(&self) -> BackingId {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Err(error) = self.device.close_backing(self.id.0) {
            tracing::debug!("closing a backing file: {error}");
        }
    }
}
