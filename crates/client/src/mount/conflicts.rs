//! Conflict copies that this host's changes made: counted until they are removed, moved or renamed
//! here, also over remounts. Each is a file `conflicts/SEQ.json`, on disk before the change is
//! settled.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use segue_core::modlog::Record;
use segue_core::types::{Ino, Name};
use serde::{Deserialize, Serialize};

use crate::state::{replace_file, sync_directory};

/// The copies that are known.
#[derive(Debug)]
pub(super) struct Conflicts {
    directory: PathBuf,
    copies: BTreeMap<(Ino, Vec<u8>), u64>,
}

/// One, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// For a person.
    path: String,
    parent: u64,
    name: Vec<u8>,
}

impl Conflicts {
    /// Those kept in `directory`, which is made.
    pub(super) fn open(directory: PathBuf) -> io::Result<Conflicts> {
        std::fs::create_dir_all(&directory)?;
        let mut copies = BTreeMap::new();
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let Some(seq) = seq_of(&path) else { continue };
            // One that cannot be read is one all the same.
            let kept =
                std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            let Kept { parent, name, .. } = kept.unwrap_or(Kept {
                path: String::new(),
                parent: 0,
                name: seq.to_le_bytes().into(),
            });
            copies.insert((Ino(parent), name), seq);
        }
        Ok(Conflicts { directory, copies })
    }

    pub(super) fn len(&self) -> u64 {
        self.copies.len() as u64
    }

    /// Keeps that change `seq` stands as `name` in `parent`, durably.
    pub(super) fn keep(
        &mut self,
        seq: u64,
        (parent, name): (Ino, &Name),
        path: &str,
    ) -> io::Result<()> {
        let kept = Kept { path: path.into(), parent: parent.0, name: name.as_bytes().into() };
        replace_file(&self.file(seq), &serde_json::to_vec_pretty(&kept)?)?;
        self.copies.insert((parent, name.as_bytes().into()), seq);
        Ok(())
    }

    /// A user who removes or moves a copy has dealt with it.
    pub(super) fn changed(&mut self, record: &Record) {
        let (parent, name) = match record {
            Record::Unlink { parent, name, .. } | Record::Rmdir { parent, name, .. } => {
                (parent, name)
            }
            Record::Rename { from_parent, from_name, .. } => (from_parent, from_name),
            _ => return,
        };
        if self.copies.is_empty() {
            return;
        }
        if let Some(seq) = self.copies.remove(&(*parent, name.as_bytes().into())) {
            let removed = std::fs::remove_file(self.file(seq));
            if let Err(error) = removed.and_then(|()| sync_directory(&self.directory)) {
                tracing::warn!("{}: {error}", self.directory.display());
            }
        }
    }

    fn file(&self, seq: u64) -> PathBuf {
        self.directory.join(format!("{seq}.json"))
    }
}

fn seq_of(path: &Path) -> Option<u64> {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    path.file_stem().filter(|_| is_json)?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_until_it_is_removed_also_over_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Conflicts::open(directory.path().join("conflicts")).unwrap();
        let name = |name: &str| Name::new(name).unwrap();
        open().keep(3, (Ino(1), &name("a.conflict-b-1")), "a.conflict-b-1").unwrap();
        open().keep(4, (Ino(7), &name("a.conflict-b-1")), "d/a.conflict-b-1").unwrap();
        assert_eq!(open().len(), 2);
        let remove = |name| Record::Unlink { parent: Ino(7), name, ino: Ino(9), open: false };
        open().changed(&remove(name("a")));
        assert_eq!(open().len(), 2);
        open().changed(&remove(name("a.conflict-b-1")));
        assert_eq!(open().len(), 1);
    }
}
