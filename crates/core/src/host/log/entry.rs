//! What stands in the log file.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Change, DataChange, Logged};
use crate::nouns::{Base, ContainerId, Ino, Outcome, Record, Timestamp};
use crate::wire::History;

/// One entry of the log file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A change for the server.
    Change(Logged),
    /// Bytes go into the container of a file and belong to its next store.
    Written {
        /// Which file, and where.
        place: WritePlace,
        /// First byte.
        offset: u64,
        /// What.
        data: Payload,
    },
    /// A file was made shorter or longer, which belongs to its next store.
    Resized {
        /// Which file; the container is the one that it has afterwards.
        place: WritePlace,
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
    /// A change of a container failed on its way, and is no entry: of what is clean there nothing
    /// is valid.
    Spoiled {
        /// The file.
        ino: Ino,
        /// Where its bytes are.
        container: ContainerId,
        /// What stands there.
        range: Range<u64>,
    },
    /// Pending changes are not sent as they are.
    Replaced(Replaced),
    /// The server was put back from a copy and has these versions: entries before this may tell of
    /// others, which nobody has.
    Forgot(History),
}

/// Pending changes that are replaced, by one change or by nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replaced {
    /// Their seqs, ascending.
    pub seqs: Vec<u64>,
    /// What stands for them.
    pub by: Instead,
}

/// What stands for replaced changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Instead {
    /// The same change of data, and what was written to its file since.
    More {
        /// When the file was changed last.
        time: Timestamp,
        /// What was written, as if it were a change by itself.
        data: DataChange,
    },
    /// Data that count as written and not sealed again.
    Unsealed,
    /// Nothing: they made this inode and removed its last name, or were earlier times of its
    /// directories.
    Nothing(Ino),
    /// A later rename, as it is without them: it replaces what they replaced. They made this file,
    /// which the rename removed.
    Rename(Ino, Box<Logged>),
}

impl Replaced {
    /// Those that nobody sends any more.
    pub fn gone(&self) -> &[u64] {
        match self.by {
            Instead::More { .. } => &[],
            _ => &self.seqs,
        }
    }

    /// All pending changes that it changes.
    pub fn taken(&self) -> impl Iterator<Item = u64> + '_ {
        let by = match &self.by {
            Instead::Rename(_, by) => Some(by.seq),
            _ => None,
        };
        self.seqs.iter().copied().chain(by)
    }

    /// The file of which nothing is stored that was written and is not sealed: it goes nowhere, or
    /// with the change that stands for it.
    pub fn takes_unsealed(&self) -> Option<Ino> {
        match &self.by {
            Instead::More { data, .. } => Some(data.ino),
            Instead::Unsealed => None,
            Instead::Nothing(ino) | Instead::Rename(ino, _) => Some(*ino),
        }
    }
}

/// The place of a write: the changed file, its container, and their state before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WritePlace {
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
    /// Less than [`INLINE_MAX`](super::INLINE_MAX), of a small new file, or written over what is
    /// nowhere else: the bytes themselves.
    Inline(#[serde(with = "crate::nouns::bytes_as_slice")] Vec<u8>),
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
            Entry::Replaced(Replaced { by: Instead::More { data, .. }, .. }) => Some(data.ino),
            entry => entry.place().map(|place| place.ino),
        }
    }

    /// The file whose data another one gets: that one's size depends on it.
    pub fn source(&self) -> Option<Ino> {
        match self.change().map(|logged| &logged.change) {
            Some(Change::Record(Record::Clone { from, .. })) => Some(*from),
            _ => None,
        }
    }

    /// The data that it is about, if it changes a container.
    pub fn place(&self) -> Option<&WritePlace> {
        match self {
            Entry::Written { place, .. } | Entry::Resized { place, .. } => Some(place),
            Entry::Nameless(entry) => entry.place(),
            _ => None,
        }
    }

    /// True for a write whose bytes the log has itself.
    pub fn holds_bytes(&self) -> bool {
        match self {
            Entry::Written { data: Payload::Inline(_), .. } => true,
            Entry::Nameless(entry) => entry.holds_bytes(),
            _ => false,
        }
    }

    /// How many bytes it writes, if it is a write.
    pub(in crate::host) fn written(&self) -> Option<u64> {
        match self {
            Entry::Written { data, .. } => Some(data.len()),
            Entry::Nameless(entry) => entry.written(),
            _ => None,
        }
    }

    /// The same entry of a write with other bytes.
    pub(in crate::host) fn with_payload(self, payload: Payload) -> Entry {
        match self {
            Entry::Written { place, offset, .. } => Entry::Written { place, offset, data: payload },
            Entry::Nameless(entry) => Entry::Nameless(Box::new(entry.with_payload(payload))),
            entry => entry,
        }
    }

    /// The file whose data that are not stored yet go nowhere, if this entry means that.
    /// `Release` is logged at the last close, behind the seal of whatever must be stored.
    pub(super) fn abandoned(&self) -> Option<Ino> {
        match self {
            Entry::Nameless(entry) => entry.place().map(|place| place.ino),
            Entry::Change(Logged { change: Change::Record(Record::Release { ino }), .. }) => {
                Some(*ino)
            }
            _ => None,
        }
    }
}
