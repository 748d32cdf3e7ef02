//! What stands in the log file, and what a log file that was left behind means.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{After, Base, Change, DataChange, Logged, Outcome, Piece, Record, Store};
use crate::cache::{ContainerId, FileData, RangeSet};
use crate::types::{Caller, Ino, Timestamp, Version};

/// One entry of the log file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A change for the server.
    Change(Logged),
    /// Bytes go into the container of a file and belong to its next store.
    Written {
        /// Which file, and where.
        place: Place,
        /// First byte.
        offset: u64,
        /// What.
        data: Payload,
    },
    /// A file was made shorter or longer, which belongs to its next store.
    Resized {
        /// Which file; the container is the one that it has afterwards.
        place: Place,
        /// Size after.
        size: u64,
    },
    /// Bytes of a change that is on its way are about to be overwritten in the container: they are
    /// in the change's own file from here on.
    Preserved {
        /// The change.
        seq: u64,
        /// Where they stand in the file.
        range: Range<u64>,
        /// As in [`Payload::Summed`].
        sums: Vec<u32>,
    },
    /// The oldest change is settled.
    Settled {
        /// Its seq.
        seq: u64,
        /// What became of it.
        outcome: Box<Outcome>,
    },
    /// All data of which the log speaks were durable up to some place before this.
    Synced,
    /// `Written` or `Resized` of an open file that has no name on any host: it goes with this
    /// process, and so does what was written before and is not stored.
    Nameless(Box<Entry>),
    /// A change of a container failed on its way, and is no entry: of what is clean there nothing is
    /// valid.
    Spoiled {
        /// The file.
        ino: Ino,
        /// Where its bytes are.
        container: ContainerId,
        /// What stands there.
        range: Range<u64>,
    },
}

/// Which data are changed, and how they were before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The file.
    pub ino: Ino,
    /// Where its bytes are.
    pub container: ContainerId,
    /// Data version that the file's base has, unless it is a pending change's result.
    pub base: Base,
    /// Size of the file before.
    pub old_size: u64,
    /// When.
    pub time: Timestamp,
}

/// Written bytes, as the log has them: enough to write them again, or to tell whether they are
/// in the container after a loss of power.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Payload {
    /// Less than [`INLINE_MAX`](super::INLINE_MAX), or written over what is nowhere else: the bytes
    /// themselves.
    Inline(#[serde(with = "super::record::bytes_as_slice")] Vec<u8>),
    /// A checksum (CRC-32C) of each block of [`SUM_BLOCK`] bytes of the file, as far as it was
    /// written.
    Summed {
        /// How many bytes.
        len: u64,
        /// The checksums.
        sums: Vec<u32>,
    },
    /// Zeros that need no room.
    Zeros {
        /// How many.
        len: u64,
    },
    /// They were durable when this was logged.
    Durable {
        /// How many bytes.
        len: u64,
    },
}

/// Blocks of which a checksum is logged, at multiples of this in the file.
pub const SUM_BLOCK: u64 = 4096;

impl Payload {
    /// How many bytes.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Summed { len, .. } | Payload::Zeros { len } | Payload::Durable { len } => *len,
        }
    }

    /// True for nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entry {
    /// The change for the server that this is.
    pub fn change(&self) -> Option<&Logged> {
        match self {
            Entry::Change(logged) => Some(logged),
            _ => None,
        }
    }

    /// The file of which it says something about data.
    pub fn file(&self) -> Option<Ino> {
        match self {
            Entry::Spoiled { ino, .. } => Some(*ino),
            entry => entry.place().map(|place| place.ino),
        }
    }

    /// The data that it is about, if it changes a container.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Entry::Written { place, .. } | Entry::Resized { place, .. } => Some(place),
            Entry::Nameless(entry) => entry.place(),
            _ => None,
        }
    }

    /// The file whose data that are not stored yet go nowhere, if this entry means that.
    /// `Release` is logged at the last close, behind the seal of whatever must be stored.
    fn abandoned(&self) -> Option<Ino> {
        match self {
            Entry::Nameless(entry) => entry.place().map(|place| place.ino),
            Entry::Change(Logged { change: Change::Record(Record::Release { ino }), .. }) => {
                Some(*ino)
            }
            _ => None,
        }
    }
}

/// What an earlier life of the client left undone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftover {
    /// Changes that are not settled, in order.
    pub changes: Vec<Logged>,
    /// Files that were written and not stored, to be stored after `changes`.
    pub unsealed: Vec<DataChange>,
    /// Which bytes of `changes` are in files of their own.
    pub preserved: BTreeMap<u64, RangeSet>,
    /// The highest seq seen.
    pub newest_seq: u64,
}

struct Written {
    data: FileData,
    base: Base,
    size: u64,
    time: Timestamp,
}

impl Written {
    fn on(place: &Place) -> Written {
        Written {
            data: FileData::new(Version::default(), place.container),
            base: place.base,
            size: place.old_size,
            time: Timestamp::default(),
        }
    }
}

