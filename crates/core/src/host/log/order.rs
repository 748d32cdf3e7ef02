//! The order rule: which change waits until the server has which earlier one.
//!
//! A change *uses* what it is about: alone what it changes, together with others what it only
//! needs to be there. It follows each earlier change that uses the same, unless both use it
//! together:
//!
//! ```text
//!                                       alone                        together
//!   create, link, unlink, rmdir,        its names and inodes         their directories
//!     rename
//!   a rename that moves a directory     besides: the tree's shape
//!   data, attributes, the last close    the inode
//!   clone                               the file                     the other one
//! ```
//!
//! So a name comes before its data, contents before the rename that shows them, what was in a
//! directory goes before the directory does, and nothing else waits: metadata go past bulk.
//!
//! ```text
//!   create a ──▶ store a (2 GB) ──▶ rename a, b        these three one after the other,
//!   mkdir d ──▶ create d/e                             these two meanwhile
//! ```
//!
//! Two more keep what a program relies on whole on the server, if this host is lost. A change
//! follows what a sync covered that its session did before ([`After`]): so databases are. And
//! within a process group names are given and taken in order, and data come behind that: so is a
//! git repository, whose objects are in place before the branch that names them, and which syncs
//! few of them.
//!
//! Each change knows how many it waits for, and those that follow it. A change follows the last one
//! that used something alone, or those that used it together since: so there are no more links than
//! uses.
//!
//! Changes that cancel out keep their places until those that they follow are settled: so what
//! follows them follows these.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{After, Change, Logged};
use crate::nouns::{Ino, Name, Record, RenameMode};

/// Something that changes use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Thing {
    Inode(Ino),
    /// A name in a directory, by its hash: two that have the same one wait for each other.
    Name(Ino, u64),
    /// Which directory is below which: moved one after the other they form no cycle.
    Shape,
    /// The names that a process group gives and takes; 0: all groups that cannot be told, of other
    /// pid namespaces.
    Names(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Alone,
    Together,
    /// It follows who uses it alone, and nobody follows it.
    Behind,
}

/// Which changes are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Of any kind.
    Any,
    /// Of names and attributes.
    Metadata,
    /// Of data, and what waits for nothing else; not what is raised.
    Data,
    /// What is raised, and not pulled.
    Raised,
    /// What another host waits for.
    Pulled,
}

/// Who uses a thing and is not settled.
#[derive(Clone, Debug, Default)]
struct Users {
    /// The last one that uses it alone.
    alone: Option<u64>,
    /// Those that used it together since.
    together: BTreeSet<u64>,
}

/// A change that is not settled.
#[derive(Clone, Debug, Default)]
struct Node {
    is_data: bool,
    /// It will not be sent.
    is_cancelled: bool,
    uses: Vec<(Thing, How)>,
    /// How many it follows; one counts as often as it shares something.
    waits: u32,
    followers: Vec<u64>,
}

/// Which changes wait for which.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    nodes: BTreeMap<u64, Node>,
    users: BTreeMap<Thing, Users>,
    /// Those that wait for none and are not under way: metadata, and data.
    free: [BTreeSet<u64>; 2],
    /// Those that somebody sends.
    under_way: BTreeSet<u64>,
    /// Those that go before others, with all that they follow.
    raised: BTreeSet<u64>,
    /// Those of them that go first, because another host waits.
    pulled: BTreeSet<u64>,
    /// Those that were cancelled, and whose places are gone now.
    ended: Vec<u64>,
}

/// So many changes are looked at to find out whether something has to go between others; and so
/// many that were cancelled, as those of all files of a directory.
const BETWEEN_MAX: [usize; 2] = [256, 1 << 14];

