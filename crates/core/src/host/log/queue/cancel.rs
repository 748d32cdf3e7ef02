//! What is not sent because of what came later.
//!
//! A store that waits is taken back when its file is about to lose its last name: its data are kept
//! until the server has said whether that was the last one.
//!
//! Data that were written after those of a change that waits become part of it, if nothing has to
//! go between them: so what is saved again and again is sent once.
//!
//! What was made and removed before the server heard of it cancels out:
//!
//! ```text
//!   create a ──▶ store a ──▶ unlink a            none of these is sent,
//!   create j ──▶ store j ──▶ store db ──▶ unlink j     all of these are: a sync lies between
//! ```
//!
//! That is as if all were done at one moment. So nothing may have to go between them: a change that
//! follows one of them and is followed by another one, by a sync or for what it is about.
//!
//! What was made and replaced by a rename before the server heard of it is superseded, as where an
//! editor saves by a rename again and again:
//!
//! ```text
//!   create a ──▶ store a ──▶ rename a, f      these three are not sent,
//!   create b ──▶ store b ──▶ rename b, f      the last one replaces what the earlier rename did
//! ```
//!
//! That is as if all were done at the moment of the later rename. So whatever follows one of them
//! must be behind that.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use super::Item;
use crate::host::log::{After, Change, DataChange, Logged, Queue};
use crate::nouns::{Caller, Ino, NewNode, Record, RenameMode, Timestamp};

/// More changes of one inode are sent.
const CANCELLED_MAX: usize = 256;

/// So many changes of a directory are looked at for an earlier time of it.
const LOOKED_AT: usize = 64;

/// What a change does for an inode to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Names {
    Made,
    More,
    Same,
    Less,
    /// Something else is about it, too.
    Others,
}

fn names(change: &Change) -> Names {
    let Change::Record(record) = change else { return Names::Same };
    match record {
        Record::Create { .. } => Names::Made,
        Record::Link { .. } => Names::More,
        Record::Unlink { .. } | Record::Rmdir { .. } => Names::Less,
        Record::Rename { mode: RenameMode::NoReplace | RenameMode::Replace(None), .. }
        | Record::SetAttr { .. }
        | Record::SetXattr { .. }
        | Record::RemoveXattr { .. }
        | Record::Clone { .. }
        | Record::Release { .. } => Names::Same,
        Record::Rename { .. } | Record::Store(_) => Names::Others,
    }
}

fn is_rename(change: &Change) -> bool {
    matches!(change, Change::Record(Record::Rename { .. }))
}

/// True if one who may do the one may do the other, and names are given in order between them.
fn are_by_one(one: &Caller, other: &Caller) -> bool {
    let of = |caller: &Caller| (caller.uid, caller.gid, caller.process_group);
    of(one) == of(other) && one.groups == other.groups
}

impl Queue {
    /// All changes of the file that change `by` renamed another one over, and what that change is
    /// without them, if they made the file and it can be as if they had never been made.
    pub fn superseded(&self, by: u64) -> Option<(BTreeSet<u64>, Logged)> {
        let mut amended = self.items.get(&by).filter(|item| item.is_unsent())?.logged.clone();
        let caller = amended.caller.clone();
        let Change::Record(Record::Rename { ino, from_parent, to_parent, mode, open, .. }) =
            &mut amended.change
        else {
            return None;
        };
        let RenameMode::Replace(Some(old)) = *mode else { return None };
        let mut seqs = self.waiting.get(&old)?.changes.clone();
        let is_last = seqs.pop_last() == Some(by);
        let others = &self.waiting.get(ino)?.changes;
        if !is_last || seqs.len() > CANCELLED_MAX || !self.order.leads_only_to(&seqs, others, by) {
            return None;
        }
        let first = *seqs.first()?;
        let within = |parent: &Ino| parent == from_parent || parent == to_parent;
        let mut replaced = (None, false, None);
        for seq in &seqs {
            let Item { logged, .. } = self.items.get(seq).filter(|item| item.is_unsent())?;
            if logged.change.ino() != old || !are_by_one(&logged.caller, &caller) {
                return None;
            }
            match &logged.change {
                Change::Record(Record::Create { parent, node, .. })
                    if *seq == first && *node != NewNode::Directory && within(parent) => {}
                Change::Record(Record::Rename { from_parent, to_parent, mode, open, .. })
                    if *seq != first
                        && replaced.0.is_none()
                        && within(from_parent)
                        && within(to_parent) =>
                {
                    let over = match mode {
                        RenameMode::Replace(over) => *over,
                        RenameMode::NoReplace => None,
                        RenameMode::Exchange(_) => return None,
                    };
                    replaced = (over, *open, logged.known);
                }
                change if *seq != first && !is_rename(change) && names(change) == Names::Same => {}
                _ => return None,
            }
        }
        if replaced.0 == Some(*ino) {
            // Both would be names of one file, of which a rename takes none away.
            return None;
        }
        (*mode, *open, amended.known) = (RenameMode::Replace(replaced.0), replaced.1, replaced.2);
        Some((seqs, amended))
    }

