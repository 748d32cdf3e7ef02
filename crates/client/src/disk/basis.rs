//! What a store may have in common with what the server has: which version is a basis for it, and
//! this host's copy of that, out of which a chunk that differs is told as a difference.
//!
//! ```text
//!   a large file is emptied ─▶ its container is kept open ─▶ the store is made ─▶ it is settled
//!                              (it has no name any more)                      or a minute passes
//!   or written over ─▶ the first bytes are kept in memory ─▶ ..
//! ```
//!
//! Nobody relies on a copy that is kept: it takes room until it is let go of, and a process that
//! dies lets go of all. Without it a chunk that differs goes whole.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use segue_core::nouns::{ContainerId, Ino, Time, Version};

use crate::disk::CacheDisk;
use crate::disk::files::{Container, Key};
use crate::rank::Ranked;

/// Copies kept at once.
const KEPT_MAX: usize = 16;

/// This host's copy of a version of a file: a container, and bytes of it that were overwritten.
#[derive(Clone, Debug)]
pub(crate) struct BasisCopy {
    container: Arc<Container>,
    /// Where they began, and what they were.
    overwritten: Option<(u64, Arc<Vec<u8>>)>,
}

impl BasisCopy {
    /// All of a container.
    pub(crate) fn of(container: Arc<Container>) -> BasisCopy {
        BasisCopy { container, overwritten: None }
    }

    /// `len` bytes at `offset`. They may be others, if they were overwritten and not kept: then the
    /// server takes no difference from them.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = self.container.read(offset, len)?;
        if let Some((first, old)) = &self.overwritten {
            let index = |at: u64, from: u64| usize::try_from(at - from).unwrap_or(usize::MAX);
            let end = (offset + len as u64).min(first + old.len() as u64);
            let start = offset.max(*first);
            if start < end
                && let Some(place) = bytes.get_mut(index(start, offset)..index(end, offset))
                && let Some(kept) = old.get(index(start, *first)..index(end, *first))
            {
                place.copy_from_slice(kept);
            }
        }
        Ok(bytes)
    }
}

/// Copies of versions that were emptied here and that the server still has.
#[derive(Debug, Default)]
pub(crate) struct Kept(pub(crate) Ranked<BTreeMap<Ino, Old>>);

/// A copy of a version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Old {
    pub(crate) version: Version,
    pub(crate) copy: BasisCopy,
    since: Time,
    /// Whether the change is logged. Until then the file is clean, and no change refers to it.
    is_changed: bool,
}

impl Kept {
    /// Lets go of copies of changed files that have no pending data.
    fn let_go(&self, has_data: impl Fn(Ino) -> bool) {
        self.0.lock().retain(|ino, old| !old.is_changed || has_data(*ino));
    }

    /// The file is changed, or could not be.
    fn changed(&self, ino: Ino, is_done: bool) {
        let mut kept = self.0.lock();
        match kept.get_mut(&ino) {
            Some(old) if is_done => old.is_changed = true,
            _ => drop(kept.remove(&ino)),
        }
    }
}

impl CacheDisk {
    /// Keeps the container of a large file that is about to be emptied.
    pub(crate) fn keep_basis(&self, ino: Ino, container: ContainerId, version: Version) {
        let Ok(container) = self.open_container(ino, container) else { return };
        self.keep_copy(ino, version, BasisCopy::of(container));
    }

    /// Keeps bytes of a container that are about to be overwritten, behind those that were kept
    /// before.
    pub(crate) fn keep_overwritten(&self, (ino, id): Key, version: Version, range: &Range<u64>) {
        let Ok(container) = self.open_container(ino, id) else { return };
        let len = usize::try_from(range.end - range.start).unwrap_or_default();
        let Ok(more) = container.read(range.start, len) else { return };
        if let Some(old) = self.bases.0.lock().get_mut(&ino)
            && let Some((first, bytes)) = &mut old.copy.overwritten
            && (old.version, *first + bytes.len() as u64) == (version, range.start)
        {
            Arc::make_mut(bytes).extend(more);
            return;
        }
        let overwritten = Some((range.start, Arc::new(more)));
        self.keep_copy(ino, version, BasisCopy { container, overwritten });
    }

    fn keep_copy(&self, ino: Ino, version: Version, copy: BasisCopy) {
        let since = self.host.now();
        let mut kept = self.bases.0.lock();
        if kept.len() >= KEPT_MAX
            && let Some(oldest) = kept.iter().min_by_key(|(_, old)| old.since).map(|(ino, _)| *ino)
        {
            kept.remove(&oldest);
        }
        kept.insert(ino, Old { version, copy, since, is_changed: false });
    }

    /// The file of a kept copy is changed, or could not be.
    pub(crate) fn basis_changed(&self, ino: Ino, is_done: bool) {
        self.bases.changed(ino, is_done);
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
        let copy = BasisCopy::of(container);
        let old = Old { version, copy, since, is_changed: false };
        let kept = Kept::default();
        let has = || kept.0.lock().contains_key(&Ino(2));
        for is_done in [true, false] {
            kept.0.lock().insert(Ino(2), old.clone());
            kept.let_go(|_| false);
            assert!(has());
            kept.changed(Ino(2), is_done);
            assert_eq!(has(), is_done);
            kept.let_go(|_| true);
            assert_eq!(has(), is_done);
            kept.let_go(|_| false);
            assert!(!has());
        }
    }

    #[test]
    fn a_copy_has_what_was_overwritten_since() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open((Ino(2), ContainerId(1))).unwrap();
        container.write(&[1; 100], 0).unwrap();
        let overwritten = Some((20, Arc::new(vec![1; 30])));
        container.write(&[2; 60], 20).unwrap();
        let copy = BasisCopy { container, overwritten };
        assert_eq!(copy.read(0, 50).unwrap(), [1; 50]);
        assert_eq!(copy.read(30, 10).unwrap(), [1; 10]);
        assert_eq!(copy.read(40, 20).unwrap(), [[1; 10], [2; 10]].concat());
        assert_eq!(copy.read(60, 30).unwrap(), [vec![2; 20], vec![1; 10]].concat());
        assert_eq!(copy.read(0, 10).unwrap(), [1; 10]);
    }
}
