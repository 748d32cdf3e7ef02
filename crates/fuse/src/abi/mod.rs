//! The kernel's side of the protocol: numbers and layouts, as `linux/fuse.h` states them.
//!
//! The names are the kernel's without their prefix. Structures are plain old data that are
//! read from and written to byte slices; nothing here interprets them.

pub mod opcode;
mod structs;

pub use structs::*;

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version spoken.
pub const MINOR: u32 = 45;
/// The oldest minor version spoken.
pub const MINOR_MIN: u32 = 31;
/// The root's node.
pub const ROOT: u64 = 1;

/// INIT: abilities of kernel and file system.
pub mod init {
    /// Several reads of one file at a time.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// POSIX locks are the file system's, not the kernel's alone.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// O_TRUNC comes with OPEN, not as a SETATTR before it.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Lookups of "." and ".." by node.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The umask comes with the request and is not applied yet.
    pub const DONT_MASK: u64 = 1 << 6;
    /// The device takes spliced pages.
    pub const SPLICE_WRITE: u64 = 1 << 7;
    /// Spliced pages may be moved, not copied.
    pub const SPLICE_MOVE: u64 = 1 << 8;
    /// Requests may be spliced out of the device.
    pub const SPLICE_READ: u64 = 1 << 9;
    /// flock(2) is the file system's.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// IOCTL of directories.
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    /// A changed mtime or size drops pages.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// READDIRPLUS.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// READDIRPLUS only where it seems to help.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct input and output without waiting in between.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Writes stay in the page cache for a while.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// OPEN answered with ENOSYS is not sent again.
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Lookups and listings of one directory in parallel.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The file system drops set-id bits by itself.
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    /// Access lists.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// Reading the device of an aborted connection gives ECONNABORTED.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` of the answer counts.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// OPENDIR answered with ENOSYS is not sent again.
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// Pages are dropped only when told.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// The file system drops set-id bits when a request says so.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR's longer form.
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// `flags2` counts.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Security contexts with creations.
    pub const SECURITY_CTX: u64 = 1 << 32;
    /// The directory's group with creations, where the caller is in it.
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    /// INVAL_ENTRY knows EXPIRE_ONLY.
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    /// Shared maps of files opened for direct input and output.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Reads and writes may go to a backing file.
    pub const PASSTHROUGH: u64 = 1 << 37;
    /// No lookups by node at all.
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// RESEND.
    pub const HAS_RESEND: u64 = 1 << 39;
    /// Mounts with mapped ids.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
    /// The kernel ends requests that take too long.
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// OPEN's answer.
pub mod fopen {
    /// Past the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The pages of earlier opens are still right.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// No seeking.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The kernel may cache the listing.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// A stream: no position.
    pub const STREAM: u32 = 1 << 4;
    /// No FLUSH at close.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to one file in parallel.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// Reads and writes go to the backing file.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// SETATTR: the attributes to set.
pub mod fattr {
    /// Mode.
    pub const MODE: u32 = 1 << 0;
    /// Owner.
    pub const UID: u32 = 1 << 1;
    /// Group.
    pub const GID: u32 = 1 << 2;
    /// Size.
    pub const SIZE: u32 = 1 << 3;
    /// Time of access.
    pub const ATIME: u32 = 1 << 4;
    /// Time of modification.
    pub const MTIME: u32 = 1 << 5;
    /// The handle counts.
    pub const FH: u32 = 1 << 6;
    /// Time of access: now.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// Time of modification: now.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// The lock's owner counts.
    pub const LOCKOWNER: u32 = 1 << 9;
    /// Time of change.
    pub const CTIME: u32 = 1 << 10;
    /// Set-id bits go.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Small flags of single requests.
pub mod flag {
    /// GETATTR: the handle counts.
    pub const GETATTR_FH: u32 = 1 << 0;
    /// OPEN, CREATE: set-id bits go with a truncation.
    pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    /// WRITE: pages written back.
    pub const WRITE_CACHE: u32 = 1 << 0;
    /// WRITE, READ: the lock's owner counts.
    pub const LOCKOWNER: u32 = 1 << 1;
    /// WRITE: set-id bits go.
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    /// RELEASE: flush first.
    pub const RELEASE_FLUSH: u32 = 1 << 0;
    /// RELEASE: end flock(2) locks.
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    /// FSYNC: data only.
    pub const FSYNC_FDATASYNC: u32 = 1 << 0;
    /// SETLK, GETLK: flock(2), not fcntl(2).
    pub const LK_FLOCK: u32 = 1 << 0;
    /// POLL: tell when it changes.
    pub const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
    /// IOCTL: of a directory.
    pub const IOCTL_DIR: u32 = 1 << 4;
    /// SETXATTR: an access list that makes the set-group-id bit go.
    pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
    /// INVAL_ENTRY: ask again, but drop nothing.
    pub const EXPIRE_ONLY: u32 = 1 << 0;
    /// In `unique`: the request was sent before.
    pub const UNIQUE_RESEND: u64 = 1 << 63;
    /// In an extension's header: supplementary groups.
    pub const EXT_GROUPS: u32 = 32;
}

/// Notifications from the file system to the kernel.
pub mod notify {
    /// A polled file changed.
    pub const POLL: i32 = 1;
    /// Drop pages and attributes.
    pub const INVAL_INODE: i32 = 2;
    /// Drop a name.
    pub const INVAL_ENTRY: i32 = 3;
    /// Put data into the page cache.
    pub const STORE: i32 = 4;
    /// Take data out of the page cache.
    pub const RETRIEVE: i32 = 5;
    /// A name was removed.
    pub const DELETE: i32 = 6;
    /// Send unanswered requests again.
    pub const RESEND: i32 = 7;
    /// All names are to be asked for again.
    pub const INC_EPOCH: i32 = 8;
    /// Release unused nodes.
    pub const PRUNE: i32 = 9;
}
