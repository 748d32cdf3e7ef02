//! What the log has itself of written data, to be written into the containers again: whoever died
//! may have died between the log and the container.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Entry, Payload};
use crate::cache::{ContainerId, RangeSet};
use crate::types::Ino;

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
            }
            Entry::Resized { place, size } => {
                let key = (place.ino, place.container);
                let later = later.entry(key).or_default();
                let end = later.iter().last().map_or(0, |range| range.end);
                if end <= *size {
                    steps.push((key, Redo::Cut(*size)));
                }
                later.insert(*size..u64::MAX);
            }
            _ => {}
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modlog::{Base, Place};
    use crate::types::{Timestamp, Version};

    fn place() -> Place {
        let (base, time) = (Base::Version(Version::default()), Timestamp::default());
        Place { ino: Ino(7), container: ContainerId(1), base, old_size: 0, time }
    }

    #[test]
    fn what_was_written_over_or_cut_off_later_is_not_written_again() {
        let written = |offset, data| Entry::Written { place: place(), offset, data };
        let entries = [
            written(0, Payload::Inline(vec![1; 10])),
            written(4, Payload::Durable { len: 2 }),
            written(8, Payload::Inline(vec![2; 10])),
            Entry::Resized { place: place(), size: 12 },
            written(20, Payload::Zeros { len: 5 }),
        ];
        let steps: Vec<Redo<'_>> = redo(&entries).into_iter().map(|(_, step)| step).collect();
        let ones = [1; 10];
        let expected = [
            Redo::Zeros(20..25),
            Redo::Bytes(8, &[2; 4]),
            Redo::Bytes(0, &ones[..4]),
            Redo::Bytes(6, &ones[..2]),
        ];
        assert_eq!(steps, expected);
        let entries = [written(0, Payload::Durable { len: 9 }), entries[3].clone()];
        assert_eq!(redo(&entries), [((Ino(7), ContainerId(1)), Redo::Cut(12))]);
    }
}
