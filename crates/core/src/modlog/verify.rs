//! Which data that the log speaks of have to be on the disk, to be compared with what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Change, Entry, Payload};
use crate::cache::{ContainerId, RangeSet};
use crate::types::Ino;

/// Which of `entries`, from the `first` on, lack some of their bytes on the disk. Only data that the
/// server may lack are looked at, and of these only what nothing was written over: `is_there` says
/// whether a container has in a range what the checksums are of, but for what was written later;
/// `is_preserved` the same of the bytes that a change had.
pub fn lacking<E>(
    entries: &[Entry],
    first: usize,
    is_there: impl Fn((Ino, ContainerId), Range<u64>, &[u32], &RangeSet) -> Result<bool, E>,
    is_preserved: impl Fn(u64, &Range<u64>, &[u32]) -> Result<bool, E>,
) -> Result<Vec<usize>, E> {
    let live = live(entries);
    let is_settled = |seq: u64| {
        entries.iter().any(|entry| match entry {
            Entry::Settled { seq: it, .. } => *it == seq,
            Entry::Unsealed { seq: it } => *it == seq,
            Entry::Cancelled { seqs, .. } | Entry::Superseded { seqs, .. } => seqs.contains(&seq),
            _ => false,
        })
    };
    let mut later: BTreeMap<(Ino, ContainerId), RangeSet> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate().skip(first).rev() {
        if let Entry::Preserved { seq, range, sums } = entry
            && !is_settled(*seq)
            && !is_preserved(*seq, range, sums)?
        {
            found.push(index);
        }
        let Some(place) = entry.place() else { continue };
        let key = (place.ino, place.container);
        let later = later.entry(key).or_default();
        match entry {
            Entry::Written { offset, data, .. } => {
                let range = *offset..offset.saturating_add(data.len());
                if let Payload::Summed { sums, .. } = data
                    && live.contains(&index)
                    && !is_there(key, range.clone(), sums, later)?
                {
                    found.push(index);
                }
                later.insert(range);
            }
            Entry::Resized { size, .. } => later.insert(*size..u64::MAX),
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

/// Entries of data that are not known to be on the server. What a file had in one container is of no use
/// once it has another: that was emptied before.
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
        match entry {
            Entry::Written { place, .. } => unsealed.entry(place.ino).or_default().push(index),
            Entry::Change(logged) => {
                if let Change::Data(data) = &logged.change {
                    sealed.insert(logged.seq, unsealed.remove(&data.ino).unwrap_or_default());
                }
            }
            Entry::Unsealed { seq } => {
                let again = sealed.remove(seq).unwrap_or_default();
                if let Some(place) = again.first().and_then(|index| entries[*index].place()) {
                    let later = unsealed.entry(place.ino).or_default();
                    later.splice(0..0, again);
                }
            }
            Entry::Amended { seq, data, .. } => {
                let all = sealed.entry(*seq).or_default();
                let is_there = |index: &usize| {
                    entries[*index].place().map(|at| at.container) == Some(data.container)
                };
                all.retain(is_there);
                all.extend(unsealed.remove(&data.ino).unwrap_or_default());
            }
            Entry::Settled { seq, .. } => drop(sealed.remove(seq)),
            Entry::Cancelled { seqs, .. } | Entry::Superseded { seqs, .. } => {
                sealed.retain(|seq, _| !seqs.contains(seq));
            }
            _ => {}
        }
    }
    sealed.into_values().chain(unsealed.into_values()).flatten().collect()
}
