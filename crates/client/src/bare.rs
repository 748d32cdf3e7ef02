//! A cache directory without a mount: what in it the server does not have, and how to get it out.
//! Nothing in it is changed, no server is asked, and where it is damaged the rest is found.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segue_core::host::cache::FileNote;
use segue_core::host::log::{Change, Entry, Payload, Redo, lacking, redo};
use segue_core::host::{Host, Needs, needs};
use segue_core::nouns::{Caller, ContainerId, Ino, Name, NewNode, RangeSet, Record, Time};
use serde::Serialize;

use crate::error::MountError;
use crate::mount::verify::has;
use crate::state::{Index, LogFile, ReadContainer, SHORT_LOG, holder, mapped, read_container};

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// Most files under one name.
const SAME_MAX: u32 = 10_000;

/// What a cache directory has that its server may lack.
#[derive(Debug)]
pub struct Uncommitted {
    directory: PathBuf,
    core: Host,
    entries: Vec<Entry>,
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
    let mut entries = found.entries;
    leave_out_lacking(directory, &mut entries, found.durable.max(noted))
        .map_err(|error| MountError::state(directory, error))?;
    let mapped = mapped(directory).map_err(|error| MountError::state(directory, error))?;
    let mut core = Host::new(usize::MAX, 1);
    let mut files = BTreeMap::new();
    if let Some(index) = &index {
        let mut needs = needs(&entries, noted);
        needs.inodes.extend(mapped.iter().map(|(ino, _)| *ino));
        files = load(index, &mut core, needs);
    }
    let unsealed = core.recover(entries.clone(), noted, &files, Time::default());
    for data in unsealed {
        core.reserve_seqs(core.next_seq() + 1);
        let entry = core.draft_leftover(data, Caller::default(), false);
        core.admit(entry, Time::default());
    }
    for (ino, id) in mapped {
        core.load(ino, files.get(&ino).cloned());
        take_mapped(&mut core, ino, id);
    }
    Ok(Uncommitted { directory: directory.into(), core, entries, index, damage })
}

/// Takes a container to which maps may have written as written in full.
fn take_mapped(core: &mut Host, ino: Ino, id: ContainerId) {
    let Some(attr) = core.tree.peek(ino).copied().filter(|_| core.container(ino) == Some(id))
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

/// Takes out what was written and is not in its container, from entry `first` on: a process that
/// was killed had begun its last change, and a loss of power takes any part of what was not synced.
fn leave_out_lacking(directory: &Path, entries: &mut Vec<Entry>, first: usize) -> io::Result<()> {
    let is_there = |key, range, sums: &[u32], later: &RangeSet| {
        let ReadContainer::There(container) = read_container(directory, key)? else {
            return Ok(false);
        };
        has(range, sums, later, |at, len| {
            let mut bytes = vec![0; len];
            match container.read_exact_at(&mut bytes, at) {
                Ok(()) => Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        })
    };
    loop {
        // What stands elsewhere is not looked at: none of it is extracted.
        let lacking = lacking(entries, first, is_there, |_, _, _, _| Ok::<_, io::Error>(true))?;
        if lacking.is_empty() {
            return Ok(());
        }
        for index in lacking.into_iter().rev() {
            entries.remove(index);
        }
    }
}

fn load(index: &Index, core: &mut Host, needs: Needs) -> BTreeMap<Ino, FileNote> {
    let mut files = BTreeMap::new();
    let mut inodes: Vec<Ino> = needs.inodes.iter().copied().collect();
    inodes.extend(needs.names.iter().map(|(directory, _)| *directory));
    let mut seen = BTreeSet::new();
    while let Some(ino) = inodes.pop() {
        if !seen.insert(ino) {
            continue;
        }
        if let Ok(Some(note)) = index.node(ino) {
            // The directories above tell the path.
            inodes.extend(note.place.as_ref().map(|(directory, _)| *directory));
            core.tree.install_note(note);
        }
        if let Ok(Some(file)) = index.file(ino) {
            files.insert(ino, file);
        }
    }
    for (directory, name) in needs.names {
        if let Ok(Some(meaning)) = index.name(directory, &name) {
            core.tree.install_noted_name(directory, name, meaning);
        }
    }
    files
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
        self.core.queue.iter().map(|(logged, _)| change(logged)).collect()
    }

    fn path(&self, change: &Change) -> String {
        let below = |directory: Ino, name: &Name| match self.core.tree.path(directory) {
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
            change => self.core.tree.path(change.ino()),
        }
    }

    /// The files with data that were not committed, by path.
    pub fn files(&self) -> Vec<LeftFile> {
        let mut files: BTreeMap<Ino, LeftFile> = BTreeMap::new();
        for (logged, _) in self.core.queue.iter() {
            let (ino, size, mtime) = match &logged.change {
                Change::Data(data) => (data.ino, data.size, data.mtime),
                Change::Record(Record::Create { ino, node: NewNode::File, .. }) => {
                    (*ino, 0, logged.time)
                }
                Change::Record(_) => continue,
            };
            let here_bytes = self.core.files.get(&ino).map_or(0, |file| {
                file.valid().within(0..size).map(|range| range.end - range.start).sum()
            });
            let path = self.core.tree.path(ino);
            let file = LeftFile { path, ino: ino.0, size, here_bytes, mtime: mtime.secs };
            files.insert(ino, file);
        }
        files.retain(|ino, _| self.core.tree.peek(*ino).is_none_or(|attr| attr.nlink > 0));
        let mut files: Vec<LeftFile> = files.into_values().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// Writes the files below `to`, with what of them is here; the rest of a file is a hole. Tells
    /// of each where it is, or why it is not there.
    pub fn extract(&self, to: &Path, mut tell: impl FnMut(&LeftFile, Result<PathBuf, MountError>)) {
        for file in self.files() {
            let path = to.join(safe(&self.core.tree.path_bytes(Ino(file.ino))));
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

    fn fill(&self, file: &LeftFile, out: &File) -> io::Result<()> {
        out.set_len(file.size)?;
        let ino = Ino(file.ino);
        let Some(data) = self.core.files.get(&ino) else { return Ok(()) };
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
        for (_, step) in redo(&self.entries).into_iter().filter(|(other, _)| *other == key) {
            match step {
                Redo::Bytes(offset, bytes) => {
                    let end = file.size.saturating_sub(offset);
                    let len = bytes.len().min(usize::try_from(end).unwrap_or(usize::MAX));
                    out.write_all_at(bytes.get(..len).unwrap_or_default(), offset)?;
                }
                Redo::Zeros(range) => {
                    for at in (range.start..range.end.min(file.size)).step_by(4096) {
                        let len = 4096.min(range.end.min(file.size) - at);
                        let zeros = vec![0; usize::try_from(len).unwrap_or(0)];
                        out.write_all_at(&zeros, at)?;
                    }
                }
                Redo::Cut(_) => {}
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
