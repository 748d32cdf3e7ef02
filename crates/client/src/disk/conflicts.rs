//! Conflict copies that this host's changes made: known until they are removed, moved or renamed
//! here, found to be gone, or said to be kept; also over remounts. Each is a file
//! `conflicts/SEQ.json`, on disk before the change is settled.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use segue_core::host::conflict::Duplicate;
use segue_core::host::log::{Change, Logged};
use segue_core::nouns::{Caller, Dentry, Ino, Name, Record};
use segue_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::disk::CacheDisk;
use crate::disk::files::{replace_file, sync_directory};
use crate::disk::park::UNREADABLE;
use crate::replies::Conflict;

/// The copies that are known.
#[derive(Debug)]
pub(crate) struct Conflicts {
    directory: PathBuf,
    copies: BTreeMap<(Ino, Vec<u8>), (u64, Kept)>,
    /// Copies of which nothing is known but that there are some: what is kept of them is damaged.
    unreadable: BTreeSet<u64>,
}

/// One, as it is kept. What earlier versions did not say is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// For a person.
    pub(crate) path: String,
    parent: u64,
    name: Vec<u8>,
    /// What it stands beside, for a person.
    #[serde(default)]
    pub(crate) of: String,
    /// When the change was made, in seconds since 1970.
    #[serde(default)]
    pub(crate) time_seconds: f64,
    /// The duplicate, if it is one.
    #[serde(default)]
    twice: Option<KeptTwice>,
}

/// A duplicate, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptTwice {
    /// The name that both gave it, where this one stands under another one.
    name: Vec<u8>,
    ino: u64,
    by: Caller,
}

impl Kept {
    /// That the change `logged` stands as `name` in `parent`; `path` tells a person of an inode.
    fn new(
        logged: &Logged,
        (parent, name): (Ino, &Name),
        duplicate: Option<&Duplicate>,
        path: impl Fn(Ino) -> String,
    ) -> Kept {
        let within = |parent, name: &Name| format!("{}/{name}", path(parent));
        let of = match &logged.change {
            Change::Record(
                Record::Create { parent, name, .. }
                | Record::Link { parent, name, .. }
                | Record::Rename { to_parent: parent, to_name: name, .. },
            ) => within(*parent, name),
            other => path(other.ino()),
        };
        let twice = duplicate.map(|duplicate| KeptTwice {
            name: duplicate.name.as_bytes().into(),
            ino: duplicate.ino.0,
            by: duplicate.by.clone(),
        });
        Kept {
            path: within(parent, name),
            parent: parent.0,
            name: name.as_bytes().into(),
            of,
            time_seconds: logged.time.secs as f64,
            twice,
        }
    }

    /// The duplicate, if it is one.
    pub(crate) fn duplicate(&self) -> Option<Duplicate> {
        let (parent, name) = self.place()?;
        let KeptTwice { name: wanted, ino, by } = self.twice.clone()?;
        let at = Dentry { parent, name };
        Some(Duplicate { at, name: Name::new(wanted).ok()?, ino: Ino(ino), by })
    }

    /// Where it stands, if that can be a name.
    pub(crate) fn place(&self) -> Option<(Ino, Name)> {
        Some((Ino(self.parent), Name::new(self.name.clone()).ok()?))
    }
}

