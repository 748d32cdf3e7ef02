//! Names and attributes as this host sees them: the server's, with the changes on top that
//! the server does not have yet.
//!
//! What came from the server may be used as long as the server has promised to tell when it
//! changes; then it is stale and asked for again. What this host changed is its own truth
//! until the last change of it is settled: no reply of the server overwrites it before.
//!
//! Invariant: an entry with pending changes is neither stale nor dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::as_of::When;
use super::lifetime::{Known, TOLD};
use super::local::Unsettled;
use super::notes::Unnoted;
use super::outliving::Outliving;
use super::promised::{Promise, TrustedSession};
use super::xattrs::Xattrs;
use crate::nouns::{Attr, Dentry, Ino, Kind, Name, Time, Version};
use crate::persist::Lm;
use crate::wire::Node;

/// Names from the root to something: a rename on the server can leave a circle of old places, and
/// no path is this deep.
const PATH_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct NodeEntry {
    pub(super) attr: Attr,
    pub(super) target: Option<Vec<u8>>,
    /// `None`: must be asked for again.
    pub(super) checked: Option<Time>,
    /// Changes of it that are not settled.
    pub(super) pending: u32,
    pub(super) listing: Listing,
    pub(super) xattrs: Option<Xattrs>,
    /// Where it was last seen, for messages.
    pub(super) place: Option<(Ino, Name)>,
    /// The last name was removed here, and the server found no other. That is final: nobody
    /// can find it any more to give it one.
    pub(super) is_orphan: bool,
    /// The server says that it has a name again.
    pub(super) is_named_again: bool,
    /// Whether the size is known.
    pub(super) length: Length,
    /// When an outcome last said what it is.
    pub(super) outcome: Option<Time>,
    /// The listing of the first of these times was told whole, with what it names, and may be used
    /// until the second.
    pub(super) told: Option<[Time; 2]>,
    /// The latest state of it that the server told while changes of this host were pending, so
    /// that its attributes stayed.
    pub(super) said: Version,
    /// The server has promised to tell when it changes.
    pub(super) promise: Option<Promise>,
    /// All names were told in this session, as of this commit of the server. Those that it told of
    /// later are newer.
    pub(super) listed: Option<(u64, u64)>,
}

/// Whether it is known how long a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Length {
    #[default]
    Known,
    /// The server has refused data of this host, and says how long the file is there.
    AsServerSays,
    /// It gets the data of another file, of which an earlier life of this host knew more. Only the
    /// outcome says how long it is.
    AsOutcomeSays,
}

/// A part of a path.
enum PathPart<'a> {
    Name(&'a Name),
    /// Where this inode stands is not known.
    Unknown(Ino),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listing {
    /// Some names may be known, not all.
    Partial,
    /// All names are noted on disk, and some may be in memory.
    Noted,
    /// All names are known, as of then; without a time for when nobody can be asked.
    Complete(Option<Time>),
    /// The directory was made here and nobody else can know it.
    Own,
}

#[derive(Clone, Debug)]
pub(super) struct NameEntry {
    pub(super) ino: Option<Ino>,
    pub(super) checked: Option<Time>,
    pub(super) pending: u32,
    /// The server has said since that it names something, which changes that are not settled hide.
    pub(super) hides: bool,
}

impl NameEntry {
    pub(super) fn new(ino: Option<Ino>, checked: Option<Time>) -> NameEntry {
        NameEntry { ino, checked, pending: 0, hides: false }
    }
}

/// The tree as far as it is known.
#[derive(Clone, Debug)]
pub struct Tree {
    /// What is not promised is believed for so long.
    pub(super) poll: Duration,
    /// Who asks is told for so long at a time.
    pub(super) longest: Duration,
    /// What the kernel may have that outlives the lease.
    pub(super) outliving: Outliving,
    pub(super) limit: usize,
    /// Names are not known any more that somebody may have been told.
    pub(super) has_dropped: bool,
    /// Directories that list something else since this was taken last.
    pub(super) listed_anew: BTreeSet<Ino>,
    /// Names that a listing of the server has no more, since this was taken last, and whether each
    /// was a directory's. The word of that change covers known names only.
    pub(super) unlisted: Vec<(Dentry, bool)>,
    /// What of the server's promises counts.
    pub(super) session: TrustedSession,
    pub(super) nodes: BTreeMap<Ino, NodeEntry>,
    pub(super) names: BTreeMap<(Ino, Name), NameEntry>,
    /// Inodes whose data moved on the server, until the shell takes them.
    moved: Vec<Moved>,
    /// What the index on disk lacks (`notes`).
    pub(super) unnoted: Unnoted,
    /// What it is being told.
    pub(super) noting: Unnoted,
    /// What is not settled of inodes that are not known.
    pub(super) unknown: BTreeMap<Ino, Unsettled>,
    /// Inodes of which changes came or were settled, until that is announced. `None`: any may be.
    pub(super) stirred: Option<BTreeSet<Ino>>,
}

/// The server has other data of an inode than what this host knew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Which.
    pub ino: Ino,
    /// What the server has.
    pub version: Version,
    /// False if nothing was known here, so that nobody can have been told anything else.
    pub was_known: bool,
}

