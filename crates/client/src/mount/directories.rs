//! Open directories, by the numbers that the kernel hands back: for a kernel that keeps no
//! listings. Others open and close directories without a word
//! (`core::host::cache::KeptListings`).

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::host::cache::{Listed, Reading};
use segue_core::nouns::{Ino, Name, Time};

use crate::rank::Ranked;

/// The names of an open directory. A name keeps its position until the directory is closed, also
/// when it is read anew: telldir(3) told it to programs.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    reading: Reading,
    /// No name had this position or a later one.
    next: u64,
}

impl Names {
    /// Nothing read; the first name gets position `first`.
    fn new(first: u64) -> Names {
        let reading = Reading { base: 0, names: Arc::default(), since: Time::default() };
        Names { reading, next: first }
    }

    /// The same directory, which lists `found` now: removed names leave gaps, new ones come last.
    fn read_anew(&self, found: Vec<(Name, Ino)>, since: Time) -> Names {
        let known = self.reading.names.iter();
        let known: HashMap<&Name, u64> = known.map(|listed| (&listed.name, listed.place)).collect();
        let mut next = self.next;
        let mut place = |(name, ino)| {
            let place = known.get(&name).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            Listed { place, name, ino }
        };
        let mut names: Vec<Listed> = found.into_iter().map(&mut place).collect();
        names.sort_by_key(|listed| listed.place);
        Names { reading: Reading { base: 0, names: Arc::new(names), since }, next }
    }
}

/// An open directory: its names as of when it was first read, or read from its beginning again.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    pub(crate) ino: Ino,
    /// Who opened it.
    pub(crate) pid: u32,
    names: Ranked<Option<Names>>,
}

impl DirectoryHandle {
    /// What was read last.
    pub(crate) fn reading(&self) -> Option<Reading> {
        self.names.lock().as_ref().map(|names| names.reading.clone())
    }

    /// Takes in that it lists `found`, of which the first name has position `first`.
    pub(crate) fn read_anew(&self, first: u64, found: Vec<(Name, Ino)>, since: Time) -> Reading {
        let mut names = self.names.lock();
        let known = names.take().unwrap_or_else(|| Names::new(first));
        let read = known.read_anew(found, since);
        let reading = read.reading.clone();
        *names = Some(read);
        reading
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Directories {
    last: u64,
    open: HashMap<u64, Arc<DirectoryHandle>>,
}

impl Directories {
    /// Opens `ino` for process `pid`. No handle is 0.
    pub(super) fn open(&mut self, ino: Ino, pid: u32) -> u64 {
        self.last += 1;
        let names = Ranked::leaf(None);
        self.open.insert(self.last, Arc::new(DirectoryHandle { ino, pid, names }));
        self.last
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<DirectoryHandle>> {
        self.open.get(&handle).cloned()
    }

    pub(crate) fn remove(&mut self, handle: u64) {
        self.open.remove(&handle);
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
        let seen = |names: &Names, from| {
            let names = names.reading.behind(from).iter();
            let seen = names.map(|one| format!("{} {} {}", one.place, one.name, one.ino));
            seen.collect::<Vec<_>>().join(", ")
        };
        let time = Time::default();
        let first = Names::new(2).read_anew(listed(&[("a", 1), ("b", 2), ("d", 4)]), time);
        assert_eq!(seen(&first, 3), "3 b 2, 4 d 4");
        let second = first.read_anew(listed(&[("b", 2), ("c", 3), ("d", 9)]), time);
        assert_eq!(seen(&second, 0), "3 b 2, 4 d 9, 5 c 3");
        let third = second.read_anew(listed(&[("a", 1), ("d", 9)]), time);
        assert_eq!((seen(&third, 5), seen(&third, 4)), ("6 a 1".into(), "4 d 9, 6 a 1".into()));
    }
}
