//! What is logged and not committed, and what of it goes next.
//!
//! ```text
//!                  ┌──▶ metadata ──▶ APPLY, STORE-ATTR ──┐
//!   the log ──▶ order rule                               ├──▶ settled, in any order
//!                  └──▶ data ──▶ APPLY, STORE-DATA ──────┘
//! ```
//!
//! Two batches can be under way, one of each [lane](Lane) [MFS 3.2]; the [order rule](super::order)
//! says what waits for what. As long as no file's data are too long for a record all goes in one
//! lane: then others see a new file with what is in it.

mod cancel;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::order::{Kind, Order};
use super::{After, Change, Logged};
use crate::nouns::{Class, INLINE_MAX, Ino, Time};

/// Ranges of one batch: their pieces have to fit into one message.
const BATCH_RANGES: usize = 8192;
/// More changes than that of one file do not make a batch longer than was asked.
const TOGETHER_MAX: usize = 16;

/// A change that waits.
#[derive(Clone, Debug)]
struct Item {
    logged: Logged,
    at: Time,
    stage: Stage,
    /// When it was first sent: its outcome may be as old as that.
    sent: Option<Time>,
    /// It is not what it was logged as: a later entry of the log says so.
    is_rewritten: bool,
}

impl Item {
    /// True if the server cannot have heard of it, and nobody is about to tell it.
    fn is_unsent(&self) -> bool {
        self.stage == Stage::Waits && self.sent.is_none()
    }
}

/// How far a change is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// In the queue.
    Waits,
    /// In a batch that is being made.
    Taken,
    /// In a batch that is being sent, or answered.
    Sent,
}

/// One of the queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Names and attributes, and small data as long as nothing else is in the other one.
    Metadata,
    /// What another host waits for, with all that it follows.
    Pulled,
    /// What a user wants first, with all that it follows.
    Fast,
    /// File data, with what waits for these.
    Data,
}

impl Lane {
    /// All of them.
    pub const ALL: [Lane; 4] = [Lane::Metadata, Lane::Pulled, Lane::Fast, Lane::Data];

    /// True if its changes overtake others, and nobody uploads their data ahead.
    pub fn goes_first(self) -> bool {
        matches!(self, Lane::Pulled | Lane::Fast)
    }

    /// The class at which its batches go.
    pub fn class(self) -> Class {
        match self {
            Lane::Metadata => Class::StoreAttr,
            Lane::Pulled => Class::Fetch,
            Lane::Fast => Class::StoreFast,
            Lane::Data => Class::StoreData,
        }
    }
}

/// What a batch makes of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It goes along, and weighs so many bytes.
    Takes(u64),
    /// Others may go without it.
    Skips,
    /// The batch is full.
    Ends,
}

/// Pending changes of one inode.
#[derive(Clone, Debug, Default)]
struct PendingChanges {
    /// Changes that touch it.
    changes: BTreeSet<u64>,
    /// How many of them are its data.
    data: usize,
}

/// Uncommitted changes.
///
/// There may be hundreds of thousands, after a day without a network: nothing here looks at all
/// of them but [`Queue::iter`].
#[derive(Clone, Debug)]
pub struct Queue {
    items: BTreeMap<u64, Item>,
    order: Order,
    /// Bytes of file data.
    bytes: u64,
    /// The most bytes that go in a record.
    inline_max: u64,
    /// Changes of more data than that.
    bulk: usize,
    /// Stores of which the server may know that they are outdated.
    maybe_outdated: usize,
    waiting: BTreeMap<Ino, PendingChanges>,
    /// What waits for company, by when that ends: a few times only.
    held: BTreeMap<Time, BTreeSet<u64>>,
    /// What was raised while it was on its way at its own class, and is so still.
    raised_late: BTreeSet<u64>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            items: BTreeMap::new(),
            order: Order::default(),
            bytes: 0,
            inline_max: INLINE_MAX as u64,
            bulk: 0,
            maybe_outdated: 0,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            raised_late: BTreeSet::new(),
        }
    }
}

