//! A change of the update log: what it is, and what it follows whatever it is about.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::host::cache::RANGES_MAX;
use crate::nouns::{
    Base, Caller, Class, ContainerId, Ino, Name, Outcome, Piece, RangeSet, Record, RenameMode,
    Stamped, Store, Timestamp, Touched, touched,
};

/// What a record takes in a message with its names and its caller, about.
const RECORD_BYTES: u64 = 160;
/// What a range takes there, as a chunk.
const RANGE_BYTES: u64 = 48;

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

impl DataChange {
    /// The store that brings this change as `pieces`, which are everything that is not zeros
    /// behind `cut` if that is 0, as in a store that the server wants whole.
    pub fn store(&self, pieces: Vec<Piece>, cut: Option<u64>) -> Store {
        let covered: u64 = pieces.iter().map(Piece::len).sum();
        Store {
            ino: self.ino,
            base: self.base,
            cut,
            size: self.size,
            pieces,
            mtime: Some(self.mtime),
            whole: cut == Some(0) || covered == self.size,
        }
    }

    /// The change as logged at `seq`.
    pub fn logged(self, seq: u64, caller: Caller) -> Logged {
        let (time, change) = (self.mtime, Change::Data(self));
        Logged { seq, time, caller, operation: None, after: After::Nothing, known: None, change }
    }

    /// Both in one, `later` being made on this one. `None` if that would be too many ranges for one
    /// change, or the bytes of this one that stay are not where those of `later` are.
    pub fn with(&self, later: &DataChange) -> Option<DataChange> {
        let mut ranges: RangeSet = self.ranges.iter().cloned().collect();
        if let Some(cut) = later.cut {
            ranges.remove(cut..u64::MAX);
        }
        if !ranges.is_empty() && self.container != later.container {
            return None;
        }
        later.ranges.iter().cloned().for_each(|range| ranges.insert(range));
        let cut = self.cut.into_iter().chain(later.cut).min();
        let both =
            DataChange { ranges: ranges.iter().collect(), base: self.base, cut, ..later.clone() };
        (ranges.len() <= RANGES_MAX).then_some(both)
    }

    /// Takes what it changes out of `bytes`.
    pub fn overwrites(&self, bytes: &mut RangeSet) {
        self.ranges.iter().cloned().for_each(|range| bytes.remove(range));
        if let Some(cut) = self.cut {
            bytes.remove(cut..u64::MAX);
        }
    }
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

    /// What it touches.
    pub fn touched(&self) -> Touched {
        match self {
            Change::Record(record) => touched(record),
            Change::Data(data) => Touched { inodes: vec![data.ino], names: Vec::new() },
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
            Change::Record(record) => crate::nouns::touched(record).inodes,
            Change::Data(data) => vec![data.ino],
        }
    }

    /// The file that has a name less afterwards.
    pub fn unnamed(&self) -> Option<Ino> {
        if let Change::Record(record) = self { record.unnamed() } else { None }
    }

    /// The file that gets the name of `ino`, if one is renamed over it.
    pub fn replaced_by(&self, replaced: Ino) -> Option<Ino> {
        match self {
            Change::Record(Record::Rename { ino, mode: RenameMode::Replace(Some(by)), .. }) => {
                (*by == replaced).then_some(*ino)
            }
            _ => None,
        }
    }

    /// True if `ino` gets a further name.
    pub fn names(&self, ino: Ino) -> bool {
        matches!(self, Change::Record(Record::Link { ino: to, .. }) if *to == ino)
    }

    /// Bytes of file data.
    pub fn bytes(&self) -> u64 {
        match self {
            Change::Record(_) => 0,
            Change::Data(data) => data.ranges.iter().map(|range| range.end - range.start).sum(),
        }
    }

    /// Ranges of file data.
    pub(super) fn ranges(&self) -> usize {
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
    /// What it has to follow because of a sync between them.
    pub after: After,
    /// What was known of data when it was made: [`Stamped::known`](super::Stamped::known).
    #[serde(default)]
    pub known: Option<Base>,
    /// What.
    pub change: Change,
}

impl Logged {
    /// The change as it is sent, if it is a record or its store is known.
    pub fn stamped(&self, store: Option<Store>) -> Option<Stamped> {
        let record = match &self.change {
            Change::Record(record) => record.clone(),
            Change::Data(_) => Record::Store(store?),
        };
        let Logged { seq, time, operation, known, .. } = *self;
        let caller = self.caller.clone();
        Some(Stamped { seq, time, caller, operation, known, record })
    }

    /// True of a store that a loss of power may have made outdated: a later change of its file may
    /// have been sent, and lost with the end of the log.
    pub(crate) fn may_be_outdated(&self) -> bool {
        matches!(self.change, Change::Data(_)) && self.known.is_some()
    }

    /// Makes `later`, which was written at `time`, part of it; its data before, if it can be.
    pub(crate) fn amend(&mut self, time: Timestamp, later: &DataChange) -> Option<DataChange> {
        let Change::Data(data) = &mut self.change else { return None };
        let both = data.with(later)?;
        self.time = time;
        Some(std::mem::replace(data, both))
    }

    /// The number of another inode, if the change made a new one that got another number.
    pub fn mistaken(&self, outcome: &Outcome) -> Option<Ino> {
        match (&self.change, outcome) {
            (Change::Record(Record::Create { ino, .. }), Outcome::Conflict { copy, .. }) => {
                (ino != copy).then_some(*ino)
            }
            _ => None,
        }
    }

    /// Where the conflict copy stands that the change became; `None` also for a new file that has
    /// its place and another number.
    pub fn copy_of<'a>(&self, outcome: &'a Outcome) -> Option<(Ino, &'a Name)> {
        let Outcome::Conflict { parent, name, copy, .. } = outcome else { return None };
        let has_its_name = match &self.change {
            Change::Record(Record::Create { name: wanted, ino, .. }) => {
                name == wanted && copy != ino
            }
            _ => false,
        };
        (!has_its_name).then_some((*parent, name))
    }
}

/// Which earlier changes a change follows, whatever they are about.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum After {
    /// None.
    #[default]
    Nothing,
    /// These, as far as they are not settled, and so what they follow themselves.
    These(Vec<u64>),
    /// All: what an earlier process left, of which nobody knows what was synced before it.
    Everything,
}

impl After {
    /// All of these.
    pub fn these(seqs: impl IntoIterator<Item = u64>) -> After {
        let seqs: Vec<u64> = seqs.into_iter().collect();
        if seqs.is_empty() { After::Nothing } else { After::These(seqs) }
    }

    /// What was to be followed by way of one of these is not known any more: everything is.
    pub(crate) fn forget(&mut self, cancelled: &BTreeSet<u64>) {
        if matches!(self, After::These(seqs) if seqs.iter().any(|seq| cancelled.contains(seq))) {
            *self = After::Everything;
        }
    }
}
