//! What is logged and not committed, in the order of the log.
//!
//! The server gets it in this order, a batch at a time. (Parallel queues under the order rule
//! of DESIGN.md section 8 come with write-back.)

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Base, Record};
use crate::cache::ContainerId;
use crate::types::{Caller, Class, Ino, Time, Timestamp};

/// Ranges of one batch: their pieces have to fit into one message.
const BATCH_RANGES: usize = 8192;
/// What a record takes in a message with its names and its caller, about.
const RECORD_BYTES: u64 = 160;
/// What a range takes there, as a chunk.
const RANGE_BYTES: u64 = 48;
/// More changes than that of one file do not make a batch longer than was asked.
const TOGETHER_MAX: usize = 16;

/// Data of a file that were changed here, by reference: the bytes are in its container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataChange {
    /// The file.
    pub ino: Ino,
    /// Where its bytes are.
    pub container: ContainerId,
    /// What was changed.
    pub base: Base,
    /// Smallest size since.
    pub cut: Option<u64>,
    /// Size now.
    pub size: u64,
    /// Ranges written since.
    pub ranges: Vec<Range<u64>>,
    /// Time of the last change.
    pub mtime: Timestamp,
}

/// One change of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Goes to the server as it is.
    Record(Record),
    /// Becomes a store once its bytes are read.
    Data(DataChange),
}

impl Change {
    /// A word for `segue log`.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::Record(record) => record.kind(),
            Change::Data(_) => "store",
        }
    }

    /// The inode it is about.
    pub fn ino(&self) -> Ino {
        match self {
            Change::Record(record) => record.ino(),
            Change::Data(data) => data.ino,
        }
    }

    /// About how many bytes of a message it takes, without what a store refers to.
    pub fn weight(&self) -> u64 {
        match self {
            Change::Record(record) => RECORD_BYTES + record.payload() as u64,
            Change::Data(data) => RECORD_BYTES + RANGE_BYTES * data.ranges.len() as u64,
        }
    }

    /// The inodes that it touches.
    pub fn inodes(&self) -> Vec<Ino> {
        match self {
            Change::Record(record) => crate::cache::touched(record).inodes,
            Change::Data(data) => vec![data.ino],
        }
    }

    /// Bytes of file data.
    pub fn bytes(&self) -> u64 {
        match self {
            Change::Record(_) => 0,
            Change::Data(data) => data.ranges.iter().map(|range| range.end - range.start).sum(),
        }
    }

    /// Ranges of file data.
    fn ranges(&self) -> usize {
        match self {
            Change::Record(_) => 0,
            Change::Data(data) => data.ranges.len(),
        }
    }

    /// The class at which it goes.
    pub fn class(&self) -> Class {
        match self {
            Change::Record(_) => Class::StoreAttr,
            Change::Data(_) => Class::StoreData,
        }
    }
}

/// A change with its place in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Logged {
    /// Place in the log.
    pub seq: u64,
    /// When it was made.
    pub time: Timestamp,
    /// By whom.
    pub caller: Caller,
    /// The operation it belongs to, when operations are shipped [OPS 3].
    pub operation: Option<u64>,
    /// What.
    pub change: Change,
}

/// A change that waits.
#[derive(Clone, Debug)]
struct Item {
    logged: Logged,
    at: Time,
    /// Bytes of file data in everything that was added before it.
    before: u64,
    /// When it was first sent: its outcome may be as old as that.
    sent: Option<Time>,
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

/// Uncommitted changes, oldest first.
///
/// There may be hundreds of thousands, after a day without a network: nothing here looks at all
/// of them but [`Queue::iter`].
#[derive(Clone, Debug, Default)]
pub struct Queue {
    items: VecDeque<Item>,
    /// Bytes of file data in everything that was ever added. Differences of it are sums.
    added: u64,
    waiting: BTreeMap<Ino, Waiting>,
}

impl Queue {
    /// Adds the newest change.
    pub fn push(&mut self, logged: Logged, now: Time) {
        assert!(self.newest_seq().is_none_or(|newest| newest < logged.seq), "log order");
        for ino in logged.change.inodes() {
            let waiting = self.waiting.entry(ino).or_default();
            waiting.changes += 1;
            waiting.newest = logged.seq;
            waiting.data += usize::from(matches!(logged.change, Change::Data(_)));
        }
        let before = self.added;
        self.added += logged.change.bytes();
        self.items.push_back(Item { logged, at: now, before, sent: None });
    }

    /// The oldest changes: at most `records`, and no further ones once `bytes`, or the ranges of
    /// one large change, are reached.
    pub fn batch(&self, records: usize, bytes: u64) -> Vec<Logged> {
        self.batch_of(records, bytes, |logged| Some(logged.change.bytes()))
    }

