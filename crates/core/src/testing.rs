//! What the unit tests of several modules need.

use crate::nouns::{Attr, Ino, Kind, Timestamp, Version};

/// An inode with one name that was last changed in commit `counter`, its data too.
pub(crate) fn attr(ino: u64, kind: Kind, counter: u64) -> Attr {
    let version = Version { epoch: 1, counter };
    Attr {
        ino: Ino(ino),
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        change: version,
        data_version: version,
        quota: None,
        lm: None,
    }
}
