//! What is left of removed files, and how long ago somebody asked for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use segue_core::nouns::{Ino, VolumeId};
use segue_core::upkeep::RemnantAges;

use crate::meta::{Kv, MetaFault};

/// The ages of remnants, between those who ask for them and the collector.
#[derive(Clone)]
pub(crate) struct Remnants {
    started: Instant,
    ages: Arc<Mutex<RemnantAges>>,
}

impl Default for Remnants {
    fn default() -> Remnants {
        Remnants { started: Instant::now(), ages: Arc::default() }
    }
}

impl Remnants {
    /// Seconds by a clock that nobody sets.
    fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    fn ages(&self) -> MutexGuard<'_, RemnantAges> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host was told of what is left of `ino`.
    pub(crate) fn asked(&self, volume: VolumeId, ino: Ino) {
        let now = self.now();
        self.ages().asked(volume, ino, now);
    }

    /// [`RemnantAges::expire`].
    pub(super) fn expire(
        &self,
        txn: &mut Kv<'_>,
        budget: usize,
        is_full: bool,
    ) -> Result<usize, MetaFault> {
        let now = self.now();
        self.ages().expire(txn, now, budget, is_full)
    }
}
