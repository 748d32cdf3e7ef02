//! What is known of damage: see [`DamagedChunks`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use segue_core::namespace::{ChunkPlace, DamagedChunks};
use segue_core::nouns::Fingerprint;

use super::{Packs, lock};

impl Packs {
    /// The chunks that are known to be damaged.
    pub(crate) fn damaged(&self) -> Arc<DamagedChunks> {
        lock(&self.damaged).clone()
    }

    /// True if the last read of a chunk at its place failed.
    pub(crate) fn is_damaged(&self, fingerprint: &Fingerprint, place: &ChunkPlace) -> bool {
        self.was_damaged.load(Ordering::Acquire) && lock(&self.damaged).has(fingerprint, place)
    }

    /// The pack is gone, and its damage with it.
    pub(super) fn forget_damage_of(&self, pack: u64) {
        if self.was_damaged.load(Ordering::Acquire) {
            Arc::make_mut(&mut lock(&self.damaged)).forget_pack(pack);
        }
    }

    /// The chunk was written anew elsewhere.
    pub(crate) fn healed(&self, fingerprint: &Fingerprint, place: &ChunkPlace) {
        self.note_damage(fingerprint, place, false);
    }

    /// A chunk was read, or could not be.
    pub(super) fn note_damage(
        &self,
        fingerprint: &Fingerprint,
        place: &ChunkPlace,
        is_damaged: bool,
    ) {
        // On whole packs no read takes the lock.
        if !is_damaged && !self.was_damaged.load(Ordering::Acquire) {
            return;
        }
        self.was_damaged.store(true, Ordering::Release);
        let mut damaged = lock(&self.damaged);
        if damaged.has(fingerprint, place) == is_damaged {
            return;
        }
        let damaged = Arc::make_mut(&mut damaged);
        match is_damaged {
            true => drop(damaged.note(fingerprint, place)),
            false => damaged.clear(fingerprint, place),
        }
    }
}
