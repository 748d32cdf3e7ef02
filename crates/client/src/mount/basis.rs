//! What a store may have in common with what the server has: which version is a basis for it, and
//! this host's copy of that, out of which a chunk that differs is told as a difference.
//!
//! ```text
//!   a large file is emptied ─▶ its container is kept open ─▶ the store is made ─▶ it is settled
//!                              (it has no name any more)                      or a minute passes
//! ```
//!
//! Nobody relies on a copy that is kept: it takes room until it is let go of, and a process that
//! dies lets go of all. Without it a chunk that differs goes whole.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use segue_core::delta::Basis;
use segue_core::host::log::DataChange;
use segue_core::host::send::BASIS_MIN;
use segue_core::nouns::{Class, ContainerId, Ino, Time, Version};

use super::{Mount, Shared, lock};
use crate::state::Container;

/// Copies kept at once.
const KEPT_MAX: usize = 16;
/// So many other files are tried.
const ALIKE_MAX: usize = 2;

/// Copies of versions that were emptied here and that the server still has.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<BTreeMap<Ino, Old>>);

/// A copy of a version of a file.
#[derive(Clone, Debug)]
struct Old {
    version: Version,
    container: Arc<Container>,
    since: Time,
    /// Whether the truncation is logged. Until then the file is clean, and no change refers to it.
    is_emptied: bool,
}

impl Kept {
    /// Lets go of copies of emptied files that have no pending data.
    fn let_go(&self, has_data: impl Fn(Ino) -> bool) {
        lock(&self.0).retain(|ino, old| !old.is_emptied || has_data(*ino));
    }

    /// The file is emptied, or could not be.
    fn emptied(&self, ino: Ino, is_done: bool) {
        let mut kept = lock(&self.0);
        match kept.get_mut(&ino) {
            Some(old) if is_done => old.is_emptied = true,
            _ => drop(kept.remove(&ino)),
        }
    }
}

/// A basis, and this host's copy of it.
pub(super) struct Alike {
    pub(super) basis: Basis,
    pub(super) copy: Option<Arc<Container>>,
}

impl Mount {
    /// Keeps the container of a large file that is about to be emptied.
    pub(super) fn keep_basis(&self, ino: Ino, container: ContainerId, version: Version) {
        let Ok(container) = self.open_container(ino, container) else { return };
        let mut kept = lock(&self.kept.0);
        if kept.len() >= KEPT_MAX
            && let Some(oldest) = kept.iter().min_by_key(|(_, old)| old.since).map(|(ino, _)| *ino)
        {
            kept.remove(&oldest);
        }
        let since = self.now();
        kept.insert(ino, Old { version, container, since, is_emptied: false });
    }

    /// The file of a kept copy is emptied, or could not be.
    pub(super) fn basis_emptied(&self, ino: Ino, is_done: bool) {
        self.kept.emptied(ino, is_done);
    }

    /// Lets go of copies for which no store comes any more.
    pub(super) fn let_go_of_bases(&self) {
        let core = self.core();
        self.kept.let_go(|ino| core.is_ahead(ino) || core.queue.has_data(ino));
    }

    /// Lets go of all copies: the disk needs their room. True if there were any.
    pub(super) fn drop_bases(&self) -> bool {
        !std::mem::take(&mut *lock(&self.kept.0)).is_empty()
    }

    /// What change `seq` may have in common with what the server has, if it is large.
    pub(super) async fn alike(self: &Shared, seq: u64, data: &DataChange) -> Option<Alike> {
        let bytes: u64 = data.ranges.iter().map(|range| range.end - range.start).sum();
        if bytes < BASIS_MIN {
            return None;
        }
        let first = data.ranges.first().map_or(u64::MAX, |range| range.start);
        let from = data.cut.unwrap_or(u64::MAX).min(first);
        let own = self.core().stored_version(data.ino);
        if let Some(version) = own
            && let Some(basis) = self.outlined(Basis::new(data.ino, version), from).await
        {
            let kept = lock(&self.kept.0).get(&data.ino).cloned();
            let copy = kept.filter(|old| old.version == version).map(|old| old.container);
            tracing::debug!("#{}: on {version:?} of itself, copy: {}", data.ino, copy.is_some());
            return Some(Alike { basis, copy });
        }
        let others = self.core().alike(data.ino, seq);
        for other in others.into_iter().take(ALIKE_MAX) {
            self.load(other).ok();
            let (version, copy) = {
                let core = self.core();
                (core.stored_version(other), core.clean_copy(other))
            };
            let Some(version) = version else { continue };
            // Opened before the server is asked: it may be removed meanwhile.
            let copy = copy.filter(|copy| copy.version == version);
            let copy = copy.and_then(|copy| self.open_container(other, copy.container).ok());
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
    async fn outlined(self: &Shared, mut basis: Basis, from: u64) -> Option<Basis> {
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

#[cfg(test)]
mod tests {
    use segue_core::nouns::ContainerId;

    use super::*;
    use crate::state::Containers;

    /// A tidy between the copy and the log's entry let go of the copy. Then the timer sealed the
    /// file before it was whole: a kilobyte at the front of 64 MB cost 125 KB to 69 MB.
    #[test]
    fn a_copy_stays_while_its_file_is_being_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open((Ino(2), ContainerId(1))).unwrap();
        let (version, since) = (Version::default(), Time::default());
        let old = Old { version, container, since, is_emptied: false };
        let kept = Kept::default();
        let has = || lock(&kept.0).contains_key(&Ino(2));
        for is_done in [true, false] {
            lock(&kept.0).insert(Ino(2), old.clone());
            kept.let_go(|_| false);
            assert!(has());
            kept.emptied(Ino(2), is_done);
            assert_eq!(has(), is_done);
            kept.let_go(|_| true);
            assert_eq!(has(), is_done);
            kept.let_go(|_| false);
            assert!(!has());
        }
    }
}
