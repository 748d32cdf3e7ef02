//! Open directories, by the numbers that the kernel hands back.

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::nouns::{Ino, Name, Time};

use crate::rank::Ranked;

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
    pub(super) fn read_anew(&self, found: Vec<(Name, Ino)>, since: Time) -> Reading {
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
    pub(crate) names: Ranked<Option<Reading>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Directories {
    last: u64,
    open: HashMap<u64, Arc<DirectoryHandle>>,
}

impl Directories {
    pub(crate) fn add(&mut self, directory: DirectoryHandle) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Arc::new(directory));
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
}
