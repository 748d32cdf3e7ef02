//! Open files, by the numbers that the kernel hands back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host::cache::Way;
use crate::nouns::{Caller, Ino, Time};
use crate::refusal::Refusal;

/// Longer than the kernel takes to look a name up and open the file again.
const ANEW: Duration = Duration::from_secs(10);

/// An open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The inode.
    pub ino: Ino,
    /// True if it is open for writing.
    pub writable: bool,
    /// Whether the kernel reads it by itself.
    pub way: Way,
    /// O_SYNC or O_DSYNC: each write waits.
    pub synchronous: bool,
    /// The process that opened it. A write has no caller of its own.
    pub caller: Caller,
    /// The reason why the server refused data of the file, until a sync or a close reports it.
    refused: Option<Refusal>,
    /// True if the number turned out to be another inode's.
    is_lost: bool,
}

impl OpenFile {
    /// A file that `caller` opened for reading.
    pub fn new(ino: Ino, way: Way, caller: Caller) -> OpenFile {
        let (writable, synchronous, is_lost) = (false, false, false);
        OpenFile { ino, writable, way, synchronous, caller, refused: None, is_lost }
    }

    /// The refusal that a close reports. A close may be that of a child that never reads the
    /// result, so later closes report it again.
    pub fn refusal(&self) -> Result<(), Refusal> {
        self.refused.map_or(Ok(()), Err)
    }
}

/// All open files.
#[derive(Debug, Default)]
pub struct Handles {
    last: u64,
    files: BTreeMap<u64, OpenFile>,
    /// When the kernel was told to open files anew.
    anew: BTreeMap<Ino, Time>,
    /// When a thread was told to look the name up again, and has not opened anything since.
    again: BTreeMap<u32, Time>,
}

impl Handles {
    /// Adds an open file, and returns its handle.
    pub fn add(&mut self, file: OpenFile) -> u64 {
        self.last += 1;
        self.files.insert(self.last, file);
        self.last
    }

    /// The file that is open as `handle`.
    pub fn file(&self, handle: u64) -> Result<&OpenFile, Refusal> {
        let file = self.files.get(&handle).ok_or(Refusal::Invalid)?;
        if file.is_lost { Err(Refusal::Stale) } else { Ok(file) }
    }

    /// All open files.
    pub(in crate::host) fn all(&self) -> impl Iterator<Item = &OpenFile> {
        self.files.values()
    }

    /// Closes `handle`.
    pub fn remove(&mut self, handle: u64) -> Option<OpenFile> {
        self.files.remove(&handle)
    }

    /// Refuses all use of the handles of `ino`, whose file has another number from now on.
    pub fn lose(&mut self, ino: Ino) {
        self.of(ino).for_each(|file| file.is_lost = true);
    }

    /// A process that has `ino` open for writing.
    pub fn writer(&self, ino: Ino) -> Option<&Caller> {
        let mut writers = self.files.values().filter(|file| file.ino == ino && file.writable);
        writers.next().map(|file| &file.caller)
    }

    /// Notes that the server has refused data of `ino` for which no call waited.
    pub fn refused(&mut self, ino: Ino, refusal: Refusal) {
        self.of(ino).filter(|file| file.writable).for_each(|file| file.refused = Some(refusal));
    }

    /// Takes the refusal that an fsync of `handle` reports. No later call reports it.
    pub fn take_refusal(&mut self, handle: u64) -> Result<(), Refusal> {
        let file = self.files.get_mut(&handle).ok_or(Refusal::Invalid)?;
        file.refused.take().map_or(Ok(()), Err)
    }

    /// True if the kernel is to open `ino` anew, whose size changed elsewhere. It is false while
    /// the kernel does so already: after a second time the program would get an error.
    pub fn opens_anew(&mut self, ino: Ino, now: Time) -> bool {
        self.anew.retain(|_, told| now.since(*told) < ANEW);
        let is_first = !self.anew.contains_key(&ino) && self.writer(ino).is_none();
        if is_first {
            self.anew.insert(ino, now);
        }
        is_first
    }

    /// True if the kernel was told lately to open `ino` anew.
    pub(in crate::host) fn is_opened_anew(&self, ino: Ino, now: Time) -> bool {
        self.anew.get(&ino).is_some_and(|told| now.since(*told) < ANEW)
    }

    /// Notes that thread `pid` is told that its open is stale. The kernel looks the name up again
    /// and opens the result, once.
    pub fn looks_again(&mut self, pid: u32, now: Time) {
        self.again.retain(|_, told| now.since(*told) < ANEW);
        self.again.insert(pid, now);
    }

    /// Notes that thread `pid` opens a file. True if it was told to look its name up again: a
    /// second stale open fails.
    pub fn end_second_look(&mut self, pid: u32, now: Time) -> bool {
        self.again.remove(&pid).is_some_and(|told| now.since(told) < ANEW)
    }

    fn of(&mut self, ino: Ino) -> impl Iterator<Item = &mut OpenFile> {
        self.files.values_mut().filter(move |file| file.ino == ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let file = OpenFile::new(Ino(8), Way::Cached, Caller::default());
        handles.add(OpenFile { writable: true, ..file });
        assert!(!handles.opens_anew(Ino(8), Time::default()), "it changes here");
    }

    #[test]
    fn a_refusal_is_reported_by_each_close_and_by_one_sync() {
        let mut handles = Handles::default();
        let file = OpenFile::new(Ino(8), Way::Cached, Caller::default());
        let handle = handles.add(OpenFile { writable: true, ..file });
        handles.refused(Ino(9), Refusal::Quota);
        assert_eq!(handles.take_refusal(handle), Ok(()), "another file");
        handles.refused(Ino(8), Refusal::Quota);
        let close = |handles: &Handles| handles.file(handle).unwrap().refusal();
        assert_eq!([close(&handles), close(&handles)], [Err(Refusal::Quota); 2]);
        let syncs = [handles.take_refusal(handle), handles.take_refusal(handle)];
        assert_eq!(syncs, [Err(Refusal::Quota), Ok(())]);
        assert_eq!(close(&handles), Ok(()));
    }

    #[test]
    fn a_lost_number_is_stale() {
        let mut handles = Handles::default();
        let handle = handles.add(OpenFile::new(Ino(8), Way::Cached, Caller::default()));
        handles.lose(Ino(9));
        assert!(handles.file(handle).is_ok());
        handles.lose(Ino(8));
        assert_eq!(handles.file(handle).unwrap_err(), Refusal::Stale);
        assert!(handles.remove(handle).is_some());
        assert_eq!(handles.file(handle).unwrap_err(), Refusal::Invalid);
    }
}
