//! Which of what two hosts made under one name may become one.

use crate::nouns::{Attr, Ino, Kind};
use crate::persist::Lm;

/// Nobody may do with one what he might not with the other, and it counts against the same quota
/// and goes as soon to the server.
fn terms(attr: &Attr) -> (Kind, u32, u32, u32, Option<Ino>, Option<Lm>) {
    (attr.kind, attr.mode, attr.uid, attr.gid, attr.quota, attr.lm)
}

/// True if two directories may become one: what may be done in both is the same.
pub fn may_become_one(one: &Attr, other: &Attr) -> bool {
    one.kind == Kind::Directory && one.ino != other.ino && terms(one) == terms(other)
}

/// True if `copy` may go because `other` is the same, as far as their attributes say: it is no
/// directory, and has no other name. When they were made or changed does not matter.
pub fn may_be_same(copy: &Attr, other: &Attr) -> bool {
    let is_like = |attr: &Attr| (terms(attr), attr.rdev, attr.size);
    let may_go = copy.kind != Kind::Directory && copy.nlink == 1 && copy.ino != other.ino;
    may_go && is_like(copy) == is_like(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::{Timestamp, Version};
    use crate::testing::attr;

    fn directory(ino: u64) -> Attr {
        Attr { mode: 0o755, uid: 7, gid: 8, ..attr(ino, Kind::Directory, 1) }
    }

    /// Proves S9.8.
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

    /// Proves S9.7.
    #[test]
    fn a_file_that_differs_in_more_than_times_is_not_the_same() {
        let file = |ino| Attr { kind: Kind::File, nlink: 1, size: 8, ..directory(ino) };
        let at = Timestamp { secs: 9, nanos: 9 };
        let other = Attr { nlink: 2, mtime: at, ctime: at, atime: at, ..file(3) };
        assert!(may_be_same(&file(2), &other));
        assert!(!may_be_same(&other, &file(2)), "it has another name");
        let differ: [fn(&mut Attr); 7] = [
            |attr| attr.ino = Ino(2),
            |attr| attr.kind = Kind::Symlink,
            |attr| attr.mode = 0o700,
            |attr| attr.uid = 9,
            |attr| attr.rdev = 9,
            |attr| attr.size = 9,
            |attr| attr.lm = Some(Lm::Sync),
        ];
        for (number, differ) in differ.into_iter().enumerate() {
            let mut other = file(3);
            differ(&mut other);
            assert!(!may_be_same(&file(2), &other), "{number}");
        }
        assert!(!may_be_same(&directory(2), &directory(3)), "they have contents");
    }
}
