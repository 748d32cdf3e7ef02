//! Kernel types to core's and back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use segue_core::refusal::Refusal;
use segue_core::types::{Attr, Kind, Name, Timestamp};

use crate::mount::timestamp;

pub(super) fn errno(refusal: Refusal) -> Errno {
    Errno::from_i32(refusal.errno())
}

pub(super) fn name(name: &OsStr) -> Result<Name, Refusal> {
    Ok(Name::new(name.as_bytes())?)
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    if time.secs >= 0 { UNIX_EPOCH + secs + nanos } else { UNIX_EPOCH - secs + nanos }
}

pub(super) fn time(time: TimeOrNow, now: Timestamp) -> Timestamp {
    match time {
        TimeOrNow::SpecificTime(time) => received(time),
        TimeOrNow::Now => now,
    }
}

/// A time as fuser 0.18 decodes it. The kernel says -1.5 s as -2 s and 0.5 s onwards; fuser
/// subtracts both from 1970, which is undone here.
fn received(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => timestamp(time),
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |secs| -secs);
            Timestamp { secs, nanos: before.subsec_nanos() }
        }
    }
}

pub(super) fn attr(attr: &Attr) -> FileAttr {
    let ctime = system_time(attr.ctime);
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.allocated.div_ceil(512),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime,
        crtime: ctime,
        kind: file_type(attr.kind),
        perm: u16::try_from(attr.mode & 0o7777).unwrap_or(0),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds_before_and_after_1970() {
        for time in [
            Timestamp { secs: 1_700_000_000, nanos: 123_456_789 },
            Timestamp { secs: -2, nanos: 500_000_000 },
            Timestamp { secs: -1, nanos: 0 },
            Timestamp { secs: 0, nanos: 1 },
        ] {
            assert_eq!(timestamp(system_time(time)), time);
        }
    }

    #[test]
    fn a_time_before_1970_arrives_as_the_kernel_sent_it() {
        // What fuser makes of -2 s and 0.5 s.
        let decoded = UNIX_EPOCH - Duration::new(2, 500_000_000);
        assert_eq!(received(decoded), Timestamp { secs: -2, nanos: 500_000_000 });
        let decoded = UNIX_EPOCH - Duration::new(2, 0);
        assert_eq!(received(decoded), Timestamp { secs: -2, nanos: 0 });
    }
}
