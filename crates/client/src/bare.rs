//! A cache directory without a mount: what in it the server does not have, and how to get it out.
//! Nothing in it is changed, no server is asked, and where it is damaged the rest is found.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segue_core::host::cache::{FileNote, NodeNote};
use segue_core::host::log::{Change, Entry, Payload, Redo};
use segue_core::host::{Host, LeftDisk, LeftLog, Notes};
use segue_core::nouns::{Caller, ContainerId, Ino, Name, NewNode, RangeSet, Record, Time};
use serde::Serialize;

use crate::disk::files::{
    Index, Key, LogFile, ReadContainer, SHORT_LOG, holder, mapped, read_container,
};
use crate::disk::verify::has;
use crate::error::MountError;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// Numbers for changes that nobody closed.
const SEQS: u64 = 1 << 32;
/// Most files under one name.
const SAME_MAX: u32 = 10_000;

/// What a cache directory has that its server may lack.
#[derive(Debug)]
pub struct Uncommitted {
    directory: PathBuf,
    core: Host,
    redone: BTreeMap<Key, Vec<Redone>>,
    index: Option<Index>,
    /// What is wrong with the directory.
    pub damage: Option<String>,
}

/// A change that was not committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftChange {
    /// Its place in the log.
    pub seq: u64,
    /// A word: create, store, rename, ..
    pub kind: String,
    /// What it is about, below the volume's root; `#INO` where that is not known.
    pub path: String,
    /// Its bytes of data.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub time: i64,
}

/// A file of which some data were not committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftFile {
    /// Its path below the volume's root; `#INO` where that is not known.
    pub path: String,
    /// Its number.
    pub ino: u64,
    /// How long it is.
    pub size: u64,
    /// How much of it is in this directory; the rest is on the server only.
    pub here_bytes: u64,
    /// When it was last changed, in seconds since 1970.
    pub mtime: i64,
}

/// Reads the cache directory at `directory`.
pub fn uncommitted(directory: &Path) -> Result<Uncommitted, MountError> {
    if let Some(mountpoint) = holder(directory) {
        let reason = format!(
            "is in use by the mount at {mountpoint}: unmount it first, or list its pending changes \
             with 'segue log'"
        );
        return Err(MountError::state(directory, reason));
    }
    let (found, damage) = LogFile::read(&directory.join("update.log"))?;
    let index = Index::open_to_read(&directory.join("index.db"));
    let position = index.as_ref().and_then(|index| index.position().ok().flatten());
    let noted = position.map(|position| found.noted_at(position, found.entries.len()));
    let damage = damage.or_else(|| (noted == Some(None)).then(|| SHORT_LOG.to_owned()));
    let noted = noted.flatten().unwrap_or(0);
    let failed = |error| MountError::state(directory, error);
    let mapped = mapped(directory).map_err(failed)?;
    let mut core = Host::new(usize::MAX, 1);
    let redone = BTreeMap::new();
    let mut left = ReadOnly { directory, index: index.as_ref(), noted, redone };
    let first_unsynced = found.durable.max(noted);
    let log = LeftLog { entries: found.entries, first_unsynced, lost_power: false };
    core.recover(&mut left, log, Time::default()).map_err(failed)?;
    for &(ino, id) in &mapped {
        load_path(&left, &mut core, [ino].into());
        core.load(ino, left.file(ino));
        take_mapped(&mut core, ino, id);
    }
    let named =
        core.queue().iter().flat_map(|(logged, _)| logged.change.touched().inodes).collect();
    load_path(&left, &mut core, named);
    let redone = left.redone;
    Ok(Uncommitted { directory: directory.into(), core, redone, index, damage })
}

/// Loads inodes and the directories above them, which tell their paths.
fn load_path(left: &ReadOnly<'_>, core: &mut Host, mut inodes: Vec<Ino>) {
    let mut seen = BTreeSet::new();
    while let Some(ino) = inodes.pop() {
        if let Some(note) = left.node(ino).filter(|_| seen.insert(ino)) {
            inodes.extend(note.place.as_ref().map(|(directory, _)| *directory));
            core.found_in_index(note);
        }
    }
}

/// Takes a container to which maps may have written as written in full.
fn take_mapped(core: &mut Host, ino: Ino, id: ContainerId) {
    let Some(attr) = core.tree().peek(ino).copied().filter(|_| core.container(ino) == Some(id))
    else {
        return;
    };
    let all = Payload::Durable { len: attr.size };
    core.reserve_seqs(core.next_seq() + 1);
    for step in 0..2 {
        let entry = match step {
            0 => core.draft_write(ino, 0, all.clone(), attr.mtime),
            _ => core.draft_seal(ino, Caller::default()),
        };
        if let Some(entry) = entry {
            core.admit(entry, Time::default());
        }
    }
}

