//! What is logged and not committed, in the order of the log.
//!
//! The server gets it in this order, a batch at a time. (Parallel queues under the order rule
//! of DESIGN.md section 8 come with write-back.)

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Base, Record};
use crate::types::{Caller, Class, Ino, Time, Timestamp};

/// Ranges of one batch: their pieces have to fit into one message.
const BATCH_RANGES: usize = 8192;

/// Data of a file that were changed here, by reference: the bytes are in its container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataChange {
    /// The file.
    pub ino: Ino,
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

/// Uncommitted changes, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    items: VecDeque<(Logged, Time)>,
}

impl Queue {
    /// Adds the newest change.
    pub fn push(&mut self, logged: Logged, now: Time) {
        assert!(self.newest_seq().is_none_or(|newest| newest < logged.seq), "log order");
        self.items.push_back((logged, now));
    }

    /// The oldest changes: at most `records`, and no further ones once `bytes`, or the ranges of
    /// one large change, are reached.
    pub fn batch(&self, records: usize, bytes: u64) -> Vec<Logged> {
        let (mut sum, mut ranges) = (0, 0);
        let mut batch = Vec::new();
        for (logged, _) in self.items.iter().take(records) {
            sum += logged.change.bytes();
            ranges += logged.change.ranges();
            if !batch.is_empty() && (sum > bytes || ranges > BATCH_RANGES) {
                break;
            }
            batch.push(logged.clone());
        }
        batch
    }

    /// Takes out the oldest change, which has seq `seq`: it is settled.
    pub fn settle(&mut self, seq: u64) -> Option<Logged> {
        if self.items.front().is_none_or(|(logged, _)| logged.seq != seq) {
            return None;
        }
        self.items.pop_front().map(|(logged, _)| logged)
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
        self.items.iter().map(|(logged, _)| logged.change.bytes()).sum()
    }

    /// Seq of the oldest change.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.items.front().map(|(logged, _)| logged.seq)
    }

    /// Seq of the newest change.
    pub fn newest_seq(&self) -> Option<u64> {
        self.items.back().map(|(logged, _)| logged.seq)
    }

    /// Seq of the newest change that touches one of `inodes`.
    pub fn newest_of(&self, inodes: &dyn Fn(Ino) -> bool) -> Option<u64> {
        let touches = |logged: &Logged| match &logged.change {
            Change::Data(data) => inodes(data.ino),
            Change::Record(record) => crate::cache::touched(record).inodes.into_iter().any(inodes),
        };
        self.items.iter().rev().find(|(logged, _)| touches(logged)).map(|(logged, _)| logged.seq)
    }

    /// Changes and bytes up to seq `through`.
    pub fn up_to(&self, through: u64) -> (u64, u64) {
        let upto = self.items.iter().take_while(|(logged, _)| logged.seq <= through);
        upto.fold((0, 0), |(n, bytes), (logged, _)| (n + 1, bytes + logged.change.bytes()))
    }

    /// All of it with the moment each change was made.
    pub fn iter(&self) -> impl Iterator<Item = (&Logged, Time)> {
        self.items.iter().map(|(logged, at)| (logged, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Version;

    fn store(seq: u64, ranges: u64) -> Logged {
        let data = DataChange {
            ino: Ino(seq),
            base: Base::Version(Version::default()),
            cut: None,
            size: 2 * ranges,
            ranges: (0..ranges).map(|n| 2 * n..2 * n + 1).collect(),
            mtime: Timestamp::default(),
        };
        data.logged(seq, Caller::default())
    }

    #[test]
    fn a_batch_ends_with_its_records_its_bytes_or_its_ranges() {
        let mut queue = Queue::default();
        let ranges = [4096, 4096, 1, 9000, 9000];
        (1..).zip(ranges).for_each(|(seq, n)| queue.push(store(seq, n), Time::default()));
        let seqs = |queue: &Queue, records, bytes| {
            let batch = queue.batch(records, bytes);
            batch.iter().map(|logged| logged.seq).collect::<Vec<_>>()
        };
        assert_eq!(seqs(&queue, 1, 1 << 20), [1]);
        assert_eq!(seqs(&queue, 9, 5000), [1]);
        assert_eq!(seqs(&queue, 9, 1 << 20), [1, 2]);
        (1..=3).for_each(|seq| drop(queue.settle(seq)));
        assert_eq!(seqs(&queue, 9, 1), [4], "one is always sent");
    }
}