/// What the entries of a log file leave to be done.
pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Leftover {
    let mut left = Leftover::default();
    let mut changes: BTreeMap<u64, Logged> = BTreeMap::new();
    let mut unsealed: BTreeMap<Ino, Written> = BTreeMap::new();
    for entry in entries {
        entry.abandoned().and_then(|ino| unsealed.remove(&ino));
        match entry {
            Entry::Change(logged) => {
                left.newest_seq = left.newest_seq.max(logged.seq);
                if let Change::Data(data) = &logged.change {
                    unsealed.remove(&data.ino);
                }
                changes.insert(logged.seq, logged.clone());
            }
            Entry::Written { place, offset, data } => {
                let file = unsealed.entry(place.ino).or_insert_with(|| Written::on(place));
                let range = *offset..offset.saturating_add(data.len());
                file.size = file.size.max(range.end);
                file.data.write(range, place.old_size);
                file.time = place.time;
            }
            Entry::Resized { place, size } => {
                let file = unsealed.entry(place.ino).or_insert_with(|| Written::on(place));
                file.data.truncate(*size, place.old_size);
                file.data.moves_to(place.container);
                file.size = *size;
                file.time = place.time;
            }
            Entry::Preserved { seq, range, .. } => {
                left.preserved.entry(*seq).or_default().insert(range.clone());
            }
            Entry::Settled { seq, outcome } => {
                let settled = changes.remove(seq);
                left.preserved.remove(seq);
                // This host removed its last name, and nobody has it open any more.
                if let Some(ino) = settled.and_then(|logged| logged.change.unnamed())
                    && unsealed.contains_key(&ino)
                    && outcome.leaves_nameless(ino)
                    && !changes.values().any(|logged| logged.change.names(ino))
                {
                    unsealed.remove(&ino);
                }
            }
            Entry::Synced | Entry::Nameless(_) | Entry::Spoiled { .. } => {}
        }
    }
    let data_change = |(ino, file): (Ino, Written)| {
        let unsealed = file.data.unsealed()?;
        Some(DataChange {
            ino,
            container: file.data.container(),
            base: file.base,
            cut: unsealed.cut,
            size: file.size,
            ranges: unsealed.ranges,
            mtime: file.time,
        })
    };
    left.unsealed = unsealed.into_iter().filter_map(data_change).collect();
    left.changes = changes.into_values().collect();
    left
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Base = Base::Version(Version { epoch: 1, counter: 4 });
    const TIME: Timestamp = Timestamp { secs: 5, nanos: 0 };

    fn place(ino: u64, old_size: u64) -> Place {
        Place { ino: Ino(ino), container: ContainerId(7), base: BASE, old_size, time: TIME }
    }

    fn written(ino: u64, range: Range<u64>, old_size: u64) -> Entry {
        let data = Payload::Durable { len: range.end - range.start };
        Entry::Written { place: place(ino, old_size), offset: range.start, data }
    }

    fn change(seq: u64, record: Record) -> Entry {
        let (time, caller) = (Timestamp::default(), Caller::default());
        let change = Change::Record(record);
        Entry::Change(Logged {
            seq,
            time,
            caller,
            operation: None,
            after: After::Nothing,
            known: None,
            change,
        })
    }

    /// Another host may have given it a name that this one did not know of.
    #[test]
    fn what_was_written_to_a_file_that_lost_its_last_known_name_is_stored() {
        let (parent, name) = (Ino::ROOT, crate::types::Name::new("f").unwrap());
        let unlink = change(1, Record::Unlink { parent, name, ino: Ino(9), open: true });
        let leftover = replay(&[written(9, 0..5, 0), unlink]);
        assert_eq!((leftover.changes.len(), leftover.unsealed.len()), (1, 1));
    }

    #[test]
    fn what_was_written_to_a_file_without_any_name_is_not_stored() {
        let nameless = Entry::Nameless(Box::new(written(9, 0..5, 0)));
        let entries = [written(9, 0..5, 0), nameless.clone(), nameless];
        assert!(replay(&entries).unsealed.is_empty());
        let release = change(1, Record::Release { ino: Ino(9) });
        let leftover = replay(&[written(8, 0..5, 0), written(9, 0..5, 0), release]);
        assert_eq!(leftover.unsealed.iter().map(|data| data.ino).collect::<Vec<_>>(), [Ino(8)]);
    }

    #[test]
    fn what_was_written_and_not_stored_is_stored_after_the_rest() {
        let first = DataChange {
            ino: Ino(9),
            container: ContainerId(7),
            base: BASE,
            cut: None,
            size: 10,
            ranges: vec![0..10],
            mtime: TIME,
        };
        let (done, preserved) = (Outcome::Done { touched: Vec::new() }, vec![1]);
        let leftover = replay(&[
            written(9, 0..10, 0),
            Entry::Change(first.logged(3, Caller::default())),
            Entry::Preserved { seq: 3, range: 0..4, sums: preserved },
            Entry::Settled { seq: 3, outcome: Box::new(done) },
            written(9, 10..20, 10),
            Entry::Resized { place: place(9, 20), size: 15 },
        ]);
        assert!(leftover.changes.is_empty() && leftover.preserved.is_empty());
        assert_eq!(leftover.newest_seq, 3);
        let [left] = leftover.unsealed.as_slice() else { panic!("one file") };
        assert_eq!(left.ranges, [10..15]);
        assert_eq!((left.cut, left.size, left.container), (Some(15), 15, ContainerId(7)));
    }
}
