//! What stands in the log file, and what a log file that was left behind means.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Base, Change, DataChange, Logged, Piece, Record, Store};
use crate::cache::FileData;
use crate::types::{Caller, Ino, Timestamp, Version};

/// One entry of the log file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A change for the server.
    Change(Logged),
    /// Bytes went into the container of a file and belong to its next store.
    Written {
        /// The file.
        ino: Ino,
        /// Data version that the file's base has, unless it is a pending change's result.
        base: Base,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// Size of the file before.
        old_size: u64,
        /// When.
        time: Timestamp,
    },
    /// A file was made shorter or longer, which belongs to its next store.
    Resized {
        /// The file.
        ino: Ino,
        /// As in `Written`.
        base: Base,
        /// Size of the file before.
        old_size: u64,
        /// Size after.
        size: u64,
        /// When.
        time: Timestamp,
    },
    /// The oldest change is settled.
    Settled {
        /// Its seq.
        seq: u64,
    },
    /// `Written` or `Resized` of an open file that has no name on any host: it goes with this
    /// process, and so does what was written before and is not stored.
    Nameless(Box<Entry>),
}

impl Entry {
    /// The change for the server that this is.
    pub fn change(&self) -> Option<&Logged> {
        match self {
            Entry::Change(logged) => Some(logged),
            _ => None,
        }
    }

    /// The file whose data that are not stored yet go nowhere, if this entry means that.
    /// `Release` is logged at the last close, behind the seal of whatever must be stored.
    fn abandoned(&self) -> Option<Ino> {
        match self {
            Entry::Nameless(entry) => match **entry {
                Entry::Written { ino, .. } | Entry::Resized { ino, .. } => Some(ino),
                _ => None,
            },
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
    /// The highest seq seen.
    pub newest_seq: u64,
}

struct Written {
    data: FileData,
    base: Base,
    size: u64,
    time: Timestamp,
}

/// What the entries of a log file leave to be done.
pub fn replay(entries: impl IntoIterator<Item = Entry>) -> Leftover {
    let mut changes: BTreeMap<u64, Logged> = BTreeMap::new();
    let mut unsealed: BTreeMap<Ino, Written> = BTreeMap::new();
    let mut newest_seq = 0;
    let open = |base, old_size| Written {
        data: FileData::new(Version::default()),
        base,
        size: old_size,
        time: Timestamp::default(),
    };
    for entry in entries {
        entry.abandoned().and_then(|ino| unsealed.remove(&ino));
        match entry {
            Entry::Change(logged) => {
                newest_seq = newest_seq.max(logged.seq);
                if let Change::Data(data) = &logged.change {
                    unsealed.remove(&data.ino);
                }
                changes.insert(logged.seq, logged);
            }
            Entry::Written { ino, base, offset, len, old_size, time } => {
                let file = unsealed.entry(ino).or_insert_with(|| open(base, old_size));
                file.data.write(offset..offset + len, file.size);
                file.size = file.size.max(offset + len);
                file.time = time;
            }
            Entry::Resized { ino, base, old_size, size, time } => {
                let file = unsealed.entry(ino).or_insert_with(|| open(base, old_size));
                file.data.truncate(size, file.size);
                file.size = size;
                file.time = time;
            }
            Entry::Settled { seq } => {
                changes.remove(&seq);
            }
            Entry::Nameless(_) => {}
        }
    }
    let unsealed = unsealed
        .into_iter()
        .filter_map(|(ino, file)| {
            let unsealed = file.data.unsealed()?;
            Some(DataChange {
                ino,
                base: file.base,
                cut: unsealed.cut,
                size: file.size,
                ranges: unsealed.ranges,
                mtime: file.time,
            })
        })
        .collect();
    Leftover { changes: changes.into_values().collect(), unsealed, newest_seq }
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
        Logged { seq, time: self.mtime, caller, operation: None, change: Change::Data(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ino: u64) -> Entry {
        Entry::Written {
            ino: Ino(ino),
            base: Base::Version(Version::default()),
            offset: 0,
            len: 5,
            old_size: 0,
            time: Timestamp::default(),
        }
    }

    fn change(seq: u64, record: Record) -> Entry {
        let (time, caller) = (Timestamp::default(), Caller::default());
        Entry::Change(Logged { seq, time, caller, operation: None, change: Change::Record(record) })
    }

    /// Another host may have given it a name that this one did not know of.
    #[test]
    fn what_was_written_to_a_file_that_lost_its_last_known_name_is_stored() {
        let (parent, name) = (Ino::ROOT, crate::types::Name::new("f").unwrap());
        let unlink = change(1, Record::Unlink { parent, name, ino: Ino(9), open: true });
        let leftover = replay([written(9), unlink]);
        assert_eq!((leftover.changes.len(), leftover.unsealed.len()), (1, 1));
    }

    #[test]
    fn what_was_written_to_a_file_without_any_name_is_not_stored() {
        let nameless = Entry::Nameless(Box::new(written(9)));
        assert!(replay([written(9), nameless.clone(), nameless]).unsealed.is_empty());
        let release = change(1, Record::Release { ino: Ino(9) });
        let leftover = replay([written(8), written(9), release]);
        assert_eq!(leftover.unsealed.iter().map(|data| data.ino).collect::<Vec<_>>(), [Ino(8)]);
    }

    #[test]
    fn what_was_written_and_not_stored_is_stored_after_the_rest() {
        let base = Base::Version(Version { epoch: 1, counter: 4 });
        let time = Timestamp { secs: 5, nanos: 0 };
        let written = |offset, len, old_size| Entry::Written {
            ino: Ino(9),
            base,
            offset,
            len,
            old_size,
            time,
        };
        let first =
            DataChange { ino: Ino(9), base, cut: None, size: 10, ranges: vec![0..10], mtime: time };
        let leftover = replay([
            written(0, 10, 0),
            Entry::Change(first.logged(3, Caller::default())),
            Entry::Settled { seq: 3 },
            written(10, 10, 10),
            Entry::Resized { ino: Ino(9), base, old_size: 20, size: 15, time },
        ]);
        assert!(leftover.changes.is_empty());
        assert_eq!(leftover.newest_seq, 3);
        let [left] = leftover.unsealed.as_slice() else { panic!("one file") };
        assert_eq!(left.ranges, [10..15]);
        assert_eq!((left.cut, left.size), (Some(15), 15));
    }
}