impl Conflicts {
    /// Those kept in `directory`, which is made.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Conflicts> {
        std::fs::create_dir_all(&directory)?;
        let (mut copies, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let Some(seq) = seq_of(&path) else { continue };
            match read(&path) {
                Some(kept) => {
                    copies.insert((Ino(kept.parent), kept.name.clone()), (seq, kept));
                }
                // It is one all the same.
                None => {
                    unreadable.insert(seq);
                }
            }
        }
        Ok(Conflicts { directory, copies, unreadable })
    }

    pub(crate) fn len(&self) -> u64 {
        (self.copies.len() + self.unreadable.len()) as u64
    }

    /// Keeps a copy that change `seq` became, durably.
    pub(crate) fn keep(&mut self, seq: u64, kept: Kept) -> io::Result<()> {
        replace_file(&self.file(seq), &serde_json::to_vec_pretty(&kept)?)?;
        self.copies.insert((Ino(kept.parent), kept.name.clone()), (seq, kept));
        Ok(())
    }

    /// All of them, oldest first.
    pub(crate) fn list(&self) -> Vec<Kept> {
        let mut copies: Vec<_> = self.copies.values().collect();
        copies.sort_by_key(|(seq, _)| *seq);
        copies.into_iter().map(|(_, kept)| kept.clone()).collect()
    }

    /// Those of which nothing is known, oldest first.
    pub(crate) fn unreadable(&self) -> Vec<Conflict> {
        let conflict = |seq: &u64| Conflict {
            id: seq.to_string(),
            why: UNREADABLE.into(),
            note: self.file(*seq).display().to_string(),
            ..Conflict::default()
        };
        self.unreadable.iter().map(conflict).collect()
    }

    /// Whoever had to has dealt with the copy of which `id` is all that is known. False if there is
    /// none.
    pub(crate) fn forget_unreadable(&mut self, id: &str) -> io::Result<bool> {
        let Some(seq) = id.parse().ok().filter(|seq| self.unreadable.contains(seq)) else {
            return Ok(false);
        };
        match std::fs::remove_file(self.file(seq)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => sync_directory(&self.directory)?,
        }
        self.unreadable.remove(&seq);
        Ok(true)
    }

    /// A user who removes or moves a copy has dealt with it.
    pub(crate) fn changed(&mut self, record: &Record) {
        let (parent, name) = match record {
            Record::Unlink { parent, name, .. } | Record::Rmdir { parent, name, .. } => {
                (parent, name)
            }
            Record::Rename { from_parent, from_name, .. } => (from_parent, from_name),
            _ => return,
        };
        self.forget(*parent, name.as_bytes());
    }

    /// Whoever had to has dealt with it. True if it was known.
    pub(crate) fn forget(&mut self, parent: Ino, name: &[u8]) -> bool {
        if self.copies.is_empty() {
            return false;
        }
        let Some((seq, _)) = self.copies.remove(&(parent, name.into())) else { return false };
        let removed = std::fs::remove_file(self.file(seq));
        if let Err(error) = removed.and_then(|()| sync_directory(&self.directory)) {
            tracing::warn!("{}: {error}", self.directory.display());
        }
        true
    }

    fn file(&self, seq: u64) -> PathBuf {
        self.directory.join(format!("{seq}.json"))
    }
}

/// What is kept in a file, if that tells of a copy.
fn read(path: &Path) -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    kept.place().map(|_| kept)
}

fn seq_of(path: &Path) -> Option<u64> {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    path.file_stem().filter(|_| is_json)?.to_str()?.parse().ok()
}

impl CacheDisk {
    /// Keeps that a change became a conflict copy, durably.
    pub(super) fn keep_conflict(
        &self,
        logged: &Logged,
        (parent, name): (Ino, &Name),
        duplicate: Option<&Duplicate>,
    ) -> Result<(), Refusal> {
        let kept = {
            let core = self.host.lock();
            Kept::new(logged, (parent, name), duplicate, |ino| core.tree().path(ino))
        };
        tracing::warn!("conflict: this host's change is kept as {}", kept.path);
        self.metrics.conflicts.inc();
        let kept = self.for_user.conflicts.lock().keep(logged.seq, kept);
        kept.map_err(|error| self.disk_refusal("conflicts", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S10.6, S10.7.
    #[test]
    fn a_copy_counts_until_it_is_removed_also_over_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Conflicts::open(directory.path().join("conflicts")).unwrap();
        let name = |name: &str| Name::new(name).unwrap();
        let kept = |parent| Kept { parent, name: b"a.conflict-b-1".into(), ..Kept::default() };
        open().keep(3, kept(1)).unwrap();
        open().keep(4, kept(7)).unwrap();
        // As an earlier version kept one, and what a disk did to another.
        let files = directory.path().join("conflicts");
        let earlier = br#"{"path":"/x","parent":1,"name":[120]}"#;
        std::fs::write(files.join("5.json"), earlier).unwrap();
        std::fs::write(files.join("6.json"), b"{").unwrap();
        let nameless = br#"{"path":"/y","parent":1,"name":[47]}"#;
        std::fs::write(files.join("7.json"), nameless).unwrap();
        assert_eq!((open().len(), open().list().len()), (5, 3));
        let listed = open().unreadable();
        let notes: Vec<&str> = listed.iter().map(|conflict| conflict.note.as_str()).collect();
        assert_eq!(notes, ["6.json", "7.json"].map(|name| files.join(name).display().to_string()));
        for (id, is_one) in [("6", true), ("6", false), ("7", true), ("5", false), ("../7", false)]
        {
            assert_eq!(open().forget_unreadable(id).unwrap(), is_one, "{id}");
        }
        assert!(open().unreadable().is_empty());
        assert!(open().forget(Ino(1), b"x"));
        let remove = |name| Record::Unlink { parent: Ino(7), name, ino: Ino(9), open: false };
        open().changed(&remove(name("a")));
        assert_eq!(open().len(), 2);
        open().changed(&remove(name("a.conflict-b-1")));
        assert_eq!(open().len(), 1);
        assert_eq!(open().list()[0].parent, 1);
    }
}
