//! Container files: the local bytes of each inode, at the same offsets as in the file.
//!
//! A file whose cached bytes all go gets a container of another number (`host::cache::places`);
//! the old one is removed when nobody needs it.
//!
//! Little that is new is in memory only (`young`), in no more containers than [`YOUNG_MAX`]: files
//! for them are made once a second by whoever notes what is here, not by who writes.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::syncfs;
use segue_core::nouns::{ContainerId, Ino};

use super::container::{Container, add, copy_data, take};
use super::durable::{sync_directory, sync_name};
use super::young::{Bytes, Totals, room};
use crate::rank::{Held, Rank, Ranked};

/// Open files kept for reuse.
const OPEN_MAX: usize = 512;
/// Containers in memory only: more than a program makes in a second.
const YOUNG_MAX: usize = 8192;
/// Locks for writers of files: a small number of threads writes at a time.
const WRITING: usize = 64;
/// Of more files than this their disk is synced at first: one by one takes longer.
const SYNC_MAX: usize = 32;

/// Which container.
pub(crate) type Key = (Ino, ContainerId);

type Table = HashMap<Key, Arc<Container>>;

/// All containers of a volume.
#[derive(Debug)]
pub(crate) struct Containers {
    root: PathBuf,
    open: Ranked<Table>,
    totals: Arc<Totals>,
    /// What was written and not synced, and whether the log has all of it.
    unsynced: Ranked<HashMap<Key, bool>>,
    /// Held from the beginning of a sync to its end: until then nobody knows what the disk has.
    syncing: Ranked<()>,
    /// The room that they take.
    bytes: Arc<AtomicU64>,
    /// Held while bytes of a file are written and noted as valid. A lock serves many files.
    writing: [Arc<Ranked<()>>; WRITING],
    /// The highest number of a container that was opened. No file has a higher one.
    opened: AtomicU64,
    /// Those whose bytes are in that sum; `None` when all are. Taken after `open`.
    counted: Ranked<Option<HashSet<Key>>>,
}

impl Containers {
    /// Containers below `root`.
    pub(crate) fn at(root: PathBuf) -> io::Result<Containers> {
        for first in 0..=255u8 {
            fs::create_dir_all(root.join(format!("{first:02x}")))?;
        }
        sync_directory(&root)?;
        let counted = Ranked::leaf(Some(HashSet::new()));
        let open = Ranked::new(Rank::Containers, Table::new());
        let syncing = Ranked::new(Rank::SyncingData, ());
        let (totals, unsynced, bytes) = Default::default();
        let writing = std::array::from_fn(|_| Arc::new(Ranked::new(Rank::Writing, ())));
        // Until it is told which numbers are new, any of them may be on the disk.
        let opened = AtomicU64::new(u64::MAX);
        Ok(Containers { root, open, totals, unsynced, syncing, bytes, writing, opened, counted })
    }

    /// New containers get numbers from `first` on, which no earlier process has given.
    pub(crate) fn number_from(&self, first: u64) {
        self.opened.store(first.saturating_sub(1), Ordering::Relaxed);
    }

    fn path(&self, key: Key) -> PathBuf {
        path_of(&self.root, key)
    }

    fn writing_of(&self, ino: Ino) -> &Arc<Ranked<()>> {
        let [first, ..] = &self.writing;
        let index = usize::try_from(ino.0 % WRITING as u64).unwrap_or_default();
        self.writing.get(index).unwrap_or(first)
    }