impl Order {
    /// Takes in the newest change; `is_directory`: whether an inode is one, or may be.
    pub(super) fn push(&mut self, logged: &Logged, is_directory: impl Fn(Ino) -> bool) {
        let seq = logged.seq;
        let uses = uses(logged, is_directory);
        let before: Vec<u64> = match &logged.after {
            After::Nothing => Vec::new(),
            After::These(seqs) => seqs.clone(),
            After::Everything => self.nodes.keys().copied().collect(),
        };
        let mut waits = 0;
        let mut follow = |before: u64| {
            if let Some(before) = self.nodes.get_mut(&before) {
                before.followers.push(seq);
                waits += 1;
            }
        };
        before.into_iter().for_each(&mut follow);
        for (thing, how) in &uses {
            let users = self.users.entry(*thing).or_default();
            match how {
                How::Behind => users.alone.into_iter().for_each(&mut follow),
                How::Together => {
                    users.alone.into_iter().for_each(&mut follow);
                    users.together.insert(seq);
                }
                How::Alone => {
                    match users.together.is_empty() {
                        true => users.alone.into_iter().for_each(&mut follow),
                        false => users.together.iter().copied().for_each(&mut follow),
                    }
                    *users = Users { alone: Some(seq), together: BTreeSet::new() };
                }
            }
        }
        let is_data = matches!(logged.change, Change::Data(_));
        self.nodes.insert(seq, Node { is_data, uses, waits, ..Node::default() });
        self.free_unblocked(seq);
    }

    /// Frees change `seq` for the next batch, unless something blocks it.
    fn free_unblocked(&mut self, seq: u64) {
        let is_free = |node: &&Node| node.waits == 0 && !node.is_cancelled;
        if let Some(node) = self.nodes.get(&seq).filter(is_free)
            && !self.under_way.contains(&seq)
        {
            self.free[usize::from(node.is_data)].insert(seq);
        }
    }

    /// Change `seq` is settled.
    pub(super) fn settle(&mut self, seq: u64) {
        let mut settled = vec![seq];
        while let Some(seq) = settled.pop() {
            self.take(seq);
            self.under_way.remove(&seq);
            self.raised.remove(&seq);
            self.pulled.remove(&seq);
            let Some(node) = self.nodes.remove(&seq) else { continue };
            if node.is_cancelled {
                self.ended.push(seq);
            }
            for (thing, _) in node.uses {
                let Some(users) = self.users.get_mut(&thing) else { continue };
                users.together.remove(&seq);
                users.alone = users.alone.filter(|alone| *alone != seq);
                if users.alone.is_none() && users.together.is_empty() {
                    self.users.remove(&thing);
                }
            }
            for follower in node.followers {
                let Some(node) = self.nodes.get_mut(&follower) else { continue };
                node.waits -= 1;
                match node.waits == 0 && node.is_cancelled {
                    true => settled.push(follower),
                    false => self.free_unblocked(follower),
                }
            }
        }
    }

    /// Change `seq` will not be sent.
    pub(super) fn cancel(&mut self, seq: u64) {
        self.take(seq);
        self.under_way.remove(&seq);
        self.raised.remove(&seq);
        self.pulled.remove(&seq);
        let Some(node) = self.nodes.get_mut(&seq) else { return };
        node.is_cancelled = true;
        if node.waits == 0 {
            self.settle(seq);
        }
    }

    /// True if a later change of the data of `ino`, by this process group and following `after`,
    /// follows nothing that change `seq`, which is the last one of `ino`, does not follow.
    pub(super) fn is_last_word(&self, seq: u64, (ino, group): (Ino, u32), after: &[u64]) -> bool {
        let Some(node) = self.nodes.get(&seq) else { return false };
        let is_before = |other: u64| {
            other == seq
                || self.nodes.get(&other).is_none_or(|other| other.followers.contains(&seq))
        };
        let names = Thing::Names(group);
        let named = self.users.get(&names).and_then(|users| users.alone);
        let follows_names = node.uses.iter().any(|(thing, _)| *thing == names);
        self.last_of(ino) == [seq]
            && after.iter().all(|other| is_before(*other))
            && named.is_none_or(|named| named < seq && follows_names)
    }

