//! Entries of a log of version 3. They are those of this version, but each way to replace changes
//! was an entry of its own.

use segue_core::host::log::{DataChange, Entry, Instead, Logged, Replaced};
use segue_core::nouns::{Ino, Timestamp};

/// Numbers of these entries. Version 4 has another one under the first of them.
const AMENDED: u8 = 8;
const UNSEALED: u8 = 9;
const CANCELLED: u8 = 10;
const SUPERSEDED: u8 = 11;

/// The entry that is encoded in `body`.
pub(super) fn decode(body: &[u8]) -> Option<Entry> {
    let (number, rest) = body.split_first()?;
    let (seqs, by) = match *number {
        AMENDED => {
            let (seq, time, data): (u64, Timestamp, DataChange) = read(rest)?;
            (vec![seq], Instead::More { time, data })
        }
        UNSEALED => (vec![read(rest)?], Instead::Unsealed),
        CANCELLED => {
            let (ino, seqs): (Ino, Vec<u64>) = read(rest)?;
            (seqs, Instead::Nothing(ino))
        }
        SUPERSEDED => {
            let (ino, seqs, by): (Ino, Vec<u64>, Box<Logged>) = read(rest)?;
            (seqs, Instead::Rename(ino, by))
        }
        number if number < AMENDED => return read(body),
        _ => return None,
    };
    Some(Entry::Replaced(Replaced { seqs, by }))
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}
