//! Leaves: long runs of chunks, named before the record that commits them.
//!
//! A part may be told by where it stands in a version of a file. Whoever is served the volume may
//! fetch that, so these chunks need no other proof; and a leaf that is not what it was called is
//! not made. Nor is one of chunks that cannot be read here: writing a file anew heals what is
//! damaged.

use std::collections::BTreeSet;

use segue_core::chunk::CHUNK_MAX;
use segue_core::namespace::outline::{Chunks, run};
use segue_core::namespace::{
    self, Admits, ChunkPlace, LEAF_EXTENTS_MAX, NotStaged, Stop, is_damage, leaf_name, leaf_of,
};
use segue_core::nouns::{Fingerprint, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::wire::{Leaf, LeafPart, Refused, Reply, STAGE_MAX, Stage, Staged};
use segue_rpc::Body;

use super::upload::{few_files, full, read};
use super::{Answer, Bound, Session, lost, refuse};
use crate::clock::now_seconds;
use crate::meta::{Kv, MetaFault, StoreError};

/// So many bytes that are told by where they stand are read for one request: what one leaf can
/// have, which is what hosts ask for. What is beyond comes by its names.
const READ_MAX: u64 = (LEAF_EXTENTS_MAX * CHUNK_MAX) as u64;

/// Leaves to be made.
struct Leaves {
    volume: VolumeId,
    leaves: Vec<Leaf>,
    /// Ascending.
    shown: Vec<Fingerprint>,
}

/// A leaf whose parts lead to what it is called.
struct Led {
    /// Its place among those that are to be made.
    index: u32,
    chunks: Chunks,
    /// Where those are that were told by where they stand.
    places: Vec<(Fingerprint, ChunkPlace)>,
    /// How long these are together.
    bytes: u64,
    /// Its chunks that are shown to be possessed, or stand in a file that may be read.
    proven: BTreeSet<Fingerprint>,
}

impl Session {
    pub(super) async fn stage(&self, bound: &Bound, stage: Stage) -> Answer {
        let fits = |leaf: &Leaf| (1..=LEAF_EXTENTS_MAX).contains(&leaf.parts.len());
        if stage.leaves.len() > STAGE_MAX || !stage.leaves.iter().all(fits) {
            let words =
                format!("at most {STAGE_MAX} leaves at once, of 1 to {LEAF_EXTENTS_MAX} chunks");
            return Err(refuse(Refusal::Limit, words));
        }
        bound.brings()?;
        if self.server.data.store.disk_space().admits() != Admits::All {
            return Err(StoreError::Full.into());
        }
        let files = few_files(stage.files)?;
        let mut shown: Vec<Fingerprint> = {
            let proven = self.proven();
            let parts = stage.leaves.iter().flat_map(|leaf| &leaf.parts);
            let name = |part: &LeafPart| match part {
                LeafPart::Chunk(fingerprint, _) => Some(*fingerprint),
                LeafPart::Run { .. } => None,
            };
            parts.filter_map(name).filter(|name| proven.contains(name)).collect()
        };
        shown.sort_unstable();
        let (volume, now) = (bound.volume, now_seconds());
        let leaves = Leaves { volume, leaves: stage.leaves, shown };
        // Not in the transaction, for which others would wait: a chunk that goes in between is
        // missing.
        let pin = self.server.data.packs.pin();
        let led = self.server.data.store.read(move |kv| leaves.lead(kv)).await?;
        let (led, mut astray) = led.map_err(StoreError::from)?;
        let (led, damaged) = self.whole(led).await?;
        drop(pin);
        astray.extend(damaged);
        astray.sort_unstable();
        let damaged = self.server.data.packs.damaged();
        let work = move |txn: &mut Kv<'_>| -> Result<_, MetaFault> {
            let (mut made, mut missing) = (Vec::new(), Vec::new());
            for Led { chunks, proven, .. } in &led {
                let is_usable = |name: &Fingerprint, place: &ChunkPlace| {
                    proven.contains(name) && !damaged.has(name, place)
                };
                match namespace::stage(txn, volume, (chunks, &files), &is_usable, now)? {
                    Ok(leaf) => made.push(leaf),
                    Err(NotStaged::Missing(chunks)) => missing.extend(chunks),
                    Err(NotStaged::Refused(refusal)) => return Ok(Err(refusal)),
                }
            }
            Ok(Ok((made, missing)))
        };
        let (made, missing) = self.server.data.store.write(work).await?.map_err(full)?;
        let mut proven = self.proven();
        made.into_iter().for_each(|leaf| proven.insert(leaf));
        Ok((Reply::Staged(Staged { missing, astray }), Body::Empty))
    }

    /// Those of `led` of which each chunk that was told by where it stands can be read, and the
    /// places of the others.
    async fn whole(&self, led: Vec<Led>) -> Result<(Vec<Led>, Vec<u32>), Refused> {
        let (told, mut led): (Vec<Led>, Vec<Led>) =
            led.into_iter().partition(|leaf| !leaf.places.is_empty());
        if told.is_empty() {
            return Ok((led, Vec::new()));
        }
        let (told, mut astray) = up_to(told, READ_MAX);
        // The semaphore is never closed.
        let _place = self.rooms.differences.acquire().await;
        let server = self.server.clone();
        let work = move || {
            let is_whole = |leaf: &Led| {
                leaf.places.iter().all(|(name, place)| read(&server, name, place).is_some())
            };
            told.into_iter().partition(is_whole)
        };
        let (whole, damaged): (Vec<Led>, Vec<Led>) =
            tokio::task::spawn_blocking(work).await.map_err(lost)?;
        led.extend(whole);
        astray.extend(damaged.iter().map(|leaf| leaf.index));
        Ok((led, astray))
    }
}