    /// True if something that will be sent follows change `seq`, also behind what was cancelled.
    pub(super) fn is_followed(&self, seq: u64) -> bool {
        let (mut looked_at, mut behind) = (BTreeSet::new(), vec![seq]);
        while let Some(node) = behind.pop().map(|seq| self.nodes.get(&seq)) {
            for &follower in node.into_iter().flat_map(|node| &node.followers) {
                if !self.is_cancelled(follower) {
                    return true;
                }
                if looked_at.insert(follower) {
                    behind.push(follower);
                }
            }
        }
        false
    }

    /// True if all that follows change `seq` is one of these, or is not sent.
    pub(super) fn is_followed_by_none_but(&self, seq: u64, these: &BTreeSet<u64>) -> bool {
        let is_one = |other: &u64| these.contains(other) || self.is_cancelled(*other);
        self.nodes.get(&seq).is_some_and(|node| node.followers.iter().all(is_one))
    }

    /// True if change `seq` was cancelled and still has its place.
    pub(super) fn is_cancelled(&self, seq: u64) -> bool {
        self.nodes.get(&seq).is_some_and(|node| node.is_cancelled)
    }

    /// Cancelled changes that have no place any more, since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended)
    }

    /// True if something that will be sent follows one of these and is followed by another one, or
    /// there may be such a thing: then they cannot be done all at one moment.
    pub(super) fn has_between(&self, these: &BTreeSet<u64>) -> bool {
        let Some(last) = these.last() else { return false };
        // With each whether something that will be sent is on the way to it.
        let mut ahead: Vec<(u64, bool)> = these.iter().map(|seq| (*seq, false)).collect();
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        while let Some((seq, is_behind)) = ahead.pop() {
            let Some(node) = self.nodes.get(&seq) else { continue };
            let is_behind = is_behind || !node.is_cancelled && !these.contains(&seq);
            for follower in node.followers.iter().filter(|follower| *follower <= last) {
                let (seen, most) = match is_behind {
                    true => (&mut seen[0], BETWEEN_MAX[0]),
                    false => (&mut seen[1], BETWEEN_MAX[1]),
                };
                if is_behind && these.contains(follower) || seen.len() > most {
                    return true;
                }
                if !these.contains(follower) && seen.insert(*follower) {
                    ahead.push((*follower, is_behind));
                }
            }
        }
        false
    }

    /// True if all that follows one of `these` is one of them, of `others` or not sent, or is
    /// behind change `last`: so whatever has to come after them comes after that.
    pub(super) fn leads_only_to(
        &self,
        these: &BTreeSet<u64>,
        others: &BTreeSet<u64>,
        last: u64,
    ) -> bool {
        let mut seen = these.clone();
        let mut ahead: Vec<u64> = these.iter().copied().collect();
        while let Some(node) = ahead.pop().map(|seq| self.nodes.get(&seq)) {
            let followers = node.into_iter().flat_map(|node| &node.followers);
            for follower in followers.filter(|follower| **follower != last) {
                let is_known = others.contains(follower) || self.is_cancelled(*follower);
                if seen.insert(*follower) {
                    if !is_known || seen.len() > BETWEEN_MAX[0] {
                        return false;
                    }
                    ahead.push(*follower);
                }
            }
        }
        true
    }

    /// Makes change `seq` the last one of `ino`, instead of one that it follows.
    pub(super) fn take_over(&mut self, seq: u64, ino: Ino) {
        let thing = Thing::Inode(ino);
        self.users.insert(thing, Users { alone: Some(seq), together: BTreeSet::new() });
        if let Some(node) = self.nodes.get_mut(&seq) {
            node.uses.push((thing, How::Alone));
        }
    }

    /// Marks change `seq` as under way: nobody else is to send it.
    pub(super) fn take(&mut self, seq: u64) {
        if let Some(node) = self.nodes.get(&seq) {
            self.free[usize::from(node.is_data)].remove(&seq);
            self.under_way.insert(seq);
        }
    }

    /// Marks change `seq` as not under way any more.
    pub(super) fn put_back(&mut self, seq: u64) {
        self.under_way.remove(&seq);
        self.free_unblocked(seq);
    }

    /// Changes that somebody sends.
    pub(super) fn under_way(&self) -> &BTreeSet<u64> {
        &self.under_way
    }

    /// True if change `seq` waits for none, and nobody sends it.
    pub(super) fn is_free(&self, seq: u64) -> bool {
        self.free.iter().any(|free| free.contains(&seq))
    }

    /// Has these go before others, and so all that they follow. Returns those that did not so far.
    pub(super) fn raise(&mut self, seqs: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut with = self.with_followed(seqs);
        with.retain(|seq| self.raised.insert(*seq));
        with
    }

    /// The same, before those that are only raised.
    pub(super) fn pull(&mut self, seqs: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut with = self.with_followed(seqs);
        self.raised.extend(&with);
        with.retain(|seq| self.pulled.insert(*seq));
        with
    }

    /// Those of `seqs` that there are, with all that they follow.
    fn with_followed(&self, seqs: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut with: BTreeSet<u64> =
            seqs.iter().filter(|seq| self.nodes.contains_key(seq)).copied().collect();
        let Some(last) = with.last().copied() else { return with };
        // Whoever follows a change is younger.
        for (seq, node) in self.nodes.range(..last).rev() {
            if node.followers.iter().any(|follower| with.contains(follower)) {
                with.insert(*seq);
            }
        }
        with
    }

    /// Those for which another host waits.
    pub(super) fn pulled(&self) -> &BTreeSet<u64> {
        &self.pulled
    }

    /// Those that go before others.
    pub(super) fn raised(&self) -> &BTreeSet<u64> {
        &self.raised
    }

    /// Those that use `ino` and that nothing which does is behind.
    pub(super) fn last_of(&self, ino: Ino) -> Vec<u64> {
        match self.users.get(&Thing::Inode(ino)) {
            Some(Users { together, .. }) if !together.is_empty() => {
                together.iter().copied().collect()
            }
            Some(Users { alone, .. }) => alone.iter().copied().collect(),
            None => Vec::new(),
        }
    }

    /// What can go in one batch, oldest first.
    pub(super) fn pick(&self, kind: Kind) -> Pick<'_> {
        Pick { order: self, kind, at: 0, opened: BTreeSet::new(), waits: BTreeMap::new() }
    }

    /// The last change that each one up to `through` follows.
    pub(super) fn follows(&self, through: u64) -> BTreeMap<u64, u64> {
        let before = self.nodes.range(..=through);
        let links =
            before.flat_map(|(seq, node)| node.followers.iter().map(|after| (*after, *seq)));
        let is_sent = |seq: &u64| !self.is_cancelled(*seq);
        links.filter(|(after, seq)| *after <= through && is_sent(after) && is_sent(seq)).collect()
    }
}

