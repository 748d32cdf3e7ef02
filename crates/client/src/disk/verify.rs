//! Whether the containers have what the log says was written to them. A process that dies leaves at
//! most its last change of a container undone; a host that loses power, any part of what was not
//! synced; a disk that fails, any part of what was to be.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use segue_core::host::log::{self, Entry, Payload, SUM_BLOCK};
use segue_core::nouns::RangeSet;

use crate::disk::edit::sums;
use crate::disk::files::{Containers, Key, LogFile, Preserved};

/// After a sync that failed with `error`: writes anew what the disk may not have taken, and syncs
/// the rest again. Of what was written anew each byte that the server may lack has to be what `log`
/// says. No more is logged meanwhile.
pub(super) fn mend(
    error: &io::Error,
    log: &LogFile,
    containers: &Containers,
    preserved: &Preserved,
) -> io::Result<()> {
    let (doubted, kept) = (containers.take_doubted(), preserved.take_doubted());
    if !doubted.is_empty() || !kept.is_empty() {
        tracing::error!("cannot sync containers: {error}; rewriting them");
        doubted.iter().try_for_each(|(_, container)| container.write_anew())?;
        kept.iter().try_for_each(|seq| preserved.write_anew(*seq))?;
        let keys: BTreeSet<Key> = doubted.iter().map(|(key, _)| *key).collect();
        let entries: Vec<Entry> = log.entries()?.into_iter().map(summed).collect();
        let lacking = log::lacking::<io::Error>(
            &entries,
            0,
            |key, range, sums, later| {
                Ok(!keys.contains(&key) || is_there(containers, key, range, sums, later)?)
            },
            |seq, range, sums, later| {
                Ok(!kept.contains(&seq) || is_preserved(preserved, seq, range, sums, later)?)
            },
        )?;
        if !lacking.is_empty() {
            return Err(io::Error::other("the disk has lost data that it could not write"));
        }
        doubted.iter().for_each(|(_, container)| container.mark_whole());
        kept.iter().for_each(|seq| preserved.mark_whole(*seq));
    }
    containers.sync()?;
    preserved.sync()
}

/// An entry with checksums instead of bytes: those, too, have to be in the container, for the log
/// may be written anew without them.
fn summed(entry: Entry) -> Entry {
    match entry {
        Entry::Written { place, offset, data: Payload::Inline(bytes) } => {
            let data = Payload::Summed { len: bytes.len() as u64, sums: sums(offset, &bytes) };
            Entry::Written { place, offset, data }
        }
        entry => entry,
    }
}

/// Whether `preserved` has of change `seq` in `range` what the checksums are of, but for what was
/// preserved `later`.
pub(super) fn is_preserved(
    preserved: &Preserved,
    seq: u64,
    range: &Range<u64>,
    expected: &[u32],
    later: &RangeSet,
) -> io::Result<bool> {
    match has(range.clone(), expected, later, |at, len| preserved.read(seq, at, len)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found,
    }
}

/// Whether a container has in `range` what the checksums are of, but for what was written `later`.
pub(super) fn is_there(
    containers: &Containers,
    key: Key,
    range: Range<u64>,
    expected: &[u32],
    later: &RangeSet,
) -> io::Result<bool> {
    if !containers.exists(key) {
        return Ok(false);
    }
    let container = containers.open(key)?;
    has(range, expected, later, |at, len| container.read(at, len))
}