impl Queue {
    /// At most so many bytes go in a record.
    pub(in crate::host) fn set_inline_max(&mut self, bytes: u64) {
        self.inline_max = bytes;
        let changes = self.items.values().map(|item| &item.logged.change);
        self.bulk = changes.filter(|change| self.is_bulk(change)).count();
    }

    fn is_bulk(&self, change: &Change) -> bool {
        change.bytes() > self.inline_max
    }

    /// Adds the newest change; `is_directory`: whether an inode is one, or may be.
    pub fn push(&mut self, logged: Logged, now: Time, is_directory: impl Fn(Ino) -> bool) {
        assert!(self.newest_seq().is_none_or(|newest| newest < logged.seq), "log order");
        for ino in logged.change.inodes() {
            let waiting = self.waiting.entry(ino).or_default();
            waiting.changes.insert(logged.seq);
            waiting.data += usize::from(matches!(logged.change, Change::Data(_)));
        }
        self.bytes += logged.change.bytes();
        self.bulk += usize::from(self.is_bulk(&logged.change));
        self.maybe_outdated += usize::from(logged.may_be_outdated());
        self.order.push(&logged, is_directory);
        let item = Item { at: now, stage: Stage::Waits, sent: None, is_rewritten: false, logged };
        self.items.insert(item.logged.seq, item);
    }

    /// Change `seq`, which is the newest, goes in a batch of all that is made in a time of `every`
    /// (update logging [MFS 3.2]).
    pub fn hold(&mut self, seq: u64, now: Time, every: Duration) {
        self.release(now);
        let latest = Time(now.0.saturating_add(every));
        let next = self.held.first_key_value().map_or(latest, |(until, _)| latest.min(*until));
        self.held.entry(next).or_default().insert(seq);
    }

    /// What has waited for company until `now` does so no longer.
    pub fn release(&mut self, now: Time) {
        while self.held.first_key_value().is_some_and(|(until, _)| *until <= now) {
            self.held.pop_first();
        }
    }

    /// Nothing waits for company any more.
    pub fn release_all(&mut self) {
        self.held.clear();
    }

    /// True if change `seq` waits for company.
    pub fn is_held(&self, seq: u64) -> bool {
        self.held.values().any(|held| held.contains(&seq))
    }

    /// When something will have waited long enough for company.
    pub fn next_release(&self) -> Option<Time> {
        self.held.first_key_value().map(|(until, _)| *until)
    }

    /// What goes next of everything: at most `records`, and no further ones once `bytes`, or the
    /// ranges of one large change, are reached.
    pub fn batch(&self, records: usize, bytes: u64) -> Vec<Logged> {
        let weigh = |logged: &Logged| Fit::Takes(logged.change.bytes());
        self.batch_of_kind(Kind::Any, records, bytes, weigh)
    }

    /// The same of one lane, where `weigh` says what a change counts.
    ///
    /// What belongs to the same file as the last one goes along, so that others do not see the
    /// file in between.
    pub fn batch_of(
        &self,
        lane: Lane,
        records: usize,
        bytes: u64,
        weigh: impl FnMut(&Logged) -> Fit,
    ) -> Vec<Logged> {
        let kind = match lane {
            Lane::Metadata if self.bulk == 0 => Kind::Any,
            Lane::Metadata => Kind::Metadata,
            Lane::Pulled => Kind::Pulled,
            Lane::Fast => Kind::Raised,
            Lane::Data if self.bulk == 0 => return Vec::new(),
            Lane::Data => Kind::Data,
        };
        self.batch_of_kind(kind, records, bytes, weigh)
    }

    /// False if [`Queue::batch_of`] finds nothing in a lane, whatever it is asked.
    pub fn may_have(&self, lane: Lane) -> bool {
        match lane {
            Lane::Metadata => !self.items.is_empty(),
            Lane::Pulled => !self.order.pulled().is_empty(),
            Lane::Fast => self.raised().len() > self.order.pulled().len(),
            Lane::Data => self.bulk > 0,
        }
    }

