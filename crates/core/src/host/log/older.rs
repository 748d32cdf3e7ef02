//! Entries as logs of version 3 have them: each way to replace changes was an entry of its own.

use std::ops::Range;

use serde::Deserialize;

use super::{DataChange, Entry, Instead, Logged, Payload, Replaced, WritePlace};
use crate::nouns::{ContainerId, Ino, Outcome, Timestamp};

/// One entry of such a log. Which is which is said by the order here.
#[derive(Debug, Deserialize)]
pub enum Entry3 {
    /// [`Entry::Change`].
    Change(Logged),
    /// [`Entry::Written`].
    Written {
        /// As there.
        place: WritePlace,
        /// As there.
        offset: u64,
        /// As there.
        data: Payload,
    },
    /// [`Entry::Resized`].
    Resized {
        /// As there.
        place: WritePlace,
        /// As there.
        size: u64,
    },
    /// [`Entry::Preserved`].
    Preserved {
        /// As there.
        seq: u64,
        /// As there.
        range: Range<u64>,
        /// As there.
        sums: Vec<u32>,
    },
    /// [`Entry::Settled`].
    Settled {
        /// As there.
        seq: u64,
        /// As there.
        outcome: Box<Outcome>,
    },
    /// [`Entry::Synced`].
    Synced,
    /// [`Entry::Nameless`].
    Nameless(Box<Entry3>),
    /// [`Entry::Spoiled`].
    Spoiled {
        /// As there.
        ino: Ino,
        /// As there.
        container: ContainerId,
        /// As there.
        range: Range<u64>,
    },
    /// Change `seq` has what was written since, too.
    Amended {
        /// The change.
        seq: u64,
        /// When the file was changed last.
        time: Timestamp,
        /// What was written.
        data: DataChange,
    },
    /// The data of change `seq` are not sealed any more.
    Unsealed {
        /// The change.
        seq: u64,
    },
    /// These changes made an inode and removed its last name.
    Cancelled {
        /// The inode.
        ino: Ino,
        /// The changes.
        seqs: Vec<u64>,
    },
    /// These changes made a file that another one was renamed over.
    Superseded {
        /// The file.
        ino: Ino,
        /// The changes.
        seqs: Vec<u64>,
        /// The rename.
        by: Box<Logged>,
    },
}

impl From<Entry3> for Entry {
    fn from(entry: Entry3) -> Entry {
        let replaced = |seqs, by| Entry::Replaced(Replaced { seqs, by });
        match entry {
            Entry3::Change(logged) => Entry::Change(logged),
            Entry3::Written { place, offset, data } => Entry::Written { place, offset, data },
            Entry3::Resized { place, size } => Entry::Resized { place, size },
            Entry3::Preserved { seq, range, sums } => Entry::Preserved { seq, range, sums },
            Entry3::Settled { seq, outcome } => Entry::Settled { seq, outcome },
            Entry3::Synced => Entry::Synced,
            Entry3::Nameless(entry) => Entry::Nameless(Box::new(Entry::from(*entry))),
            Entry3::Spoiled { ino, container, range } => Entry::Spoiled { ino, container, range },
            Entry3::Amended { seq, time, data } => {
                replaced(vec![seq], Instead::More { time, data })
            }
            Entry3::Unsealed { seq } => replaced(vec![seq], Instead::Unsealed),
            Entry3::Cancelled { ino, seqs } => replaced(seqs, Instead::Nothing(ino)),
            Entry3::Superseded { ino, seqs, by } => replaced(seqs, Instead::Rename(ino, by)),
        }
    }
}