    /// The lock of [`Container::writing`], before the container is known.
    pub(crate) fn writing(&self, ino: Ino) -> Held<'_, ()> {
        self.writing_of(ino).lock()
    }

    fn table(&self) -> Held<'_, Table> {
        self.open.lock()
    }

    /// How many of their files are open.
    fn files(&self) -> usize {
        self.totals.files.load(Ordering::Relaxed)
    }

    fn unsynced(&self) -> Held<'_, HashMap<Key, bool>> {
        self.unsynced.lock()
    }

    /// The container with that number, made if there is none.
    pub(crate) fn open(&self, key: Key) -> io::Result<Arc<Container>> {
        let mut table = self.table();
        let known = table.get(&key).map(Arc::clone);
        self.close_idle(&mut table);
        if let Some(container) = known {
            return Ok(container);
        }
        // Numbers are given in ascending order. To look for a file costs as much as to log a write.
        let held = match self.opened.fetch_max(key.1.0, Ordering::Relaxed) < key.1.0 {
            true => Bytes::new(self.path(key), &self.totals),
            false => Bytes::open(self.path(key), &self.totals)?,
        };
        // Of all that are open some were removed: so there may be a few more of the others.
        let young = table.len().saturating_sub(self.files());
        if young >= YOUNG_MAX {
            held.file()?;
        }
        let container = Arc::new(Container::new(
            key.1,
            held,
            Arc::clone(&self.bytes),
            Arc::clone(self.writing_of(key.0)),
        )?);
        if self.is_counted_now(key) {
            add(&self.bytes, container.bytes());
        }
        table.insert(key, Arc::clone(&container));
        Ok(container)
    }

    /// Closes files that nobody uses, if too many are open. What is in memory only stays.
    fn close_idle(&self, table: &mut Table) {
        if self.files() >= OPEN_MAX {
            let stays = |open: &Arc<Container>| {
                Arc::strong_count(open) > 1 || open.is_young() || open.is_doubted()
            };
            table.retain(|_, open| stays(open));
        }
    }

    /// Puts onto the disk what is in memory only: whoever says durably that it is here, or writes a
    /// log that does not have it, calls this before. What finds no room stays in memory, and in the
    /// log, and more of it than [`YOUNG_MAX`] is not taken in.
    pub(crate) fn put_down(&self) -> io::Result<()> {
        let is_young = |(key, open): (&Key, &Arc<Container>)| open.is_young().then_some(*key);
        let young: Vec<Key> = self.table().iter().filter_map(is_young).collect();
        for key in young {
            let container = self.table().get(&key).map(Arc::clone);
            if let Some(container) = container {
                container.file()?;
            }
            self.close_idle(&mut self.table());
        }
        Ok(())
    }

    /// True if there is such a container.
    pub(crate) fn exists(&self, key: Key) -> bool {
        self.table().contains_key(&key) || self.path(key).exists()
    }

    /// Marks a container as written and not synced; `is_logged`: the log has the bytes, too.
    pub(crate) fn mark_unsynced(&self, key: Key, is_logged: bool) {
        let mut unsynced = self.unsynced();
        let was_logged = unsynced.entry(key).or_insert(true);
        *was_logged &= is_logged;
    }

    /// Makes durable what was written to containers and is not in the log.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.sync_those(|is_logged| !is_logged)
    }

    /// Makes durable all that was written to containers, also what the log has.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.put_down()?;
        self.sync_those(|_| true)
    }

    fn sync_those(&self, wanted: impl Fn(bool) -> bool) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let taken: HashMap<Key, bool> =
            self.unsynced().extract_if(|_, is_logged| wanted(*is_logged)).collect();
        if taken.len() > SYNC_MAX
            && let Ok(root) = File::open(&self.root)
            && let Err(error) = syncfs(root)
        {
            // It only saves the single ones most of their time.
            tracing::debug!("syncfs: {error}");
        }
        let synced = taken.keys().try_for_each(|key| match self.exists(*key) {
            true => self.open(*key)?.sync(),
            false => Ok(()),
        });
        if synced.is_err() {
            taken.into_iter().for_each(|(key, is_logged)| self.mark_unsynced(key, is_logged));
        }
        synced
    }

    /// Those of which a sync failed: they are to be [written anew](Container::write_anew), and
    /// until they [are whole](Container::mark_whole) each further sync fails.
    pub(crate) fn take_doubted(&self) -> Vec<(Key, Arc<Container>)> {
        let table = self.table();
        let doubted = table.iter().filter(|(_, open)| open.take_doubt());
        doubted.map(|(key, open)| (*key, Arc::clone(open))).collect()
    }

    /// Puts a copy of `file` in place of the container that is this file, and is not open.
    pub(super) fn replace(&self, key: Key, file: &File) -> io::Result<()> {
        let path = self.path(key);
        let (found, replaced) = (path.symlink_metadata(), file.metadata()?);
        if !found.is_ok_and(|found| found.ino() == replaced.ino()) {
            return Ok(());
        }
        let new = path.with_extension("new");
        let copied = File::create(&new).and_then(|copy| copy_data(file, &copy));
        if let Err(error) = copied {
            // A part is of no use, and takes room.
            fs::remove_file(&new).ok();
            return Err(error);
        }
        fs::rename(&new, &path)?;
        sync_name(&path)
    }

    /// Removes a container that nobody needs, if it is nowhere but in memory.
    pub(crate) fn remove_young(&self, key: Key) -> bool {
        let mut table = self.table();
        let is_gone = table.get(&key).is_some_and(|open| open.let_young_go());
        if is_gone && let Some(container) = table.remove(&key) {
            self.unsynced().remove(&key);
            take(&self.bytes, container.let_go().0);
        }
        is_gone
    }

    /// Removes a container that nobody needs, and returns the room that it took. Who still reads
    /// it keeps it.
    pub(crate) fn remove(&self, key: Key) -> io::Result<u64> {
        let mut table = self.table();
        self.unsynced().remove(&key);
        let path = self.path(key);
        let (bytes, has_file) = match table.remove(&key) {
            Some(container) => container.let_go(),
            None => (path.symlink_metadata().map_or(0, |meta| room(&meta)), true),
        };
        // What was not counted so far never will be.
        if !self.is_counted_now(key) {
            take(&self.bytes, bytes);
        }
        if !has_file {
            return Ok(bytes);
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(bytes),
        }
    }

    /// The room that all containers take, as far as they are [counted](Containers::count_all).
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The room that one takes.
    pub(crate) fn bytes_of(&self, key: Key) -> u64 {
        self.path(key).symlink_metadata().map_or(0, |meta| room(&meta))
    }

    /// True if its bytes have to be counted now, and were not before.
    fn is_counted_now(&self, key: Key) -> bool {
        let mut counted = self.counted.lock();
        counted.as_mut().is_some_and(|counted| counted.insert(key))
    }

    /// Counts the room that those take which were here before, once; it may take long.
    pub(crate) fn count_all(&self) {
        self.each(|key, path| {
            // Nobody opens it while it is looked at.
            let _table = self.table();
            if let Some(key) = key
                && let Ok(meta) = path.symlink_metadata()
                && self.is_counted_now(key)
            {
                add(&self.bytes, room(&meta));
            }
        });
        *self.counted.lock() = None;
    }

    /// True once the room of all that were here before is counted.
    pub(crate) fn are_counted(&self) -> bool {
        self.counted.lock().is_none()
    }

    /// Tells of every container that there is. What is no container is told of without a key.
    pub(crate) fn each(&self, mut tell: impl FnMut(Option<Key>, &Path)) {
        for directory in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for file in fs::read_dir(directory.path()).into_iter().flatten().flatten() {
                tell(file.file_name().to_str().and_then(parse), &file.path());
            }
        }
    }
}