    fn batch_of_kind(
        &self,
        kind: Kind,
        records: usize,
        bytes: u64,
        mut weigh: impl FnMut(&Logged) -> Fit,
    ) -> Vec<Logged> {
        let (mut sum, mut ranges) = (0, 0);
        let mut batch: Vec<Logged> = Vec::new();
        let mut pick = self.order.pick(kind);
        while let Some(Item { logged, .. }) = pick.next().and_then(|seq| self.items.get(&seq)) {
            let is_same = batch.last().is_some_and(|last| last.change.ino() == logged.change.ino());
            if batch.len() >= records && !is_same || batch.len() >= records + TOGETHER_MAX {
                break;
            }
            let weight = match weigh(logged) {
                Fit::Takes(weight) => weight,
                Fit::Skips => continue,
                Fit::Ends => break,
            };
            sum += weight;
            ranges += logged.change.ranges();
            if !batch.is_empty() && (sum > bytes || ranges > BATCH_RANGES) {
                break;
            }
            pick.take(logged.seq);
            batch.push(logged.clone());
        }
        batch
    }

    /// Takes change `seq` for a batch, or to make another change of it: nobody else takes it.
    pub fn take(&mut self, seq: u64) {
        if let Some(item) = self.items.get_mut(&seq) {
            assert!(item.stage == Stage::Waits, "change {seq} is somebody else's");
            item.stage = Stage::Taken;
            self.order.take(seq);
            // What was uploaded goes on in the lane of what is raised.
            self.raised_late.remove(&seq);
        }
    }

    /// Marks change `seq`, as it was when it was taken, as being sent.
    pub fn mark_sending(&mut self, seq: u64, now: Time) {
        if let Some(item) = self.items.get_mut(&seq) {
            assert!(item.stage != Stage::Waits, "change {seq} may be another one by now");
            item.stage = Stage::Sent;
            item.sent.get_or_insert(now);
        }
    }

    /// Puts back change `seq`, whose batch is over: it waits again, unless it is settled.
    pub fn put_back(&mut self, seq: u64) {
        if let Some(item) = self.items.get_mut(&seq) {
            item.stage = Stage::Waits;
            self.order.put_back(seq);
            self.raised_late.remove(&seq);
        }
    }

    /// Has changes go before others, with all that they follow, until they are settled; those are
    /// returned that did not so far. Data of `uploading` are on their way before their turn.
    pub fn raise(&mut self, seqs: &BTreeSet<u64>, uploading: &BTreeSet<u64>) -> BTreeSet<u64> {
        let new = self.order.raise(seqs);
        self.go_alone(&new, uploading);
        new
    }

    /// The same, before what was raised: another host waits.
    pub fn pull(&mut self, seqs: &BTreeSet<u64>, uploading: &BTreeSet<u64>) {
        let new = self.order.pull(seqs);
        self.go_alone(&new, uploading);
    }

    fn go_alone(&mut self, new: &BTreeSet<u64>, uploading: &BTreeSet<u64>) {
        for held in self.held.values_mut() {
            held.retain(|seq| !self.order.raised().contains(seq));
        }
        // A change that cancelled out has a place in the order, and no stage.
        let is_late = |seq: &&u64| {
            let stage = self.stage(**seq);
            stage.is_some_and(|stage| stage != Stage::Waits || uploading.contains(*seq))
        };
        let late: Vec<u64> = new.iter().filter(is_late).copied().collect();
        self.raised_late.extend(late);
    }

    /// The class to which a call is to be raised that carries some of `changes`: one of them is on
    /// its way at its own class, and was raised too late for another.
    pub fn raised_late(&self, changes: &[u64]) -> Option<Class> {
        let late = changes.iter().filter(|seq| self.raised_late.contains(seq));
        let is_pulled = |seq: &u64| self.order.pulled().contains(seq);
        late.map(|seq| if is_pulled(seq) { Lane::Pulled } else { Lane::Fast }.class()).min()
    }

    /// Changes that go before others.
    pub fn raised(&self) -> &BTreeSet<u64> {
        self.order.raised()
    }

    /// At which class a change goes.
    pub fn class_of(&self, logged: &Logged) -> Class {
        match logged.change.class() {
            Class::StoreData if self.order.pulled().contains(&logged.seq) => Lane::Pulled.class(),
            Class::StoreData if self.raised().contains(&logged.seq) => Lane::Fast.class(),
            class => class,
        }
    }