    /// Change `by.seq`, which waits, is `by` now: what it replaces was replaced by a change that is
    /// cancelled next. Returns what it was.
    pub fn supersede(&mut self, by: &Logged) -> Option<Logged> {
        let item = self.items.get_mut(&by.seq)?;
        item.is_rewritten = true;
        let before = std::mem::replace(&mut item.logged, by.clone());
        let (new, old) = (by.change.inodes(), before.change.inodes());
        for ino in old.iter().filter(|ino| !new.contains(ino)) {
            if let Entry::Occupied(mut waiting) = self.waiting.entry(*ino) {
                waiting.get_mut().changes.remove(&by.seq);
                if waiting.get().changes.is_empty() {
                    waiting.remove();
                }
            }
        }
        for ino in new {
            self.waiting.entry(ino).or_default().changes.insert(by.seq);
        }
        if let Some(replaced) = by.change.unnamed() {
            self.order.take_over(by.seq, replaced);
        }
        Some(before)
    }

    /// All changes of `ino`, if they make it and remove its last name, and it can be as if they had
    /// never been made.
    pub fn cancel_out(&self, ino: Ino) -> Option<BTreeSet<u64>> {
        if self.names_left(ino)? != 0 {
            return None;
        }
        let changes = &self.waiting.get(&ino)?.changes;
        let mut all = changes.clone();
        all.extend(self.earlier_times(changes));
        (!self.order.has_between(&all)).then_some(all)
    }

    /// True if `ino` was made by changes that wait, which leave it one name, and that nothing else
    /// follows. If the name is removed now, all of them cancel out.
    pub fn is_new_with_one_name(&self, ino: Ino) -> bool {
        let Some(waiting) = self.waiting.get(&ino) else { return false };
        let is_alone = |seq: &u64| self.order.is_followed_by_none_but(*seq, &waiting.changes);
        self.names_left(ino) == Some(1) && waiting.changes.iter().all(is_alone)
    }

    /// How many names an inode has that was made by changes that wait, if these are about nothing
    /// else.
    fn names_left(&self, ino: Ino) -> Option<i32> {
        let changes = &self.waiting.get(&ino)?.changes;
        if changes.len() > CANCELLED_MAX {
            return None;
        }
        let mut left = 0;
        for seq in changes {
            let item = self.items.get(seq)?;
            if !item.is_unsent() || item.logged.change.ino() != ino {
                return None;
            }
            match (names(&item.logged.change), Some(seq) == changes.first()) {
                (Names::Made, true) | (Names::More, false) => left += 1,
                (Names::Less, false) => left -= 1,
                (Names::Same, false) => {}
                _ => return None,
            }
        }
        Some(left)
    }

