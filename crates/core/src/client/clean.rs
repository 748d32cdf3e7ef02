//! Which files are clean, so that what is valid of them may be noted on disk.
//!
//! ```text
//!   change_begins ─▶ note on disk forgotten ─▶ container ─▶ log ─▶ core ─▶ change_ended
//! ```
//!
//! Invariant: from the moment before its container is changed until the server has the change,
//! nothing on disk says that the changed bytes are valid and clean: a process may die anywhere.

use super::ClientCore;
use crate::cache::FileData;
use crate::types::Ino;

impl ClientCore {
    /// The container of `ino` is about to be changed; true if what was noted on disk of its valid
    /// ranges must be forgotten first. Until as many calls of [`ClientCore::change_ended`] it is
    /// not [clean](ClientCore::clean).
    pub fn change_begins(&mut self, ino: Ino) -> bool {
        *self.changing.entry(ino).or_default() += 1;
        !self.files.get(&ino).is_some_and(FileData::has_dirty)
    }

    /// A change of a container has ended, well or not.
    pub fn change_ended(&mut self, ino: Ino) {
        if let Some(count) = self.changing.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.changing.remove(&ino);
            }
        }
    }

    /// True if all that is here of `ino` is what the server has, and stays so for now.
    fn is_clean(&self, ino: Ino) -> bool {
        !self.is_ahead(ino) && !self.changing.contains_key(&ino)
    }

    /// Files of which what is valid may be noted on disk.
    pub fn clean(&self) -> Vec<(Ino, FileData)> {
        let files = self.files.iter().filter(|(ino, _)| self.is_clean(**ino));
        files.map(|(ino, file)| (*ino, file.clone())).collect()
    }

    /// `ino`, if it is one of them.
    pub fn clean_one(&self, ino: Ino) -> Option<(Ino, FileData)> {
        let file = self.files.get(&ino).filter(|_| self.is_clean(ino))?;
        Some((ino, file.clone()))
    }

    /// Forgets those of `files`, whose valid ranges are noted on disk, that nobody uses.
    pub fn forget_idle(&mut self, files: &[(Ino, FileData)]) {
        for (ino, _) in files {
            if self.is_clean(*ino) && !self.is_open(*ino) {
                self.files.remove(ino);
            }
        }
    }
}
