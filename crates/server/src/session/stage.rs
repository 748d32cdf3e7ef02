//! Leaves: long runs of chunks, named before the record that commits them.
//!
//! A part may be told by where it stands in a version of a file. Whoever is served the volume may
//! fetch that, so these chunks need no other proof; and a leaf that is not what it was called is
//! not made. Nor is one of chunks that cannot be read here: writing a file anew heals what is
//! damaged.

use segue_core::chunk::CHUNK_MAX;
use segue_core::namespace::arrivals::BroughtFor;
use segue_core::namespace::{self, Admits, ChunkPlace, LEAF_EXTENTS_MAX, Led, NotStaged};
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

/// A leaf that leads to its name, and its place among those that are to be made.
type Numbered = (u32, Led);

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
        let (volume, client, now) = (bound.volume, bound.client, now_seconds());
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
            let of = BroughtFor { client, files: &files };
            for (_, Led { chunks, proven, .. }) in &led {
                let is_usable = |name: &Fingerprint, place: &ChunkPlace| {
                    proven.contains(name) && !damaged.has(name, place)
                };
                match namespace::stage(txn, volume, (chunks, of), &is_usable, now)? {
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
    async fn whole(&self, led: Vec<Numbered>) -> Result<(Vec<Numbered>, Vec<u32>), Refused> {
        let (told, mut led): (Vec<Numbered>, Vec<Numbered>) =
            led.into_iter().partition(|(_, leaf)| !leaf.places.is_empty());
        if told.is_empty() {
            return Ok((led, Vec::new()));
        }
        let (told, mut astray) = up_to(told, READ_MAX);
        // The semaphore is never closed.
        let _place = self.rooms.differences.acquire().await;
        let server = self.server.clone();
        let work = move || {
            let is_whole = |(_, leaf): &Numbered| {
                leaf.places.iter().all(|(name, place)| read(&server, name, place).is_some())
            };
            told.into_iter().partition(is_whole)
        };
        let (whole, damaged): (Vec<Numbered>, Vec<Numbered>) =
            tokio::task::spawn_blocking(work).await.map_err(lost)?;
        led.extend(whole);
        astray.extend(damaged.iter().map(|(index, _)| *index));
        Ok((led, astray))
    }
}

/// As many of the first as have `most` bytes together, and the places of the others.
fn up_to(led: Vec<Numbered>, most: u64) -> (Vec<Numbered>, Vec<u32>) {
    let mut sum = 0_u64;
    let fits = |(_, leaf): &Numbered| {
        sum = sum.saturating_add(leaf.bytes);
        sum <= most
    };
    let (fit, beyond): (Vec<Numbered>, Vec<Numbered>) = led.into_iter().partition(fits);
    (fit, beyond.iter().map(|(index, _)| *index).collect())
}

impl Leaves {
    /// Those that lead to what they are called, and the places of the others.
    fn lead(&self, snapshot: &mut Kv<'_>) -> Result<(Vec<Numbered>, Vec<u32>), MetaFault> {
        let (mut led, mut astray) = (Vec::new(), Vec::new());
        let shown = |name: &Fingerprint| self.shown.binary_search(name).is_ok();
        for (index, leaf) in (0..).zip(&self.leaves) {
            match namespace::lead(snapshot, self.volume, leaf, shown)? {
                Some(leaf) => led.push((index, leaf)),
                None => astray.push(index),
            }
        }
        Ok((led, astray))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_comes_by_its_names() {
        let leaf = |(index, bytes)| {
            let (chunks, places, proven) = Default::default();
            (index, Led { chunks, places, bytes, proven })
        };
        let leaves = |sizes: [u64; 3]| (0..).zip(sizes).map(leaf).collect::<Vec<Numbered>>();
        let kept = |sizes, most| {
            let (fit, beyond) = up_to(leaves(sizes), most);
            (fit.iter().map(|(index, _)| *index).collect::<Vec<u32>>(), beyond)
        };
        assert_eq!(kept([4, 5, 1], 10), (vec![0, 1, 2], vec![]));
        assert_eq!(kept([4, 7, 1], 10), (vec![0], vec![1, 2]));
        assert_eq!(kept([11, u64::MAX, 0], 10), (vec![], vec![0, 1, 2]));
    }
}
