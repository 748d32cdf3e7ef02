//! Structures of requests (`..In`), answers (`..Out`) and notifications.

#![allow(missing_docs, reason = "fields are the kernel's, explained in linux/fuse.h")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! layout {
    ($($(#[$doc:meta])* struct $name:ident {
        $($(#[$note:meta])* $field:ident: $kind:ty,)*
    })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub struct $name { $($(#[$note])* pub $field: $kind,)* })*
    };
}

layout! {
    /// In front of every request.
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        /// Length of the extensions behind the arguments, in units of 8 bytes.
        total_extlen: u16,
        padding: u16,
    }

    /// In front of every answer and notification.
    struct OutHeader { len: u32, error: i32, unique: u64, }

    /// Attributes of an inode.
    struct Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        /// Seconds since 1970; the kernel reads it as signed.
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    /// A name's meaning and how long it holds.
    struct EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }

    struct AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }

    /// A time of statx(2).
    struct SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32, }

    /// The result of statx(2).
    struct StatX {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }

    struct StatXIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    struct StatXOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: StatX,
    }

    /// The result of statfs(2).
    struct StatFs {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }

    /// A lock on a range, both ends included.
    struct FileLock { start: u64, end: u64, kind: u32, pid: u32, }

    struct InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }

    struct ForgetIn { nlookup: u64, }
    struct BatchForgetIn { count: u32, dummy: u32, }
    struct ForgetOne { nodeid: u64, nlookup: u64, }
    struct GetAttrIn { getattr_flags: u32, dummy: u32, fh: u64, }
    struct SetAttrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    struct MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    struct MkdirIn { mode: u32, umask: u32, }
    struct RenameIn { newdir: u64, }
    struct Rename2In { newdir: u64, flags: u32, padding: u32, }
    struct LinkIn { oldnodeid: u64, }
    struct OpenIn { flags: u32, open_flags: u32, }
    struct CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    struct OpenOut { fh: u64, open_flags: u32, backing_id: i32, }
    struct ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    struct FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    struct ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct WriteOut { size: u32, padding: u32, }
    struct FsyncIn { fh: u64, fsync_flags: u32, padding: u32, }
    struct SetXattrIn { size: u32, flags: u32, }
    /// Behind `SetXattrIn` where SETXATTR_EXT was agreed on.
    struct SetXattrExt { setxattr_flags: u32, padding: u32, }
    struct GetXattrIn { size: u32, padding: u32, }
    struct GetXattrOut { size: u32, padding: u32, }
    struct LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32, }
    struct LkOut { lk: FileLock, }
    struct AccessIn { mask: u32, padding: u32, }
    struct InterruptIn { unique: u64, }
    struct BmapIn { block: u64, blocksize: u32, padding: u32, }
    struct BmapOut { block: u64, }
    struct IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    struct IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    struct PollIn { fh: u64, kh: u64, flags: u32, events: u32, }
    struct PollOut { revents: u32, padding: u32, }
    struct FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    struct LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    struct LseekOut { offset: u64, }
    struct CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    struct CopyFileRangeOut { bytes_copied: u64, }
    struct SyncFsIn { padding: u64, }
    struct Dirent { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// Extensions behind a request's arguments.
    struct ExtHeader { size: u32, kind: u32, }
    struct SuppGroups { nr_groups: u32, }

    struct NotifyInvalInodeOut { ino: u64, off: i64, len: i64, }
    struct NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32, }
    struct NotifyDeleteOut { parent: u64, child: u64, namelen: u32, padding: u32, }
    struct NotifyStoreOut { nodeid: u64, offset: u64, size: u32, padding: u32, }
    struct NotifyRetrieveOut {
        notify_unique: u64,
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    struct NotifyRetrieveIn {
        dummy1: u64,
        offset: u64,
        size: u32,
        dummy2: u32,
        dummy3: u64,
        dummy4: u64,
    }
    struct NotifyPollWakeupOut { kh: u64, }
    struct NotifyPruneOut { count: u32, padding: u32, spare: u64, }

    /// A backing file for passthrough.
    struct BackingMap { fd: i32, flags: u32, padding: u64, }

    /// io_uring: the words of kernel and file system beside a request.
    struct UringEntInOut {
        flags: u64,
        commit_id: u64,
        payload_sz: u32,
        padding: u32,
        reserved: u64,
    }
    /// io_uring: in the submission's command area.
    struct UringCmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
}
