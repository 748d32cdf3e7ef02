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
use std::sync::Arc;

use segue_core::nouns::{ContainerId, Ino, Time, Version};

use crate::disk::CacheDisk;
use crate::disk::files::Container;
use crate::rank::Ranked;

/// Copies kept at once.
const KEPT_MAX: usize = 16;

/// Copies of versions that were emptied here and that the server still has.
#[derive(Debug, Default)]
pub(crate) struct Kept(pub(crate) Ranked<BTreeMap<Ino, Old>>);

/// A copy of a version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Old {
    pub(crate) version: Version,
    pub(crate) container: Arc<Container>,
    since: Time,
    /// Whether the truncation is logged. Until then the file is clean, and no change refers to it.
    is_emptied: bool,
}

impl Kept {
    /// Lets go of copies of emptied files that have no pending data.
    fn let_go(&self, has_data: impl Fn(Ino) -> bool) {
        self.0.lock().retain(|ino, old| !old.is_emptied || has_data(*ino));
    }

    /// The file is emptied, or could not be.
    fn emptied(&self, ino: Ino, is_done: bool) {
        let mut kept = self.0.lock();
        match kept.get_mut(&ino) {
            Some(old) if is_done => old.is_emptied = true,
            _ => drop(kept.remove(&ino)),
        }
    }
}

impl CacheDisk {
    /// Keeps the container of a large file that is about to be emptied.
    pub(crate) fn keep_basis(&self, ino: Ino, container: ContainerId, version: Version) {
        let Ok(container) = self.open_container(ino, container) else { return };
        let mut kept = self.bases.0.lock();
        if kept.len() >= KEPT_MAX
            && let Some(oldest) = kept.iter().min_by_key(|(_, old)| old.since).map(|(ino, _)| *ino)
        {
            kept.remove(&oldest);
        }
        let since = self.host.now();
        kept.insert(ino, Old { version, container, since, is_emptied: false });
    }

    /// The file of a kept copy is emptied, or could not be.
    pub(crate) fn basis_emptied(&self, ino: Ino, is_done: bool) {
        self.bases.emptied(ino, is_done);
    }

    /// Lets go of copies for which no store comes any more.
    pub(crate) fn let_go_of_bases(&self) {
        let core = self.host.lock();
        self.bases.let_go(|ino| core.is_ahead(ino) || core.queue().has_data(ino));
    }

    /// Lets go of all copies: the disk needs their room. True if there were any.
    pub(super) fn drop_bases(&self) -> bool {
        !std::mem::take(&mut *self.bases.0.lock()).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use segue_core::nouns::ContainerId;

    use super::*;
    use crate::disk::files::Containers;

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
        let has = || kept.0.lock().contains_key(&Ino(2));
        for is_done in [true, false] {
            kept.0.lock().insert(Ino(2), old.clone());
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