/// Whether a container that is `read` so has in `range` what the checksums are of, but for what was
/// written later.
pub(crate) fn has(
    range: Range<u64>,
    expected: &[u32],
    later: &RangeSet,
    read: impl Fn(u64, usize) -> io::Result<Vec<u8>>,
) -> io::Result<bool> {
    let mut at = range.start;
    for sum in expected {
        let end = ((at / SUM_BLOCK + 1) * SUM_BLOCK).min(range.end);
        if !later.overlaps(at..end) {
            let bytes = read(at, usize::try_from(end - at).unwrap_or(0))?;
            if sums(at, &bytes) != [*sum] {
                return Ok(false);
            }
        }
        at = end;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use segue_core::host::log::WritePlace;
    use segue_core::nouns::{Base, ContainerId, Ino, Timestamp, Version};

    use super::*;
    use crate::disk::files::failing;

    fn lacking(
        entries: &[Entry],
        first: usize,
        containers: &Containers,
        preserved: &Preserved,
    ) -> Vec<usize> {
        let lacking = log::lacking::<io::Error>(
            entries,
            first,
            |key, range, sums, later| is_there(containers, key, range, sums, later),
            |seq, range, sums, later| is_preserved(preserved, seq, range, sums, later),
        );
        lacking.unwrap()
    }

    fn written(containers: &Containers, offset: u64, bytes: &[u8], is_done: bool) -> Entry {
        let (ino, container) = (Ino(7), ContainerId(1));
        if is_done {
            containers.open((ino, container)).unwrap().write(bytes, offset).unwrap();
        }
        let base = Base::Version(Version::default());
        let place = WritePlace { ino, container, base, old_size: 0, time: Timestamp::default() };
        let data = Payload::Summed { len: bytes.len() as u64, sums: sums(offset, bytes) };
        Entry::Written { place, offset, data }
    }

    #[test]
    fn what_is_not_in_the_container_is_found_unless_something_was_written_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let lacking = |entries: &[Entry], first| lacking(entries, first, &containers, &preserved);
        let none = written(&containers, 0, &[1; 9000], false);
        assert_eq!(lacking(std::slice::from_ref(&none), 0), [0]);
        let first = written(&containers, 100, &[1; 9000], true);
        let second = written(&containers, 4096, &[2; 9000], true);
        let lost = written(&containers, 40_000, &[3; 9000], false);
        let entries = [first, second, lost];
        assert_eq!(lacking(&entries, 0), [2]);
        assert!(lacking(&entries, 3).is_empty());
        containers.open((Ino(7), ContainerId(1))).unwrap().write(&[9], 200).unwrap();
        assert_eq!(lacking(&entries, 0), [0, 2]);
        let kept = |seq| Entry::Preserved { seq, range: 0..5, sums: sums(0, b"bytes") };
        preserved.keep(1, 0, b"bytes").unwrap();
        preserved.keep(2, 0, b"other").unwrap();
        assert_eq!(lacking(&[kept(1), kept(2), kept(3)], 0), [1, 2]);
    }

    /// What was amended is overwritten again, and preserved again: nobody needs what was before,
    /// for which a loss of power cut the log off.
    #[test]
    fn of_what_was_preserved_twice_the_second_is_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let kept = |range: Range<u64>, fill| {
            let bytes = vec![fill; usize::try_from(range.end - range.start).unwrap()];
            preserved.keep(1, range.start, &bytes).unwrap();
            Entry::Preserved { seq: 1, sums: sums(range.start, &bytes), range }
        };
        let entries = [kept(0..9000, 1), kept(4096..8192, 2)];
        assert!(lacking(&entries, 0, &containers, &preserved).is_empty());
        preserved.keep(1, 5000, &[3]).unwrap();
        assert_eq!(lacking(&entries, 0, &containers, &preserved), [1]);
        preserved.keep(1, 0, &[3]).unwrap();
        assert_eq!(lacking(&entries, 0, &containers, &preserved), [0, 1]);
        preserved.remove(1).unwrap();
        assert_eq!(lacking(&entries, 0, &containers, &preserved), [0, 1]);
    }

    /// A disk fails once. What it did not take is written anew, if it is there still.
    #[test]
    fn what_a_sync_failed_to_write_is_written_anew_and_compared_with_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let (mut log, _) = LogFile::open(dir.path().join("update.log"), 1, false).unwrap();
        let (key, other) = ((Ino(7), ContainerId(1)), (Ino(8), ContainerId(2)));
        let fail = || {
            containers.mark_unsynced(key, false);
            failing::after(0);
            assert!(containers.sync().is_err());
        };
        log.append(&written(&containers, 0, &[1; 9000], true)).unwrap();
        log.append(&Entry::Preserved { seq: 4, range: 0..5, sums: sums(0, b"bytes") }).unwrap();
        let error = io::Error::from_raw_os_error(libc::EIO);
        let mend = || mend(&error, &log, &containers, &preserved);
        fail();
        containers.open(other).unwrap().write(b"other", 0).unwrap();
        containers.mark_unsynced(other, false);
        mend().unwrap();
        // Nor does the disk fail for those who come second.
        mend().unwrap();
        preserved.keep(4, 0, b"bytes").unwrap();
        failing::after(0);
        assert!(preserved.sync().is_err() && preserved.sync().is_err());
        mend().unwrap();
        fail();
        containers.open(key).unwrap().write(&[0], 200).unwrap();
        assert!(mend().is_err(), "a page went back");
        assert!(mend().is_err() && containers.sync().is_err());
        containers.remove(key).unwrap();
        mend().unwrap();
    }

    #[test]
    fn bytes_that_the_log_has_are_looked_for_before_it_has_them_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let (mut log, _) = LogFile::open(dir.path().join("update.log"), 1, false).unwrap();
        let mut entry = written(&containers, 0, &[1; 9000], true);
        if let Entry::Written { data, .. } = &mut entry {
            *data = Payload::Inline(vec![2; 9000]);
        }
        log.append(&entry).unwrap();
        let container = containers.open((Ino(7), ContainerId(1))).unwrap();
        failing::after(0);
        let error = container.sync().unwrap_err();
        assert!(mend(&error, &log, &containers, &preserved).is_err());
    }

    /// What is cut to nothing gets another container, and the first is removed before the change is
    /// settled: what had been written to the first was taken for a change that nobody had done.
    #[test]
    fn what_a_file_had_in_another_container_is_not_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let old = written(&containers, 0, &[1; 9000], false);
        let mut place = old.place().unwrap().clone();
        place.container = ContainerId(2);
        let entries = [old, Entry::Resized { place, size: 0 }];
        assert_eq!(lacking(&entries[..1], 0, &containers, &preserved), [0]);
        assert!(lacking(&entries, 0, &containers, &preserved).is_empty());
    }
}