    /// Times that directories got when earlier changes of what is in them were cancelled, as these
    /// are now.
    fn earlier_times(&self, these: &BTreeSet<u64>) -> Vec<u64> {
        let changes = these.iter().filter_map(|seq| self.items.get(seq));
        let Some(last) = changes.clone().next_back() else { return Vec::new() };
        let directories: BTreeSet<Ino> = changes
            .flat_map(|item| item.logged.change.inodes())
            .filter(|ino| *ino != last.logged.change.ino())
            .collect();
        let is_time = |seq: &u64| {
            self.items.get(seq).is_some_and(|item| {
                let Change::Record(Record::SetAttr { set, .. }) = &item.logged.change else {
                    return false;
                };
                let is_by = item.logged.caller.uid == last.logged.caller.uid;
                set.is_only_when() && is_by && item.is_unsent()
            }) && self.order.is_followed_by_none_but(*seq, these)
        };
        let newest = |ino: Ino| {
            let changes = &self.waiting.get(&ino)?.changes;
            changes.iter().rev().take(LOOKED_AT).find(|seq| is_time(seq)).copied()
        };
        directories.into_iter().filter_map(newest).collect()
    }

    /// The change that waits with the newest data of `ino`, if nothing follows it.
    pub fn to_unseal(&self, ino: Ino) -> Option<u64> {
        let seq = self.newest_of(ino)?;
        let item = self.items.get(&seq)?;
        let is_data = matches!(&item.logged.change, Change::Data(data) if data.ino == ino);
        // A later store that took in its data would hide that they may be outdated.
        let is_certain = !item.logged.may_be_outdated() && item.is_unsent();
        (is_data && is_certain && !self.order.is_followed(seq)).then_some(seq)
    }

    /// The change that waits with data of `ino`, if what was written later to it by `caller`, which
    /// follows `after`, can be part of it.
    pub fn to_amend(&self, ino: Ino, caller: &Caller, after: &After) -> Option<u64> {
        let seq = self.newest_of(ino)?;
        let item = self.items.get(&seq)?;
        let logged = &item.logged;
        let seqs: &[u64] = match after {
            After::Nothing => &[],
            After::These(seqs) => seqs,
            After::Everything => return None,
        };
        let same = |of: fn(&Caller) -> (u32, u32, &[u32])| of(&logged.caller) == of(caller);
        let is_data = matches!(&logged.change, Change::Data(data) if data.ino == ino);
        // What is newer is not to go with what the server may know to be outdated.
        let is_certain = !logged.may_be_outdated() && item.is_unsent();
        let is_free =
            is_data && is_certain && same(|caller| (caller.uid, caller.gid, &caller.groups));
        let whose = (ino, caller.process_group);
        (is_free && self.order.is_last_word(seq, whose, seqs)).then_some(seq)
    }

    /// `later`, which was written at `time`, becomes part of change `seq`; its data before.
    pub fn amend(&mut self, seq: u64, time: Timestamp, later: &DataChange) -> Option<DataChange> {
        let Item { logged, is_rewritten, .. } = self.items.get_mut(&seq)?;
        let before = Change::Data(logged.amend(time, later)?);
        *is_rewritten = true;
        let [earlier, now] = [&before, &logged.change].map(Change::bytes);
        self.bytes = self.bytes - earlier + now;
        let is_bulk = |bytes| usize::from(bytes > self.inline_max);
        self.bulk = self.bulk - is_bulk(earlier) + is_bulk(now);
        if let Change::Data(before) = before { Some(before) } else { None }
    }

    /// Takes out change `seq`, which is not sent. What follows it follows what it followed.
    pub fn cancel(&mut self, seq: u64) -> Option<Logged> {
        let logged = self.take_out(seq)?;
        self.order.cancel(seq);
        Some(logged)
    }

    /// True if change `seq` was cancelled, and something that it followed is not settled.
    pub fn is_cancelled(&self, seq: u64) -> bool {
        self.order.is_cancelled(seq)
    }

    /// Cancelled changes that followed something, all of which was settled since the last call.
    pub fn take_ended(&mut self) -> Vec<u64> {
        self.order.take_ended()
    }
}