impl NodeEntry {
    /// The data are the server's, whatever else of it is this host's.
    pub(super) fn follow_data(&mut self, said: &Attr) {
        self.attr.data_version = said.data_version;
        self.attr.size = said.size;
        self.attr.allocated = said.allocated;
        self.length = Length::Known;
    }

    /// The server says what an inode is that may have lost its last name. A restored volume has its
    /// names again. A copy of this cache may make a file again, or use its number. Returns the
    /// directory that lists it again.
    pub(super) fn may_be_back(&mut self, said: &Attr) -> Option<Ino> {
        let is_back = self.is_orphan && said.nlink > 0 && said.change != self.attr.change;
        self.is_named_again |= is_back;
        if is_back { self.settled() } else { None }
    }

    /// Its last pending change may have ended. What was written to a file without a name is in no
    /// log, so until then it has none. Returns the directory that lists it again.
    pub(super) fn settled(&mut self) -> Option<Ino> {
        if self.pending == 0 && std::mem::take(&mut self.is_named_again) {
            (self.is_orphan, self.listing) = (false, Listing::Partial);
            return self.place.as_ref().map(|(above, _)| *above);
        }
        None
    }
}

impl Tree {
    /// An empty tree that keeps about `limit` inodes.
    pub fn new(limit: usize) -> Tree {
        Tree {
            poll: Duration::ZERO,
            longest: TOLD,
            outliving: Outliving::default(),
            limit,
            has_dropped: false,
            listed_anew: BTreeSet::new(),
            unlisted: Vec::new(),
            session: TrustedSession::default(),
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            moved: Vec::new(),
            unnoted: Unnoted::default(),
            noting: Unnoted::default(),
            unknown: BTreeMap::new(),
            stirred: None,
        }
    }

    /// Attributes of `ino`.
    pub fn attr(&self, ino: Ino, now: Time) -> Known<Attr> {
        match self.nodes.get(&ino) {
            Some(node) if node.length != Length::Known => Known::Unknown,
            Some(node) => self.judge(node.attr, ino, (node.pending, node.checked), now),
            None => Known::Unknown,
        }
    }

    /// Attributes of `ino`, fresh or not.
    pub fn peek(&self, ino: Ino) -> Option<&Attr> {
        self.nodes.get(&ino).map(|node| &node.attr)
    }

