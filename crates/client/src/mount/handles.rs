//! Open files and directories, by the numbers that the kernel hands back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::cache::Way;
use segue_core::refusal::Refusal;
use segue_core::types::{Caller, Ino, Name, Time};

use super::lock;

/// Longer than the kernel takes to look a name up and open the file again.
const ANEW: Duration = Duration::from_secs(10);

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) ino: Ino,
    pub(crate) writable: bool,
    /// Whether the kernel reads it by itself.
    pub(crate) way: Way,
    /// O_SYNC or O_DSYNC: each write waits.
    pub(crate) synchronous: bool,
    /// Who opened it; a write has no caller of its own.
    pub(crate) caller: Caller,
    /// Why the server refused what was written to the file since, until that was told.
    pub(crate) refused: Mutex<Option<Refusal>>,
}

impl FileHandle {
    /// Fails if the server has refused what was written to the file while this was open: an fsync
    /// is told, and then nobody else.
    pub(crate) fn told(&self) -> Result<(), Refusal> {
        lock(&self.refused).take().map_or(Ok(()), Err)
    }

    /// The same of a close, which may be that of a child that never asks for the answer: others
    /// hear it, too.
    pub(crate) fn hears(&self) -> Result<(), Refusal> {
        lock(&self.refused).map_or(Ok(()), Err)
    }
}

/// What a directory lists.
pub(crate) type Names = Arc<Vec<(Name, Ino)>>;

/// The names of a directory, and since when its reader reads them.
pub(crate) type Reading = (Names, Time);

/// An open directory: its names as of when it was first read, or rewound.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    pub(crate) ino: Ino,
    /// Who opened it.
    pub(crate) pid: u32,
    pub(crate) names: Mutex<Option<Reading>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    next: u64,
    files: HashMap<u64, Arc<FileHandle>>,
    directories: HashMap<u64, Arc<DirectoryHandle>>,
    /// When the kernel was told to open files anew.
    anew: BTreeMap<Ino, Time>,
}

impl Handles {
    pub(crate) fn add_file(&mut self, file: FileHandle) -> u64 {
        self.next += 1;
        self.files.insert(self.next, Arc::new(file));
        self.next
    }

    pub(crate) fn file(&self, handle: u64) -> Option<Arc<FileHandle>> {
        self.files.get(&handle).cloned()
    }

    /// True if the kernel is to open `ino` anew, whose size changed elsewhere: not while it does so
    /// already, for the second time the program would hear of it.
    pub(crate) fn opens_anew(&mut self, ino: Ino, now: Time) -> bool {
        self.anew.retain(|_, told| now.since(*told) < ANEW);
        let is_first = !self.anew.contains_key(&ino) && self.writer(ino).is_none();
        if is_first {
            self.anew.insert(ino, now);
        }
        is_first
    }

    /// Who has `ino` open for writing.
    pub(crate) fn writer(&self, ino: Ino) -> Option<Caller> {
        let mut writers = self.files.values().filter(|file| file.ino == ino && file.writable);
        writers.next().map(|file| file.caller.clone())
    }

    /// The server has refused what was written to `ino`, and nobody waited for it.
    pub(crate) fn refused(&self, ino: Ino, refusal: Refusal) {
        let writers = self.files.values().filter(|file| file.ino == ino && file.writable);
        writers.for_each(|file| *lock(&file.refused) = Some(refusal));
    }

    pub(crate) fn remove_file(&mut self, handle: u64) -> Option<Arc<FileHandle>> {
        self.files.remove(&handle)
    }

    pub(crate) fn add_directory(&mut self, directory: DirectoryHandle) -> u64 {
        self.next += 1;
        self.directories.insert(self.next, Arc::new(directory));
        self.next
    }

    pub(crate) fn directory(&self, handle: u64) -> Option<Arc<DirectoryHandle>> {
        self.directories.get(&handle).cloned()
    }

    pub(crate) fn remove_directory(&mut self, handle: u64) {
        self.directories.remove(&handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_anew_once_in_a_while() {
        let mut handles = Handles::default();
        let at = [Duration::ZERO, Duration::ZERO, ANEW / 2, ANEW, ANEW];
        let anew = at.map(|now| handles.opens_anew(Ino(7), Time(now)));
        assert_eq!(anew, [true, false, false, true, false]);
        let caller = Caller::default();
        let writer = FileHandle {
            ino: Ino(8),
            writable: true,
            way: Way::Cached,
            synchronous: false,
            caller,
            refused: Mutex::default(),
        };
        let open = handles.add_file(writer);
        assert!(!handles.opens_anew(Ino(8), Time::default()), "it changes here");
        handles.refused(Ino(9), Refusal::Quota);
        let open = handles.file(open).unwrap();
        assert_eq!(open.told(), Ok(()));
        handles.refused(Ino(8), Refusal::Quota);
        assert_eq!([open.hears(), open.hears()], [Err(Refusal::Quota); 2]);
        assert_eq!([open.told(), open.told()], [Err(Refusal::Quota), Ok(())]);
        assert_eq!(open.hears(), Ok(()));
    }
}
