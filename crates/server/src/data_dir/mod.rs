//! The server's data directory, held by one process at a time.
//!
//! ```text
//!   DATA/VERSION       what wrote it, and the directory's own id; a newer one is refused
//!   DATA/lock          flock, with the number of the process that holds it
//!   DATA/meta.db       metadata (SQLite), with the same id
//!   DATA/packs/        chunks
//!   DATA/identity/     the server's certificate authority
//!   DATA/reserve       space for removals on a full disk
//!   DATA/control.sock  while it serves
//! ```
//!
//! VERSION is written last. While the directory is being made the same line stands in
//! VERSION.new, so a start that was killed early is told from a directory of which a part was
//! lost: the first is gone on with, nothing is ever made anew in the second.

mod open;

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

pub(crate) use open::{Data, start};

use crate::error::{Remedy, ServeError};
use crate::random::{hex, random};

/// Layout of the directory that this program reads and writes.
const FORMAT: u32 = 3;
/// First word of VERSION.
const WORD: &str = "segue-data";
/// VERSION of a directory that is being made.
const NEW: &str = "VERSION.new";
/// What stands in a data directory beside VERSION.
const PARTS: [&str; 3] = ["meta.db", "packs", "identity"];

/// A data directory that this process holds.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    id: String,
    is_new: bool,
    /// Released by the kernel when it is closed.
    _lock: File,
}

/// How far a data directory is made.
enum DirState {
    /// Nothing, or less than a VERSION.new.
    Nothing,
    /// A directory that was not made to its end, with its id.
    Begun(String),
    /// A data directory, with its id.
    Whole(String),
}

impl DataDir {
    /// Opens `path`, which is made if it is not there.
    pub(crate) fn create(path: &Path) -> Result<DataDir, ServeError> {
        if path.exists() && !path.is_dir() {
            let words = "not a directory; name one that is empty or not there with --data";
            return Err(ServeError::data(path, io::Error::other(words)));
        }
        if !path.join("VERSION").exists() {
            make_lasting(path)?;
        }
        // Before the lock, which does not belong into what is something else.
        look(path)?;
        let lock = lock(path, FOR_SERVER)?;
        tighten(path)?;
        let (id, is_new) = match look(path)? {
            DirState::Whole(id) => (id, false),
            DirState::Begun(id) => (id, true),
            DirState::Nothing => {
                (begin(path).map_err(|error| ServeError::data(path, error))?, true)
            }
        };
        if is_new {
            make(&path.join("packs"))?;
            make(&path.join("identity"))?;
        }
        Ok(DataDir { path: path.to_owned(), id, is_new, _lock: lock })
    }

    /// Opens `path`, which has to be a data directory.
    pub(crate) fn open(path: &Path) -> Result<DataDir, ServeError> {
        let whole = || match look(path) {
            Ok(DirState::Whole(id)) => Ok(id),
            Ok(_) => Err(ServeError::NoData { path: path.to_owned() }),
            Err(ServeError::Data { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(ServeError::NoData { path: path.to_owned() })
            }
            Err(error) => Err(error),
        };
        whole()?;
        let lock = lock(path, Duration::ZERO)?;
        tighten(path)?;
        Ok(DataDir { path: path.to_owned(), id: whole()?, is_new: false, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory's id, which its metadata have too.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// True until [`DataDir::finish`]: its parts are to be made.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Everything in the directory is made and durable.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let sync = || File::open(&self.path)?.sync_all();
        sync()?;
        std::fs::rename(self.path.join(NEW), self.path.join("VERSION"))?;
        sync()?;
        self.is_new = false;
        Ok(())
    }
}

/// A server waits for so long for a command that has its data directory for a moment.
const FOR_SERVER: Duration = Duration::from_secs(10);
/// So often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// Takes from others what they may do in `path`, which was made before.
fn tighten(path: &Path) -> Result<(), ServeError> {
    let fail = |error| ServeError::data(path, error);
    let mode = std::fs::metadata(path).map_err(fail)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    tracing::warn!("{}: other users could enter it; its mode is 0700 now", path.display());
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(fail)
}

fn make(path: &Path) -> Result<(), ServeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| ServeError::data(path, error))
}

/// Makes `path` with its parents, whose names outlast a power loss from now on: without them
/// nothing in it is found, however well it was synced.
pub(crate) fn make_lasting(path: &Path) -> Result<(), ServeError> {
    let new = path.ancestors().take_while(|dir| !dir.exists());
    // The first may be there since a start that was killed.
    let names: Vec<_> = std::iter::once(path).chain(new).filter_map(Path::parent).collect();
    make(path)?;
    for parent in names {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match File::open(parent).and_then(|directory| directory.sync_all()) {
            // Then somebody else made it, and has seen to that.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(|error| ServeError::data(parent, error))?,
        }
    }
    Ok(())
}

/// Writes VERSION.new with a new id.
fn begin(path: &Path) -> io::Result<String> {
    let id = hex(&random::<16>()?);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path.join(NEW))?;
    writeln!(file, "{WORD} {FORMAT} {id}")?;
    file.sync_all()?;
    File::open(path)?.sync_all()?;
    Ok(id)
}

