//! What the log has itself of written data, to be written into the containers again: whoever died
//! may have died between the log and the container.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Entry, Payload};
use crate::nouns::{ContainerId, Ino, RangeSet};

/// One step. Steps of one container may be taken in any order: they do not overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redo<'a> {
    /// These bytes stand at this offset.
    Bytes(u64, &'a [u8]),
    /// Here are zeros that need no room.
    Zeros(Range<u64>),
    /// Behind this there is nothing.
    Cut(u64),
}

/// What a file has that grows over `range`, whatever its container had there before it was cut.
fn zeros<'a>(range: Range<u64>) -> Redo<'a> {
    if range.end == u64::MAX { Redo::Cut(range.start) } else { Redo::Zeros(range) }
}

/// The steps of a log, but for what was written over later. What is nameless is nobody's.
pub fn redo(entries: &[Entry]) -> Vec<((Ino, ContainerId), Redo<'_>)> {
    let mut later: BTreeMap<(Ino, ContainerId), RangeSet> = BTreeMap::new();
    let mut steps = Vec::new();
    for entry in entries.iter().rev() {
        match entry {
            Entry::Written { place, offset, data } => {
                let key = (place.ino, place.container);
                let later = later.entry(key).or_default();
                let range = *offset..offset.saturating_add(data.len());
                let parts = later.missing(range.clone());
                steps.extend(parts.into_iter().filter_map(|part| {
                    let step = match data {
                        Payload::Inline(bytes) => {
                            let at = |at: u64| usize::try_from(at - offset).ok();
                            let bytes = bytes.get(at(part.start)?..at(part.end)?)?;
                            Redo::Bytes(part.start, bytes)
                        }
                        Payload::Zeros { .. } => Redo::Zeros(part),
                        Payload::Summed { .. } | Payload::Durable { .. } => return None,
                    };
                    Some((key, step))
                }));
                later.insert(range);
                let gap = place.old_size.min(*offset)..*offset;
                steps.extend(later.missing(gap.clone()).into_iter().map(|part| (key, zeros(part))));
                later.insert(gap);
            }
            Entry::Resized { place, size } => {
                let key = (place.ino, place.container);
                let later = later.entry(key).or_default();
                let gone = place.old_size.min(*size)..u64::MAX;
                steps
                    .extend(later.missing(gone.clone()).into_iter().map(|part| (key, zeros(part))));
                later.insert(gone);
            }
            _ => {}
        }
    }
    steps
}

/// Which bytes of which containers.
pub type Covered = BTreeMap<(Ino, ContainerId), RangeSet>;

/// The bytes that a log has itself: a container with no others need not be there.
pub fn covered_by(entries: &[Entry]) -> Covered {
    let mut covered = Covered::new();
    for (key, step) in redo(entries) {
        let range = match step {
            Redo::Bytes(offset, bytes) => offset..offset.saturating_add(bytes.len() as u64),
            Redo::Zeros(range) => range,
            Redo::Cut(size) => size..u64::MAX,
        };
        covered.entry(key).or_default().insert(range);
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::log::WritePlace;
    use crate::nouns::{Base, Timestamp, Version};

    fn place(old_size: u64) -> WritePlace {
        let (base, time) = (Base::Version(Version::default()), Timestamp::default());
        WritePlace { ino: Ino(7), container: ContainerId(1), base, old_size, time }
    }

    fn written(offset: u64, data: Payload, old_size: u64) -> Entry {
        Entry::Written { place: place(old_size), offset, data }
    }

    fn resized(size: u64, old_size: u64) -> Entry {
        Entry::Resized { place: place(old_size), size }
    }

    fn steps(entries: &[Entry]) -> Vec<Redo<'_>> {
        redo(entries).into_iter().map(|(_, step)| step).collect()
    }

    #[test]
    fn what_was_written_over_or_cut_off_later_is_not_written_again() {
        let entries = [
            written(0, Payload::Inline(vec![1; 10]), 0),
            written(4, Payload::Durable { len: 2 }, 10),
            written(8, Payload::Inline(vec![2; 10]), 10),
            resized(12, 18),
            written(20, Payload::Zeros { len: 5 }, 12),
        ];
        let ones = [1; 10];
        let expected = [
            Redo::Zeros(20..25),
            Redo::Zeros(12..20),
            Redo::Cut(25),
            Redo::Bytes(8, &[2; 4]),
            Redo::Bytes(0, &ones[..4]),
            Redo::Bytes(6, &ones[..2]),
        ];
        assert_eq!(steps(&entries), expected);
        let entries = [written(0, Payload::Durable { len: 9 }, 0), resized(12, 18)];
        assert_eq!(steps(&entries), [Redo::Cut(12)]);
    }

    /// After a loss of power a container had again what had been cut off, and a file that had grown
    /// over it showed that.
    #[test]
    fn where_a_file_grew_it_has_zeros() {
        assert_eq!(steps(&[resized(60, 100), resized(150, 60)]), [Redo::Cut(60)]);
        assert_eq!(steps(&[resized(150, 60)]), [Redo::Cut(60)]);
        let gap = [written(80, Payload::Inline(vec![1; 5]), 60), resized(90, 85)];
        assert_eq!(steps(&gap), [Redo::Cut(85), Redo::Bytes(80, &[1; 5]), Redo::Zeros(60..80)]);
    }
}
