//! The directory of a volume's backups.
//!
//! ```text
//!   DIR/SEGUE-BACKUP                           whose backups these are, and their format; flock
//!   DIR/snapshots/TIME-EPOCH-COUNTER.rows.zst  the rows of the volume at one moment
//!   DIR/packs/ID.pack                          chunks, each once, in the server's own format
//!   DIR/index.db                               where chunks are; made again where it is missing
//!   DIR/restored.json                          how far restores went beyond what is in here
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::admin::FailReason;
use crate::data_dir::make_lasting;
use crate::random::hex;
use crate::task::Failed;

/// Layout of the directory that this program reads and writes.
const FORMAT: u32 = 1;
/// The first line is this and the format.
const WORD: &str = "segue-backup";
const MARKER: &str = "SEGUE-BACKUP";
const RESTORED: &str = "restored.json";
/// How the name of a snapshot ends.
const SUFFIX: &str = ".rows.zst";

/// A directory of backups that this process holds.
pub(crate) struct BackupDir {
    path: PathBuf,
    /// The volume's uuid, hex.
    pub(crate) uuid: String,
    /// The volume's name when the directory was made.
    pub(crate) name: String,
    /// Released by the kernel when it is closed.
    _lock: File,
}

/// How far restores went beyond what the snapshots say: what is restored next begins there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Restored {
    /// The greatest epoch that was given.
    pub(crate) epoch: u32,
    /// No inode number from here on was given.
    pub(crate) next_ino: u64,
}

/// Fails if `path` lies inside the server's data directory `data`: what destroys the one destroys
/// the other.
pub(super) fn refuse_inside(data: &Path, path: &Path) -> Result<(), Failed> {
    let real = |path: &Path| path.canonicalize().map_err(|error| Failed::io(path, &error));
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    if !real(there)?.starts_with(real(data)?) {
        return Ok(());
    }
    let words = format!(
        "{} is inside the server's own data directory {}: a backup there is lost with it; name a \
         directory on another disk",
        path.display(),
        data.display()
    );
    Err(Failed::new(FailReason::Invalid, words))
}

/// True if both directories are on one file system, as far as it can be told.
pub(super) fn is_same_disk(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    device(one).is_some() && device(one) == device(other)
}

impl BackupDir {
    /// Opens `path` for backups of the volume, and makes it if there is nothing.
    pub(crate) fn create(path: &Path, uuid: &[u8; 16], name: &str) -> Result<BackupDir, Failed> {
        let make = |path: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| Failed::io(path, &error))
        };
        make_lasting(path).map_err(|error| Failed::new(FailReason::Io, error.to_string()))?;
        if !path.join(MARKER).exists() {
            mark(path, &hex(uuid), name)?;
        }
        for part in ["snapshots", "packs"] {
            make(&path.join(part))?;
        }
        let synced = File::open(path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Failed::io(path, &error))?;
        let held = BackupDir::hold(path, FlockOperation::NonBlockingLockExclusive)?;
        if held.uuid != hex(uuid) {
            let words = format!(
                "{} has backups of another volume ('{}', {}); use one directory for each volume",
                path.display(),
                held.name,
                held.uuid
            );
            return Err(Failed::new(FailReason::Invalid, words));
        }
        Ok(held)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens `path`, which has to be a directory of backups, for reading.
    pub(crate) fn open(path: &Path) -> Result<BackupDir, Failed> {
        BackupDir::hold(path, FlockOperation::NonBlockingLockShared)
    }

    fn hold(path: &Path, how: FlockOperation) -> Result<BackupDir, Failed> {
        let marker = path.join(MARKER);
        let lock = match File::open(&marker) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let words = format!(
                    "{} is not a directory of backups: it has no {MARKER}; name the directory that \
                     was given to segue volume backup",
                    path.display()
                );
                return Err(Failed::new(FailReason::NotFound, words));
            }
            Err(error) => return Err(Failed::io(&marker, &error)),
        };
        if let Err(error) = rustix::fs::flock(&lock, how) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(Failed::io(&marker, &error.into()));
            }
            let words = format!("another backup or restore uses {}; wait for it", path.display());
            return Err(Failed::new(FailReason::Exists, words));
        }
        let text = std::fs::read_to_string(&marker).map_err(|error| Failed::io(&marker, &error))?;
        let (uuid, name) = read_marker(path, &text)?;
        Ok(BackupDir { path: path.to_owned(), uuid, name, _lock: lock })
    }

    pub(crate) fn packs(&self) -> PathBuf {
        self.path.join("packs")
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.path.join("index.db")
    }

    /// Where a snapshot is written before it has its name.
    pub(crate) fn unfinished(&self) -> PathBuf {
        self.path.join("snapshots").join("unfinished")
    }

    pub(crate) fn snapshot(&self, name: &str) -> PathBuf {
        self.path.join("snapshots").join(format!("{name}{SUFFIX}"))
    }

    /// Names of all snapshots, the oldest first.
    pub(crate) fn snapshots(&self) -> Result<Vec<String>, Failed> {
        let path = self.path.join("snapshots");
        let fail = |error: io::Error| Failed::io(&path, &error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            names.extend(
                name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).map(str::to_owned),
            );
        }
        names.sort_by_key(|name| place(name));
        Ok(names)
    }

    /// Gives the snapshot that was written, and synced, its name. From now on it is there.
    pub(crate) fn finish(&self, name: &str) -> Result<(), Failed> {
        let path = self.snapshot(name);
        let named = std::fs::rename(self.unfinished(), &path);
        named.map_err(|error| Failed::io(&path, &error))?;
        self.sync_snapshots()
    }

    /// Removes a snapshot; after [`BackupDir::sync_snapshots`] it is gone for good.
    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<(), Failed> {
        let path = self.snapshot(name);
        std::fs::remove_file(&path).map_err(|error| Failed::io(&path, &error))
    }

    /// Returns when it is on the disk which snapshots there are.
    pub(crate) fn sync_snapshots(&self) -> Result<(), Failed> {
        let path = self.path.join("snapshots");
        let synced = File::open(&path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Failed::io(&path, &error))
    }

    /// How far restores went.
    pub(crate) fn restored(&self) -> Result<Restored, Failed> {
        let path = self.path.join(RESTORED);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let words = format!("{} is damaged: {error}", path.display());
                Failed::new(FailReason::Damaged, words)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Restored::default()),
            Err(error) => Err(Failed::io(&path, &error)),
        }
    }

    /// Remembers how far a restore goes, before it is done.
    pub(crate) fn note_restored(&self, restored: &Restored) -> io::Result<()> {
        let bytes = serde_json::to_vec(restored)?;
        replace(&self.path, RESTORED, &bytes)
    }
}

