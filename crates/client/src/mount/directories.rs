//! Open directories, by the numbers that the kernel hands back; and listings that the kernel keeps,
//! so that who opens a directory again reads it without a request.
//!
//! The kernel keeps one listing of a directory, which all fill that read it with leave to. So all
//! that have leave at the same time read the same names at the same positions; who opens it when
//! other names are in it reads past what is kept. It is used by an open only if it is what would be
//! listed now, name by name. When a name changes on another host the kernel forgets the listing.
//! When one changes on this host the kernel sees that itself.

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

/// Names in all listings that the kernel may keep: some twenty megabytes here.
const KEPT_NAMES: usize = 200_000;

/// What the kernel does with the names of a directory that is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    /// It asks for them.
    Asks,
    /// It asks for them, and keeps them.
    Fills,
    /// It has kept them.
    Uses,
}

/// A listing that the kernel keeps.
#[derive(Debug, Default)]
struct Kept {
    /// Open handles that have leave to fill it.
    handles: usize,
    /// The directory above, and the names, once one of them has read them.
    reading: Option<(Ino, Reading)>,
    /// One of them has read them to the end.
    is_whole: bool,
    /// They have read different names.
    is_mixed: bool,
}

/// An open directory: its names as of when it was first read, or read from its beginning again.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    pub(crate) ino: Ino,
    /// Who opened it.
    pub(crate) pid: u32,
    pub(crate) keeping: Keeping,
    pub(crate) names: Ranked<Option<Reading>>,
}

impl Reading {
    /// True if it has these names, in this order.
    fn has(&self, names: &[(Name, Ino)]) -> bool {
        self.names.iter().map(|listed| (&listed.name, listed.ino)).eq(pairs(names))
    }
}

