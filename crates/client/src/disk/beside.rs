//! Conflict copies that changes of other hosts became, beside files whose data this host made. The
//! server tells of them; `beside.json` in the cache directory has them for the next mount.

use std::collections::BTreeMap;
use std::path::PathBuf;

use segue_core::namespace::original_name;
use segue_core::nouns::Name;
use segue_core::wire::{Became, Watched, WatchedAll};
use serde::{Deserialize, Serialize};

use crate::disk::files::replace_file;
use crate::rank::Ranked;
use crate::replies::{Conflict, ConflictKind};

/// Most of them that are remembered.
const COPIES_MAX: usize = 10_000;

/// Those that are known.
#[derive(Debug)]
pub(crate) struct CopiesBeside {
    file: PathBuf,
    known: Ranked<Known>,
}

/// What is kept of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// The server has told of all up to this commit.
    since: Option<u64>,
    /// By their paths in the volume.
    copies: BTreeMap<String, Conflict>,
}

impl CopiesBeside {
    /// Those kept in `file`: none, if it cannot be read.
    pub(crate) fn open(file: PathBuf) -> CopiesBeside {
        let kept = std::fs::read(&file).ok();
        let known = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        CopiesBeside { file, known: Ranked::leaf(known.unwrap_or_default()) }
    }

    fn keep(&self) {
        let known = self.known.lock().clone();
        let kept = serde_json::to_vec(&known).map_err(std::io::Error::other);
        if let Err(error) = kept.and_then(|kept| replace_file(&self.file, &kept)) {
            tracing::warn!("{}: {error}", self.file.display());
        }
    }

    /// Up to which commit the server has told of them.
    pub(crate) fn since(&self) -> Option<u64> {
        self.known.lock().since
    }

    /// The server tells of more.
    pub(crate) fn hear(&self, all: &WatchedAll) {
        all.changes.iter().for_each(|change| self.hear_of(change));
        self.known.lock().since = Some(all.commit);
        self.keep();
    }

    /// The one at `path` is gone.
    pub(crate) fn forget(&self, path: &str) {
        self.known.lock().copies.remove(path);
    }

    fn hear_of(&self, change: &Watched) {
        let path: Vec<String> = change.path.iter().map(Name::to_string).collect();
        let path = path.join("/");
        let mut known = self.known.lock();
        let copies = &mut known.copies;
        let of = conflict_of(&path, change.path.last());
        let (Became::Named(attr), Some(of)) = (&change.became, of) else {
            copies.remove(&path);
            return;
        };
        if copies.len() >= COPIES_MAX {
            return;
        }
        tracing::warn!("conflict: another host's change stands beside this host's, as {path}");
        let conflict = Conflict {
            kind: ConflictKind::Beside,
            of,
            bytes: attr.size,
            time_seconds: attr.mtime.secs as f64,
            path: path.clone(),
            ..Conflict::default()
        };
        copies.insert(path, conflict);
    }

    /// Forgets them: the server that told of them was put back. It is asked anew from now on.
    pub(crate) fn forget_all(&self) {
        *self.known.lock() = Known::default();
        self.keep();
    }

    /// Those that are known.
    pub(crate) fn copies(&self) -> Vec<Conflict> {
        self.known.lock().copies.values().cloned().collect()
    }
}

/// The file beside which `path` stands, if its last name is that of a conflict copy.
pub(crate) fn conflict_of(path: &str, last: Option<&Name>) -> Option<String> {
    let last = last?;
    let directory = path.strip_suffix(&last.to_string())?;
    let original = String::from_utf8_lossy(original_name(last.as_bytes())?);
    Some(format!("{directory}{original}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stands_beside_the_name_that_it_begins_with() {
        let of = |directory: &str, name: &str| {
            conflict_of(&format!("{directory}{name}"), Some(&Name::new(name).unwrap()))
        };
        let copy = "a.txt.conflict-tin-20261121-083959";
        assert_eq!(of("", copy).as_deref(), Some("a.txt"));
        assert_eq!(of("/mnt/dir/", copy).as_deref(), Some("/mnt/dir/a.txt"));
        assert_eq!(of("dir/", "a.txt"), None);
        assert_eq!(conflict_of("", None), None);
    }
}