fn path_of(root: &Path, (ino, id): Key) -> PathBuf {
    let directory = root.join(format!("{:02x}", ino.0 & 0xff));
    directory.join(text_of((ino, id)))
}

/// What the file of a container is called.
pub(super) fn text_of((ino, id): Key) -> String {
    format!("{:016x}-{:x}", ino.0, id.0)
}

/// A container of a cache directory that nobody uses, to be read only.
#[derive(Debug)]
pub(crate) enum ReadContainer {
    There(File),
    Missing,
}

/// Opens one without changing anything.
pub(crate) fn read_container(directory: &Path, key: Key) -> io::Result<ReadContainer> {
    match File::open(path_of(&directory.join("containers"), key)) {
        Ok(file) => Ok(ReadContainer::There(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReadContainer::Missing),
        Err(error) => Err(error),
    }
}

pub(super) fn parse(name: &str) -> Option<Key> {
    let (ino, id) = name.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((Ino(number(ino)?), ContainerId(number(id)?)))
}

#[cfg(test)]
mod tests {
    use super::super::Maps;
    use super::super::durable::failing;
    use super::*;

    const KEY: Key = (Ino(7), ContainerId(1));

    /// Each is counted once: whether it was opened, changed or removed before all were counted.
    #[test]
    fn the_room_that_they_take_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let key = |ino| (Ino(ino), ContainerId(1));
        let containers = Containers::at(dir.path().into()).unwrap();
        for ino in 1..6 {
            containers.open(key(ino)).unwrap().write(&[1; 40_000], 0).unwrap();
        }
        let on_disk = || {
            let mut bytes = 0;
            containers.each(|_, path| bytes += room(&path.metadata().unwrap()));
            bytes
        };
        assert_eq!(containers.bytes(), on_disk());
        let containers = Containers::at(dir.path().into()).unwrap();
        containers.open(key(1)).unwrap().write(&[1; 40_000], 40_000).unwrap();
        containers.open(key(2)).unwrap();
        let removed = containers.open(key(3)).unwrap();
        assert_eq!(containers.remove(key(3)).unwrap(), containers.bytes_of(key(4)));
        containers.remove(key(4)).unwrap();
        containers.count_all();
        assert_eq!(containers.bytes(), on_disk());
        containers.open(key(2)).unwrap().zero(0, 20_480).unwrap();
        containers.open(key(6)).unwrap().write(&[1; 100], 0).unwrap();
        removed.write(&[1; 40_000], 0).unwrap();
        assert_eq!(containers.bytes(), on_disk());
        for ino in [1, 2, 5, 6] {
            containers.remove(key(ino)).unwrap();
        }
        assert_eq!(containers.bytes(), 0);
    }

    #[test]
    fn a_file_has_as_many_containers_as_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let other = (Ino(7), ContainerId(0xabc));
        containers.open(KEY).unwrap().write(b"old", 0).unwrap();
        let kept = containers.open(KEY).unwrap();
        assert_eq!(containers.open(other).unwrap().read(0, 3).unwrap(), [0; 3]);
        containers.remove(KEY).unwrap();
        assert!(!containers.exists(KEY) && containers.exists(other));
        assert_eq!(kept.read(0, 3).unwrap(), b"old");
        containers.put_down().unwrap();
        let mut found = Vec::new();
        containers.each(|key, _| found.push(key));
        assert_eq!(found, [Some(other)]);
    }

    /// Files that were gone got containers on the disk, one for each, and lost them at once.
    #[test]
    fn what_is_gone_before_it_has_a_file_gets_none() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        containers.number_from(1 << 32);
        let key = |ino| (Ino(ino), ContainerId((1 << 32) + ino));
        for ino in 1..=3 {
            containers.open(key(ino)).unwrap().write_logged(b"few", 0).unwrap();
            containers.mark_unsynced(key(ino), true);
        }
        let held = containers.open(key(1)).unwrap();
        assert!(containers.remove_young(key(1)) && !containers.remove_young(key(1)));
        containers.put_down().unwrap();
        assert!(!containers.remove_young(key(2)), "it has a file");
        assert_eq!((files(&containers), held.read(0, 3).unwrap()), (2, b"few".to_vec()));
        assert!(!containers.unsynced().contains_key(&key(1)));
        held.file().unwrap();
        assert_eq!(files(&containers), 2, "nobody needs it but who has it");
        for ino in [2, 3] {
            containers.remove(key(ino)).unwrap();
        }
        assert_eq!((files(&containers), containers.bytes()), (0, 0));
    }

    #[test]
    fn only_a_number_that_is_surely_new_has_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let first = ContainerId(1 << 32);
        let [old, new, newer] = [1, first.0, first.0 + 1].map(|id| (Ino(7), ContainerId(id)));
        let earlier = Containers::at(dir.path().into()).unwrap();
        for key in [old, new] {
            earlier.open(key).unwrap().write(b"there", 0).unwrap();
        }
        let containers = Containers::at(dir.path().into()).unwrap();
        containers.number_from(first.0);
        assert_eq!(containers.open(old).unwrap().read(0, 5).unwrap(), b"there");
        containers.open(newer).unwrap().write(b"newer", 0).unwrap();
        // The file of a number that was opened is looked for, also if it is not open any more.
        containers.table().clear();
        for (key, bytes) in [(new, b"there"), (newer, b"newer")] {
            assert_eq!(containers.open(key).unwrap().read(0, 5).unwrap(), bytes);
        }
    }

    /// The next sync succeeded without the bytes, and they counted as durable.
    /// Proves S3.4.
    #[test]
    fn after_a_sync_that_failed_no_other_succeeds_before_all_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open(KEY).unwrap();
        container.write(&[1; 9000], 4 << 20).unwrap();
        drop(container);
        containers.mark_unsynced(KEY, false);
        failing::after(0);
        assert!(containers.sync().is_err() && containers.sync().is_err());
        let doubted = containers.take_doubted();
        assert!(doubted.len() == 1 && containers.take_doubted().is_empty());
        for (_, container) in doubted {
            let room = container.bytes();
            container.write_anew().unwrap();
            assert!(containers.sync().is_err(), "nobody has compared it with the log");
            assert_eq!(container.read(4 << 20, 9000).unwrap(), [1; 9000]);
            assert_eq!(container.bytes(), room, "holes stay");
            container.mark_whole();
        }
        containers.sync().unwrap();
        assert!(containers.unsynced().is_empty());
    }

    #[test]
    fn what_a_map_may_write_into_is_not_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open(KEY).unwrap();
        container.watch(Maps::at(dir.path()).unwrap().name(KEY)).unwrap();
        container.write(b"mapped", 0).unwrap();
        failing::after(0);
        assert!(container.sync().is_err() && container.write_anew().is_err());
    }

    fn files(containers: &Containers) -> usize {
        let mut found = 0;
        containers.each(|_, _| found += 1);
        found
    }

    /// The log is written anew without the bytes that it had: by then they are on the disk.
    #[test]
    fn what_is_in_memory_is_in_a_file_when_the_log_is_to_lack_it() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open(KEY).unwrap();
        container.write_logged(b"logged", 0).unwrap();
        containers.mark_unsynced(KEY, true);
        containers.sync().unwrap();
        assert_eq!((files(&containers), containers.bytes()), (0, 6));
        containers.sync_all().unwrap();
        assert_eq!(fs::read(containers.path(KEY)).unwrap(), b"logged");
        assert_eq!(containers.bytes(), containers.bytes_of(KEY));
        assert!(containers.bytes() > 0 && containers.unsynced().is_empty());
    }

    /// The log has only checksums of what is appended: these are checked in the file.
    #[test]
    fn what_the_log_lacks_makes_a_file_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open(KEY).unwrap();
        container.write_logged(b"logged", 0).unwrap();
        containers.mark_unsynced(KEY, true);
        container.write(&[7; 9000], 6).unwrap();
        containers.mark_unsynced(KEY, false);
        container.write_logged(b"!", 0).unwrap();
        containers.sync().unwrap();
        assert!(containers.unsynced().is_empty());
        let on_disk = fs::read(containers.path(KEY)).unwrap();
        assert_eq!((&on_disk[..6], on_disk.len()), (&b"!ogged"[..], 9006));
    }

    #[test]
    fn what_finds_no_room_on_the_disk_stays_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open(KEY).unwrap();
        container.write_logged(b"logged", 0).unwrap();
        let away = dir.path().join("07");
        fs::remove_dir(&away).unwrap();
        assert!(containers.put_down().is_err() && containers.sync_all().is_err());
        assert!(container.write(&[1; 9000], 0).is_err());
        assert_eq!(container.read(0, 6).unwrap(), b"logged");
        assert!(containers.exists(KEY) && containers.bytes() == 6);
        fs::create_dir(&away).unwrap();
        containers.put_down().unwrap();
        assert_eq!(fs::read(containers.path(KEY)).unwrap(), b"logged");
    }

    #[test]
    fn what_goes_before_it_has_a_file_never_gets_one() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open(KEY).unwrap();
        container.write_logged(b"short-lived", 0).unwrap();
        assert_eq!(containers.remove(KEY).unwrap(), 11);
        containers.put_down().unwrap();
        container.write(&[1; 9000], 0).unwrap();
        assert_eq!((files(&containers), containers.bytes()), (0, 0));
    }

    /// A process may have 1,024 files open.
    #[test]
    fn neither_memory_nor_descriptors_are_taken_by_any_number_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let open = || containers.files();
        let all = YOUNG_MAX + 600;
        for ino in 0..all as u64 {
            let container = containers.open((Ino(ino), ContainerId(1))).unwrap();
            container.write_logged(&ino.to_le_bytes(), 0).unwrap();
        }
        assert_eq!(files(&containers), 600);
        containers.put_down().unwrap();
        assert_eq!(files(&containers), all);
        assert!(open() <= OPEN_MAX && containers.table().len() == open());
        for ino in 0..all as u64 {
            let container = containers.open((Ino(ino), ContainerId(1))).unwrap();
            assert_eq!(container.read(0, 8).unwrap(), ino.to_le_bytes());
        }
        assert!(open() <= OPEN_MAX);
    }
}
