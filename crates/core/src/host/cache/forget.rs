//! What the cached tree lets go of, and when.
//!
//! A reply that is older than what is known changes nothing. Where nothing is known any more
//! that cannot be seen: the reply to a question asked before a change made here would undo
//! that change in this host's view. So an inode outlives the replies that its change overtook.

use std::time::Duration;

use super::lifetime::TOLD;
use super::tree::{Listing, NodeEntry, Tree};
use crate::nouns::{Attr, Ino, Kind, Name, Time, Version};
use crate::wire::History;

/// A reply is assumed to come no later than this after it was overtaken: a connection is given up
/// after 20 silent seconds, and questions go with it. One that was slower all the same is not taken
/// for promised.
pub(super) const LATE: Duration = Duration::from_secs(30);

impl Tree {
    /// Inodes of which something is known.
    pub fn known_inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.nodes.keys().copied()
    }

    /// `ino` must be asked for again before it is used.
    pub fn expire(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.checked = None;
            if matches!(node.listing, Listing::Complete(_) | Listing::Noted) {
                node.listing = Listing::Partial;
                self.unnoted.nodes.insert(ino);
            }
        }
    }

    /// Everything that is not pending must be asked for again before it is used.
    pub fn expire_all(&mut self) {
        for node in self.nodes.values_mut().filter(|node| node.pending == 0) {
            node.checked = None;
            if matches!(node.listing, Listing::Complete(_)) {
                node.listing = Listing::Complete(None);
            }
        }
        for entry in self.names.values_mut().filter(|entry| entry.pending == 0) {
            entry.checked = None;
        }
    }

    /// The volume was put back from a copy, and has the versions of `history`: whatever the server
    /// says of an inode that is known in another one is news.
    pub fn forget_lost(&mut self, history: &History) {
        for node in self.nodes.values_mut().filter(|node| !history.has(node.said)) {
            node.said = Version::default();
        }
        let lost = |attr: &Attr| !history.has(attr.change) || !history.has(attr.data_version);
        for (ino, node) in self.nodes.iter_mut().filter(|(_, node)| lost(&node.attr)) {
            node.attr.change = Version::default();
            if !history.has(node.attr.data_version) {
                node.attr.data_version = Version::default();
            }
            node.xattrs = None;
            node.promise = None;
            if node.listing != Listing::Own {
                (node.listing, node.listed) = (Listing::Partial, None);
            }
            self.unnoted.nodes.insert(*ino);
        }
        self.expire_all();
    }

    /// `ino` is another inode's number than the one that was made here: whatever the server says
    /// of it is news.
    pub fn mistook(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            (node.attr.change, node.attr.data_version, node.said) = Default::default();
            (node.listing, node.listed) = (Listing::Partial, None);
            (node.xattrs, node.promise, node.checked) = (None, None, None);
            self.unnoted.nodes.insert(ino);
        }
    }

    /// The latest version that is known of anything.
    pub fn latest(&self) -> Version {
        self.nodes.values().map(|node| node.attr.latest()).max().unwrap_or_default()
    }

    /// `ino` is gone: answers that come late say nothing of it.
    pub fn forget(&mut self, ino: Ino, now: Time) {
        if !self.is_pending(ino) && self.nodes.remove(&ino).is_some() {
            self.unnoted.nodes.insert(ino);
            self.broken(ino, now);
        }
    }

    /// What a name means is not known any more.
    pub(super) fn drop_name(&mut self, key: (Ino, Name)) {
        self.names.remove(&key);
        self.listed_anew.insert(key.0);
        self.unnoted.names.insert(key);
    }

    /// Drops what is stale and not pending if there are too many inodes, but nothing that a
    /// late reply could bring back as it was, nor what is not noted; `keep` says which are in use.
    pub fn shrink(&mut self, now: Time, keep: impl Fn(Ino) -> bool) {
        if self.nodes.len() <= self.limit {
            return;
        }
        let fresh = |checked: Option<Time>| checked.is_some_and(|at| now.since(at) < TOLD);
        let recent = |outcome: Option<Time>| outcome.is_some_and(|at| now.since(at) < LATE);
        let (unnoted, noting) = (&self.unnoted, &self.noting);
        // What holds for a file is said by one of the directories above it.
        let is_directory = |node: &NodeEntry| node.attr.kind == Kind::Directory;
        let mut directories = self.nodes.values().filter(|node| is_directory(node));
        let has_levels = directories.any(|node| node.attr.lm.is_some());
        self.nodes.retain(|ino, node| {
            let in_use = node.pending > 0 || *ino == Ino::ROOT || keep(*ino);
            let to_note = unnoted.nodes.contains(ino) || noting.nodes.contains(ino);
            let may_speak = has_levels && is_directory(node);
            in_use || to_note || may_speak || fresh(node.checked) || recent(node.outcome)
        });
        for node in self.nodes.values_mut() {
            if matches!(node.listing, Listing::Complete(at) if !fresh(at)) {
                node.listing = Listing::Noted;
            }
        }
        let (nodes, names) = (&self.nodes, self.names.len());
        self.names.retain(|key, entry| {
            let to_note = unnoted.has_name(key) || noting.has_name(key);
            // What is missing from a whole listing is surely nothing.
            let listing = nodes.get(&key.0).map(|node| node.listing);
            let is_listed = matches!(listing, Some(Listing::Complete(_)));
            entry.pending > 0 || to_note || fresh(entry.checked) || is_listed
        });
        self.has_dropped |= self.names.len() < names;
    }
}
