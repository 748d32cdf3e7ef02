//! Duplicates: files and directories that two hosts made under one name.

use crate::host::log::{Change, Logged};
use crate::nouns::{Caller, Dentry, Ino, Name, Record};
use crate::refusal::Refusal;

/// A file or directory that two hosts made under one name: the later one, under its other name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duplicate {
    /// Its place.
    pub at: Dentry,
    /// The name from both hosts, in the same directory.
    pub name: Name,
    /// Its inode.
    pub ino: Ino,
    /// Its maker.
    pub by: Caller,
}

/// True if a merge that was refused so may succeed later: the server was out of reach, or an entry
/// is left that may be the same by then.
pub fn may_merge_later(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::Unreachable | Refusal::NotEmpty | Refusal::Changed)
}

impl Logged {
    /// The duplicate that this change made, if the server gave it `name` in `parent` instead of the
    /// wanted name.
    pub(in crate::host) fn duplicate(&self, parent: Ino, name: &Name) -> Option<Duplicate> {
        let Change::Record(Record::Create { name: wanted, ino, .. }) = &self.change else {
            return None;
        };
        let at = Dentry { parent, name: name.clone() };
        Some(Duplicate { at, name: wanted.clone(), ino: *ino, by: self.caller.clone() })
    }
}