/// What a snapshot's name sorts by: its numbers as numbers.
fn place(name: &str) -> Vec<u64> {
    name.split('-').map(|part| part.parse().unwrap_or(0)).collect()
}

/// Makes the directory one of backups, if it is empty.
fn mark(path: &Path, uuid: &str, name: &str) -> Result<(), Failed> {
    let fail = |error: io::Error| Failed::io(path, &error);
    for entry in std::fs::read_dir(path).map_err(fail)? {
        // A disk of its own has this, and a backup that was killed early leaves the other.
        let known = ["lost+found", "SEGUE-BACKUP.new"];
        let name = entry.map_err(fail)?.file_name();
        if !known.iter().any(|known| name == *known) {
            let words = format!(
                "{} is not empty and is not a directory of backups; choose another directory",
                path.display()
            );
            return Err(Failed::new(FailReason::Invalid, words));
        }
    }
    let text = format!("{WORD} {FORMAT}\nvolume {uuid} {name}\n");
    replace(path, MARKER, text.as_bytes()).map_err(fail)
}

fn read_marker(path: &Path, text: &str) -> Result<(String, String), Failed> {
    let mut lines = text.lines();
    let format = lines.next().and_then(|line| line.strip_prefix(WORD)?.trim().parse::<u32>().ok());
    let volume = lines.next().and_then(|line| line.strip_prefix("volume ")?.split_once(' '));
    match (format, volume) {
        (Some(FORMAT), Some((uuid, name))) => Ok((uuid.to_owned(), name.to_owned())),
        (Some(found), _) if found != FORMAT => {
            let words = format!(
                "{} has format {found}, and this version of segue reads format {FORMAT}; use the \
                 newer version that wrote it",
                path.display()
            );
            Err(Failed::new(FailReason::Invalid, words))
        }
        _ => {
            let words = format!(
                "{} has a damaged {MARKER}; restore that file from a copy of the directory",
                path.display()
            );
            Err(Failed::new(FailReason::Invalid, words))
        }
    }
}

/// Puts a file in place whole, or not at all.
fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
    let mut file = options.open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(new, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(opened: Result<BackupDir, Failed>) -> String {
        match opened {
            Ok(_) => panic!("it was opened"),
            Err(failed) => failed.words,
        }
    }

    #[test]
    fn a_directory_belongs_to_one_volume_and_one_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backups");
        assert!(refusal(BackupDir::open(&path)).contains("is not a directory of backups"));
        let held = BackupDir::create(&path, &[1; 16], "home").unwrap();
        assert!(refusal(BackupDir::create(&path, &[1; 16], "home")).contains("wait for it"));
        assert!(refusal(BackupDir::open(&path)).contains("wait for it"));
        drop(held);
        assert!(
            refusal(BackupDir::create(&path, &[2; 16], "x")).contains("another volume ('home'")
        );
        let held = BackupDir::open(&path).unwrap();
        assert_eq!((held.name.as_str(), held.uuid), ("home", "01".repeat(16)));
    }

    #[test]
    fn what_is_something_else_or_newer_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("letters"), "mine").unwrap();
        let words = refusal(BackupDir::create(dir.path(), &[1; 16], "home"));
        assert!(words.contains("is not empty"), "{words}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was put there");
        for (marker, expected) in
            [("segue-backup 2\n", "newer version"), ("hello\n", "damaged SEGUE-BACKUP")]
        {
            std::fs::write(dir.path().join(MARKER), marker).unwrap();
            let words = refusal(BackupDir::open(dir.path()));
            assert!(words.contains(expected), "{words}");
        }
    }

    #[test]
    fn snapshots_stand_in_the_order_of_their_making() {
        let dir = tempfile::tempdir().unwrap();
        let held = BackupDir::create(&dir.path().join("b"), &[1; 16], "home").unwrap();
        for name in ["20261121-190308-1-12", "20261121-190308-1-9", "20261121-190307-1-30"] {
            std::fs::write(held.unfinished(), "").unwrap();
            held.finish(name).unwrap();
        }
        std::fs::write(held.unfinished(), "").unwrap();
        let expected = ["20261121-190307-1-30", "20261121-190308-1-9", "20261121-190308-1-12"];
        assert_eq!(held.snapshots().unwrap(), expected);
    }

    #[test]
    fn restores_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let held = BackupDir::create(&dir.path().join("b"), &[1; 16], "home").unwrap();
        assert_eq!(held.restored().unwrap(), Restored::default());
        let restored = Restored { epoch: 7, next_ino: 1 << 40 };
        held.note_restored(&restored).unwrap();
        assert_eq!(held.restored().unwrap(), restored);
    }
}
