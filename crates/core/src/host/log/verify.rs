//! Which data that the log speaks of have to be on the disk, to be compared with what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Change, Entry, Instead, Payload, Replaced};
use crate::nouns::{ContainerId, Ino, RangeSet};

/// Which of `entries`, from the `first` on, lack some of their bytes on the disk. Only data that
/// the server may lack are looked at, and of these only what nothing was written over: `is_there`
/// says whether a container has in a range what the checksums are of, but for what was written
/// later; `is_preserved` the same of the bytes that a change had.
pub fn lacking<E>(
    entries: &[Entry],
    first: usize,
    is_there: impl Fn((Ino, ContainerId), Range<u64>, &[u32], &RangeSet) -> Result<bool, E>,
    is_preserved: impl Fn(u64, &Range<u64>, &[u32], &RangeSet) -> Result<bool, E>,
) -> Result<Vec<usize>, E> {
    let live = live(entries);
    let is_settled = |seq: u64| {
        entries.iter().any(|entry| match entry {
            Entry::Settled { seq: it, .. } => *it == seq,
            Entry::Replaced(replaced) => replaced.gone().contains(&seq),
            _ => false,
        })
    };
    let mut written: BTreeMap<(Ino, ContainerId), RangeSet> = BTreeMap::new();
    let mut preserved: BTreeMap<u64, RangeSet> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate().skip(first).rev() {
        let entry = match entry {
            // It is never looked for, but stands over what was written before.
            Entry::Nameless(entry) => entry,
            entry => entry,
        };
        match entry {
            Entry::Written { place, offset, data } => {
                let key = (place.ino, place.container);
                let later = written.entry(key).or_default();
                let range = *offset..offset.saturating_add(data.len());
                if let Payload::Summed { sums, .. } = data
                    && live.contains(&index)
                    && !is_there(key, range.clone(), sums, later)?
                {
                    found.push(index);
                }
                later.insert(range);
            }
            Entry::Resized { place, size } => {
                written.entry((place.ino, place.container)).or_default().insert(*size..u64::MAX);
            }
            Entry::Spoiled { ino, container, range } => {
                written.entry((*ino, *container)).or_default().insert(range.clone());
            }
            Entry::Preserved { seq, range, sums } => {
                // What was amended is overwritten, and preserved, again.
                let later = preserved.entry(*seq).or_default();
                if !is_settled(*seq) && !is_preserved(*seq, range, sums, later)? {
                    found.push(index);
                }
                later.insert(range.clone());
            }
            _ => {}
        }
    }
    found.reverse();
    Ok(found)
}

/// How many of the first `entries` of a log are left without those that were `removed`.
pub fn left_of(entries: usize, removed: &[usize]) -> usize {
    entries - removed.iter().filter(|index| **index < entries).count()
}

/// Entries of data that are not known to be on the server. What a file had in one container is of
/// no use once it has another: that was emptied before.
fn live(entries: &[Entry]) -> BTreeSet<usize> {
    let mut unsealed: BTreeMap<Ino, Vec<usize>> = BTreeMap::new();
    let mut sealed: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut containers: BTreeMap<Ino, ContainerId> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        if let Some(place) = entry.place()
            && containers.insert(place.ino, place.container) != Some(place.container)
        {
            unsealed.remove(&place.ino);
        }
        entry.abandoned().and_then(|ino| unsealed.remove(&ino));
        match entry {
            Entry::Written { place, .. } => unsealed.entry(place.ino).or_default().push(index),
            Entry::Change(logged) => {
                if let Change::Data(data) = &logged.change {
                    sealed.insert(logged.seq, unsealed.remove(&data.ino).unwrap_or_default());
                }
            }
            Entry::Settled { seq, .. } => drop(sealed.remove(seq)),
            Entry::Replaced(Replaced { seqs, by }) => {
                let taken: Vec<usize> =
                    seqs.iter().filter_map(|seq| sealed.remove(seq)).flatten().collect();
                let place = |index: &usize| entries.get(*index).and_then(Entry::place);
                match by {
                    Instead::More { data, .. } => {
                        let is_there = |index: &usize| {
                            place(index).map(|at| at.container) == Some(data.container)
                        };
                        let mut all: Vec<usize> = taken.into_iter().filter(is_there).collect();
                        all.extend(unsealed.remove(&data.ino).unwrap_or_default());
                        sealed.extend(seqs.first().map(|seq| (*seq, all)));
                    }
                    Instead::Unsealed => {
                        if let Some(place) = taken.first().and_then(place) {
                            unsealed.entry(place.ino).or_default().splice(0..0, taken);
                        }
                    }
                    Instead::Nothing(_) | Instead::Rename(..) => {}
                }
            }
            _ => {}
        }
    }
    sealed.into_values().chain(unsealed.into_values()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::log::{After, DataChange, Logged, WritePlace};
    use crate::nouns::{Base, Timestamp, Version};

    const CONTAINER: ContainerId = ContainerId(1);

    fn written(range: Range<u64>) -> Entry {
        let (base, time) = (Base::Version(Version::default()), Timestamp::default());
        let place = WritePlace { ino: Ino(7), container: CONTAINER, base, old_size: 0, time };
        let data = Payload::Summed { len: range.end - range.start, sums: vec![0] };
        Entry::Written { place, offset: range.start, data }
    }

    /// Those that lack something where nothing has what it had but what was written last.
    fn looked_at(entries: &[Entry]) -> Vec<usize> {
        let is_there =
            |_, range: Range<u64>, _: &[u32], later: &RangeSet| Ok::<_, ()>(later.overlaps(range));
        lacking(entries, 0, is_there, |_, _, _, _| Ok(true)).unwrap()
    }

    /// A write that the disk had no room for stood in part over one that was done, and that one was
    /// dropped as a whole.
    #[test]
    fn what_a_failed_change_spoiled_is_not_looked_for() {
        let spoiled = Entry::Spoiled { ino: Ino(7), container: CONTAINER, range: 50..200 };
        assert_eq!(looked_at(&[written(0..100)]), [0]);
        assert!(looked_at(&[written(0..100), spoiled.clone()]).is_empty());
        assert_eq!(looked_at(&[spoiled, written(0..100)]), [1], "it was written again");
    }

    /// A loss of power cut the log off where a file was written that had no name any more.
    #[test]
    fn what_went_with_its_file_is_not_looked_for() {
        let nameless = |range| Entry::Nameless(Box::new(written(range)));
        assert!(looked_at(&[written(0..100), nameless(200..300)]).is_empty());
        // What was sealed goes to the server, but from elsewhere where it was written over.
        let sealed = |seq| {
            Entry::Change(Logged {
                seq,
                time: Timestamp::default(),
                caller: Default::default(),
                operation: None,
                after: After::Nothing,
                known: None,
                change: Change::Data(DataChange {
                    ino: Ino(7),
                    container: CONTAINER,
                    base: Base::Version(Version::default()),
                    cut: None,
                    size: 100,
                    ranges: vec![0..100],
                    mtime: Timestamp::default(),
                }),
            })
        };
        assert_eq!(looked_at(&[written(0..100), sealed(1), nameless(200..300)]), [0]);
        assert!(looked_at(&[written(0..100), sealed(1), nameless(50..60)]).is_empty());
    }
}
