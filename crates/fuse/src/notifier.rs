//! Notifications to the kernel: changes, invalidations, data.
//!
//! Forgetting a name takes the directory's lock, which a request that waits for an answer
//! may hold. So notifications go from a thread that no answer depends on.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi::{self, flag, notify};
use crate::agreement::Agreement;
use crate::backing::Backing;
use crate::device::Device;

/// Separates the numbers of retrieved data from those of requests. Over io_uring the kernel looks
/// for both in one table, and its own numbers are even and count from 2.
const RETRIEVED: u64 = 1 << 61;

/// The number under which data were retrieved; they came as `unique`.
pub(crate) fn number_retrieved(unique: u64) -> u64 {
    (unique & !RETRIEVED) >> 1
}

/// The way to notify. Errors: ENOENT if the kernel does not have the object, EINVAL if it does not
/// know the notification.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<Device>,
    agreement: Agreement,
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>, agreement: Agreement) -> Notifier {
        Notifier { device, agreement }
    }

    /// The agreement of kernel and file system.
    pub fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// Pages of `range` and the attributes of `node` are no longer right.
    pub fn invalidate(&self, node: u64, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            // A length of 0 would mean everything behind.
            return self.invalidate_attributes(node);
        }
        let len = range.end - range.start;
        let out = abi::NotifyInvalInodeOut {
            ino: node,
            off: i64::try_from(range.start).unwrap_or(i64::MAX),
            // 0: to the end.
            len: i64::try_from(len).unwrap_or(0),
        };
        self.device.notify(notify::INVAL_INODE, out.as_bytes(), &[])
    }

    /// The attributes of `node` are no longer right; its pages are.
    pub fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
        let out = abi::NotifyInvalInodeOut { ino: node, off: -1, len: 0 };
        self.device.notify(notify::INVAL_INODE, out.as_bytes(), &[])
    }

    /// `name` in `parent` may mean something else now.
    pub fn forget_name(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        self.name(parent, name, 0)
    }

    /// `name` in `parent` is to be looked up again. Its inode stays usable until then, and so do
    /// mounts on it. Kernels before 7.38 forget the name at once.
    pub fn expire_name(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        self.name(parent, name, flag::EXPIRE_ONLY)
    }

    fn name(&self, parent: u64, name: &OsStr, flags: u32) -> io::Result<()> {
        let out = abi::NotifyInvalEntryOut { parent, namelen: length(name)?, flags };
        self.device.notify(notify::INVAL_ENTRY, out.as_bytes(), &terminated(name))
    }

    /// `name` in `parent`, which was `child`, has been removed elsewhere.
    pub fn deleted(&self, parent: u64, child: u64, name: &OsStr) -> io::Result<()> {
        let out = abi::NotifyDeleteOut { parent, child, namelen: length(name)?, padding: 0 };
        self.device.notify(notify::DELETE, out.as_bytes(), &terminated(name))
    }

    /// Puts `data` into the page cache.
    pub fn store(&self, node: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let out = abi::NotifyStoreOut { nodeid: node, offset, size, padding: 0 };
        self.device.notify(notify::STORE, out.as_bytes(), data)
    }

    /// Asks for the page cache's data. They come to `FileSystem::retrieved` with `number`, which
    /// has at most 60 bits.
    pub fn retrieve(&self, number: u64, node: u64, offset: u64, size: u32) -> io::Result<()> {
        let out = abi::NotifyRetrieveOut {
            notify_unique: number << 1 | RETRIEVED,
            nodeid: node,
            offset,
            size,
            padding: 0,
        };
        self.device.notify(notify::RETRIEVE, out.as_bytes(), &[])
    }

    /// A polled file changed; the number came with `Call::Poll`.
    pub fn poll_wakeup(&self, kernel_handle: u64) -> io::Result<()> {
        let out = abi::NotifyPollWakeupOut { kh: kernel_handle };
        self.device.notify(notify::POLL, out.as_bytes(), &[])
    }

    /// Has the kernel send unanswered requests again, for a process that took over.
    pub fn resend(&self) -> io::Result<()> {
        self.device.notify(notify::RESEND, &[], &[])
    }

    /// Every name is to be looked up again, from 7.44 on.
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.device.notify(notify::INC_EPOCH, &[], &[])
    }

    /// Has the kernel release the unused ones of `nodes`, from 7.45 on.
    pub fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        let count = u32::try_from(nodes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let out = abi::NotifyPruneOut { count, ..abi::NotifyPruneOut::default() };
        self.device.notify(notify::PRUNE, out.as_bytes(), nodes.as_bytes())
    }

    /// Registers `file` as a backing file for opened files.
    pub fn open_backing(&self, file: BorrowedFd<'_>) -> io::Result<Backing> {
        Backing::open(Arc::clone(&self.device), file)
    }
}

fn length(name: &OsStr) -> io::Result<u32> {
    u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn terminated(name: &OsStr) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}
