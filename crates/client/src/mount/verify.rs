//! Whether the containers have what the log says was written to them. A process that dies leaves at
//! most its last change of a container undone; a host that loses power, any part of what was not
//! synced.

use std::ops::Range;

use segue_core::cache::RangeSet;
use segue_core::modlog::{self, Entry, SUM_BLOCK};

use super::edit::sums;
use crate::state::{Containers, Key, Preserved};

/// Which of `entries`, from the `first` on, [lack](modlog::lacking) some of their bytes on the disk.
pub(super) fn lacking(
    entries: &[Entry],
    first: usize,
    containers: &Containers,
    preserved: &Preserved,
) -> std::io::Result<Vec<usize>> {
    modlog::lacking(
        entries,
        first,
        |key, range, sums, later| is_there(containers, key, range, sums, later),
        |seq, range, sums| is_preserved(preserved, seq, range, sums),
    )
}

fn is_preserved(
    preserved: &Preserved,
    seq: u64,
    range: &Range<u64>,
    expected: &[u32],
) -> std::io::Result<bool> {
    let len = usize::try_from(range.end - range.start).unwrap_or(0);
    match preserved.read(seq, range.start, len) {
        Ok(bytes) => Ok(expected.is_empty() || sums(range.start, &bytes) == expected),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_there(
    containers: &Containers,
    key: Key,
    range: Range<u64>,
    expected: &[u32],
    later: &RangeSet,
) -> std::io::Result<bool> {
    if !containers.exists(key) {
        return Ok(false);
    }
    let container = containers.open(key)?;
    has(range, expected, later, |at, len| container.read(at, len))
}

/// Whether a container that is `read` so has in `range` what the checksums are of, but for what was written
/// later.
pub(crate) fn has(
    range: Range<u64>,
    expected: &[u32],
    later: &RangeSet,
    read: impl Fn(u64, usize) -> std::io::Result<Vec<u8>>,
) -> std::io::Result<bool> {
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
    use segue_core::cache::ContainerId;
    use segue_core::modlog::{Base, Payload, Place};
    use segue_core::types::{Ino, Timestamp, Version};

    use super::*;

    fn written(containers: &Containers, offset: u64, bytes: &[u8], is_done: bool) -> Entry {
        let (ino, container) = (Ino(7), ContainerId(1));
        if is_done {
            containers.open((ino, container)).unwrap().write(bytes, offset).unwrap();
        }
        let base = Base::Version(Version::default());
        let place = Place { ino, container, base, old_size: 0, time: Timestamp::default() };
        let data = Payload::Summed { len: bytes.len() as u64, sums: sums(offset, bytes) };
        Entry::Written { place, offset, data }
    }

    #[test]
    fn what_is_not_in_the_container_is_found_unless_something_was_written_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let lacking =
            |entries: &[Entry], first| lacking(entries, first, &containers, &preserved).unwrap();
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

    /// What is cut to nothing gets another container, and the first is removed before the change is settled: what
    /// had been written to the first was taken for a change that nobody had done.
    #[test]
    fn what_a_file_had_in_another_container_is_not_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().join("containers")).unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        let old = written(&containers, 0, &[1; 9000], false);
        let mut place = old.place().unwrap().clone();
        place.container = ContainerId(2);
        let entries = [old, Entry::Resized { place, size: 0 }];
        assert_eq!(lacking(&entries[..1], 0, &containers, &preserved).unwrap(), [0]);
        assert!(lacking(&entries, 0, &containers, &preserved).unwrap().is_empty());
    }
}