    /// True if `ino` is known but for its size, because the server has refused data of the file.
    pub fn is_size_lost(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.length != Length::Known)
    }

    /// True if changes of `ino` are not settled, whether its attributes are known or not.
    pub fn is_pending(&self, ino: Ino) -> bool {
        self.pending_changes(ino) > 0
    }

    /// How many changes of `ino` are not settled; all data that are not sealed count as one.
    pub fn pending_changes(&self, ino: Ino) -> u32 {
        let unknown = || self.unknown.get(&ino).map(|unsettled| unsettled.pending);
        self.nodes.get(&ino).map(|node| node.pending).or_else(unknown).unwrap_or_default()
    }

    /// True if the last name of `ino` was removed here, and the server has confirmed that it
    /// was the last. (A link count of 0 is less: this host's guess while changes of the inode
    /// are pending, or the work of another host.)
    pub fn is_orphan(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.is_orphan)
    }

    pub(crate) fn mark_orphan(&mut self, ino: Ino) {
        if let Some(node) = self.node_mut(ino) {
            node.is_orphan = true;
            let above = node.place.as_ref().map(|(above, _)| *above);
            self.listed_anew.extend(above);
        }
    }

    /// Target of symbolic link `ino`, which never changes.
    pub fn target(&self, ino: Ino) -> Option<&[u8]> {
        self.nodes.get(&ino)?.target.as_deref()
    }

    /// What `name` in `parent` means: an inode, or surely nothing.
    pub fn name(&self, parent: Ino, name: &Name, now: Time) -> Known<Option<Ino>> {
        if let Some(entry) = self.names.get(&(parent, name.clone())) {
            let known = match self.meaning(entry) {
                Some(ino) if !self.nodes.contains_key(&ino) => return Known::Unknown,
                ino => ino,
            };
            if entry.pending > 0 || self.is_fresh(parent, entry.checked, now) {
                return Known::Fresh(known);
            }
            return match self.listing_state(parent, now) {
                Known::Fresh(()) => Known::Fresh(known),
                _ => Known::Stale(known),
            };
        }
        match self.listing_state(parent, now) {
            Known::Fresh(()) => Known::Fresh(None),
            Known::Stale(()) => Known::Stale(None),
            Known::Unknown => Known::Unknown,
        }
    }

    /// What a name means. One that another host took from a file was taken from it too where
    /// this host has not heard of that, once the server knows of no name of the file.
    pub(super) fn meaning(&self, entry: &NameEntry) -> Option<Ino> {
        entry.ino.filter(|ino| !self.is_orphan(*ino))
    }

    pub(super) fn names_in(&self, directory: Ino) -> impl Iterator<Item = (&Name, &NameEntry)> {
        self.names
            .range(names_from(directory)..)
            .take_while(move |((parent, _), _)| *parent == directory)
            .map(|((_, name), entry)| (name, entry))
    }

    /// The server says what an inode is. A reply that is older than what is known (it was
    /// overtaken by the outcome of a change made here) changes nothing.
    pub fn install_node(&mut self, node: Node, when: impl When) {
        let (ino, version) = (node.attr.ino, node.attr.data_version);
        let before = self.peek(ino).map(|attr| attr.data_version);
        self.put_node(node, when);
        let after = self.peek(ino).map(|attr| attr.data_version);
        if after != before {
            self.moved.push(Moved { ino, version, was_known: before.is_some() });
        }
    }

    /// What moved by the replies that were installed since the last call: what is here of other
    /// data must go.
    pub fn take_moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moved)
    }

    /// True if something has moved since.
    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    pub(super) fn put_node(&mut self, node: Node, when: impl When) {
        let ino = node.attr.ino;
        let checked = Some(when.of(ino));
        let is_news = self.nodes.get(&ino).is_none_or(|known| {
            let learns_target = known.target.is_none() && node.target.is_some();
            let is_known = known.length == Length::Known;
            let is_other = known.attr != node.attr || !is_known || learns_target;
            known.pending == 0 && is_other
        });
        if is_news {
            self.unnoted.nodes.insert(ino);
        }
        match self.nodes.get_mut(&ino) {
            Some(known) if node.attr.change < known.attr.change => {}
            Some(known) if known.pending > 0 => {
                known.said = known.said.max(node.attr.change);
                self.listed_anew.extend(known.may_be_back(&node.attr));
                if known.length == Length::AsServerSays {
                    known.follow_data(&node.attr);
                    self.unnoted.nodes.insert(ino);
                }
            }
            Some(known) => {
                if let Some(xattrs) = known.xattrs.as_mut() {
                    xattrs.is_old |= known.attr.change != node.attr.change;
                }
                self.listed_anew.extend(known.may_be_back(&node.attr));
                known.length = Length::Known;
                known.attr = node.attr;
                known.checked = checked;
                known.target = node.target.or(known.target.take());
            }
            None => {
                let unsettled = self.unknown.remove(&ino).unwrap_or_default();
                let entry = NodeEntry {
                    attr: unsettled.applied_to(node.attr),
                    target: node.target,
                    checked,
                    pending: unsettled.pending,
                    listing: Listing::Partial,
                    listed: None,
                    xattrs: None,
                    place: None,
                    is_orphan: false,
                    is_named_again: false,
                    length: unsettled.length,
                    outcome: None,
                    told: None,
                    said: Version::default(),
                    promise: None,
                };
                self.nodes.insert(node.attr.ino, entry);
            }
        }
    }

    /// The server says what `name` in `parent` means. False if the reply is older than what
    /// is known of the directory: ask again.
    pub fn install_name(
        &mut self,
        parent: Attr,
        name: Name,
        node: Option<Node>,
        when: impl When,
    ) -> bool {
        if self.is_newer_than(&parent) {
            return false;
        }
        self.install_node(Node { attr: parent, target: None }, when);
        self.put_name(parent.ino, name, node, when);
        true
    }

    pub(super) fn is_newer_than(&self, reply: &Attr) -> bool {
        let known = self.nodes.get(&reply.ino);
        known.is_some_and(|known| reply.change < known.attr.change.max(known.said))
    }

    pub(super) fn put_name(
        &mut self,
        parent: Ino,
        name: Name,
        node: Option<Node>,
        when: impl When,
    ) {
        let ino = node.as_ref().map(|node| node.attr.ino);
        if let Some(node) = node {
            self.install_node(node, when);
        }
        let (key, checked) = ((parent, name), Some(when.of(parent)));
        if let Some(entry) = self.names.get_mut(&key).filter(|entry| entry.pending > 0) {
            entry.hides = ino.is_some();
            // The change that hides it may take it away, and its author is told of its own numbers.
            if let Some(hidden) = ino.filter(|_| entry.ino != ino) {
                self.broken(hidden, when.of(hidden));
            }
            return;
        }
        self.put_at(ino, &key);
        if self.names.get(&key).is_none_or(|entry| entry.ino != ino) {
            self.unnoted.names.insert(key.clone());
            self.listed_anew.insert(parent);
        }
        self.names.insert(key, NameEntry::new(ino, checked));
    }

    /// `ino` was seen there.
    pub(super) fn put_at(&mut self, ino: Option<Ino>, place: &(Ino, Name)) {
        let Some(node) = ino.and_then(|ino| self.nodes.get_mut(&ino)) else { return };
        let is_moved = node.place.as_ref().is_none_or(|(above, _)| *above != place.0);
        if is_moved && node.attr.kind == Kind::Directory {
            // It lists another directory above.
            self.listed_anew.insert(node.attr.ino);
        }
        node.place = Some(place.clone());
    }

    /// Returns the directories that list something else since this was called last, whatever the
    /// cause.
    pub(in crate::host) fn take_listed_anew(&mut self) -> BTreeSet<Ino> {
        std::mem::take(&mut self.listed_anew)
    }

    /// Returns the names that listings of the server have no more, since this was called last, and
    /// whether each was a directory's.
    pub(in crate::host) fn take_unlisted(&mut self) -> Vec<(Dentry, bool)> {
        std::mem::take(&mut self.unlisted)
    }

    /// Names in `directory` of which it is known what they mean, or that they mean nothing.
    pub fn known_names(&self, directory: Ino) -> impl Iterator<Item = &Name> {
        self.names_in(directory).map(|(name, _)| name)
    }

    /// The path of `ino` below the mount point as far as it is known, else `#INO`.
    pub fn path(&self, ino: Ino) -> String {
        let part = |part: PathPart<'_>| match part {
            PathPart::Name(name) => name.to_string(),
            PathPart::Unknown(ino) => format!("#{ino}"),
        };
        self.path_parts(ino).into_iter().map(part).collect::<Vec<_>>().join("/")
    }

    /// The same, byte by byte as the names are.
    pub fn path_bytes(&self, ino: Ino) -> Vec<u8> {
        let part = |part: PathPart<'_>| match part {
            PathPart::Name(name) => name.as_bytes().to_vec(),
            PathPart::Unknown(ino) => format!("#{ino}").into_bytes(),
        };
        self.path_parts(ino).into_iter().map(part).collect::<Vec<_>>().join(&b'/')
    }

    fn path_parts(&self, ino: Ino) -> Vec<PathPart<'_>> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT && parts.len() < PATH_MAX {
            match self.nodes.get(&at).and_then(|node| node.place.as_ref()) {
                Some((parent, name)) => {
                    parts.push(PathPart::Name(name));
                    at = *parent;
                }
                None => {
                    parts.push(PathPart::Unknown(at));
                    break;
                }
            }
        }
        parts.reverse();
        parts
    }

    /// What `ino` says of how soon it is to be with the server, or the nearest directory above it
    /// that says something; and which of them that is.
    pub fn lm(&self, ino: Ino) -> Option<(Lm, Ino)> {
        let mut at = ino;
        for _ in 0..PATH_MAX {
            if let Some(lm) = self.peek(at).and_then(|attr| attr.lm) {
                return Some((lm, at));
            }
            at = self.parent(at)?;
        }
        None
    }

    /// The directory that `ino` was last seen in, if that is known itself.
    pub fn parent(&self, ino: Ino) -> Option<Ino> {
        let (parent, _) = self.nodes.get(&ino)?.place.as_ref()?;
        self.nodes.contains_key(parent).then_some(*parent)
    }

    /// True if `ino` is a directory.
    pub fn is_directory(&self, ino: Ino) -> bool {
        self.peek(ino).is_some_and(|attr| attr.kind == Kind::Directory)
    }

    /// Where `ino` was seen last.
    pub fn place(&self, ino: Ino) -> Option<(Ino, Name)> {
        self.nodes.get(&ino)?.place.clone()
    }

    /// The names that are known in `directory`, and what they mean.
    pub fn named_in(&self, directory: Ino) -> impl Iterator<Item = (&Name, Ino)> {
        self.names_in(directory).filter_map(|(name, entry)| Some((name, entry.ino?)))
    }

    /// True for a directory, and for what may be one because nothing is known of it.
    pub fn may_be_directory(&self, ino: Ino) -> bool {
        self.peek(ino).is_none_or(|attr| attr.kind == Kind::Directory)
    }

    /// True if `name` in `parent` is a directory, as far as is known.
    pub fn names_directory(&self, parent: Ino, name: &Name) -> bool {
        let entry = self.names.get(&(parent, name.clone()));
        entry.and_then(|entry| entry.ino).is_some_and(|ino| self.is_directory(ino))
    }
}

/// The least key of a name in `directory`: no name sorts before one of a single NUL, which
/// no name is.
pub(super) fn names_from(directory: Ino) -> (Ino, Name) {
    (directory, Name::least())
}