/// Goes through what can be sent.
#[derive(Debug)]
pub(super) struct Pick<'a> {
    order: &'a Order,
    kind: Kind,
    at: u64,
    /// Those that follow what was taken, and nothing else.
    opened: BTreeSet<u64>,
    /// How many others they wait for, of those that follow something that was taken.
    waits: BTreeMap<u64, u32>,
}

impl Pick<'_> {
    /// The next one.
    pub(super) fn next(&mut self) -> Option<u64> {
        let [metadata, data] = &self.order.free;
        let (none, raised, pulled) = (BTreeSet::new(), &self.order.raised, &self.order.pulled);
        let free = match self.kind {
            Kind::Any | Kind::Raised | Kind::Pulled => [metadata, data],
            Kind::Metadata => [metadata, &none],
            Kind::Data => [data, &none],
        };
        let sets = free.into_iter().chain([&self.opened]);
        let first = |set: &BTreeSet<u64>| match self.kind {
            Kind::Raised => {
                let mut raised = raised.range(self.at..).filter(|seq| !pulled.contains(seq));
                raised.find(|seq| set.contains(seq)).copied()
            }
            Kind::Pulled => pulled.range(self.at..).find(|seq| set.contains(seq)).copied(),
            Kind::Data => set.range(self.at..).find(|seq| !raised.contains(seq)).copied(),
            Kind::Any | Kind::Metadata => set.range(self.at..).next().copied(),
        };
        let next = sets.filter_map(first).min()?;
        self.at = next + 1;
        Some(next)
    }

    /// The last one goes along: what follows it can, too, unless somebody else has that.
    pub(super) fn take(&mut self, seq: u64) {
        let mut taken = vec![seq];
        while let Some(node) = taken.pop().and_then(|seq| self.order.nodes.get(&seq)) {
            for follower in &node.followers {
                let Some(node) = self.order.nodes.get(follower) else { continue };
                let left = self.waits.entry(*follower).or_insert(node.waits);
                *left -= 1;
                match *left {
                    0 if node.is_cancelled => taken.push(*follower),
                    0 if self.order.under_way.contains(follower) => {}
                    0 if !(node.is_data && self.kind == Kind::Metadata) => {
                        self.opened.insert(*follower);
                    }
                    _ => {}
                }
            }
        }
    }
}

