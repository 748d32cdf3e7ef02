//! Readers of packs, and packs that wait for the last of them.
//!
//! Whoever takes places out of rows and reads there holds a pin from before he looked. A pack
//! that no row leads to any more is retired: those who come later cannot find it, and when
//! everybody from before is gone nobody reads it.

use std::sync::{Arc, Weak};

/// Keeps every pack that a row leads to now, for as long as it lives.
#[must_use]
pub(crate) struct Pin {
    _era: Arc<()>,
}

/// Pins by era: with each retirement a new one begins.
#[derive(Default)]
pub(super) struct Pins {
    era: Arc<()>,
    /// Eras with packs that were retired at their end, oldest first.
    retired: Vec<(Weak<()>, Vec<u64>)>,
}

impl Pins {
    pub(super) fn pin(&self) -> Pin {
        Pin { _era: self.era.clone() }
    }

    pub(super) fn retire(&mut self, packs: Vec<u64>) {
        let over = std::mem::take(&mut self.era);
        self.retired.push((Arc::downgrade(&over), packs));
    }

    /// True if the pack is among those retired.
    pub(super) fn is_retired(&self, pack: u64) -> bool {
        self.retired.iter().any(|(_, packs)| packs.contains(&pack))
    }

    /// Packs of eras that are over, all earlier ones too; each is told once.
    pub(super) fn unread(&mut self) -> Vec<u64> {
        let over = self.retired.iter().take_while(|(era, _)| era.strong_count() == 0).count();
        self.retired.drain(..over).flat_map(|(_, packs)| packs).collect()
    }
}
