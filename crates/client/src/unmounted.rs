//! Cache directories that no mount uses, and the changes in them that their servers lack.
//!
//! Caches lie below the state directory of their user, and below each base directory that was named
//! by the mount option `cache-dir`. The list of these is a file in the state directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;

use crate::bare::{LeftChange, uncommitted};
use crate::disk::files::{holder, replace_file, volumes};

/// A cache directory without a mount, with changes that exist on this host only.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct UnmountedCache {
    /// The cache directory.
    pub cache: PathBuf,
    /// The volume as it was mounted last; empty if that is not known.
    pub url: String,
    /// Changes that the server lacks, oldest first.
    #[serde(skip)]
    pub changes: Vec<LeftChange>,
    /// Number of these changes.
    pub pending_records: u64,
    /// Their bytes of data.
    pub pending_bytes: u64,
    /// Changes that the server refused, kept here.
    pub refused: u64,
    /// Damage of the directory, which may hide changes.
    pub damage: Option<String>,
}

/// The caches of the user whose state directory is `state_home`, or below `more`, that no mount
/// uses and whose changes a server lacks. A cache that cannot be read counts as one of them.
pub fn unmounted(state_home: &Path, more: Option<&Path>) -> Vec<UnmountedCache> {
    let mut bases = bases(state_home);
    bases.extend(more.map(Path::to_path_buf));
    bases.insert(state_home.to_path_buf());
    bases.iter().flat_map(|base| below(base)).collect()
}

fn below(base: &Path) -> Vec<UnmountedCache> {
    let urls: BTreeMap<String, String> =
        volumes(base).into_iter().map(|(url, uuid)| (uuid, url)).collect();
    let mut found = Vec::new();
    let entries = match fs::read_dir(base) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return found,
        Err(error) => return vec![unreadable(base.into(), String::new(), &error)],
        Ok(entries) => entries,
    };
    for entry in entries.flatten() {
        let cache = entry.path();
        let url = urls.get(entry.file_name().to_string_lossy().as_ref());
        let url = url.cloned().unwrap_or_default();
        match cache.join("state.json").symlink_metadata() {
            Ok(meta) if meta.is_file() && holder(&cache).is_none() => {
                found.extend(look(cache, url));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found.push(unreadable(cache, url, &error));
            }
            _ => {}
        }
    }
    found
}

/// A cache, or a directory of caches, whose changes nobody knows.
fn unreadable(cache: PathBuf, url: String, error: &io::Error) -> UnmountedCache {
    let (changes, damage) = (Vec::new(), Some(error.to_string()));
    let (pending_records, pending_bytes, refused) = Default::default();
    UnmountedCache { cache, url, changes, pending_records, pending_bytes, refused, damage }
}

/// `None` if the server has everything.
fn look(cache: PathBuf, url: String) -> Option<UnmountedCache> {
    let (changes, damage) = match uncommitted(&cache) {
        Ok(left) => (left.changes(), left.damage),
        Err(_) if holder(&cache).is_some() => return None,
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let refused = refused(&cache.join("refused"));
    let is_safe = changes.is_empty() && damage.is_none() && refused == 0;
    let pending_records = changes.len() as u64;
    let pending_bytes = changes.iter().map(|change| change.bytes).sum();
    let found =
        UnmountedCache { cache, url, changes, pending_records, pending_bytes, refused, damage };
    (!is_safe).then_some(found)
}

/// How many refused changes a directory keeps.
pub(crate) fn refused(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "json")).count() as u64
}

fn bases_file(state_home: &Path) -> PathBuf {
    state_home.join("cache-dirs.json")
}

fn bases(state_home: &Path) -> BTreeSet<PathBuf> {
    // A damaged list is made anew by the next mounts.
    let known = fs::read(bases_file(state_home)).ok();
    known.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Notes durably that caches lie below `base`.
pub(crate) fn remember_base(state_home: &Path, base: &Path) -> io::Result<()> {
    let mut known = bases(state_home);
    if base == state_home || !known.insert(base.to_path_buf()) {
        return Ok(());
    }
    fs::create_dir_all(state_home)?;
    replace_file(&bases_file(state_home), &serde_json::to_vec_pretty(&known)?)
}