fn name_of(parent: Ino, name: &Name) -> Thing {
    let mut hasher = DefaultHasher::new();
    name.as_bytes().hash(&mut hasher);
    Thing::Name(parent, hasher.finish())
}

/// What a change uses, each once.
fn uses(logged: &Logged, is_directory: impl Fn(Ino) -> bool) -> Vec<(Thing, How)> {
    let names = |how| (Thing::Names(logged.caller.process_group), how);
    let inode = |ino: &Ino| (Thing::Inode(*ino), How::Alone);
    let needed = |ino: &Ino| (Thing::Inode(*ino), How::Together);
    let record = match &logged.change {
        Change::Record(record) => record,
        Change::Data(data) => {
            return vec![inode(&data.ino), names(How::Behind)];
        }
    };
    let mut uses = match record {
        Record::Create { parent, name, ino, .. } => {
            vec![(name_of(*parent, name), How::Alone), inode(ino), needed(parent)]
        }
        Record::Link { parent, name, ino }
        | Record::Unlink { parent, name, ino, .. }
        | Record::Rmdir { parent, name, ino } => {
            vec![
                (name_of(*parent, name), How::Alone),
                inode(ino),
                needed(parent),
                names(How::Alone),
            ]
        }
        Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, .. } => {
            let other = match mode {
                RenameMode::Replace(other) => *other,
                RenameMode::Exchange(other) => Some(*other),
                RenameMode::NoReplace => None,
            };
            let moves = [Some(*ino), other].into_iter().flatten().any(is_directory);
            let shape = (moves && from_parent != to_parent).then_some((Thing::Shape, How::Alone));
            let ends = [(from_parent, from_name), (to_parent, to_name)];
            let ends = ends.map(|(parent, name)| (name_of(*parent, name), How::Alone));
            let mut uses = vec![inode(ino), needed(from_parent), needed(to_parent)];
            uses.extend(ends);
            uses.extend(other.as_ref().map(inode));
            uses.extend(shape);
            uses.push(names(How::Alone));
            uses
        }
        Record::Clone { ino, from, .. } => vec![inode(ino), needed(from)],
        Record::SetAttr { ino, .. }
        | Record::SetXattr { ino, .. }
        | Record::RemoveXattr { ino, .. }
        | Record::Release { ino } => vec![inode(ino)],
        Record::Store(store) => vec![inode(&store.ino)],
    };
    // Alone counts more.
    uses.sort_by_key(|(thing, how)| (*thing, *how != How::Alone));
    uses.dedup_by_key(|(thing, _)| *thing);
    uses
}

#[cfg(test)]
mod tests;