/// Bytes of a container that the log has itself.
#[derive(Debug)]
enum Redone {
    Bytes(u64, Vec<u8>),
    Zeros(Range<u64>),
}

/// The disk of an earlier process, read only.
struct ReadOnly<'a> {
    directory: &'a Path,
    index: Option<&'a Index>,
    noted: usize,
    redone: BTreeMap<Key, Vec<Redone>>,
}

impl LeftDisk for ReadOnly<'_> {
    type Error = io::Error;

    fn noted(&mut self, _: usize) -> io::Result<usize> {
        Ok(self.noted)
    }

    fn node(&self, ino: Ino) -> Option<NodeNote> {
        self.index?.node(ino).ok().flatten()
    }

    fn name(&self, directory: Ino, name: &Name) -> Option<Option<Ino>> {
        self.index?.name(directory, name).ok().flatten()
    }

    fn file(&self, ino: Ino) -> Option<FileNote> {
        self.index?.file(ino).ok().flatten()
    }

    /// Of a container that is missing the rest is still told.
    fn has_container(&self, _: Ino, _: ContainerId) -> bool {
        true
    }

    fn has_written(
        &self,
        key: Key,
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> io::Result<bool> {
        let ReadContainer::There(container) = read_container(self.directory, key)? else {
            return Ok(false);
        };
        has(range.clone(), sums, later, |at, len| {
            let mut bytes = vec![0; len];
            match container.read_exact_at(&mut bytes, at) {
                Ok(()) => Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        })
    }

    /// None of it is extracted.
    fn has_preserved(&self, _: u64, _: &Range<u64>, _: &[u32], _: &RangeSet) -> io::Result<bool> {
        Ok(true)
    }

    fn reserve_seqs(&mut self, first: u64) -> io::Result<u64> {
        Ok(first + SEQS)
    }

    fn mark_unsynced(&mut self, _: Ino, _: ContainerId) {}

    fn redo(&mut self, key: Key, step: Redo<'_>) -> io::Result<()> {
        let redone = self.redone.entry(key).or_default();
        match step {
            Redo::Bytes(offset, bytes) => redone.push(Redone::Bytes(offset, bytes.to_vec())),
            Redo::Zeros(range) => redone.push(Redone::Zeros(range)),
            // Nothing behind the end of a file is extracted.
            Redo::Cut(_) => {}
        }
        Ok(())
    }

    fn forget_file(&mut self, _: Ino) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Notes, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn cut_log(&mut self, _: &[Entry]) -> io::Result<()> {
        Ok(())
    }

    fn report_lost(&mut self, _: &[Entry]) -> io::Result<()> {
        Ok(())
    }

    fn append(&mut self, _: &Entry) -> io::Result<()> {
        Ok(())
    }

    fn preserved(&self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn end_doubt(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Uncommitted {
    /// The changes, oldest first.
    pub fn changes(&self) -> Vec<LeftChange> {
        let change = |logged: &segue_core::host::log::Logged| LeftChange {
            seq: logged.seq,
            kind: logged.change.kind().into(),
            path: self.path(&logged.change),
            bytes: logged.change.bytes(),
            time: logged.time.secs,
        };
        self.core.queue().iter().map(|(logged, _)| change(logged)).collect()
    }

    fn path(&self, change: &Change) -> String {
        let below = |directory: Ino, name: &Name| match self.core.tree().path(directory) {
            path if path.is_empty() => name.to_string(),
            path => format!("{path}/{name}"),
        };
        match change {
            Change::Record(
                Record::Unlink { parent, name, .. } | Record::Rmdir { parent, name, .. },
            ) => below(*parent, name),
            Change::Record(Record::Rename {
                from_parent, from_name, to_parent, to_name, ..
            }) => {
                format!("{} -> {}", below(*from_parent, from_name), below(*to_parent, to_name))
            }
            change => self.core.tree().path(change.ino()),
        }
    }

    /// The files with data that were not committed, by path.
    pub fn files(&self) -> Vec<LeftFile> {
        let mut files: BTreeMap<Ino, LeftFile> = BTreeMap::new();
        for (logged, _) in self.core.queue().iter() {
            let (ino, size, mtime) = match &logged.change {
                Change::Data(data) => (data.ino, data.size, data.mtime),
                Change::Record(Record::Create { ino, node: NewNode::File, .. }) => {
                    (*ino, 0, logged.time)
                }
                Change::Record(_) => continue,
            };
            let here_bytes = self.core.data_of(ino).map_or(0, |file| {
                file.valid().within(0..size).map(|range| range.end - range.start).sum()
            });
            let path = self.core.tree().path(ino);
            let file = LeftFile { path, ino: ino.0, size, here_bytes, mtime: mtime.secs };
            files.insert(ino, file);
        }
        files.retain(|ino, _| self.core.tree().peek(*ino).is_none_or(|attr| attr.nlink > 0));
        let mut files: Vec<LeftFile> = files.into_values().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// Writes the files below `to`, with what of them is here; the rest of a file is a hole. Tells
    /// of each where it is, or why it is not there.
    pub fn extract(&self, to: &Path, mut tell: impl FnMut(&LeftFile, Result<PathBuf, MountError>)) {
        for file in self.files() {
            let path = to.join(safe(&self.core.tree().path_bytes(Ino(file.ino))));
            let made = match make(&path) {
                // Something else stands where a directory is to be.
                Err(_) => make(&to.join(format!("#{}", file.ino))),
                made => made,
            };
            let extracted = made.and_then(|(out, path)| match self.fill(&file, &out) {
                Ok(()) => Ok(path),
                Err(error) => {
                    // Of its full length, and with zeros, it would look whole.
                    fs::remove_file(&path).ok();
                    Err(error)
                }
            });
            tell(&file, extracted.map_err(|error| MountError::state(&path, error)));
        }
    }

    pub(crate) fn fill(&self, file: &LeftFile, out: &File) -> io::Result<()> {
        out.set_len(file.size)?;
        let ino = Ino(file.ino);
        let Some(data) = self.core.data_of(ino) else { return Ok(()) };
        let key = (ino, data.container());
        if let ReadContainer::There(container) = read_container(&self.directory, key)? {
            for range in data.valid().within(0..file.size) {
                let mut at = range.start;
                while at < range.end {
                    let len = usize::try_from((range.end - at).min(STEP)).unwrap_or(1 << 20);
                    let mut bytes = vec![0; len];
                    let read = container.read_at(&mut bytes, at)?;
                    if read == 0 {
                        break;
                    }
                    out.write_all_at(bytes.get(..read).unwrap_or_default(), at)?;
                    at += read as u64;
                }
            }
        }
        for step in self.redone.get(&key).into_iter().flatten() {
            match step {
                Redone::Bytes(offset, bytes) => {
                    let offset = *offset;
                    let end = file.size.saturating_sub(offset);
                    let len = bytes.len().min(usize::try_from(end).unwrap_or(usize::MAX));
                    out.write_all_at(bytes.get(..len).unwrap_or_default(), offset)?;
                }
                Redone::Zeros(range) => {
                    for at in (range.start..range.end.min(file.size)).step_by(4096) {
                        let len = 4096.min(range.end.min(file.size) - at);
                        let zeros = vec![0; usize::try_from(len).unwrap_or(0)];
                        out.write_all_at(&zeros, at)?;
                    }
                }
            }
        }
        out.sync_all()
    }

    /// True if paths can be told: the index was readable.
    pub fn knows_paths(&self) -> bool {
        self.index.is_some()
    }
}

/// Makes a file at `path`, or at the first of `path-2`, `path-3`.. that is free.
fn make(path: &Path) -> io::Result<(File, PathBuf)> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    for number in 1..=SAME_MAX {
        let mut name = path.as_os_str().to_owned();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        match File::options().write(true).create_new(true).open(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (file, name.into())),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A path that stays below where it is put.
fn safe(path: &[u8]) -> PathBuf {
    let parts = Path::new(OsStr::from_bytes(path)).components().filter_map(|part| match part {
        std::path::Component::Normal(name) => Some(name),
        _ => None,
    });
    let safe: PathBuf = parts.collect();
    if safe.as_os_str().as_bytes().is_empty() { PathBuf::from("#unknown") } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside() {
        assert_eq!(safe(b"../../etc/passwd"), Path::new("etc/passwd"));
        assert_eq!(safe(b"/a/./b"), Path::new("a/b"));
        assert_eq!(safe(b".."), Path::new("#unknown"));
    }

    #[test]
    fn what_is_there_is_not_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let at = |made: io::Result<(File, PathBuf)>| made.unwrap().1;
        assert_eq!(at(make(&path)), path);
        assert_eq!(at(make(&path)), directory.path().join("a/b-2"));
        assert_eq!(at(make(&path)), directory.path().join("a/b-3"));
        assert!(make(&path.join("below")).is_err(), "a file is no directory");
    }
}