/// Takes the lock, or says which process has it after `patience`.
fn lock(path: &Path, patience: Duration) -> Result<File, ServeError> {
    let fail = |error| ServeError::data(path, error);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join("lock"))
        .map_err(fail)?;
    let end = Instant::now() + patience;
    while let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(fail(error.into()));
        }
        if Instant::now() < end {
            std::thread::sleep(LOOK);
            continue;
        }
        let mut holder = Vec::new();
        lock.read_to_end(&mut holder).map_err(fail)?;
        let pid = String::from_utf8_lossy(&holder).trim().parse().ok();
        return Err(ServeError::InUse { path: path.to_owned(), pid });
    }
    let id = format!("{}\n", std::process::id());
    // Not emptied first: another program that fills the disk would take the block.
    let written = lock.rewind().and_then(|()| lock.write_all(id.as_bytes()));
    if let Err(error) = written.and_then(|()| lock.set_len(id.len() as u64)) {
        // Only messages of other processes name it.
        tracing::warn!("{}: cannot write the lock: {error}", path.display());
    }
    Ok(lock)
}

/// Tells what stands in `path`; refuses what a newer program wrote, what lacks its VERSION, and
/// what is something else altogether.
fn look(path: &Path) -> Result<DirState, ServeError> {
    if let Some(text) = read(&path.join("VERSION"))? {
        return match parse(&text) {
            Some((FORMAT, Some(id))) => Ok(DirState::Whole(id)),
            Some((found, _)) if found != FORMAT => {
                Err(ServeError::Version { path: path.to_owned(), found, known: FORMAT })
            }
            _ => Err(ServeError::part(&path.join("VERSION"), "is damaged", Remedy::Copy)),
        };
    }
    let fail = |error| ServeError::data(path, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        names.push(entry.map_err(fail)?.file_name());
    }
    // A start that was killed early leaves the lock.
    names.retain(|name| name != "lock" && name != NEW);
    let text = read(&path.join(NEW))?.unwrap_or_default();
    match parse(&text) {
        Some((FORMAT, Some(id))) => Ok(DirState::Begun(id)),
        _ if names.is_empty() => Ok(DirState::Nothing),
        _ if PARTS.iter().any(|part| names.iter().any(|name| name == part)) => {
            let words = "is missing, but other parts of a data directory exist";
            Err(ServeError::part(&path.join("VERSION"), words, Remedy::Copy))
        }
        _ => Err(ServeError::NotData { path: path.to_owned() }),
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, ServeError> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ServeError::data(path, error)),
    }
}

/// The format and the id in a VERSION.
fn parse(text: &[u8]) -> Option<(u32, Option<String>)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let format = words.next().filter(|word| *word == WORD).and_then(|_| words.next()?.parse().ok());
    let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((format?, words.next().filter(is_id).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(path: &Path) -> DataDir {
        let mut directory = DataDir::create(path).unwrap();
        directory.finish().unwrap();
        directory
    }

    #[test]
    fn a_directory_is_held_once_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let held = made(&path);
        match DataDir::open(&path) {
            Err(ServeError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        let id = held.id().to_owned();
        drop(held);
        assert_eq!(DataDir::open(&path).unwrap().id(), id);
    }

    #[test]
    fn what_is_newer_older_or_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(ServeError::NoData { .. })));
        std::fs::write(dir.path().join("letters"), "mine").unwrap();
        assert!(matches!(DataDir::create(dir.path()), Err(ServeError::NotData { .. })));
        assert!(!dir.path().join("lock").exists());
        let path = dir.path().join("data");
        drop(made(&path));
        for (number, rest) in [(FORMAT + 1, " something new"), (FORMAT - 1, "")] {
            std::fs::write(path.join("VERSION"), format!("{WORD} {number}{rest}\n")).unwrap();
            let refused = DataDir::create(&path).unwrap_err();
            let ServeError::Version { found, known: FORMAT, .. } = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(found, number);
        }
    }

    #[test]
    fn a_start_that_was_killed_early_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let id = DataDir::create(&path).unwrap().id().to_owned();
        assert!(matches!(DataDir::open(&path), Err(ServeError::NoData { .. })));
        let mut again = DataDir::create(&path).unwrap();
        assert!(again.is_new() && again.id() == id);
        again.finish().unwrap();
        drop(again);
        let whole = DataDir::create(&path).unwrap();
        assert!(!whole.is_new() && whole.id() == id);
    }

    /// Proves S18.5.
    #[test]
    fn a_directory_without_its_version_is_never_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        drop(made(&path));
        for damage in [None, Some(""), Some("segue-data 3\n"), Some("segue-dat\u{e1} 3 00\n")] {
            match damage {
                None => std::fs::remove_file(path.join("VERSION")).unwrap(),
                Some(text) => std::fs::write(path.join("VERSION"), text).unwrap(),
            }
            for refused in [DataDir::create(&path), DataDir::open(&path)] {
                let words = refused.unwrap_err().to_string();
                assert!(words.contains("VERSION is "), "{words}");
            }
        }
    }
}
