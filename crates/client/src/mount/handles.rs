//! Open files and directories, by the numbers that the kernel hands back.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::host::cache::Way;
use segue_core::nouns::{Caller, Ino, Name, Time};
use segue_core::refusal::Refusal;

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
    /// The number turned out to be another inode's.
    pub(crate) is_lost: AtomicBool,
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

/// A name in an open directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedName {
    pub(crate) position: u64,
    pub(crate) name: Name,
    pub(crate) ino: Ino,
}

/// The names of an open directory, in the order of their positions. A name keeps its position until
/// the directory is closed, also when it is read anew: telldir(3) told it to programs.
#[derive(Clone, Default, Debug)]
pub(crate) struct Reading {
    pub(crate) names: Arc<Vec<ListedName>>,
    /// Since when its reader reads them.
    pub(crate) since: Time,
    /// No name had this position or a later one.
    next: u64,
}

impl Reading {
    /// Nothing read; the first name gets position `first`.
    pub(crate) fn new(first: u64) -> Reading {
        Reading { next: first, ..Reading::default() }
    }

    /// The same directory, which lists `found` now: removed names leave gaps, new ones come last.
    pub(crate) fn read_anew(&self, found: Vec<(Name, Ino)>, since: Time) -> Reading {
        let known: HashMap<&Name, u64> =
            self.names.iter().map(|listed| (&listed.name, listed.position)).collect();
        let mut next = self.next;
        let mut place = |(name, ino)| {
            let position = known.get(&name).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            ListedName { position, name, ino }
        };
        let mut names: Vec<ListedName> = found.into_iter().map(&mut place).collect();
        names.sort_by_key(|listed| listed.position);
        Reading { names: Arc::new(names), since, next }
    }

    /// The names from `position` on.
    pub(crate) fn from(&self, position: u64) -> &[ListedName] {
        let first = self.names.partition_point(|listed| listed.position < position);
        self.names.get(first..).unwrap_or_default()
    }
}

/// An open directory: its names as of when it was first read, or read from its beginning again.
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
    /// When a thread was told to look the name up again, and has not opened anything since.
    again: BTreeMap<u32, Time>,
}

impl Handles {
    pub(crate) fn add_file(&mut self, file: FileHandle) -> u64 {
        self.next += 1;
        self.files.insert(self.next, Arc::new(file));
        self.next
    }

    pub(crate) fn file(&self, handle: u64) -> Result<Arc<FileHandle>, Refusal> {
        let file = self.files.get(&handle).ok_or(Refusal::Invalid)?;
        match file.is_lost.load(Ordering::Relaxed) {
            true => Err(Refusal::Stale),
            false => Ok(Arc::clone(file)),
        }
    }

    /// The file that is open as `ino` has another number from now on: nothing is read or written
    /// under that one any more.
    pub(crate) fn lose(&self, ino: Ino) {
        let files = self.files.values().filter(|file| file.ino == ino);
        files.for_each(|file| file.is_lost.store(true, Ordering::Relaxed));
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

    /// Thread `pid` is told that its open is stale. The kernel looks the name up again and opens
    /// what it finds, once.
    pub(crate) fn looks_again(&mut self, pid: u32, now: Time) {
        self.again.retain(|_, told| now.since(*told) < ANEW);
        self.again.insert(pid, now);
    }

    /// Thread `pid` opens something. True if it was told to look that up again: a second stale
    /// open fails.
    pub(crate) fn end_second_look(&mut self, pid: u32, now: Time) -> bool {
        self.again.remove(&pid).is_some_and(|told| now.since(told) < ANEW)
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

    /// A program that removes names as it reads had skipped others after seekdir to 0.
    #[test]
    fn a_name_keeps_its_position_while_the_directory_is_open() {
        let listed = |names: &[(&str, u64)]| {
            let name = |name: &str| Name::new(name.as_bytes()).unwrap();
            names.iter().map(|&(at, ino)| (name(at), Ino(ino))).collect::<Vec<_>>()
        };
        let seen = |reading: &Reading, from| {
            let names = reading.from(from).iter();
            let seen = names.map(|one| format!("{} {} {}", one.position, one.name, one.ino));
            seen.collect::<Vec<_>>().join(", ")
        };
        let time = Time::default();
        let first = Reading::new(2).read_anew(listed(&[("a", 1), ("b", 2), ("d", 4)]), time);
        assert_eq!(seen(&first, 3), "3 b 2, 4 d 4");
        let second = first.read_anew(listed(&[("b", 2), ("c", 3), ("d", 9)]), time);
        assert_eq!(seen(&second, 0), "3 b 2, 4 d 9, 5 c 3");
        let third = second.read_anew(listed(&[("a", 1), ("d", 9)]), time);
        assert_eq!((seen(&third, 5), seen(&third, 4)), ("6 a 1".into(), "4 d 9, 6 a 1".into()));
    }

    #[test]
    fn a_thread_looks_again_once() {
        let mut handles = Handles::default();
        let [now, late] = [Time::default(), Time(ANEW)];
        assert!(!handles.end_second_look(7, now));
        handles.looks_again(7, now);
        assert!(!handles.end_second_look(8, now), "another thread");
        assert!(handles.end_second_look(7, now));
        assert!(!handles.end_second_look(7, now), "this is another open");
        handles.looks_again(7, now);
        assert!(!handles.end_second_look(7, late), "it opened nothing");
    }

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
            is_lost: AtomicBool::default(),
        };
        let number = handles.add_file(writer);
        assert!(!handles.opens_anew(Ino(8), Time::default()), "it changes here");
        handles.refused(Ino(9), Refusal::Quota);
        let open = handles.file(number).unwrap();
        assert_eq!(open.told(), Ok(()));
        handles.refused(Ino(8), Refusal::Quota);
        assert_eq!([open.hears(), open.hears()], [Err(Refusal::Quota); 2]);
        assert_eq!([open.told(), open.told()], [Err(Refusal::Quota), Ok(())]);
        assert_eq!(open.hears(), Ok(()));
        handles.lose(Ino(9));
        assert!(handles.file(number).is_ok());
        handles.lose(Ino(8));
        assert_eq!(handles.file(number).unwrap_err(), Refusal::Stale);
    }
}