fn pairs(names: &[(Name, Ino)]) -> impl Iterator<Item = (&Name, Ino)> {
    names.iter().map(|(name, ino)| (name, *ino))
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Directories {
    last: u64,
    open: HashMap<u64, Arc<DirectoryHandle>>,
    kept: HashMap<Ino, Kept>,
    /// All names in those.
    names: usize,
    left: Vec<Ino>,
}

impl Directories {
    /// Opens `ino`. `listed`: the directory above, and all names, if both are sure and will be told
    /// of when they change. `is_told`: the kernel knows what they name, too. `is_intact`: it had to
    /// forget nothing of the listing that it keeps.
    pub(super) fn open(
        &mut self,
        (ino, pid): (Ino, u32),
        listed: Option<&(Ino, Vec<(Name, Ino)>)>,
        [is_told, is_intact]: [bool; 2],
    ) -> (u64, Keeping) {
        let (keeping, names) = match (listed, self.kept.get(&ino)) {
            (None, _) => (Keeping::Asks, None),
            (Some(listed), Some(kept)) if is_told && is_intact && kept.is(listed) => {
                (Keeping::Uses, kept.reading.as_ref().map(|(_, reading)| reading.clone()))
            }
            (Some(_), Some(Kept { handles: 1.., .. })) => (Keeping::Asks, None),
            (Some((_, names)), _) => match self.makes_room(names.len()) {
                true => (Keeping::Fills, None),
                false => (Keeping::Asks, None),
            },
        };
        match keeping {
            Keeping::Asks => {}
            Keeping::Fills => {
                self.leave(ino);
                self.kept.insert(ino, Kept { handles: 1, ..Kept::default() });
            }
            Keeping::Uses => self.kept.entry(ino).or_default().handles += 1,
        }
        self.last += 1;
        let names = Ranked::leaf(names);
        self.open.insert(self.last, Arc::new(DirectoryHandle { ino, pid, keeping, names }));
        (self.last, keeping)
    }

    /// True if so many more names may be kept. Those of directories that nobody has open make room.
    fn makes_room(&mut self, more: usize) -> bool {
        if self.names + more > KEPT_NAMES {
            let idle = self.kept.iter().filter(|(_, kept)| kept.handles == 0);
            let idle: Vec<Ino> = idle.map(|(ino, _)| *ino).collect();
            idle.into_iter().for_each(|ino| self.leave(ino));
        }
        self.names + more <= KEPT_NAMES
    }

    fn leave(&mut self, ino: Ino) {
        if let Some(kept) = self.kept.remove(&ino) {
            self.names -= kept.size();
            self.left.push(ino);
        }
    }

    /// Directories of which the kernel keeps no listing any more, since this was asked last.
    pub(super) fn take_left(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.left)
    }

    /// A handle has read these names from the beginning.
    pub(super) fn note_read(&mut self, directory: &DirectoryHandle, parent: Ino, read: &Reading) {
        let kept = self.kept.get_mut(&directory.ino).filter(|_| directory.is_kept());
        let Some(kept) = kept else { return };
        let is_other =
            |(above, known): &(Ino, Reading)| *above != parent || known.names != read.names;
        kept.is_mixed |= kept.reading.as_ref().is_some_and(is_other);
        self.names -= kept.size();
        kept.reading = Some((parent, read.clone()));
        self.names += kept.size();
    }

    /// A handle has read to the end. Returns false if the kernel has to forget what it keeps now.
    pub(super) fn note_end(&mut self, directory: &DirectoryHandle, is_intact: bool) -> bool {
        let kept = self.kept.get_mut(&directory.ino).filter(|_| directory.is_kept());
        let Some(kept) = kept else { return true };
        kept.is_mixed |= !is_intact;
        kept.is_whole = !kept.is_mixed && kept.reading.is_some();
        !kept.is_mixed
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<DirectoryHandle>> {
        self.open.get(&handle).cloned()
    }

    pub(crate) fn remove(&mut self, handle: u64) {
        let Some(directory) = self.open.remove(&handle) else { return };
        let kept = self.kept.get_mut(&directory.ino).filter(|_| directory.is_kept());
        let Some(kept) = kept else { return };
        kept.handles = kept.handles.saturating_sub(1);
        if kept.handles == 0 && (kept.is_mixed || !kept.is_whole) {
            self.leave(directory.ino);
        }
    }
}

impl Kept {
    /// What it counts: an empty directory takes room, too.
    fn size(&self) -> usize {
        self.reading.as_ref().map_or(0, |(_, reading)| reading.names.len() + 1)
    }

    /// True if the kernel has kept all of just this.
    fn is(&self, (parent, names): &(Ino, Vec<(Name, Ino)>)) -> bool {
        let is_same = |(above, reading): &(Ino, Reading)| above == parent && reading.has(names);
        self.is_whole && !self.is_mixed && self.reading.as_ref().is_some_and(is_same)
    }
}

impl DirectoryHandle {
    fn is_kept(&self) -> bool {
        self.keeping != Keeping::Asks
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

    const DIR: Ino = Ino(7);
    const TOLD: [bool; 2] = [true, true];

    fn listing(names: &[(&str, u64)]) -> (Ino, Vec<(Name, Ino)>) {
        let name = |name: &str| Name::new(name.as_bytes()).unwrap();
        (Ino::ROOT, names.iter().map(|&(at, ino)| (name(at), Ino(ino))).collect())
    }

    /// Opens the directory, which lists these names, and reads it to the end.
    fn reads(open: &mut Directories, listed: &(Ino, Vec<(Name, Ino)>), told: [bool; 2]) -> u64 {
        let (handle, _) = open.open((DIR, 1), Some(listed), told);
        reads_on(open, handle, listed);
        handle
    }

    fn reads_on(open: &mut Directories, handle: u64, listed: &(Ino, Vec<(Name, Ino)>)) -> bool {
        let directory = open.get(handle).unwrap();
        let read = Reading::new(2).read_anew(listed.1.clone(), Time::default());
        open.note_read(&directory, listed.0, &read);
        open.note_end(&directory, true)
    }

    fn opens(open: &mut Directories, listed: Option<&(Ino, Vec<(Name, Ino)>)>) -> Keeping {
        let (handle, keeping) = open.open((DIR, 1), listed, TOLD);
        open.remove(handle);
        keeping
    }

    /// Proves S6.8.
    #[test]
    fn a_kept_listing_is_used_only_as_long_as_it_is_what_would_be_listed() {
        let now = listing(&[("a", 1), ("b", 2)]);
        let others = [
            listing(&[("a", 1)]),
            listing(&[("a", 1), ("b", 3)]),
            listing(&[("a", 1), ("c", 2)]),
            listing(&[("a", 1), ("b", 2), ("c", 3)]),
            (Ino(9), now.1.clone()),
        ];
        for other in others {
            let mut open = Directories::default();
            let handle = reads(&mut open, &now, TOLD);
            open.remove(handle);
            assert_eq!(opens(&mut open, Some(&now)), Keeping::Uses);
            assert_eq!(opens(&mut open, None), Keeping::Asks);
            assert_eq!(opens(&mut open, Some(&other)), Keeping::Fills, "{other:?}");
            assert_eq!(opens(&mut open, Some(&now)), Keeping::Fills, "nobody has read it");
            let handle = reads(&mut open, &now, TOLD);
            open.remove(handle);
            for told in [[false, true], [true, false]] {
                assert_eq!(open.open((DIR, 1), Some(&now), told).1, Keeping::Fills);
                open = Directories::default();
                let handle = reads(&mut open, &now, TOLD);
                open.remove(handle);
            }
        }
    }

    /// Proves S6.8.
    #[test]
    fn handles_that_read_different_names_leave_nothing_kept() {
        let (first, second) = (listing(&[("a", 1), ("b", 2)]), listing(&[("a", 1), ("c", 3)]));
        let mut open = Directories::default();
        let handle = reads(&mut open, &first, TOLD);
        assert_eq!(opens(&mut open, Some(&second)), Keeping::Asks, "it is being filled");
        let other = open.open((DIR, 1), Some(&first), TOLD);
        assert_eq!(other.1, Keeping::Uses);
        assert!(reads_on(&mut open, other.0, &first));
        assert!(!reads_on(&mut open, handle, &second) && !reads_on(&mut open, other.0, &second));
        assert_eq!(opens(&mut open, Some(&second)), Keeping::Asks);
        [handle, other.0].into_iter().for_each(|handle| open.remove(handle));
        assert_eq!((open.take_left(), open.names), (vec![DIR], 0));
        assert_eq!(opens(&mut open, Some(&second)), Keeping::Fills);
    }

    /// The kernel had to forget a part of it while it was read.
    #[test]
    fn a_listing_that_changed_while_it_was_read_is_not_kept() {
        let now = listing(&[("a", 1)]);
        let mut open = Directories::default();
        let handle = reads(&mut open, &now, TOLD);
        let directory = open.get(handle).unwrap();
        assert!(!open.note_end(&directory, false));
        open.remove(handle);
        assert_eq!(opens(&mut open, Some(&now)), Keeping::Fills);
    }

    #[test]
    fn no_more_names_are_kept_than_there_is_room_for() {
        let names = (0..KEPT_NAMES as u64)
            .map(|number| (Name::new(format!("{number}").as_bytes()).unwrap(), Ino(number)));
        let many = (Ino::ROOT, names.collect::<Vec<_>>());
        let few = listing(&[("a", 1), ("b", 2)]);
        let mut open = Directories::default();
        let handle = reads(&mut open, &many, TOLD);
        assert_eq!(open.open((Ino(8), 1), Some(&few), TOLD).1, Keeping::Asks);
        open.remove(handle);
        assert_eq!(open.open((Ino(8), 1), Some(&few), TOLD).1, Keeping::Fills);
        assert_eq!((open.take_left(), open.names), (vec![DIR], 0));
    }
}
