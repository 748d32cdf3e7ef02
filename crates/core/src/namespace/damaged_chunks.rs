//! Chunks that are known to be damaged: their bytes could not be read where they stand.
//!
//! No file may begin to refer to such a chunk: the reference would be another damaged file. A host
//! that names one is answered as if the chunk were missing. So the host sends its bytes, which
//! heals every file that refers to it.
//!
//! Damage belongs to a place. A chunk that arrived anew stands elsewhere and is whole. What is
//! known is not durable: each read of the place finds the damage again.

use std::collections::BTreeSet;

use super::rows::{self, ChunkPlace, LeafRow, Source};
use super::{Fault, MetaSnapshot, readable};
use crate::nouns::{Fingerprint, VolumeId};

/// Places of chunks whose last read failed.
#[derive(Clone, Debug)]
pub struct DamagedChunks {
    /// With the pack, and the offset in it. Ordered by chunk.
    places: BTreeSet<(Fingerprint, u64, u64)>,
    limit: usize,
}

impl DamagedChunks {
    /// None yet, and never more than `limit`.
    pub const fn new(limit: usize) -> DamagedChunks {
        DamagedChunks { places: BTreeSet::new(), limit }
    }

    /// A read failed. False if there is no room to remember it.
    pub fn note(&mut self, fingerprint: &Fingerprint, place: &ChunkPlace) -> bool {
        let has_room = self.places.len() < self.limit;
        if has_room {
            self.places.insert((*fingerprint, place.pack, place.offset));
        }
        has_room || self.has(fingerprint, place)
    }

    /// A read succeeded.
    pub fn clear(&mut self, fingerprint: &Fingerprint, place: &ChunkPlace) {
        self.places.remove(&(*fingerprint, place.pack, place.offset));
    }

    /// The pack is gone.
    pub fn forget_pack(&mut self, id: u64) {
        self.places.retain(|(_, pack, _)| *pack != id);
    }

    /// True if the last read of the chunk at `place` failed.
    pub fn has(&self, fingerprint: &Fingerprint, place: &ChunkPlace) -> bool {
        self.places.contains(&(*fingerprint, place.pack, place.offset))
    }

    /// True if the chunk is damaged at some place, which it may have left since.
    fn has_any_place_of(&self, fingerprint: &Fingerprint) -> bool {
        let all = (*fingerprint, 0, 0)..=(*fingerprint, u64::MAX, u64::MAX);
        self.places.range(all).next().is_some()
    }

    /// True if `source` leads to no bytes, or to a chunk that is damaged. While no damage is known,
    /// the chunks of a leaf are not looked at.
    pub(super) fn has_part_of<S: MetaSnapshot>(
        &self,
        snapshot: &mut S,
        volume: VolumeId,
        source: &Source,
    ) -> Result<bool, Fault<S::Error>> {
        match source {
            Source::Inline(_) => Ok(false),
            Source::Chunk { fingerprint, .. } => {
                let row = readable::<S, _>(rows::chunk(snapshot, volume, fingerprint))?;
                Ok(row.is_none_or(|row| self.has(fingerprint, &row.place)))
            }
            Source::Leaf { leaf, .. } => {
                let row = readable::<S, _>(rows::leaf(snapshot, volume, leaf))?;
                row.map_or(Ok(true), |row| self.has_part_of_leaf(snapshot, volume, &row))
            }
        }
    }

    /// The same, of a leaf.
    pub(super) fn has_part_of_leaf<S: MetaSnapshot>(
        &self,
        snapshot: &mut S,
        volume: VolumeId,
        leaf: &LeafRow,
    ) -> Result<bool, Fault<S::Error>> {
        if self.places.is_empty() {
            return Ok(false);
        }
        for extent in &leaf.extents {
            let Source::Chunk { fingerprint, .. } = &extent.source else { return Ok(true) };
            if self.has_any_place_of(fingerprint)
                && self.has_part_of(snapshot, volume, &extent.source)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pack: u64) -> ChunkPlace {
        ChunkPlace { pack, offset: 68, stored_len: 9, raw_len: 9, compressed: false }
    }

    #[test]
    fn damage_belongs_to_a_place_and_is_bounded() {
        let mut damaged = DamagedChunks::new(2);
        let [one, two, three] = [1, 2, 3].map(|byte| Fingerprint([byte; 32]));
        assert!(damaged.note(&one, &place(7)) && damaged.note(&two, &place(7)));
        assert!(damaged.has(&one, &place(7)) && !damaged.has(&one, &place(8)));
        assert!(damaged.has_any_place_of(&one) && !damaged.has_any_place_of(&three));
        assert!(!damaged.note(&three, &place(7)), "it is full");
        assert!(damaged.note(&one, &place(7)), "it is known already");
        damaged.clear(&one, &place(7));
        assert!(!damaged.has(&one, &place(7)) && damaged.note(&three, &place(7)));
    }
}
