//! All names of a directory: as they are known, and as the server tells them, whole or by what
//! changed.

use std::collections::BTreeSet;

use super::as_of::When;
use super::lifetime::Known;
use super::tree::{Listing, Tree, names_from};
use crate::nouns::{Attr, Dentry, Ino, Name, Time};
use crate::wire::{Node, Page};

impl Tree {
    pub(super) fn listing_state(&self, directory: Ino, now: Time) -> Known<()> {
        match self.nodes.get(&directory).map(|node| node.listing) {
            Some(Listing::Own) => Known::Fresh(()),
            Some(Listing::Complete(checked)) => self.judge((), directory, (0, checked), now),
            Some(Listing::Partial | Listing::Noted) | None => Known::Unknown,
        }
    }

    /// All names in `directory`, in byte order.
    pub fn listing(&self, directory: Ino, now: Time) -> Known<Vec<(Name, Ino)>> {
        let state = self.listing_state(directory, now);
        if state == Known::Unknown {
            return Known::Unknown;
        }
        if !self.knows_all_in(directory) {
            return Known::Unknown;
        }
        let names = self
            .names_in(directory)
            .filter_map(|(name, entry)| Some((name.clone(), self.meaning(entry)?)))
            .collect();
        match state {
            Known::Fresh(()) => Known::Fresh(names),
            _ => Known::Stale(names),
        }
    }

    /// The server says everything that is in a directory, or which of its names have changed. False
    /// if that is of no use any more: ask for all.
    pub fn install_page(&mut self, page: Page, when: impl When) -> bool {
        let Page { directory, entries, commit, gone, .. } = page;
        let is_taken = match gone {
            Some(gone) => self.install_changed(directory, entries, gone, when),
            None => self.install_listing(directory, entries, when),
        };
        // What the page says of a name with a pending change was not taken in. So the next question
        // asks for all names that changed since the earlier commit.
        let is_partial = self.names_in(directory.ino).any(|(_, entry)| entry.pending > 0);
        let session = self.session.number();
        if is_taken && let Some(node) = self.nodes.get_mut(&directory.ino) {
            let before = node.listed.filter(|(of, _)| Some(*of) == session);
            node.listed =
                if is_partial { before } else { session.map(|session| (session, commit)) };
        }
        is_taken
    }

    /// The server says everything that is in `directory`. False if that is older than what is
    /// known of it: ask again.
    pub fn install_listing(
        &mut self,
        directory: Attr,
        entries: Vec<(Name, Node)>,
        when: impl When,
    ) -> bool {
        if self.is_newer_than(&directory) {
            return false;
        }
        let ino = directory.ino;
        self.install_node(Node { attr: directory, target: None }, when);
        let listed: BTreeSet<&Name> = entries.iter().map(|(name, _)| name).collect();
        let gone: Vec<Name> = self
            .names_in(ino)
            .filter(|(name, entry)| entry.pending == 0 && !listed.contains(name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.unlist((ino, name));
        }
        for (name, node) in entries {
            self.put_name(ino, name, Some(node), when);
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            let was_known = matches!(node.listing, Listing::Complete(_) | Listing::Own);
            node.listing = Listing::Complete(Some(when.of(ino)));
            if !was_known {
                // What is noted of its names may be anything.
                self.unnoted.nodes.insert(ino);
                self.unnoted.relisted.insert(ino);
            }
        }
        true
    }

    /// A listing of the server does not have this name any more.
    fn unlist(&mut self, key: (Ino, Name)) {
        let (parent, name) = key.clone();
        let is_directory = self.names_directory(parent, &name);
        self.unlisted.push((Dentry { parent, name }, is_directory));
        self.drop_name(key);
    }

    /// Behind which commit names of `directory` are not known, if all others are, with what they
    /// name. Not in another session, unless it goes on in that: of what they name nothing is
    /// promised any more.
    pub fn listed_through(&self, directory: Ino) -> Option<u64> {
        let node = self.nodes.get(&directory)?;
        let (session, commit) = node.listed?;
        let is_whole = matches!(node.listing, Listing::Complete(Some(_)));
        let is_usable = is_whole && Some(session) == self.session.number();
        (is_usable && self.knows_all_in(directory)).then_some(commit)
    }

    /// True if what the known names in `directory` name is known too.
    fn knows_all_in(&self, directory: Ino) -> bool {
        let mut named = self.names_in(directory).filter_map(|(_, entry)| self.meaning(entry));
        named.all(|ino| self.nodes.contains_key(&ino))
    }

    /// The server says which names of `directory`, of which all were known, have changed: all
    /// others are as they were. False if they are not known any more, or something newer is: ask
    /// for all.
    fn install_changed(
        &mut self,
        directory: Attr,
        entries: Vec<(Name, Node)>,
        gone: Vec<Name>,
        when: impl When,
    ) -> bool {
        let ino = directory.ino;
        let checked = Some(when.of(ino));
        if self.listed_through(ino).is_none() || self.is_newer_than(&directory) {
            return false;
        }
        self.install_node(Node { attr: directory, target: None }, when);
        for name in gone {
            let key = (ino, name);
            if self.names.get(&key).is_some_and(|entry| entry.pending == 0) {
                self.unlist(key);
            }
        }
        for (name, node) in entries {
            self.put_name(ino, name, Some(node), when);
        }
        let names = self.names.range_mut(names_from(ino)..);
        for (_, entry) in names.take_while(|((parent, _), _)| *parent == ino) {
            if entry.pending == 0 {
                entry.checked = checked;
            }
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.listing = Listing::Complete(checked);
        }
        true
    }

    /// True if the kernel may keep the known listing of `directory`: the server tells when it
    /// changes, and it is taken back before the lease ends. The kernel keeps it for any time.
    pub(in crate::host) fn may_keep_listing(&self, directory: Ino, now: Time) -> bool {
        let listing = self.nodes.get(&directory).map(|node| (node.pending, node.listing));
        let Some((0, Listing::Complete(Some(checked)))) = listing else { return false };
        self.is_kept(directory, checked, now)
    }

    /// True if `directory` lists these names, in byte order, as far as is known.
    pub(in crate::host) fn lists(&self, directory: Ino, names: &[(Name, Ino)]) -> bool {
        let known = self.names_in(directory);
        let known = known.filter_map(|(name, entry)| Some((name, self.meaning(entry)?)));
        known.eq(names.iter().map(|(name, ino)| (name, *ino)))
    }

    /// True if all names of `directory` were known at some time.
    pub fn has_listing(&self, directory: Ino) -> bool {
        let listing = self.nodes.get(&directory).map(|node| node.listing);
        !matches!(listing, None | Some(Listing::Partial | Listing::Noted))
    }

    /// True if all names of `directory` were known at some time, and are no more than `most`.
    pub fn is_listed_within(&self, directory: Ino, most: usize) -> bool {
        self.has_listing(directory) && self.names_in(directory).take(most + 1).count() <= most
    }
}
