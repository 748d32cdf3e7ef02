//! Which directories that two hosts made may become one.

use crate::types::{Attr, Kind};

/// True if two directories may become one: nobody may do in it what he might not in either, and
/// what is in it counts against the same quota and goes as soon to the server.
pub fn may_become_one(one: &Attr, other: &Attr) -> bool {
    let of = |attr: &Attr| (attr.kind, attr.mode, attr.uid, attr.gid, attr.quota, attr.lm);
    one.kind == Kind::Directory && one.ino != other.ino && of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::Lm;
    use crate::testing::attr;
    use crate::types::{Ino, Timestamp, Version};

    fn directory(ino: u64) -> Attr {
        Attr { mode: 0o755, uid: 7, gid: 8, ..attr(ino, Kind::Directory, 1) }
    }

    #[test]
    fn directories_that_differ_in_rights_quota_or_level_stay_two() {
        assert!(may_become_one(&directory(2), &directory(3)));
        let differ: [fn(&mut Attr); 8] = [
            |attr| attr.ino = Ino(2),
            |attr| attr.kind = Kind::File,
            |attr| attr.mode = 0o700,
            |attr| attr.mode |= 0o1000,
            |attr| attr.uid = 9,
            |attr| attr.gid = 9,
            |attr| attr.quota = Some(Ino(4)),
            |attr| attr.lm = Some(Lm::Sync),
        ];
        for (number, differ) in differ.into_iter().enumerate() {
            let mut other = directory(3);
            differ(&mut other);
            assert!(!may_become_one(&directory(2), &other), "{number}");
            assert!(!may_become_one(&other, &directory(2)), "{number}");
        }
        let file = |ino| Attr { kind: Kind::File, ..directory(ino) };
        assert!(!may_become_one(&file(2), &file(3)), "they have contents");
    }

    #[test]
    fn what_happened_to_directories_does_not_matter() {
        let at = Timestamp { secs: 9, nanos: 9 };
        let version = Version { counter: 9, ..Version::default() };
        let other = Attr {
            nlink: 9,
            size: 9,
            allocated: 9,
            atime: at,
            mtime: at,
            ctime: at,
            change: version,
            data_version: version,
            ..directory(3)
        };
        assert!(may_become_one(&directory(2), &other));
    }
}
