//! Writes that a process dies in the middle of.
//!
//! A large write is logged as checksums, unless it is over what only this host has. The next
//! process takes out of the log what is not in the container, and what stood there is not valid.

use std::collections::BTreeSet;
use std::ops::Range;

use segue_core::host::action::{Change, Edit};
use segue_core::host::call::{By, Call, EditCall, What};
use segue_core::host::log::{Entry, Payload};
use segue_core::nouns::{Caller, Ino, Kind};

use super::Mount;
use crate::disk::{bytes_of, put};
use crate::rng::Rng;
use crate::{Violation, work};

/// Writes of fewer bytes are in the log themselves. Small, as the files are; so are blocks that
/// have a checksum.
const INLINE_MAX: usize = 32;
const SUM_BLOCK: u64 = 16;

/// A write that counts, though nobody was told of it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
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

impl Mount {
    /// The entry of a change, which writes `bytes`. What a loss of power leaves of a log that has
    /// checksums is not simulated.
    pub(super) fn entry_of(&self, edit: &Edit, bytes: &[u8]) -> Entry {
        edit.entry(|| {
            if bytes.len() < INLINE_MAX || edit.logs_bytes || self.kept.loses_power {
                return Payload::Inline(bytes.to_vec());
            }
            let Change::Bytes(offset) = edit.change else { return Payload::Inline(Vec::new()) };
            let mut rest = bytes;
            let range = offset..offset + bytes.len() as u64;
            let sums = blocks(&range).map(|block| {
                let len = usize::try_from(block.end - block.start).unwrap_or(usize::MAX);
                let (these, after) = rest.split_at(len.min(rest.len()));
                rest = after;
                sum(these)
            });
            Payload::Summed { sums: sums.collect(), len: bytes.len() as u64 }
        })
    }

    /// Begins a write to a file that `may_be` written, and dies anywhere in it. Returns it if it
    /// counts.
    pub(crate) fn die_writing(
        &mut self,
        rng: &mut Rng,
        may_be: impl Fn(Ino) -> bool,
    ) -> Result<Option<Done>, Violation> {
        let prefers_ahead = rng.chance(700);
        let mut files: BTreeSet<Ino> = self.core.files.keys().copied().collect();
        files.extend(self.noted_files().into_iter().filter(|ino| may_be(*ino)));
        files.iter().for_each(|ino| self.load_node(*ino));
        let tree = &self.core.tree;
        let attr = |ino: &Ino| tree.peek(*ino).filter(|attr| attr.kind == Kind::File);
        let files: Vec<(Ino, u64)> = files
            .iter()
            .filter_map(|ino| Some((*ino, attr(ino).filter(|attr| attr.nlink > 0)?.size)))
            .collect();
        if files.is_empty() {
            return Ok(None);
        }
        let ahead = files.iter().filter(|(ino, _)| self.core.is_ahead(*ino)).copied();
        let ahead: Vec<_> = ahead.filter(|_| prefers_ahead).collect();
        let files = if ahead.is_empty() { files } else { ahead };
        let (ino, old_size) = files[rng.index(files.len())];
        let ((offset, len), fill) = (work::extent(rng), rng.between(1, 1 << 40));
        let bytes = work::bytes_of(offset, len, fill);
        let range = offset..offset + len;
        let (dies_first, written) = (rng.chance(100), rng.index(bytes.len() + 1));
        if self.load(ino).is_err() {
            return Ok(None);
        }
        if dies_first && self.kept.loses_power && self.has_amended(ino) {
            // What is preserved of it again would be known by its checksums.
            return Ok(None);
        }
        let what = What::Write { offset, len, append: false };
        let by = By::Open(Caller::default());
        let edit = EditCall { ino, by, what, kills_set_ids: false };
        let edit = self.host_call_to_write(Call::Edit(edit))?;
        let Some(edit) = edit.filter(|_| !dies_first) else { return Ok(None) };
        let key = (ino, edit.container);
        let entry = self.entry_of(&edit, &bytes);
        let is_logged = entry.holds_bytes();
        self.append(entry)?;
        self.kept.unsynced.insert(key);
        let container = &mut self.kept.containers.entry(key).or_default().bytes;
        put(container, offset, &bytes[..written]);
        if !is_logged && bytes_of(container, &range) != bytes {
            return Ok(None);
        }
        self.acknowledged.wrote(ino, offset, &bytes, old_size);
        Ok(Some(Done { ino, offset, bytes }))
    }

    fn has_amended(&self, ino: Ino) -> bool {
        let mut queued = self.core.queue.iter().map(|(logged, _)| logged);
        queued.any(|of| of.change.ino() == ino && self.core.queue.is_rewritten(of.seq))
    }
}
