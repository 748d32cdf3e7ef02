//! The place of a name.

use super::{Ino, Name};

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Dentry {
    /// The directory.
    pub parent: Ino,
    /// The name.
    pub name: Name,
}

impl Dentry {
    /// The place `name` in `parent`.
    pub fn new(parent: Ino, name: Name) -> Dentry {
        Dentry { parent, name }
    }
}
