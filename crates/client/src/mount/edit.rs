//! Changing containers: the log, the bytes and the core, in an order in which a process may die
//! anywhere, and any step may fail.
//!
//! ```text
//!   what is on its way there is preserved ─▶ log ─▶ container ─▶ core
//! ```
//!
//! The log has small data themselves, those of small new files, and those that are written over
//! what the server lacks; of others it has checksums: so the next process knows whether a change
//! that was cut off there is whole. One that is not was never done: what it spoiled is fetched
//! anew. Where the disk refuses the bytes the log says so instead of the change.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use segue_core::host::Host;
use segue_core::host::cache::{FileData, Scrap};
use segue_core::host::log::{Entry, Payload, SUM_BLOCK};
use segue_core::nouns::{INLINE_MAX, Ino, Timestamp};
use segue_core::refusal::Refusal;

use super::Mount;
use crate::state::Container;

/// Bytes are copied so many at a time.
const STEP: u64 = 1 << 20;

impl Mount {
    /// Writes bytes into the container of `ino`, for a process session.
    pub(super) fn write_at(
        &self,
        (ino, session): (Ino, u32),
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        self.change_data(
            ino,
            || range.clone(),
            |container, is_only_here| {
                // A map may write over it, in a container that is watched, and then no sum is
                // right.
                let all = is_only_here || container.is_watched();
                // Writing them twice, in a row, costs less than making a file while somebody waits.
                let payload = payload(offset, bytes, all || container.takes(offset, bytes.len()));
                // What the log has itself can be written again.
                let is_logged = matches!(payload, Payload::Inline(_));
                (payload, is_logged)
            },
            |container, is_logged| match is_logged {
                true => container.write_logged(bytes, offset),
                false => container.write(bytes, offset),
            },
            |core, payload, time| {
                core.note_writer(ino, session);
                core.draft_write(ino, offset, payload.clone(), time)
            },
        )
    }

    /// Makes a range of `ino` zeros that need no room.
    pub(super) fn zero_at(
        &self,
        (ino, session): (Ino, u32),
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        let (offset, len) = (range.start, range.end - range.start);
        self.change_data(
            ino,
            || range.clone(),
            |_, _| ((), true),
            |container, _| container.zero(offset, len),
            |core, (), time| {
                core.note_writer(ino, session);
                core.draft_write(ino, offset, Payload::Zeros { len }, time)
            },
        )
    }

    /// Makes `ino` `size` bytes long here.
    pub(crate) fn resize(&self, (ino, session): (Ino, u32), size: u64) -> Result<(), Refusal> {
        let old_size = self.core().tree.peek(ino).map_or(0, |attr| attr.size);
        // Whoever empties a file gets another container, but for those who read it past us.
        let is_emptied = size == 0 && old_size > 0;
        if is_emptied {
            self.keep_basis(ino);
        }
        let stays = Cell::new(true);
        let affected = || {
            stays.set(size > 0 || self.is_backed(ino));
            if stays.get() { size..old_size.max(size) } else { 0..0 }
        };
        let resized = self.change_data(
            ino,
            affected,
            |_, _| ((), true),
            |container, _| if stays.get() { container.resize(size) } else { Ok(()) },
            |core, (), time| {
                core.note_writer(ino, session);
                core.draft_resize(ino, size, stays.get(), time)
            },
        );
        if is_emptied {
            self.basis_emptied(ino, resized.is_ok());
        }
        resized
    }

    /// Logs a change of a range of a container, which is asked for while nobody else writes to it,
    /// and carries it out. A container that was replaced in between is left alone: the new one
    /// gets the change. What it takes the place of is preserved under the same lock of the log
    /// under which that could become a change. `plan` hears whether what stands in the range may be
    /// nowhere else, and says how the log has the change, and whether all of it.
    fn change_data<P>(
        &self,
        ino: Ino,
        affected: impl Fn() -> Range<u64>,
        plan: impl Fn(&Container, bool) -> (P, bool),
        change: impl Fn(&Container, bool) -> io::Result<()>,
        draft: impl Fn(&mut Host, &P, Timestamp) -> Option<Entry>,
    ) -> Result<(), Refusal> {
        let time = self.wall();
        loop {
            let container = self.container(ino)?;
            let _writing = container.writing();
            let range = affected();
            self.preserve(ino, &range, &container)?;
            let (planned, is_logged) = plan(&container, self.core().is_only_here(ino, &range));
            let logged = self.log_change_and(
                |core| {
                    if !core.may_be_overwritten((ino, container.id), &range) {
                        return Ok(None);
                    }
                    draft(core, &planned, time).map(Some).ok_or(Refusal::Stale)
                },
                || {
                    let changed = change(&container, is_logged);
                    // While the log is locked: so a sync that covers the entry covers this. And not
                    // before: a sync that began in between would have found nothing to do.
                    self.containers.mark_unsynced((ino, container.id), is_logged);
                    changed.map_err(|error| {
                        let (container, range) = (container.id, range.clone());
                        let left = Entry::Spoiled { ino, container, range };
                        (self.disk_refusal("containers", &error), Box::new(left))
                    })
                },
                |_| (),
            );
            match logged {
                Ok(Some(())) => break,
                Ok(None) => {}
                Err(refusal) => {
                    self.cut_off(ino, &container);
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
                let logged = self.log_change(
                    |core| {
                        // Settled meanwhile, nobody needs them.
                        let is_needed = core.queue.stage(seq).is_some();
                        Ok(is_needed.then_some(Entry::Preserved { seq, range, sums }))
                    },
                    |_| (),
                );
                // Nobody would know of them.
                if logged.is_err() && self.core().preserved(seq).is_empty() {
                    self.remove(Scrap::Preserved(seq));
                }
                logged?;
                at += len;
            }
        }
        Ok(())
    }

    /// Cuts off what a change that failed on its way left behind the end of a file.
    fn cut_off(&self, ino: Ino, container: &Container) {
        let size = self.core().tree.peek(ino).map(|attr| attr.size);
        if let Some(size) = size
            && let Err(error) = container.cut(size)
        {
            tracing::error!("inode {ino}: cannot truncate its container file: {error}");
        }
    }
}

/// Bytes as the log has them: those that are small, and `whole`. A process that dies in the middle
/// of writing them leaves some of them in the container: where that may be all that there is of
/// what stood there, the log has the whole, so that they are written again.
fn payload(offset: u64, bytes: &[u8], whole: bool) -> Payload {
    match bytes.len() < INLINE_MAX || whole {
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
    #[test]
    fn the_log_has_what_is_small_or_written_over_what_is_nowhere_else() {
        let is_inline = |len, whole| matches!(payload(0, &vec![1; len], whole), Payload::Inline(_));
        assert!(is_inline(INLINE_MAX - 1, false) && !is_inline(INLINE_MAX, false));
        assert!(is_inline(1 << 20, true));
    }
}
