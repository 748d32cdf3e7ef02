//! The versions of files that may be a basis for a store.

use segue_core::host::log::DataChange;
use segue_core::nouns::{Ino, Version};
use segue_core::upload::Candidate;

use crate::disk::basis::BasisCopy;
use crate::write_back::WriteBack;

impl WriteBack {
    /// Versions that the server may have, and that change `seq` may have much in common with.
    pub(super) fn bases(&self, seq: u64, data: &DataChange) -> Vec<Candidate<BasisCopy>> {
        let bases = self.host.lock().bases(data.ino, seq);
        let candidate = |ino| {
            self.disk.load(ino).ok();
            let version = self.host.lock().stored_version(ino)?;
            let copy = match ino == data.ino {
                true => self.kept_copy(ino, version),
                false => self.clean_copy(ino, version),
            };
            tracing::debug!("#{}: maybe on {version:?} of #{ino}, {}", data.ino, copy.is_some());
            Some(Candidate { ino, version, copy })
        };
        bases.into_iter().filter_map(candidate).collect()
    }

    /// What the file was before it was emptied or written over.
    fn kept_copy(&self, ino: Ino, version: Version) -> Option<BasisCopy> {
        let kept = self.disk.bases.0.lock().get(&ino).cloned();
        kept.filter(|old| old.version == version).map(|old| old.copy)
    }

    /// The container of another file. It is open before the server is asked: it may be removed
    /// meanwhile.
    fn clean_copy(&self, ino: Ino, version: Version) -> Option<BasisCopy> {
        let copy = self.host.lock().clean_copy(ino).filter(|copy| copy.version == version)?;
        self.disk.open_container(ino, copy.container).ok().map(BasisCopy::of)
    }
}