    /// Puts back all changes: nobody is sending any of them.
    pub fn put_all_back(&mut self) {
        let under_way = self.items.iter().filter(|(_, item)| item.stage != Stage::Waits);
        let under_way: Vec<u64> = under_way.map(|(seq, _)| *seq).collect();
        under_way.into_iter().for_each(|seq| self.put_back(seq));
    }

    /// Marks all changes as sent: an earlier process may have sent any of them.
    pub fn mark_sent(&mut self) {
        for item in self.items.values_mut() {
            item.sent = Some(Time::default());
        }
    }

    /// When change `seq` was first sent.
    pub fn sent(&self, seq: u64) -> Option<Time> {
        self.items.get(&seq)?.sent
    }

    /// True if change `seq` is not what it was logged as. The disk has to be synced before it is
    /// sent: after a loss of power it would be sent again as it was.
    pub fn is_rewritten(&self, seq: u64) -> bool {
        self.items.get(&seq).is_some_and(|item| item.is_rewritten)
    }

    /// How far change `seq` is; `None` if it is settled.
    pub fn stage(&self, seq: u64) -> Option<Stage> {
        Some(self.items.get(&seq)?.stage)
    }

    /// True if change `seq` waits for no other, and nobody sends it.
    pub fn is_free(&self, seq: u64) -> bool {
        self.order.is_free(seq)
    }

    /// Changes that somebody sends.
    pub fn under_way(&self) -> impl Iterator<Item = &Logged> {
        let items = self.order.under_way().iter().filter_map(|seq| self.items.get(seq));
        items.map(|item| &item.logged)
    }

    /// Changes which nothing that touches `ino` is behind: whatever follows these follows all that
    /// touch it.
    pub fn last_of(&self, ino: Ino) -> Vec<u64> {
        self.order.last_of(ino)
    }

    /// All changes that touch `ino`.
    pub fn all_of(&self, ino: Ino) -> BTreeSet<u64> {
        self.waiting.get(&ino).map(|waiting| waiting.changes.clone()).unwrap_or_default()
    }

    /// What change `seq` is.
    pub fn change(&self, seq: u64) -> Option<&Change> {
        Some(&self.items.get(&seq)?.logged.change)
    }

    /// What change `seq` has to follow because of a sync.
    pub fn after(&self, seq: u64) -> Option<&After> {
        Some(&self.items.get(&seq)?.logged.after)
    }

    /// The last change that each one up to `through` waits for, of those that wait for one.
    pub fn follows(&self, through: u64) -> BTreeMap<u64, u64> {
        self.order.follows(through)
    }

    /// Panics if the counts are not those of the changes.
    pub(in crate::host) fn check_invariants(&self) {
        let all = || self.items.values().map(|item| &item.logged);
        let bytes: u64 = all().map(|logged| logged.change.bytes()).sum();
        assert_eq!(self.bytes, bytes, "the queue counts the bytes of its changes");
        let bulk = all().filter(|logged| self.is_bulk(&logged.change)).count();
        assert_eq!(self.bulk, bulk, "the queue counts its large changes");
        let outdated = all().filter(|logged| logged.may_be_outdated()).count();
        assert_eq!(self.maybe_outdated, outdated, "the queue counts what may be outdated");
        let touches = |logged: &Logged| BTreeSet::from_iter(logged.change.inodes()).len();
        let touched: usize = all().map(touches).sum();
        let known: usize = self.waiting.values().map(|waiting| waiting.changes.len()).sum();
        assert_eq!(known, touched, "each change waits for the inodes that it touches");
        let is_gone = |seq: &&u64| !self.items.contains_key(*seq);
        let held = self.held.values().flatten().chain(&self.raised_late).find(is_gone);
        assert!(held.is_none(), "change {held:?} is held back, and gone");
    }

