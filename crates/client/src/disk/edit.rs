//! Actions of the host, carried out: on the disk, in the kernel, and by the mount's tasks.

use std::ops::Range;

use segue_core::host::action::{Change, Done, Edit, Preserve, Undo, Undone};
use segue_core::host::log::{Entry, Payload, SUM_BLOCK};
use segue_core::nouns::{INLINE_MAX, Ino};
use segue_core::refusal::Refusal;

use crate::disk::CacheDisk;
use crate::disk::files::{Container, LogFile};
use crate::rank::Held;

/// The log, if anything may be appended to it.
fn open_log<'a>(log: &'a mut Log<'_>) -> Result<&'a mut LogFile, Refusal> {
    match log {
        Some(log) if !log.is_final() => Ok(log),
        _ => Err(Refusal::Io),
    }
}

/// The entry of a change, and whether the log has all of the change itself.
fn logged(edit: &Edit, container: &Container, bytes: &[u8]) -> (Entry, bool) {
    let Change::Bytes(offset) = edit.change else {
        return (edit.entry(|| Payload::Durable { len: 0 }), true);
    };
    // A map may write over it, in a container that is watched, and then no sum is right. And to
    // write bytes twice, in a row, costs less than making a file while somebody waits.
    let is_whole =
        edit.logs_bytes || container.is_watched() || container.takes(offset, bytes.len());
    let data = payload(offset, bytes, is_whole);
    let is_logged = matches!(data, Payload::Inline(_));
    (edit.entry(|| data), is_logged)
}

/// Bytes as the log has them: those that are small, and `whole`.
fn payload(offset: u64, bytes: &[u8], whole: bool) -> Payload {
    match bytes.len() < INLINE_MAX || whole {
        true => Payload::Inline(bytes.to_vec()),
        false => Payload::Summed { len: bytes.len() as u64, sums: sums(offset, bytes) },
    }
}

/// Checksums of bytes that stand at `offset`: one for each block of the file.
pub(crate) fn sums(offset: u64, bytes: &[u8]) -> Vec<u32> {
    let first = SUM_BLOCK - offset % SUM_BLOCK;
    let first = bytes.len().min(usize::try_from(first).unwrap_or(usize::MAX));
    let (head, rest) = bytes.split_at(first);
    let block = usize::try_from(SUM_BLOCK).unwrap_or(4096);
    let parts = std::iter::once(head).chain(rest.chunks(block));
    parts.filter(|part| !part.is_empty()).map(crc32c::crc32c).collect()
}

/// The log while a call is carried out.
pub(crate) type Log<'a> = Option<Held<'a, LogFile>>;

impl CacheDisk {
    pub(crate) fn reserve_seqs(&self, first: u64) -> Result<Done, Undone> {
        let through = self.numbers.lock().reserve_seqs(first);
        let through = through.map_err(|error| self.disk_refusal("state.json", &error))?;
        Ok(Done::Reserved(through))
    }

    pub(crate) fn evict_for_writer(&self) -> Result<Done, Undone> {
        self.drop_bases();
        self.clean_cache();
        Ok(Done::Carried)
    }

    /// Copies bytes of a container to those that are preserved for a change.
    pub(crate) fn preserve(&self, part: &Preserve) -> Result<Done, Undone> {
        let Range { start, end } = part.range;
        let container = self.open_container(part.ino, part.container)?;
        let len = usize::try_from(end - start).map_err(|_| Refusal::TooLarge)?;
        let kept = container.read(start, len).and_then(|bytes| {
            self.preserved.keep(part.seq, start, &bytes)?;
            Ok(sums(start, &bytes))
        });
        Ok(Done::Preserved(kept.map_err(|error| self.disk_refusal("preserved", &error))?))
    }

    pub(crate) fn append(&self, log: &mut Log<'_>, entry: &Entry) -> Result<Done, Undone> {
        let log = open_log(log)?;
        log.append(entry).map_err(|error| self.disk_refusal("update.log", &error))?;
        Ok(Done::Carried)
    }

    pub(crate) fn append_all(&self, log: &mut Log<'_>, entries: &[Entry]) -> Result<Done, Undone> {
        let log = open_log(log)?;
        log.append_all(entries).map_err(|error| self.disk_refusal("update.log", &error))?;
        Ok(Done::Carried)
    }

    /// Logs a change of a container, and carries it out.
    pub(crate) fn write_edit(
        &self,
        log: &mut Log<'_>,
        edit: &Edit,
        bytes: &[u8],
    ) -> Result<Done, Undone> {
        let log = open_log(log)?;
        let container = self.open_container(edit.ino, edit.container)?;
        let (entry, is_logged) = logged(edit, &container, bytes);
        log.append(&entry).map_err(|error| self.disk_refusal("update.log", &error))?;
        let changed = match &edit.change {
            Change::Bytes(at) if is_logged => container.write_logged(bytes, *at),
            Change::Bytes(at) => container.write(bytes, *at),
            Change::Zeros(range) => container.zero(range.start, range.end - range.start),
            Change::Size(size) => container.resize(*size),
            Change::Nothing => Ok(()),
        };
        // While the log is locked: so a sync that covers the entry covers this. And not before: a
        // sync that began in between would have found nothing to do.
        self.containers.mark_unsynced((edit.ino, edit.container), is_logged);
        changed.map_err(|error| Undone {
            refusal: self.disk_refusal("containers", &error),
            is_logged: true,
        })?;
        Ok(Done::Carried)
    }

    /// Has the log say what a failed write left, where the write itself stood: for that is room,
    /// also on a full disk.
    pub(crate) fn undo(&self, log: &mut Log<'_>, undo: &Undo) -> Result<Done, Undone> {
        let cut = self
            .containers
            .open((undo.ino, undo.container))
            .and_then(|container| container.cut(undo.size));
        if let Err(error) = cut {
            tracing::error!("inode {}: cannot truncate its container file: {error}", undo.ino);
        }
        let log = open_log(log)?;
        let replaced = log.take_back().and_then(|()| log.append(&undo.entry));
        replaced.map_err(|error| self.disk_refusal("update.log", &error))?;
        Ok(Done::Carried)
    }

    /// A number for a new inode, if one is left.
    pub(crate) fn number_at_hand(&self) -> Option<Ino> {
        self.numbers.lock().take_ino().ok()?
    }
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
