//! What of the tree is to be noted on disk, and what comes back from there.
//!
//! What is noted is of use when it is not in memory: to a process that has just begun, and for
//! what fell out of memory. It is stale then: the server is asked if it can be.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::tree::{Length, Listing, NameEntry, NodeEntry, Tree};
use super::xattrs::Xattrs;
use crate::nouns::{Attr, Ino, Name, Version};
use crate::wire::History;

/// An inode as it is noted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeNote {
    /// Its attributes.
    pub attr: Attr,
    /// Of a symbolic link: where it leads.
    pub target: Option<Vec<u8>>,
    /// Of a directory: all its names are noted.
    pub is_listed: bool,
    /// Extended attributes, if they are known.
    pub xattrs: Option<Xattrs>,
    /// Where it was last seen.
    pub place: Option<(Ino, Name)>,
}

impl NodeNote {
    /// True if each version in it is one of `history`. Else the index forgets it, and all names in
    /// the directory that it is of.
    pub fn is_of(&self, history: &History) -> bool {
        history.has(self.attr.change) && history.has(self.attr.data_version)
    }
}

/// What the index lacks of the tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeNotes {
    /// Inodes; `None` is not known any more.
    pub nodes: Vec<(Ino, Option<NodeNote>)>,
    /// Directories of which all names that are noted go, before those of `names` come.
    pub relisted: Vec<Ino>,
    /// Names, and what they mean.
    pub names: Vec<((Ino, Name), Meaning)>,
}

/// What a name means: an inode, or surely nothing; `None` is not known any more.
pub type Meaning = Option<Option<Ino>>;

impl TreeNotes {
    /// True if there is nothing to note.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.relisted.is_empty() && self.names.is_empty()
    }
}

/// Which parts of the tree the index lacks.
#[derive(Clone, Debug, Default)]
pub(super) struct Unnoted {
    pub(super) nodes: BTreeSet<Ino>,
    pub(super) names: BTreeSet<(Ino, Name)>,
    pub(super) relisted: BTreeSet<Ino>,
}

impl Unnoted {
    pub(super) fn has_name(&self, key: &(Ino, Name)) -> bool {
        self.names.contains(key) || self.relisted.contains(&key.0)
    }
}

impl Tree {
    /// An inode that is about to be changed, so that it is to be noted.
    pub(super) fn node_mut(&mut self, ino: Ino) -> Option<&mut NodeEntry> {
        let node = self.nodes.get_mut(&ino)?;
        self.unnoted.nodes.insert(ino);
        Some(node)
    }

    /// How many inodes are to be noted.
    pub(crate) fn unnoted(&self) -> usize {
        self.unnoted.nodes.len()
    }

    /// What is to be noted; [`Tree::noted`] is called when it has been.
    pub(crate) fn take_notes(&mut self) -> TreeNotes {
        let unnoted = std::mem::take(&mut self.unnoted);
        let mut keys = unnoted.names.clone();
        for directory in &unnoted.relisted {
            keys.extend(self.names_in(*directory).map(|(name, _)| (*directory, name.clone())));
        }
        let name = |key: (Ino, Name)| {
            let meaning = self.names.get(&key).map(|entry| entry.ino);
            (key, meaning)
        };
        // A note has no word for a size that is lost, and the next process would believe it.
        let is_known = |node: &&NodeEntry| node.length == Length::Known;
        let node = |ino: &Ino| (*ino, self.nodes.get(ino).filter(is_known).map(note));
        let notes = TreeNotes {
            nodes: unnoted.nodes.iter().map(node).collect(),
            relisted: unnoted.relisted.iter().copied().collect(),
            names: keys.into_iter().map(name).collect(),
        };
        self.noting = unnoted;
        notes
    }

    /// What was taken is noted, or could not be.
    pub(crate) fn noted(&mut self, well: bool) {
        let noting = std::mem::take(&mut self.noting);
        if !well {
            self.unnoted.nodes.extend(noting.nodes);
            self.unnoted.names.extend(noting.names);
            self.unnoted.relisted.extend(noting.relisted);
        }
    }

    /// An inode from the index, unless more is known here.
    pub fn install_note(&mut self, note: NodeNote) {
        let ino = note.attr.ino;
        let is_newer = |known: &Unnoted| known.nodes.contains(&ino);
        if self.nodes.contains_key(&ino) || is_newer(&self.unnoted) || is_newer(&self.noting) {
            return;
        }
        let unsettled = self.unknown.remove(&ino).unwrap_or_default();
        let node = NodeEntry {
            attr: unsettled.applied_to(note.attr),
            target: note.target,
            checked: None,
            pending: unsettled.pending,
            listing: if note.is_listed { Listing::Noted } else { Listing::Partial },
            xattrs: note.xattrs,
            place: note.place,
            is_orphan: false,
            is_named_again: false,
            length: unsettled.length,
            outcome: None,
            told: None,
            said: Version::default(),
            promise: None,
            listed: None,
        };
        self.nodes.insert(ino, node);
    }

    /// A name from the index: what it means, or that it surely meant nothing.
    pub fn install_noted_name(&mut self, directory: Ino, name: Name, ino: Option<Ino>) {
        let key = (directory, name);
        if !self.unnoted.has_name(&key) && !self.noting.has_name(&key) {
            let entry = NameEntry::new(ino, None);
            self.names.entry(key).or_insert(entry);
        }
    }

    /// All names that the index has of `directory` have been installed, with their inodes.
    pub fn install_noted_listing(&mut self, directory: Ino) {
        let is_newer = |known: &Unnoted| known.relisted.contains(&directory);
        let is_newer = is_newer(&self.unnoted) || is_newer(&self.noting);
        if let Some(node) = self.nodes.get_mut(&directory)
            && node.listing == Listing::Noted
            && !is_newer
        {
            node.listing = Listing::Complete(None);
        }
    }

    /// Marks directory `ino`, which an earlier life made, as unknown to the server: all its names
    /// are pending, and in memory.
    pub(crate) fn mark_own(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.listing = Listing::Own;
        }
    }

    /// True if names of `directory` that are not in memory may be in the index.
    pub fn is_listed_on_disk(&self, directory: Ino) -> bool {
        self.nodes.get(&directory).is_some_and(|node| node.listing == Listing::Noted)
    }
}

fn note(node: &NodeEntry) -> NodeNote {
    NodeNote {
        attr: node.attr,
        target: node.target.clone(),
        is_listed: node.listing != Listing::Partial,
        xattrs: node.xattrs.clone(),
        place: node.place.clone(),
    }
}
