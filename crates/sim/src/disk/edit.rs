//! Changes of containers, also those that a process dies in the middle of.
//!
//! A large write is logged as checksums, unless it is over bytes that only this host has. The next
//! process takes it out of the log if its bytes are not in the container, and nothing is valid
//! there.

use std::ops::Range;

use segue_core::host::Host;
use segue_core::host::action::{Change, Done, Edit, Undo, Undone};
use segue_core::host::log::{Entry, Payload};
use segue_core::nouns::Ino;

use super::container::{bytes_of, place, put};
use super::{Carried, HostDisk};
use crate::Violation;

/// Writes of fewer bytes are in the log themselves. Small, as the files are; so are blocks that
/// have a checksum.
const INLINE_MAX: usize = 32;
const SUM_BLOCK: u64 = 16;

/// A write that counts, though nobody was told of it.
#[derive(Clone, Debug)]
pub(crate) struct TornWrite {
    pub(crate) ino: Ino,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The blocks of a range.
pub(super) fn blocks(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = *range;
    let next = move |at: u64| ((at / SUM_BLOCK + 1) * SUM_BLOCK).min(end);
    let from = std::iter::successors(Some(start), move |at| Some(next(*at)));
    from.take_while(move |at| *at < end).map(move |at| at..next(at))
}

pub(super) fn sum(bytes: &[u8]) -> u32 {
    let [a, b, c, d, ..] = *blake3::hash(bytes).as_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl HostDisk {
    /// The entry of a change, which writes `bytes`. A loss of power under a log with checksums is
    /// not simulated. A map may write over what has a checksum, and then that is wrong.
    fn entry_of(&self, edit: &Edit, bytes: &[u8]) -> Entry {
        let is_watched = self.is_watched((edit.ino, edit.container));
        let is_whole = edit.logs_bytes || self.kept.loses_power || is_watched;
        edit.entry(|| {
            if bytes.len() < INLINE_MAX || is_whole {
                return Payload::Inline(bytes.to_vec());
            }
            let Change::Bytes(offset) = edit.change else { return Payload::Inline(Vec::new()) };
            let mut rest = bytes;
            let range = offset..offset + bytes.len() as u64;
            let sums = blocks(&range).map(|block| {
                let (these, after) = rest.split_at(place(block.end - block.start).min(rest.len()));
                rest = after;
                sum(these)
            });
            Payload::Summed { sums: sums.collect(), len: bytes.len() as u64 }
        })
    }

    /// Logs a change of a container, and carries it out.
    pub(super) fn write_edit(
        &mut self,
        core: &Host,
        edit: &Edit,
        bytes: &[u8],
    ) -> Result<Carried, Violation> {
        let (ino, key) = (edit.ino, (edit.ino, edit.container));
        let old_size = core.tree().peek(ino).map_or(0, |attr| attr.size);
        // A full disk takes bytes that overwrite others. The entry in the log is taken back.
        if let Err((refusal, written)) = self.failing.try_change(bytes.len(), edit.logs_bytes) {
            if let Change::Bytes(offset) = edit.change {
                put(self.kept.bytes_of_container(key), offset, &bytes[..written]);
            }
            self.half_written.insert(ino);
            return Ok(Err(Undone { refusal, is_logged: true }));
        }
        self.append(self.entry_of(edit, bytes))?;
        self.edits += 1;
        if !matches!(edit.change, Change::Nothing) {
            self.kept.unsynced.insert(key);
        }
        match &edit.change {
            Change::Bytes(offset) => {
                put(self.kept.bytes_of_container(key), *offset, bytes);
                self.acknowledged.wrote(ino, *offset, bytes, old_size);
            }
            Change::Zeros(Range { start, end }) => {
                let zeros = vec![0; place(end - start)];
                put(self.kept.bytes_of_container(key), *start, &zeros);
                self.acknowledged.wrote(ino, *start, &zeros, old_size);
            }
            Change::Size(size) => {
                self.kept.bytes_of_container(key).resize(place(*size), 0);
                self.acknowledged.resized(ino, *size, old_size);
            }
            Change::Nothing => self.acknowledged.resized(ino, 0, old_size),
        }
        Ok(Ok(Done::Carried))
    }

    /// There is room for the word of the failure where the change stood in the log.
    pub(super) fn undo(&mut self, undo: Undo) -> Result<Carried, Violation> {
        self.append(undo.entry)?;
        let container = self.kept.bytes_of_container((undo.ino, undo.container));
        container.truncate(place(undo.size));
        Ok(Ok(Done::Carried))
    }

    /// Logs a write, and puts only so many of its bytes into the container: the process dies.
    /// Returns the write if it counts.
    pub(crate) fn tear(
        &mut self,
        core: &Host,
        edit: &Edit,
        (offset, bytes): (u64, Vec<u8>),
        written: usize,
    ) -> Result<Option<TornWrite>, Violation> {
        let (ino, key) = (edit.ino, (edit.ino, edit.container));
        let old_size = core.tree().peek(ino).map_or(0, |attr| attr.size);
        let entry = self.entry_of(edit, &bytes);
        let is_logged = entry.holds_bytes();
        self.append(entry)?;
        self.kept.unsynced.insert(key);
        let container = self.kept.bytes_of_container(key);
        put(container, offset, &bytes[..written]);
        let range = offset..offset + bytes.len() as u64;
        if !is_logged && bytes_of(container, &range) != bytes {
            return Ok(None);
        }
        self.acknowledged.wrote(ino, offset, &bytes, old_size);
        Ok(Some(TornWrite { ino, offset, bytes }))
    }
}
