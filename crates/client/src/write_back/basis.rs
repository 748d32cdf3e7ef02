//! The versions of files that may be a basis for a store.

use std::sync::Arc;

use segue_core::host::log::DataChange;
use segue_core::upload::Candidate;

use crate::disk::files::Container;
use crate::rank::lock;
use crate::write_back::WriteBack;

/// So many other files are tried.
const ALIKE_MAX: usize = 2;

impl WriteBack {
    /// Versions that the server may have, and that change `seq` may have much in common with: the
    /// earlier one of the file first.
    pub(super) fn bases(&self, seq: u64, data: &DataChange) -> Vec<Candidate<Arc<Container>>> {
        let ino = data.ino;
        let own = self.host.lock().stored_version(ino).map(|version| {
            let kept = lock(&self.disk.bases.0).get(&ino).cloned();
            let copy = kept.filter(|old| old.version == version).map(|old| old.container);
            Candidate { ino, version, copy }
        });
        let others = self.host.lock().alike(ino, seq);
        let others = others.into_iter().take(ALIKE_MAX).filter_map(|ino| {
            self.disk.load(ino).ok();
            let (version, copy) = {
                let core = self.host.lock();
                (core.stored_version(ino)?, core.clean_copy(ino))
            };
            // Opened before the server is asked: it may be removed meanwhile.
            let copy = copy.filter(|copy| copy.version == version);
            let copy = copy.and_then(|copy| self.disk.open_container(ino, copy.container).ok());
            Some(Candidate { ino, version, copy })
        });
        let bases: Vec<_> = own.into_iter().chain(others).collect();
        for Candidate { ino, version, copy } in &bases {
            tracing::debug!("#{}: maybe on {version:?} of #{ino}, {}", data.ino, copy.is_some());
        }
        bases
    }
}
