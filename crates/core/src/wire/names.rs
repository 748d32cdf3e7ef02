//! Questions about names and attributes, and what is promised with the answers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Applied, Opened, Reply};
use crate::nouns::{Attr, Ino, Name, Outcome, Version};
use crate::promise::Inodes;
pub use crate::promise::Promising;
use crate::sharing::Marked;

/// An inode as the server has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its attributes.
    pub attr: Attr,
    /// Target, of a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// An inode that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// It.
    pub node: Node,
    /// What is promised with it.
    pub promised: Option<Promising>,
}

/// Asks for a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lookup {
    /// Directory.
    pub parent: Ino,
    /// Name in it.
    pub name: Name,
}

/// What a name means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Looked {
    /// The directory's attributes at that moment.
    pub parent: Attr,
    /// The inode, or `None`: there is no such name.
    pub node: Option<Node>,
    /// What is promised with it.
    pub promised: Option<Promising>,
}

/// Asks for a page of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Readdir {
    /// Directory.
    pub ino: Ino,
    /// Entries after this name; `None` from the start.
    pub after: Option<Name>,
    /// Only names that changed behind this commit of the server, if it knows which: all others are
    /// known.
    pub since: Option<u64>,
    /// At most this many entries, and never more than [`PAGE_MAX`](super::PAGE_MAX).
    pub limit: u32,
}

/// A page of a directory, in byte order of names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// The directory's attributes; pages with different `change` are of different listings.
    pub directory: Attr,
    /// Names and inodes.
    pub entries: Vec<(Name, Node)>,
    /// There are more.
    pub more: bool,
    /// What is promised with it.
    pub promised: Option<Promising>,
    /// The last commit of the server that is in it.
    pub commit: u64,
    /// The entries are all whose names changed behind the commit that was asked about, and these
    /// names are gone.
    pub gone: Option<Vec<Name>>,
}

/// All extended attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Xattrs {
    /// The inode's `change` at that moment.
    pub change: Version,
    /// Names and values, in order of names.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a host was promised in an earlier session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resume {
    /// It has heard of all changes of it up to this commit.
    pub since: u64,
    /// Inodes, at most [`RESUME_MAX`](super::RESUME_MAX).
    pub held: Inodes,
}

/// What that is worth. Without it: nothing, because it is not known any more what changed since, or
/// too much is promised to others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resumed {
    /// These have changed: all others are as they were, and the server will tell when they change.
    pub changed: Inodes,
    /// Up to this commit.
    pub commit: u64,
}

/// How far the server has told this session of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewed {
    /// Of all that was promised to it, up to this commit.
    pub commit: u64,
}

/// Space of a volume, or of a directory of it with a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Space {
    /// Bytes that the volume may grow to.
    pub total_bytes: u64,
    /// Bytes not used yet.
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that it may still have; 2^64 - 1 if they are not limited by themselves.
    pub free_inodes: u64,
    /// Bytes after which a quota refuses more, which is somewhat beyond it; 2^64 - 1 without one.
    pub room_bytes: u64,
}

impl Reply {
    /// The inodes whose changes may be promised with this answer.
    pub fn inodes(&self) -> Vec<Ino> {
        match self {
            Reply::Node(found) | Reply::Opened(Opened { found, .. }) => vec![found.node.attr.ino],
            Reply::Looked(looked) => {
                let node = looked.node.iter().map(|node| node.attr.ino);
                [looked.parent.ino].into_iter().chain(node).collect()
            }
            Reply::Page(page) => {
                let entries = page.entries.iter().map(|(_, node)| node.attr.ino);
                [page.directory.ino].into_iter().chain(entries).collect()
            }
            Reply::Applied(applied) => Outcome::inodes(&applied.outcomes).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Those of them whose changes the server will tell, if it will tell of any; and of all those
    /// that another host has marked.
    pub fn promised(&self) -> Option<(BTreeSet<Ino>, Marked)> {
        let Promising { but, marked } = match self {
            Reply::Node(Found { promised, .. })
            | Reply::Opened(Opened { found: Found { promised, .. }, .. })
            | Reply::Looked(Looked { promised, .. })
            | Reply::Page(Page { promised, .. })
            | Reply::Applied(Applied { promised, .. }) => promised.as_ref()?,
            _ => return None,
        };
        let mut inodes: BTreeSet<Ino> = self.inodes().into_iter().collect();
        if but.len() > inodes.len() as u64 || marked.len() > inodes.len() {
            return None;
        }
        let mut marked = marked.clone();
        marked.retain(|ino, _| inodes.contains(ino));
        for ino in but.iter() {
            inodes.remove(&ino);
        }
        Some((inodes, marked))
    }

    /// Says what a host may rely on of its inodes.
    pub fn promise(&mut self, promising: Option<Promising>) {
        match self {
            Reply::Node(Found { promised, .. })
            | Reply::Opened(Opened { found: Found { promised, .. }, .. })
            | Reply::Looked(Looked { promised, .. })
            | Reply::Page(Page { promised, .. })
            | Reply::Applied(Applied { promised, .. }) => *promised = promising,
            _ => {}
        }
    }
}
