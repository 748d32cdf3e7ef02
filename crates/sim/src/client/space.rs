//! Room for what is cached, as `segue-client`'s mount/space.rs makes it.
//!
//! ```text
//!   cached ─▶ core lets go of it ─▶ out of the index ─▶ its container goes
//! ```

use segue_core::host::cache::{Bounds, Candidate, choose};
use segue_core::nouns::Ino;
use segue_core::wire::Request;

use super::{Mount, Purpose};
use crate::disk::Key;
use crate::plan::Bug;
use crate::rng::Rng;

impl Mount {
    /// Asks what quotas have left, at first and when something was changed since.
    pub(super) fn ask_for_room(&mut self) {
        if self.is_offline || !self.has_limits || !std::mem::take(&mut self.wants_room) {
            return;
        }
        let mut quotas = self.core.room.wanted();
        quotas.insert(None);
        for quota in quotas {
            let request = Request::Statfs(quota.unwrap_or(Ino::ROOT));
            self.call(request, Purpose::Room(quota));
        }
    }

    fn clean_bytes(&self) -> u64 {
        let all = self.kept.containers.values().map(|container| container.bytes.len() as u64);
        all.sum::<u64>().saturating_sub(self.core.unsafe_bytes())
    }

    /// Removes what is too much.
    pub(super) fn clean_cache(&mut self) {
        let Some(limit) = self.kept.cache_size else { return };
        let excess = Bounds::excess(limit, self.clean_bytes());
        self.evict(excess, usize::MAX);
    }

    /// Dies while it removes what is cached, for the disk is full.
    pub(crate) fn die_evicting(&mut self, rng: &mut Rng) {
        let excess = rng.below(self.clean_bytes() + 1);
        self.evict(excess, 1 + rng.index(3));
    }

    /// Removes `excess` clean bytes, but takes no more than `steps` steps on the disk.
    fn evict(&mut self, excess: u64, steps: usize) {
        let mut files = self.kept.index.candidates();
        for file in &mut files {
            let container = self.kept.containers.get(&(file.ino, file.container));
            file.bytes = container.map_or(0, |container| container.bytes.len() as u64);
        }
        let bug = self.bug;
        let gone = choose(files, excess, |file| match bug {
            Some(Bug::ClientEvictsPending) => {
                let may_go = !self.core.is_open(file.ino);
                may_go.then(|| self.core.files.remove(&file.ino));
                may_go
            }
            _ => self.core.evict(file.ino, file.container),
        });
        if gone.is_empty() {
            return;
        }
        let index_first = bug != Some(Bug::ClientBelievesEvicted);
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

    /// Containers of this process that are neither in use nor noted. Those of earlier ones go with
    /// the next start, at the latest.
    pub(crate) fn unneeded_containers(&self) -> impl Iterator<Item = Key> + '_ {
        let first = self.kept.starts << 32;
        let is_needed = move |(ino, id): Key| {
            id.0 < first
                || self.kept.index.container(ino) == Some(id)
                || self.core.needs_container(ino, id)
        };
        self.kept.containers.keys().copied().filter(move |key| !is_needed(*key))
    }

    /// Changes of which bytes are kept beside their containers.
    pub(crate) fn preserved_changes(&self) -> usize {
        self.kept.preserved.len()
    }

    /// Removes what an earlier process left and nobody needs.
    pub(super) fn sweep_left(&mut self) {
        let first = self.kept.starts << 32;
        let (core, index) = (&self.core, &self.kept.index);
        self.kept.containers.retain(|(ino, id), _| {
            id.0 >= first || index.container(*ino) == Some(*id) || core.needs_container(*ino, *id)
        });
    }
}
