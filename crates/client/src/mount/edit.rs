//! Changing containers: the log, the bytes and the core, in an order in which a process may die
//! anywhere, and any step may fail.
//!
//! ```text
//!   what is on its way there is preserved ─▶ log ─▶ container ─▶ core
//! ```
//!
//! The log has small data themselves and checksums of larger ones: so the next process knows
//! whether a change that was cut off there is whole.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use segue_core::cache::FileData;
use segue_core::client::ClientCore;
use segue_core::modlog::{Entry, INLINE_MAX, Payload, SUM_BLOCK};
use segue_core::refusal::Refusal;
use segue_core::types::{Ino, Timestamp};

use super::Mount;
use crate::state::Container;

/// Bytes are copied so many at a time.
const STEP: u64 = 1 << 20;

impl Mount {
    /// Writes bytes into the container of `ino`.
    pub(super) fn write_at(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        let payload = payload(offset, bytes);
        // What the log has itself can be written again.
        let is_logged = matches!(payload, Payload::Inline(_));
        self.change_data(
            (ino, range, is_logged),
            |container| container.write(bytes, offset),
            |core, time| core.draft_write(ino, offset, payload.clone(), time),
        )
    }

    /// Makes a range of `ino` zeros that need no room.
    pub(super) fn zero_at(&self, ino: Ino, range: Range<u64>) -> Result<(), Refusal> {
        let (offset, len) = (range.start, range.end - range.start);
        self.change_data(
            (ino, range, true),
            |container| container.zero(offset, len),
            |core, time| core.draft_write(ino, offset, Payload::Zeros { len }, time),
        )
    }

    /// Makes `ino` `size` bytes long here.
    pub(crate) fn resize(&self, ino: Ino, size: u64) -> Result<(), Refusal> {
        let old_size = self.core().tree.peek(ino).map_or(0, |attr| attr.size);
        // Whoever empties a file gets another container.
        let affected = if size > 0 { size..old_size.max(size) } else { 0..0 };
        self.change_data(
            (ino, affected, true),
            |container| if size > 0 { container.resize(size) } else { Ok(()) },
            |core, time| core.draft_resize(ino, size, time),
        )
    }

    /// Logs a change of a range of a container and carries it out. A container that was replaced
    /// in between is left alone: the new one gets the change.
    fn change_data(
        &self,
        (ino, range, is_logged): (Ino, Range<u64>, bool),
        change: impl Fn(&Container) -> io::Result<()>,
        draft: impl Fn(&mut ClientCore, Timestamp) -> Option<Entry>,
    ) -> Result<(), Refusal> {
        let time = self.wall();
        loop {
            let container = self.container(ino)?;
            let _writing = container.writing();
            self.preserve(ino, &range, &container)?;
            let logged = self.log_change_and(
                |core| {
                    if core.container(ino) != Some(container.id) {
                        return Ok(None);
                    }
                    draft(core, time).map(Some).ok_or(Refusal::Stale)
                },
                || {
                    // While the log is locked: so a sync that covers the entry covers this.
                    self.containers.is_unsynced((ino, container.id), is_logged);
                    let changed = change(&container);
                    changed.map_err(|error| self.disk_refusal("containers", &error))
                },
                |_| (),
            );
            match logged {
                Ok(Some(())) => break,
                Ok(None) => {}
                Err(refusal) => {
                    self.spoiled((ino, range), &container);
                    return Err(refusal);
                }
            }
        }
        if self.core().files.get(&ino).is_some_and(FileData::is_full) {
            self.seal_early(ino);
        }
        Ok(())
    }

    /// Keeps the bytes of changes on their way to the server that stand in `range`: each of them is
    /// sent as it was when it was logged.
    fn preserve(
        &self,
        ino: Ino,
        range: &Range<u64>,
        container: &Arc<Container>,
    ) -> Result<(), Refusal> {
        let parts = self.core().to_preserve(ino, range);
        for (seq, part) in parts {
            let mut at = part.start;
            while at < part.end {
                let len = (part.end - at).min(STEP);
                let bytes = container.read(at, usize::try_from(len).unwrap_or(1 << 20));
                let kept = bytes.and_then(|bytes| {
                    self.preserved.keep(seq, at, &bytes)?;
                    Ok(sums(at, &bytes))
                });
                let sums = kept.map_err(|error| self.disk_refusal("preserved", &error))?;
                let range = at..at + len;
                self.log_change(
                    |core| {
                        // Settled meanwhile, nobody needs them.
                        let is_needed = core.queue.oldest_seq().is_some_and(|oldest| oldest <= seq);
                        Ok(is_needed.then_some(Entry::Preserved { seq, range, sums }))
                    },
                    |_| (),
                )?;
                at += len;
            }
        }
        Ok(())
    }

    /// A change of `range` failed on its way: whatever the container has there is not the file's.
    fn spoiled(&self, (ino, range): (Ino, Range<u64>), container: &Container) {
        let size = {
            let mut core = self.core();
            if let Some(file) = core.files.get_mut(&ino) {
                file.spoiled(range);
            }
            core.tree.peek(ino).map(|attr| attr.size)
        };
        if let Some(size) = size
            && let Err(error) = container.cut(size)
        {
            tracing::error!("#{ino}: its container stays longer than it is: {error}");
        }
        // What is noted of it is not so any more.
        if let Err(refusal) = self.note() {
            tracing::error!("#{ino}: what is noted of it is wrong: {refusal}");
        }
    }
}

/// Bytes as the log has them.
fn payload(offset: u64, bytes: &[u8]) -> Payload {
    match bytes.len() < INLINE_MAX {
        true => Payload::Inline(bytes.to_vec()),
        false => Payload::Summed { len: bytes.len() as u64, sums: sums(offset, bytes) },
    }
}

/// Checksums of bytes that stand at `offset`: one for each block of the file.
pub(super) fn sums(offset: u64, bytes: &[u8]) -> Vec<u32> {
    let first = SUM_BLOCK - offset % SUM_BLOCK;
    let first = bytes.len().min(usize::try_from(first).unwrap_or(usize::MAX));
    let (head, rest) = bytes.split_at(first);
    let block = usize::try_from(SUM_BLOCK).unwrap_or(4096);
    let parts = std::iter::once(head).chain(rest.chunks(block));
    parts.filter(|part| !part.is_empty()).map(crc32c::crc32c).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_the_file_has_a_sum() {
        let bytes = vec![7; 10_000];
        let of = |range: Range<usize>| crc32c::crc32c(&bytes[range]);
        assert_eq!(sums(8192, &bytes[..5000]), [of(0..4096), of(4096..5000)]);
        assert_eq!(sums(4000, &bytes), [of(0..96), of(96..4192), of(4192..8288), of(8288..10_000)]);
        assert_eq!(sums(100, &bytes[..10]), [of(0..10)]);
        assert!(sums(100, &[]).is_empty());
    }
}