/// As many of the first as have `most` bytes together, and the places of the others.
fn up_to(led: Vec<Led>, most: u64) -> (Vec<Led>, Vec<u32>) {
    let mut sum = 0_u64;
    let fits = |leaf: &Led| {
        sum = sum.saturating_add(leaf.bytes);
        sum <= most
    };
    let (fit, beyond): (Vec<Led>, Vec<Led>) = led.into_iter().partition(fits);
    (fit, beyond.iter().map(|leaf| leaf.index).collect())
}

impl Leaves {
    /// Those that lead to what they are called, and the places of the others.
    fn lead(&self, snapshot: &mut Kv<'_>) -> Result<(Vec<Led>, Vec<u32>), MetaFault> {
        let (mut led, mut astray) = (Vec::new(), Vec::new());
        for (index, leaf) in (0..).zip(&self.leaves) {
            match self.chunks(snapshot, (index, leaf))? {
                Some(leaf) => led.push(leaf),
                None => astray.push(index),
            }
        }
        Ok((led, astray))
    }

    /// The chunks of a leaf; `None` unless they are what it is called.
    fn chunks(
        &self,
        snapshot: &mut Kv<'_>,
        (index, leaf): (u32, &Leaf),
    ) -> Result<Option<Led>, MetaFault> {
        let (mut chunks, mut proven, mut stand) = (Chunks::new(), BTreeSet::new(), Vec::new());
        let mut bytes = 0;
        for part in &leaf.parts {
            match part {
                LeafPart::Chunk(name, len) => {
                    if self.shown.binary_search(name).is_ok() {
                        proven.insert(*name);
                    }
                    chunks.push((*name, *len));
                }
                LeafPart::Run { ino, version, range } => {
                    let found = run(snapshot, self.volume, (*ino, *version), range);
                    let Some(found) = readable(found)?.flatten() else { return Ok(None) };
                    stand.extend(found.iter().map(|(name, _)| *name));
                    bytes += found.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
                    chunks.extend(found);
                }
            }
            if chunks.len() > LEAF_EXTENTS_MAX {
                return Ok(None);
            }
        }
        if leaf_name(&leaf_of(&chunks)) != Some(leaf.name) {
            return Ok(None);
        }
        let mut places = Vec::with_capacity(stand.len());
        for name in stand {
            let row = namespace::chunk(snapshot, self.volume, &name).map_err(Stop::Fault);
            let Some(row) = readable(row)?.flatten() else { return Ok(None) };
            proven.insert(name);
            places.push((name, row.place));
        }
        Ok(Some(Led { index, chunks, places, bytes, proven }))
    }
}

/// What was read; `None` if it may not be or is damaged: the chunks then come by their names.
fn readable<T>(read: Result<T, Stop<rusqlite::Error>>) -> Result<Option<T>, MetaFault> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Stop::Refused(_)) => Ok(None),
        Err(Stop::Fault(fault)) if is_damage::<Kv<'_>>(&fault) => Ok(None),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_comes_by_its_names() {
        let leaf = |(index, bytes)| Led {
            index,
            chunks: Chunks::new(),
            places: Vec::new(),
            bytes,
            proven: BTreeSet::new(),
        };
        let leaves = |sizes: [u64; 3]| (0..).zip(sizes).map(leaf).collect::<Vec<Led>>();
        let kept = |sizes, most| {
            let (fit, beyond) = up_to(leaves(sizes), most);
            (fit.iter().map(|leaf| leaf.index).collect::<Vec<u32>>(), beyond)
        };
        assert_eq!(kept([4, 5, 1], 10), (vec![0, 1, 2], vec![]));
        assert_eq!(kept([4, 7, 1], 10), (vec![0], vec![1, 2]));
        assert_eq!(kept([11, u64::MAX, 0], 10), (vec![], vec![0, 1, 2]));
    }
}