    /// The same, where `weigh` says what a change counts, or with `None` that the batch ends
    /// before it.
    ///
    /// What belongs to the same file as the last one goes along, so that others do not see the
    /// file in between.
    pub fn batch_of(
        &self,
        records: usize,
        bytes: u64,
        mut weigh: impl FnMut(&Logged) -> Option<u64>,
    ) -> Vec<Logged> {
        let (mut sum, mut ranges) = (0, 0);
        let mut batch: Vec<Logged> = Vec::new();
        for Item { logged, .. } in self.items.iter().take(records + TOGETHER_MAX) {
            let is_same = batch.last().is_some_and(|last| last.change.ino() == logged.change.ino());
            if batch.len() >= records && !is_same {
                break;
            }
            let Some(weight) = weigh(logged) else { break };
            sum += weight;
            ranges += logged.change.ranges();
            if !batch.is_empty() && (sum > bytes || ranges > BATCH_RANGES) {
                break;
            }
            batch.push(logged.clone());
        }
        batch
    }

    /// All up to seq `through` are about to be sent.
    pub fn sends(&mut self, through: u64, now: Time) {
        for item in self.items.iter_mut().take_while(|item| item.logged.seq <= through) {
            item.sent.get_or_insert(now);
        }
    }

    /// When the oldest change was first sent.
    pub fn oldest_sent(&self) -> Option<Time> {
        self.items.front()?.sent
    }

    /// Takes out the oldest change, which has seq `seq`: it is settled.
    pub fn settle(&mut self, seq: u64) -> Option<Logged> {
        if self.oldest_seq() != Some(seq) {
            return None;
        }
        let Item { logged, .. } = self.items.pop_front()?;
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
        self.items.front().map_or(0, |oldest| self.added - oldest.before)
    }

    /// Seq of the oldest change.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.items.front().map(|oldest| oldest.logged.seq)
    }

    /// When the oldest change was made.
    pub fn oldest(&self) -> Option<Time> {
        self.items.front().map(|oldest| oldest.at)
    }

    /// Seq of the newest change.
    pub fn newest_seq(&self) -> Option<u64> {
        self.items.back().map(|newest| newest.logged.seq)
    }

    /// Seq of the newest change that touches `ino`.
    pub fn newest_of(&self, ino: Ino) -> Option<u64> {
        self.waiting.get(&ino).map(|waiting| waiting.newest)
    }

    /// Seq of the newest change that touches one of `inodes`. It looks at each inode once.
    pub fn newest_among(&self, inodes: impl Fn(Ino) -> bool) -> Option<u64> {
        let among = self.waiting.iter().filter(|(ino, _)| inodes(**ino));
        among.map(|(_, waiting)| waiting.newest).max()
    }

    /// True if data of `ino` wait.
    pub fn has_data(&self, ino: Ino) -> bool {
        self.waiting.get(&ino).is_some_and(|waiting| waiting.data > 0)
    }

    /// Changes and bytes up to seq `through`.
    pub fn up_to(&self, through: u64) -> (u64, u64) {
        let count = self.items.partition_point(|item| item.logged.seq <= through);
        let end = self.items.get(count).map_or(self.added, |next| next.before);
        (count as u64, end - self.items.front().map_or(end, |oldest| oldest.before))
    }

    /// All of it with the moment each change was made.
    pub fn iter(&self) -> impl Iterator<Item = (&Logged, Time)> {
        self.items.iter().map(|item| (&item.logged, item.at))
    }

    /// What has a seq of at least `from`.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = &Logged> {
        let first = self.items.partition_point(|item| item.logged.seq < from);
        self.items.range(first..).map(|item| &item.logged)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::modlog::SetAttr;
    use crate::types::Version;

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
        changes.into_iter().for_each(|logged| queue.push(logged, Time::default()));
        queue
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
        assert_eq!(seqs(queue.batch_of(2, 999, |logged| (logged.seq < 5).then_some(0))), [1, 2, 4]);
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
            prop_assert_eq!(queue.up_to(through), (upto.len() as u64, bytes(&upto)));
            for ino in (0..10).map(Ino) {
                let of: Vec<&Logged> =
                    left.iter().filter(|logged| logged.change.ino() == ino).collect();
                let newest = of.last().map(|logged| logged.seq);
                prop_assert_eq!(queue.newest_of(ino), newest);
                prop_assert_eq!(queue.newest_among(|other| other == ino), newest);
                let has_data = of.iter().any(|logged| matches!(logged.change, Change::Data(_)));
                prop_assert_eq!(queue.has_data(ino), has_data);
            }
            let from = queue.iter_from(through + 1).count();
            prop_assert_eq!(from, left.len() - upto.len());
        }
    }
}
