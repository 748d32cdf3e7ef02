//! Room for the cache: data that the server has go when there are too many of them.
//!
//! ```text
//!   cached ─▶ core lets go of it ─▶ out of the index ─▶ its container goes
//! ```

use segue_core::host::Host;
use segue_core::host::cache::{Bounds, Candidate, choose};

use super::{HostDisk, Key};
use crate::plan::Bug;
use crate::rng::Rng;

impl HostDisk {
    fn clean_bytes(&self, core: &Host) -> u64 {
        let all = self.kept.containers.values().map(|container| container.bytes.len() as u64);
        all.sum::<u64>().saturating_sub(core.unsafe_bytes())
    }

    /// Removes data if there are too many.
    pub(crate) fn clean_cache(&mut self, core: &mut Host) {
        let Some(limit) = self.kept.cache_size else { return };
        let excess = Bounds::excess(limit, self.clean_bytes(core));
        self.evict(core, excess, usize::MAX);
    }

    /// Dies while it removes cached data, for the disk is full.
    pub(crate) fn die_evicting(&mut self, core: &mut Host, rng: &mut Rng) {
        let excess = rng.below(self.clean_bytes(core) + 1);
        self.evict(core, excess, 1 + rng.index(3));
    }

    /// Removes `excess` clean bytes, but takes no more than `steps` steps on the disk.
    fn evict(&mut self, core: &mut Host, excess: u64, steps: usize) {
        let mut files = self.kept.index.candidates();
        for file in &mut files {
            let container = self.kept.containers.get(&(file.ino, file.container));
            file.bytes = container.map_or(0, |container| container.bytes.len() as u64);
        }
        let gone = choose(files, excess, |file| core.evict(file.ino, file.container));
        if gone.is_empty() {
            return;
        }
        let index_first = self.bug != Some(Bug::ClientBelievesEvicted);
        if index_first && steps > 0 {
            self.kept.save_index().evict(&gone);
        }
        let mut left = steps.saturating_sub(usize::from(index_first));
        for Candidate { ino, container, .. } in &gone {
            if left > 0 {
                self.kept.containers.remove(&(*ino, *container));
                left -= 1;
            }
        }
        if !index_first && left > 0 {
            self.kept.save_index().evict(&gone);
        }
    }

    /// The number of the first container of this process.
    pub(super) fn first_container(&self) -> u64 {
        self.kept.starts << 32
    }

    /// True if a container is in use or noted.
    fn is_needed(&self, core: &Host, (ino, id): Key) -> bool {
        self.kept.index.container(ino) == Some(id)
            || core.needs_container(ino, id)
            || self.kept.maps.get(&(ino, id)) == Some(&true)
    }

    /// A container of this process that is neither in use nor noted. Those of earlier ones go with
    /// the next start, at the latest.
    pub(crate) fn unneeded_container(&self, core: &Host) -> Option<Key> {
        let first = self.first_container();
        let mut keys = self.kept.containers.keys().copied();
        keys.find(|key| key.1.0 >= first && !self.is_needed(core, *key))
    }

    /// Removes containers that an earlier process left and nobody needs.
    pub(super) fn sweep_left(&mut self, core: &Host) {
        let first = self.first_container();
        let left = self.kept.containers.keys().copied().filter(|key| key.1.0 < first);
        for key in left.filter(|key| !self.is_needed(core, *key)).collect::<Vec<_>>() {
            self.kept.containers.remove(&key);
        }
    }
}
