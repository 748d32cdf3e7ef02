//! Refused changes, kept for the user with their data: `refused/SEQ.json` and `SEQ.data`.
//!
//! It stays until the user says that it may go.
//!
//! A change is parked, durably, before it is settled. So it may be parked duplicate, by a process
//! that died in between and by the next one, whose container may be empty by then: what was
//! kept first stays.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use segue_core::host::call::{Kept, KeptAs};
use segue_core::host::log::{Change, Logged};
use segue_core::refusal::Refusal;
use serde::Deserialize;

use crate::disk::CacheDisk;
use crate::disk::files::{Key, copy_data, replace_file, sync_directory};
use crate::disk::source::Source;
use crate::replies::{Conflict, ConflictKind};
use crate::unmounted::refused as refused_in;

/// Of what is kept in a damaged file.
pub(super) const UNREADABLE: &str = "the note of it on this host cannot be read";
/// Bytes copied at a time.
const STEP: u64 = 1 << 20;

/// The fate of a change, with the place of its data. The file may change meanwhile.
pub(crate) struct Parking<'a> {
    pub(crate) kept: Kept,
    source: Option<Source<'a>>,
}

/// What is kept of a change, as far as it can be read.
#[derive(Default, Deserialize)]
struct Refused {
    path: String,
    why: String,
    change: Option<Logged>,
    /// The size of a whole file that is kept instead of a change.
    #[serde(default)]
    whole: Option<u64>,
}

/// Copies a container to `path`, where the copy is as a whole or not at all. Returns its size.
fn copy_whole(container: &File, path: &Path) -> io::Result<u64> {
    let new = path.with_extension("new-data");
    let file = File::create(&new)?;
    if let Err(error) = copy_data(container, &file) {
        // A part is of no use, and takes the room that is missing.
        std::fs::remove_file(&new).ok();
        return Err(error);
    }
    std::fs::rename(&new, path)?;
    Ok(file.metadata()?.len())
}

fn refused(path: &Path) -> Conflict {
    let text = std::fs::read(path).ok();
    let kept: Option<Refused> = text.and_then(|text| serde_json::from_slice(&text).ok());
    let Refused { path: of, why, change, whole } =
        kept.unwrap_or_else(|| Refused { why: UNREADABLE.into(), ..Refused::default() });
    let data = path.with_extension("data");
    let has_data = data.exists();
    let (mut ranges, mut size) = (Vec::new(), 0);
    if let Some(whole) = whole {
        (ranges, size) = (vec![0..whole], whole);
    }
    if let Some(Change::Data(data)) = change.as_ref().map(|logged| &logged.change) {
        (ranges, size) = (data.ranges.clone(), data.size);
    }
    Conflict {
        kind: ConflictKind::Refused,
        path: of,
        id: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        change: match (&change, whole) {
            (Some(logged), _) => logged.change.kind().into(),
            (None, Some(_)) => "map".into(),
            (None, None) => String::new(),
        },
        why,
        bytes: ranges.iter().map(|range| range.end - range.start).sum(),
        time_seconds: change.map_or(0.0, |logged| logged.time.secs as f64),
        data: if has_data { data.display().to_string() } else { String::new() },
        ranges,
        size,
        ..Conflict::default()
    }
}

/// Copies these parts of a change. What cannot be read is an error, or `may_lack`: then a hole.
fn copy(parts: &[Range<u64>], source: &Source<'_>, path: &Path, may_lack: bool) -> io::Result<()> {
    let file = File::create(path)?;
    for range in parts {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(STEP);
            match source.read(at, usize::try_from(len).unwrap_or(1 << 20)) {
                Ok(bytes) => file.write_all_at(&bytes, at)?,
                Err(error) if may_lack => {
                    tracing::error!("{}: bytes at {at} are lost: {error}", path.display());
                }
                Err(error) => return Err(error),
            }
            at += len;
        }
    }
    file.sync_all()
}

/// The refused changes that are kept.
pub(crate) struct RefusedChanges {
    pub(crate) directory: PathBuf,
    count: AtomicU64,
}

