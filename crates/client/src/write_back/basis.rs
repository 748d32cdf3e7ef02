//! Which version of what file is a basis for a store.

use std::sync::Arc;

use segue_core::delta::Basis;
use segue_core::host::log::DataChange;
use segue_core::host::send::BASIS_MIN;
use segue_core::nouns::Class;

use crate::disk::files::Container;
use crate::rank::lock;
use crate::write_back::WriteBack;

/// So many other files are tried.
const ALIKE_MAX: usize = 2;

/// A basis, and this host's copy of it.
pub(crate) struct Alike {
    pub(crate) basis: Basis,
    pub(crate) copy: Option<Arc<Container>>,
}

impl WriteBack {
    /// What change `seq` may have in common with what the server has, if it is large.
    pub(super) async fn alike(self: &Arc<Self>, seq: u64, data: &DataChange) -> Option<Alike> {
        let bytes: u64 = data.ranges.iter().map(|range| range.end - range.start).sum();
        if bytes < BASIS_MIN {
            return None;
        }
        let first = data.ranges.first().map_or(u64::MAX, |range| range.start);
        let from = data.cut.unwrap_or(u64::MAX).min(first);
        let own = self.host.lock().stored_version(data.ino);
        if let Some(version) = own
            && let Some(basis) = self.outlined(Basis::new(data.ino, version), from).await
        {
            let kept = lock(&self.disk.bases.0).get(&data.ino).cloned();
            let copy = kept.filter(|old| old.version == version).map(|old| old.container);
            tracing::debug!("#{}: on {version:?} of itself, copy: {}", data.ino, copy.is_some());
            return Some(Alike { basis, copy });
        }
        let others = self.host.lock().alike(data.ino, seq);
        for other in others.into_iter().take(ALIKE_MAX) {
            self.disk.load(other).ok();
            let (version, copy) = {
                let core = self.host.lock();
                (core.stored_version(other), core.clean_copy(other))
            };
            let Some(version) = version else { continue };
            // Opened before the server is asked: it may be removed meanwhile.
            let copy = copy.filter(|copy| copy.version == version);
            let copy = copy.and_then(|copy| self.disk.open_container(other, copy.container).ok());
            if let Some(basis) = self.outlined(Basis::new(other, version), 0).await {
                tracing::debug!(
                    "#{}: on {version:?} of #{other}, copy: {}",
                    data.ino,
                    copy.is_some()
                );
                return Some(Alike { basis, copy });
            }
        }
        None
    }

    /// Asks how a basis is cut from `from` on; `None` if it is of no use.
    async fn outlined(self: &Arc<Self>, mut basis: Basis, from: u64) -> Option<Basis> {
        let (ino, version) = basis.of();
        let mut next = Some(from);
        while let Some(offset) = next {
            let ask = |rpc| async move { self.remote.outline(&rpc, ino, version, offset).await };
            match self.until_due(Class::StoreData, ask).await {
                Ok(outlined) => next = basis.learn(&outlined),
                // What is known of it so far may do.
                Err(refusal) => {
                    tracing::debug!("#{ino}: no outline: {refusal}");
                    next = None;
                }
            }
        }
        (!basis.is_empty()).then_some(basis)
    }
}