    /// Panics if some changes within `range` are not counted. Returns the last of them.
    pub(in crate::host) fn check_in_turn(
        &self,
        range: (Bound<u64>, Bound<u64>),
        most: usize,
    ) -> Option<u64> {
        if self.items.is_empty() {
            let counted = (self.bytes, self.bulk, self.maybe_outdated, self.waiting.len());
            assert_eq!(counted, (0, 0, 0, 0), "an empty queue counts changes");
        }
        let mut last = None;
        for (seq, item) in self.items.range(range).take(most) {
            let is_counted = |ino: &Ino| {
                self.waiting.get(ino).is_some_and(|waiting| waiting.changes.contains(seq))
            };
            assert!(is_counted(&item.logged.change.ino()), "change {seq} waits for its inode");
            assert!(self.bytes >= item.logged.change.bytes(), "the queue counts {seq}");
            last = Some(*seq);
        }
        last
    }

    /// Takes out change `seq`: it is settled.
    pub fn settle(&mut self, seq: u64) -> Option<Logged> {
        let logged = self.take_out(seq)?;
        self.order.settle(seq);
        Some(logged)
    }

    fn take_out(&mut self, seq: u64) -> Option<Logged> {
        let Item { logged, .. } = self.items.remove(&seq)?;
        self.raised_late.remove(&seq);
        for held in self.held.values_mut() {
            held.remove(&seq);
        }
        let (bytes, is_bulk) = (logged.change.bytes(), self.is_bulk(&logged.change));
        assert!(self.bytes >= bytes, "the queue counts the bytes of its changes");
        assert!(self.bulk > 0 || !is_bulk, "the queue counts its large changes");
        self.bytes -= bytes;
        self.bulk -= usize::from(is_bulk);
        self.maybe_outdated -= usize::from(logged.may_be_outdated());
        for ino in logged.change.inodes() {
            if let Entry::Occupied(mut waiting) = self.waiting.entry(ino) {
                waiting.get_mut().changes.remove(&seq);
                waiting.get_mut().data -= usize::from(matches!(logged.change, Change::Data(_)));
                if waiting.get().changes.is_empty() {
                    waiting.remove();
                }
            }
        }
        Some(logged)
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if everything is committed.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of file data in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if it has a store of which the server may know that it is outdated.
    pub fn may_have_outdated(&self) -> bool {
        self.maybe_outdated > 0
    }

    /// Seq of the oldest change.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.items.keys().next().copied()
    }

    /// Seq of the newest change.
    pub fn newest_seq(&self) -> Option<u64> {
        self.items.keys().next_back().copied()
    }

    /// The changes that touch `ino`, oldest first.
    pub fn of(&self, ino: Ino) -> impl Iterator<Item = &Change> {
        let waiting = self.waiting.get(&ino).into_iter();
        waiting.flat_map(|waiting| &waiting.changes).filter_map(|seq| self.change(*seq))
    }

    /// Seq of the newest change that touches `ino`.
    pub fn newest_of(&self, ino: Ino) -> Option<u64> {
        self.waiting.get(&ino)?.changes.last().copied()
    }

    /// True if data of `ino` wait.
    pub fn has_data(&self, ino: Ino) -> bool {
        self.waiting.get(&ino).is_some_and(|waiting| waiting.data > 0)
    }

    /// Changes and bytes up to seq `through`.
    pub fn up_to(&self, through: u64) -> (u64, u64) {
        let later = self.items.range((Bound::Excluded(through), Bound::Unbounded));
        // Somebody waits for what there was a moment ago: that is more.
        let (records, bytes) = count(later.map(|(_, item)| item));
        (self.items.len() as u64 - records, self.bytes - bytes)
    }

    /// How many of these wait, and their bytes.
    pub fn among(&self, seqs: &BTreeSet<u64>) -> (u64, u64) {
        count(seqs.iter().filter_map(|seq| self.items.get(seq)))
    }

    /// All of it with the moment each change was made.
    pub fn iter(&self) -> impl Iterator<Item = (&Logged, Time)> {
        self.items.values().map(|item| (&item.logged, item.at))
    }

    /// What has a seq of at least `from`.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = &Logged> {
        self.items.range(from..).map(|(_, item)| &item.logged)
    }
}

/// How many there are, and their bytes of file data.
fn count<'a>(items: impl Iterator<Item = &'a Item>) -> (u64, u64) {
    let bytes = items.map(|item| item.logged.change.bytes());
    bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
}

#[cfg(test)]
mod tests;
