//! Conflict copies of what two hosts made under one name.

use crate::host::log::{Change, Logged};
use crate::nouns::{Caller, Dentry, Ino, Name, Record};

/// What two hosts made under one name: the one that came second, which stands beside the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Twice {
    /// Where it stands.
    pub at: Dentry,
    /// The name that both gave it, in the same directory.
    pub name: Name,
    /// Its inode.
    pub ino: Ino,
    /// Who made it.
    pub by: Caller,
}

impl Logged {
    /// What was made twice, if the server put what this change made beside another one, as `name`
    /// in `parent`.
    pub(in crate::host) fn made_twice(&self, parent: Ino, name: &Name) -> Option<Twice> {
        let Change::Record(Record::Create { name: wanted, ino, .. }) = &self.change else {
            return None;
        };
        let at = Dentry { parent, name: name.clone() };
        Some(Twice { at, name: wanted.clone(), ino: *ino, by: self.caller.clone() })
    }
}