impl RefusedChanges {
    /// Those in `directory`.
    pub(crate) fn at(directory: PathBuf) -> RefusedChanges {
        RefusedChanges { count: AtomicU64::new(refused_in(&directory)), directory }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The refused changes, in the order of what they are kept as.
    pub(crate) fn list(&self) -> Vec<Conflict> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let is_json = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_json).collect();
        // By number, where they are numbers.
        files.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        files.iter().map(|path| refused(path)).collect()
    }

    /// Removes one with its data, durably; false if there is none.
    pub(crate) fn remove(&self, id: &str) -> io::Result<bool> {
        let name = self.directory.join(format!("{id}.json"));
        if Path::new(id).file_name() != Some(id.as_ref()) || !name.exists() {
            return Ok(false);
        }
        // The data first: without the other one nobody would find them.
        match std::fs::remove_file(name.with_extension("data")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::remove_file(&name)?,
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        sync_directory(&self.directory)?;
        Ok(true)
    }
}

impl CacheDisk {
    /// Opens its data, so that it can be kept later.
    pub(crate) fn parking(&self, kept: Kept) -> Result<Parking<'_>, Refusal> {
        let source = match (&kept.to, &kept.logged.change) {
            (KeptAs::Refused(_), Change::Data(data)) => Some(self.source(kept.logged.seq, data)?),
            _ => None,
        };
        Ok(Parking { kept, source })
    }

    /// Keeps it for the user, durably.
    pub(crate) fn keep(&self, parking: &Parking<'_>) -> Result<(), Refusal> {
        match &parking.kept.to {
            KeptAs::Copy { parent, name, duplicate } => {
                self.keep_conflict(&parking.kept.logged, (*parent, name), duplicate.as_deref())
            }
            KeptAs::Refused(refusal) => self.park(parking, *refusal),
        }
    }

    /// Keeps a refused change, durably.
    fn park(&self, parking: &Parking<'_>, refusal: Refusal) -> Result<(), Refusal> {
        let logged = &parking.kept.logged;
        let path = self.host.lock().tree().path(logged.change.ino());
        let name = self.for_user.refused.directory.join(format!("{}.json", logged.seq));
        if name.exists() {
            return Ok(());
        }
        let by = if refusal == Refusal::Lost { "this host" } else { "the server" };
        tracing::warn!("{path}: {by} refused the {}: {refusal}", logged.change.kind());
        let kept =
            serde_json::json!({ "path": path, "why": refusal.to_string(), "change": logged });
        let parked = self.park_data(parking, refusal).and_then(|()| {
            // The data's name is durable with this one's.
            replace_file(&name, &serde_json::to_vec_pretty(&kept)?)
        });
        parked.map_err(|error| self.disk_refusal("refused change", &error))?;
        self.for_user.refused.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn park_data(&self, parking: &Parking<'_>, refusal: Refusal) -> io::Result<()> {
        let logged = &parking.kept.logged;
        let (Change::Data(data), Some(source)) = (&logged.change, &parking.source) else {
            return Ok(());
        };
        let path = self.for_user.refused.directory.join(format!("{}.data", logged.seq));
        let is_lost = refusal == Refusal::Lost;
        let parts = if is_lost { source.left(data) } else { data.ranges.clone() };
        if is_lost && parts.is_empty() {
            return Ok(());
        }
        let copied = copy(&parts, source, &path, is_lost);
        if copied.is_err() {
            // A part is of no use, and takes the room that is missing.
            std::fs::remove_file(&path).ok();
        }
        copied
    }

    /// Keeps all of a container that the file has no more, durably: a map wrote into it. What was
    /// kept of it before is replaced, because it is still written to.
    pub(crate) fn park_map(&self, (ino, id): Key, container: &File) -> Result<(), Refusal> {
        let path = self.host.lock().tree().path(ino);
        let id = format!("map-{}-{}", ino.0, id.0);
        let name = self.for_user.refused.directory.join(format!("{id}.json"));
        let is_new = !name.exists();
        let parked = copy_whole(container, &name.with_extension("data")).and_then(|whole| {
            let why = "the file had other contents when writes of a memory map were found";
            let kept = serde_json::json!({ "path": path, "why": why, "whole": whole });
            replace_file(&name, &serde_json::to_vec_pretty(&kept)?)
        });
        parked.map_err(|error| self.disk_refusal("refused change", &error))?;
        if is_new {
            tracing::warn!("{path}: it has other contents, so writes of a memory map are refused");
            self.for_user.refused.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
