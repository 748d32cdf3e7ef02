//! What only this host has below a directory.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::Host;
use crate::host::cache::FileData;
use crate::host::log::Logged;
use crate::nouns::Ino;

/// What the server lacks below a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnsentBelow {
    /// Files and directories with changes.
    pub files: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// True if `path` is `top` or below it. A path that is not known may be anywhere.
pub fn is_below(top: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(top);
    let is_in = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    top.is_empty() || is_in || path.starts_with(b"#")
}

/// True if `path` is one of `tops` or below one.
fn is_below_one(tops: &[Vec<u8>], path: &[u8]) -> bool {
    tops.iter().any(|top| is_below(top, path))
}

impl Host {
    /// The waiting changes of inodes and names at or below these paths.
    pub fn changes_below(&self, tops: &[Vec<u8>]) -> BTreeSet<u64> {
        let is_in = |ino: Ino| is_below_one(tops, &self.tree.path_bytes(ino));
        let is_meant = |logged: &&Logged| logged.change.inodes().into_iter().any(is_in);
        let changes = self.queue.iter().map(|(logged, _)| logged);
        changes.filter(is_meant).map(|logged| logged.seq).collect()
    }

    /// Files at or below these paths with data that are not sealed.
    pub(super) fn unsealed_below(&self, tops: &[Vec<u8>]) -> Vec<Ino> {
        let mut unsealed = self.unsealed();
        unsealed.retain(|ino| is_below_one(tops, &self.tree.path_bytes(*ino)));
        unsealed
    }

    /// What the server lacks below directory `ino`, which is at `path`.
    pub fn unsent_below(&self, ino: Ino, path: &[u8]) -> UnsentBelow {
        let is_in = |ino: &Ino| is_below(path, &self.tree.path_bytes(*ino));
        let changes = self.queue.iter().map(|(logged, _)| &logged.change);
        let queued = changes.filter(|change| change.inodes().iter().any(is_in));
        let queued = queued.map(|change| (change.ino(), change.bytes()));
        let dirty = |ino| self.files.get(&ino).map_or(0, FileData::dirty_bytes);
        let unsealed = self.unsealed().into_iter().filter(is_in).map(|ino| (ino, dirty(ino)));
        let mut unsent = BTreeMap::<Ino, u64>::new();
        for (ino, bytes) in queued.chain(unsealed) {
            *unsent.entry(ino).or_default() += bytes;
        }
        unsent.remove(&ino);
        UnsentBelow { files: unsent.len() as u64, bytes: unsent.values().sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_path_is_below_itself_and_those_above_it() {
        for (top, path, is_so) in [
            ("", "", true),
            ("", "a/b", true),
            ("a", "a", true),
            ("a", "a/b", true),
            ("a", "ab", false),
            ("a/b", "a", false),
            ("a", "#7/b", true),
        ] {
            assert_eq!(is_below(top.as_bytes(), path.as_bytes()), is_so, "{top} {path}");
        }
    }
}
