//! Inodes that this host has begun to change, or has no change of any more: others are to know.

use std::collections::BTreeSet;

use super::tree::{NodeEntry, Tree};
use crate::nouns::{Attr, Ino};

/// Beyond so many all inodes are looked at.
const STIRRED_MAX: usize = 1 << 16;

impl Tree {
    /// Changes of `ino` came or were settled.
    pub(in crate::host) fn stir(&mut self, ino: Ino) {
        if let Some(stirred) = &mut self.stirred {
            stirred.insert(ino);
            if stirred.len() > STIRRED_MAX {
                self.stirred = None;
            }
        }
    }

    /// Any inode may have changes of which nobody knows.
    pub(in crate::host) fn stir_all(&mut self) {
        self.stirred = None;
    }

    /// True if there is something to announce.
    pub(in crate::host) fn has_stirred(&self) -> bool {
        self.stirred.as_ref().is_none_or(|stirred| !stirred.is_empty())
    }

    /// Inodes whose changes came or were settled since this was called last. `None`: any may be.
    pub(in crate::host) fn take_stirred(&mut self) -> Option<BTreeSet<Ino>> {
        self.stirred.replace(BTreeSet::new())
    }

    /// Attributes of `ino`, if the server has said them since all changes here were settled.
    pub(in crate::host) fn settled_attr(&self, ino: Ino) -> Option<&Attr> {
        let is_settled = |node: &&NodeEntry| node.pending == 0 && node.checked.is_some();
        self.nodes.get(&ino).filter(is_settled).map(|node| &node.attr)
    }

    /// All inodes with changes that are not settled.
    pub(in crate::host) fn pending_inodes(&self) -> BTreeSet<Ino> {
        let known = self.nodes.iter().filter(|(_, node)| node.pending > 0).map(|(ino, _)| *ino);
        let unknown = self.unknown.iter().filter(|(_, unsettled)| unsettled.pending > 0);
        known.chain(unknown.map(|(ino, _)| *ino)).collect()
    }
}
