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

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::order::{Kind, Order};
use super::{After, Change, Logged};
use crate::types::{Class, Ino, Time};

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Names and attributes, and small data as long as nothing else is in the other one.
    Metadata,
    /// What a user wants first, with all that it follows.
    Fast,
    /// File data, with what waits for these.
    Data,
}

impl Lane {
    /// All of them.
    pub const ALL: [Lane; 3] = [Lane::Metadata, Lane::Fast, Lane::Data];

    /// The class at which its batches go.
    pub fn class(self) -> Class {
        match self {
            Lane::Metadata => Class::StoreAttr,
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

/// What waits of one inode.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// Changes that touch it.
    changes: usize,
    /// Those that are its data.
    data: usize,
    /// Seq of the newest of them.
    newest: u64,
}

/// Uncommitted changes.
///
/// There may be hundreds of thousands, after a day without a network: nothing here looks at all
/// of them but [`Queue::iter`].
#[derive(Clone, Debug, Default)]
pub struct Queue {
    items: BTreeMap<u64, Item>,
    order: Order,
    /// Bytes of file data.
    bytes: u64,
    /// Changes of more data than go in a record.
    bulk: usize,
    waiting: BTreeMap<Ino, Waiting>,
    /// What waits for company, by when that ends: a few times only.
    held: BTreeMap<Time, BTreeSet<u64>>,
}

impl Queue {
    /// Adds the newest change; `is_directory`: whether an inode is one, or may be.
    pub fn push(&mut self, logged: Logged, now: Time, is_directory: impl Fn(Ino) -> bool) {
        assert!(self.newest_seq().is_none_or(|newest| newest < logged.seq), "log order");
        for ino in logged.change.inodes() {
            let waiting = self.waiting.entry(ino).or_default();
            waiting.changes += 1;
            waiting.newest = logged.seq;
            waiting.data += usize::from(matches!(logged.change, Change::Data(_)));
        }
        self.bytes += logged.change.bytes();
        self.bulk += usize::from(logged.change.is_bulk());
        self.order.push(&logged, is_directory);
        let item = Item { at: now, stage: Stage::Waits, sent: None, logged };
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
            Lane::Fast => Kind::Raised,
            Lane::Data if self.bulk == 0 => return Vec::new(),
            Lane::Data => Kind::Data,
        };
        self.batch_of_kind(kind, records, bytes, weigh)
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

    /// Change `seq` is in a batch: no other one takes it.
    pub fn takes(&mut self, seq: u64) {
        if let Some(item) = self.items.get_mut(&seq) {
            item.stage = Stage::Taken;
            self.order.takes(seq);
        }
    }

    /// It is about to be sent.
    pub fn sends(&mut self, seq: u64, now: Time) {
        if let Some(item) = self.items.get_mut(&seq) {
            item.stage = Stage::Sent;
            item.sent.get_or_insert(now);
        }
    }

    /// Its batch is over: it waits again, unless it is settled.
    pub fn is_back(&mut self, seq: u64) {
        if let Some(item) = self.items.get_mut(&seq) {
            item.stage = Stage::Waits;
            self.order.is_back(seq);
        }
    }

    /// Has changes go before others, with all that they follow, until they are settled.
    pub fn raise(&mut self, seqs: &BTreeSet<u64>) {
        self.order.raise(seqs);
        for held in self.held.values_mut() {
            held.retain(|seq| !self.order.raised().contains(seq));
        }
    }

    /// Changes that go before others.
    pub fn raised(&self) -> &BTreeSet<u64> {
        self.order.raised()
    }

    /// At which class a change goes.
    pub fn class_of(&self, logged: &Logged) -> Class {
        match logged.change.class() {
            Class::StoreData if self.raised().contains(&logged.seq) => Lane::Fast.class(),
            class => class,
        }
    }

    /// Nobody is sending anything any more.
    pub fn all_are_back(&mut self) {
        let under_way = self.items.iter().filter(|(_, item)| item.stage != Stage::Waits);
        let under_way: Vec<u64> = under_way.map(|(seq, _)| *seq).collect();
        under_way.into_iter().for_each(|seq| self.is_back(seq));
    }

    /// An earlier process may have sent any of them.
    pub fn was_sent(&mut self) {
        for item in self.items.values_mut() {
            item.sent = Some(Time::default());
        }
    }

    /// When change `seq` was first sent.
    pub fn sent(&self, seq: u64) -> Option<Time> {
        self.items.get(&seq)?.sent
    }

    /// How far change `seq` is; `None` if it is settled.
    pub fn stage(&self, seq: u64) -> Option<Stage> {
        Some(self.items.get(&seq)?.stage)
    }

    /// Changes which nothing that touches `ino` is behind: whatever follows these follows all that
    /// touch it.
    pub fn last_of(&self, ino: Ino) -> Vec<u64> {
        self.order.last_of(ino)
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

    /// Takes out change `seq`: it is settled.
    pub fn settle(&mut self, seq: u64) -> Option<Logged> {
        let Item { logged, .. } = self.items.remove(&seq)?;
        self.order.settle(seq);
        for held in self.held.values_mut() {
            held.remove(&seq);
        }
        self.bytes -= logged.change.bytes();
        self.bulk -= usize::from(logged.change.is_bulk());
        for ino in logged.change.inodes() {
            if let Entry::Occupied(mut waiting) = self.waiting.entry(ino) {
                waiting.get_mut().changes -= 1;
                waiting.get_mut().data -= usize::from(matches!(logged.change, Change::Data(_)));
                if waiting.get().changes == 0 {
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

    /// Seq of the oldest change.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.items.keys().next().copied()
    }

    /// Seq of the newest change.
    pub fn newest_seq(&self) -> Option<u64> {
        self.items.keys().next_back().copied()
    }

    /// Seq of the newest change that touches `ino`.
    pub fn newest_of(&self, ino: Ino) -> Option<u64> {
        self.waiting.get(&ino).map(|waiting| waiting.newest)
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::ContainerId;
    use crate::modlog::{Base, DataChange, INLINE_MAX, Record, SetAttr};
    use crate::types::{Caller, Timestamp, Version};

    fn store_of(seq: u64, ino: u64, ranges: u64) -> Logged {
        let data = DataChange {
            ino: Ino(ino),
            container: ContainerId::default(),
            base: Base::Version(Version::default()),
            cut: None,
            size: 2 * ranges,
            ranges: (0..ranges).map(|n| 2 * n..2 * n + 1).collect(),
            mtime: Timestamp::default(),
        };
        data.logged(seq, Caller::default())
    }

    fn store(seq: u64, ranges: u64) -> Logged {
        store_of(seq, seq, ranges)
    }

    fn chmod(seq: u64, ino: u64) -> Logged {
        let change = Change::Record(Record::SetAttr { ino: Ino(ino), set: SetAttr::default() });
        Logged { change, ..store(seq, 0) }
    }

    fn seqs(batch: Vec<Logged>) -> Vec<u64> {
        batch.iter().map(|logged| logged.seq).collect()
    }

    fn queue(changes: impl IntoIterator<Item = Logged>) -> Queue {
        let mut queue = Queue::default();
        changes.into_iter().for_each(|logged| queue.push(logged, Time::default(), |_| true));
        queue
    }

    #[test]
    fn what_is_logged_in_a_time_goes_as_one_batch() {
        let mut queue = Queue::default();
        let (second, at) = (Duration::from_secs(1), |ms| Time(Duration::from_millis(ms)));
        for (seq, ms) in [(1, 0), (2, 900), (3, 1_000), (4, 1_500)] {
            queue.push(store(seq, 1), at(ms), |_| false);
            if seq != 4 {
                queue.hold(seq, at(ms), second);
            }
        }
        assert_eq!([1, 2, 3, 4].map(|seq| queue.is_held(seq)), [false, false, true, false]);
        assert_eq!(queue.next_release(), Some(at(2_000)));
        // One of a shorter time does not wait for those of a longer one, nor they less than it.
        queue.push(store(5, 1), at(1_500), |_| false);
        queue.hold(5, at(1_500), second / 10);
        assert_eq!(queue.next_release(), Some(at(1_600)));
        queue.release(at(1_600));
        assert_eq!([3, 5].map(|seq| queue.is_held(seq)), [true, false]);
        queue.settle(3);
        queue.release(at(2_000));
        assert_eq!(queue.next_release(), None);
    }

    #[test]
    fn a_batch_ends_with_its_records_its_bytes_or_its_ranges() {
        let ranges = [4096, 4096, 1, 9000, 9000];
        let mut queue = queue((1..).zip(ranges).map(|(seq, n)| store(seq, n)));
        let batch = |queue: &Queue, records, bytes| seqs(queue.batch(records, bytes));
        assert_eq!(batch(&queue, 1, 1 << 20), [1]);
        assert_eq!(batch(&queue, 9, 5000), [1]);
        assert_eq!(batch(&queue, 9, 1 << 20), [1, 2]);
        (1..=3).for_each(|seq| drop(queue.settle(seq)));
        assert_eq!(batch(&queue, 9, 1), [4], "one is always sent");
    }

    #[test]
    fn what_is_of_one_file_is_not_parted_by_the_number_of_records() {
        let of = [(1, 7), (2, 8), (4, 8), (5, 8), (6, 9)];
        let queue = queue(of.map(|(seq, ino)| chmod(seq, ino)));
        assert_eq!(seqs(queue.batch(1, 999)), [1]);
        assert_eq!(seqs(queue.batch(2, 999)), [1, 2, 4, 5]);
        let before = |logged: &Logged| if logged.seq < 5 { Fit::Takes(0) } else { Fit::Ends };
        assert_eq!(seqs(queue.batch_of(Lane::Metadata, 2, 999, before)), [1, 2, 4]);
    }

    #[test]
    fn the_lanes_part_when_there_is_bulk() {
        let mut bulk = store_of(2, 2, 1);
        let Change::Data(data) = &mut bulk.change else { panic!("data") };
        data.ranges = vec![0..INLINE_MAX as u64 + 1];
        let mut queue = queue([chmod(1, 1), bulk, chmod(3, 2), store(4, 1), chmod(5, 5)]);
        let lane = |queue: &Queue, lane| seqs(queue.batch_of(lane, 99, 1 << 20, |_| Fit::Takes(0)));
        assert_eq!(lane(&queue, Lane::Metadata), [1, 5]);
        assert_eq!(lane(&queue, Lane::Data), [2, 3, 4]);
        queue.takes(2);
        assert_eq!((queue.stage(2), lane(&queue, Lane::Data)), (Some(Stage::Taken), vec![4]));
        queue.all_are_back();
        assert_eq!(lane(&queue, Lane::Data), [2, 3, 4]);
        queue.settle(2);
        assert_eq!(lane(&queue, Lane::Metadata), [1, 3, 4, 5]);
        assert!(lane(&queue, Lane::Data).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_kept_says_what_looking_at_all_of_it_would(
            changes in prop::collection::vec((1u64..3, 1u64..9, 0u64..40, any::<bool>()), 0..60),
            settled in 0usize..60,
            through in 0u64..130,
        ) {
            let mut seq = 0;
            let changes: Vec<Logged> = changes.into_iter().map(|(gap, ino, ranges, is_data)| {
                seq += gap;
                if is_data { store_of(seq, ino, ranges) } else { chmod(seq, ino) }
            }).collect();
            let mut queue = queue(changes.clone());
            let settled = settled.min(changes.len());
            for logged in changes.iter().take(settled) {
                prop_assert_eq!(queue.settle(logged.seq), Some(logged.clone()));
            }
            let left = &changes[settled..];
            let bytes = |of: &[Logged]| of.iter().map(|logged| logged.change.bytes()).sum::<u64>();
            let upto: Vec<Logged> =
                left.iter().filter(|logged| logged.seq <= through).cloned().collect();
            prop_assert_eq!(queue.len(), left.len());
            prop_assert_eq!(queue.bytes(), bytes(left));
            let expected = (upto.len() as u64, bytes(&upto));
            prop_assert_eq!(queue.up_to(through), expected);
            prop_assert_eq!(queue.among(&(0..=through).collect()), expected);
            for ino in (0..10).map(Ino) {
                let of: Vec<&Logged> =
                    left.iter().filter(|logged| logged.change.ino() == ino).collect();
                let newest = of.last().map(|logged| logged.seq);
                prop_assert_eq!(queue.newest_of(ino), newest);
                let has_data = of.iter().any(|logged| matches!(logged.change, Change::Data(_)));
                prop_assert_eq!(queue.has_data(ino), has_data);
            }
            let from = queue.iter_from(through + 1).count();
            prop_assert_eq!(from, left.len() - upto.len());
        }
    }
}
