//! One container: the local bytes of a file, at the same offsets; and how what maps write into it
//! is told from our own changes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use segue_core::nouns::ContainerId;

use super::durable::{Trust, sync_data, sync_name};
use super::maps::MapName;
use super::young::Bytes;
use crate::rank::{Held, Rank, Ranked};

/// When a container was modified that we left alone while maps may change it: at no time that a
/// clock shows. What a map writes within the tick of our own change would have its time.
const OURS: SystemTime = SystemTime::UNIX_EPOCH;

/// Bytes are written anew so many at a time.
const STEP: usize = 1 << 20;

/// Milliseconds in which what was fetched is written, on a disk that fails as well.
const SOON: u32 = 1000;

/// One open container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    held: Bytes,
    /// Its name is durable.
    is_named: AtomicBool,
    writing: Arc<Ranked<()>>,
    /// The room that it takes, as of its last change; nothing once it is removed.
    room: Ranked<Option<u64>>,
    /// The room that all of them take.
    all: Arc<AtomicU64>,
    /// While maps may change it.
    by_map: Ranked<Option<Watched>>,
    /// Held while it is synced: of two at once the disk tells one that it failed.
    trust: Ranked<Trust>,
}

/// A container that maps may change.
#[derive(Debug)]
struct Watched {
    /// They changed it since that was asked last.
    is_changed: bool,
    name: MapName,
}

impl Container {
    /// What holds these bytes, whose room is in `all` or comes to it.
    pub(super) fn new(
        id: ContainerId,
        held: Bytes,
        all: Arc<AtomicU64>,
        writing: Arc<Ranked<()>>,
    ) -> io::Result<Container> {
        let room = Ranked::new(Rank::Room, Some(held.room()?));
        let by_map = Ranked::new(Rank::ByMap, None);
        let trust = Ranked::new(Rank::Trust, Trust::default());
        let is_named = AtomicBool::default();
        Ok(Container { id, held, is_named, writing, room, all, by_map, trust })
    }

    /// Held while bytes are written and noted as valid, so that a late fill never lands on a
    /// newer write. Take it before the log and the core.
    pub(crate) fn writing(&self) -> Held<'_, ()> {
        self.writing.lock()
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(|file| file.write_all_at(bytes, offset))
    }

    /// True if `len` bytes at `offset` could stay in memory, if the log had them.
    pub(crate) fn takes(&self, offset: u64, len: usize) -> bool {
        self.held.takes(offset, len)
    }

    /// The same of bytes that the log has: they may stay in memory until they are
    /// [put down](super::Containers::put_down).
    pub(crate) fn write_logged(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.held.write(bytes, offset) {
            return self.write(bytes, offset);
        }
        self.count();
        Ok(())
    }

    /// Its file, made now if all was in memory.
    pub(crate) fn file(&self) -> io::Result<&File> {
        let was_young = self.is_young();
        let file = self.held.file()?;
        if was_young {
            self.count();
        }
        Ok(file)
    }

    /// True if it is in memory only.
    pub(super) fn is_young(&self) -> bool {
        self.held.is_young()
    }

    /// Puts right how much room it takes, after a change.
    fn count(&self) {
        let mut counted = self.room();
        let (Some(before), Ok(now)) = (*counted, self.held.room()) else { return };
        add(&self.all, now);
        take(&self.all, before);
        *counted = Some(now);
    }

    fn room(&self) -> Held<'_, Option<u64>> {
        self.room.lock()
    }

    /// The room that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.room().unwrap_or(0)
    }

    /// The same as [`Container::let_go`], if no file is to be removed; else nothing, and false.
    pub(super) fn let_young_go(&self) -> bool {
        self.held.let_go()
    }

    /// Nobody needs it any more but who has it: the room that it took, and whether a file is to be
    /// removed.
    pub(super) fn let_go(&self) -> (u64, bool) {
        let has_file = !self.held.let_go();
        (self.room().take().unwrap_or(0), has_file)
    }

    /// Reads `len` bytes at `offset`; what lies beyond the container's end is zeros.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        match self.held.read(offset, len) {
            Some(bytes) => Ok(bytes),
            None => read_zeros(self.file()?, offset, len),
        }
    }

    /// Makes it `size` bytes long; new bytes are zeros.
    pub(crate) fn resize(&self, size: u64) -> io::Result<()> {
        self.change(|file| file.set_len(size))
    }

    /// Its length, which may be less than the file's where that ends in a hole.
    pub(crate) fn len(&self) -> io::Result<u64> {
        match self.held.len() {
            Some(len) => Ok(len),
            None => Ok(self.file()?.metadata()?.len()),
        }
    }

    /// Makes it as long as the file is.
    pub(crate) fn fit(&self, size: u64) -> io::Result<()> {
        if self.len()? == size { Ok(()) } else { self.resize(size) }
    }

    /// Cuts off what is behind `size`, if there is anything.
    pub(crate) fn cut(&self, size: u64) -> io::Result<()> {
        if self.held.cut(size) {
            self.count();
            return Ok(());
        }
        if self.len()? > size { self.resize(size) } else { Ok(()) }
    }

    /// Makes `len` bytes at `offset` zeros that need no room.
    pub(crate) fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.change(|file| Ok(fallocate(file, flags, offset, len)?))
    }

    /// Changes it, and tells that from what a map does.
    fn change<T>(&self, change: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let mut by_map = self.by_map();
        let file = self.file()?;
        if let Some(watched) = by_map.as_mut() {
            watched.is_changed |= is_touched(file)?;
        }
        let done = change(file);
        self.count();
        // The time of a map's change stays until the log has the change: the next process sees it.
        if by_map.as_ref().is_some_and(|watched| !watched.is_changed) {
            file.set_modified(OURS)?;
        }
        done
    }

    fn by_map(&self) -> Held<'_, Option<Watched>> {
        self.by_map.lock()
    }

    /// From now on notices changes that are not made by way of this. All bytes so far are durable,
    /// and so is `name`, under which the next process looks for such changes.
    pub(crate) fn watch(&self, name: MapName) -> io::Result<()> {
        let mut by_map = self.by_map();
        if by_map.is_none() {
            self.file()?.set_modified(OURS)?;
            self.sync()?;
            name.give(self.held.path())?;
            *by_map = Some(Watched { is_changed: false, name });
        }
        Ok(())
    }

    /// No map changes it any more. The next process looks for changes that are not logged yet.
    pub(crate) fn unwatch(&self) -> io::Result<()> {
        match self.by_map().take() {
            Some(Watched { is_changed: false, name }) => name.take_back(),
            _ => Ok(()),
        }
    }

    /// True if what is not changed by way of this is noticed.
    pub(crate) fn is_watched(&self) -> bool {
        self.by_map().is_some()
    }

    /// Whether something else changed it since this was asked last; that is durable then. The
    /// kernel marks a file as modified when a clean page of a map is written first. So all pages
    /// are made clean, after the mark is taken away: stores before that are told of here, later
    /// ones the next time. [`Container::map_logged`] has to follow.
    pub(crate) fn changed_by_map(&self) -> io::Result<bool> {
        let mut by_map = self.by_map();
        let Some(watched) = by_map.as_mut() else { return Ok(false) };
        let file = self.file()?;
        watched.is_changed |= is_touched(file)?;
        if !watched.is_changed {
            return Ok(false);
        }
        watched.name.mark_unlogged()?;
        file.set_modified(OURS)?;
        self.sync()?;
        watched.is_changed = false;
        Ok(true)
    }

    /// The change that [`Container::changed_by_map`] reported is in the log. If it is not, that
    /// reports it again.
    pub(crate) fn map_logged(&self, is_logged: bool) -> io::Result<()> {
        match self.by_map().as_mut() {
            Some(watched) if is_logged => watched.name.mark_logged(),
            Some(watched) => {
                watched.is_changed = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The first run of bytes in `range` that take room here; empty, at its end, if none do. What
    /// lies before it reads as zeros.
    pub(crate) fn next_data(&self, range: Range<u64>) -> io::Result<Range<u64>> {
        if let Some(len) = self.held.len() {
            let start = if range.start < len { range.start } else { range.end };
            return Ok(start..range.end.min(len).max(start));
        }
        next_data(self.file()?, range)
    }

    /// Makes its bytes durable, and that there is a file that has them. Of what is in memory only
    /// the log has all.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if self.is_young() {
            return Ok(());
        }
        self.trust().sync(self.file()?)?;
        if !self.is_named.load(Ordering::Relaxed) {
            sync_name(self.held.path())?;
            self.is_named.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The same as [`writing`](Container::writing), where it is not held by who waits for the log:
    /// nobody else has it for longer than it takes to write what was fetched.
    fn writing_soon(&self) -> Option<Held<'_, ()>> {
        (0..SOON).find_map(|_| match self.writing.try_lock() {
            Some(writing) => Some(writing),
            None => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
        })
    }

    fn trust(&self) -> Held<'_, Trust> {
        self.trust.lock()
    }

    /// True if a sync failed, and nothing came of writing it anew so far.
    pub(super) fn is_doubted(&self) -> bool {
        *self.trust() != Trust::Whole
    }

    /// True once if it is to be [written anew](Container::write_anew) because a sync failed.
    pub(super) fn take_doubt(&self) -> bool {
        self.trust().take_doubt()
    }

    /// Writes what it has onto the disk anew. Call it while the log is locked: so nobody changes it
    /// meanwhile but who fetches, for whom it waits, and maps: what they write could be lost.
    pub(crate) fn write_anew(&self) -> io::Result<()> {
        let _fetching = self.writing_soon();
        let by_map = self.by_map();
        if by_map.is_some() {
            return Err(io::Error::other("a memory map may still write to it"));
        }
        let file = self.file()?;
        write_anew(file)?;
        self.count();
        sync_data(file)
    }

    /// Marks the container as verified: its bytes are as expected.
    pub(crate) fn mark_whole(&self) {
        *self.trust() = Trust::Whole;
    }
}

/// The first run of bytes in `range` that take room in a file; empty, at its end, if none do.
fn next_data(file: &File, range: Range<u64>) -> io::Result<Range<u64>> {
    // Nobody else relies on the descriptor's own offset.
    let start = match seek(file, SeekFrom::Data(range.start)) {
        Ok(start) => start.min(range.end),
        Err(Errno::NXIO) => range.end,
        // A disk that knows nothing of holes.
        Err(Errno::INVAL) => return Ok(range),
        Err(error) => return Err(error.into()),
    };
    if start == range.end {
        return Ok(start..start);
    }
    data_from(file, start..range.end)
}

/// The run of bytes that begins where `range` does, where some were a moment ago.
fn data_from(file: &File, range: Range<u64>) -> io::Result<Range<u64>> {
    match seek(file, SeekFrom::Hole(range.start)) {
        Ok(end) => Ok(range.start..end.min(range.end)),
        // The file has become shorter.
        Err(Errno::NXIO) => Ok(range.end..range.end),
        Err(error) => Err(error.into()),
    }
}

/// Writes the bytes of a file over themselves, so that the disk lacks them again.
pub(super) fn write_anew(file: &File) -> io::Result<()> {
    let end = file.metadata()?.len();
    let mut data = next_data(file, 0..end)?;
    while data.start < data.end {
        let len = usize::try_from(data.end - data.start).unwrap_or(STEP).min(STEP);
        file.write_all_at(&read_zeros(file, data.start, len)?, data.start)?;
        data = next_data(file, data.start + len as u64..end)?;
    }
    Ok(())
}

/// Copies the bytes of a file that take room to an empty one, durably.
pub(crate) fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let end = from.metadata()?.len();
    let mut data = next_data(from, 0..end)?;
    while data.start < data.end {
        let len = usize::try_from(data.end - data.start).unwrap_or(STEP).min(STEP);
        to.write_all_at(&read_zeros(from, data.start, len)?, data.start)?;
        data = next_data(from, data.start + len as u64..end)?;
    }
    to.set_len(end)?;
    sync_data(to)
}

/// Whether a watched container was changed and not dated back.
pub(super) fn is_touched(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.modified()? != OURS)
}

pub(super) fn add(all: &AtomicU64, bytes: u64) {
    all.fetch_add(bytes, Ordering::Relaxed);
}

pub(super) fn take(all: &AtomicU64, bytes: u64) {
    let less = |all: u64| Some(all.saturating_sub(bytes));
    all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
}

/// `len` bytes at `offset`; what lies beyond the end of the file is zeros.
pub(super) fn read_zeros(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use segue_core::nouns::Ino;

    use super::super::{Containers, Maps};
    use super::*;

    #[test]
    fn data_are_found_between_holes_and_behind_the_end_there_are_none() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let container =
            Containers::at(dir.path().into()).unwrap().open((Ino(7), ContainerId(1))).unwrap();
        assert_eq!(container.next_data(0..MIB).unwrap(), MIB..MIB);
        container.write(&[1; 65_536], MIB).unwrap();
        container.resize(4 * MIB).unwrap();
        assert_eq!(container.next_data(0..8 * MIB).unwrap(), MIB..MIB + 65_536);
        assert_eq!(container.next_data(0..MIB + 10).unwrap(), MIB..MIB + 10);
        assert_eq!(container.next_data(MIB + 5..MIB + 10).unwrap(), MIB + 5..MIB + 10);
        assert_eq!(container.next_data(2 * MIB..8 * MIB).unwrap(), 8 * MIB..8 * MIB);
        let file = container.file().unwrap();
        assert_eq!(
            data_from(file, 5 * MIB..8 * MIB).unwrap(),
            8 * MIB..8 * MIB,
            "it is shorter by now"
        );
        container.zero(MIB, 4_096).unwrap();
        assert_eq!(container.next_data(0..8 * MIB).unwrap(), MIB + 4_096..MIB + 65_536);
    }

    /// What a map wrote right after a write of ours had the same time, and was not noticed.
    #[test]
    fn what_somebody_else_changes_is_told_from_our_own() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers::at(dir.path().into()).unwrap();
        let container = containers.open((Ino(7), ContainerId(1))).unwrap();
        let maps = Maps::at(dir.path()).unwrap();
        container.watch(maps.name((Ino(7), ContainerId(1)))).unwrap();
        let other = File::options().write(true).open(container.held.path()).unwrap();
        assert!(container.is_watched() && !container.changed_by_map().unwrap());
        for _ in 0..100 {
            container.write(b"ours", 0).unwrap();
            assert!(!container.changed_by_map().unwrap());
            container.resize(100).unwrap();
            other.write_all_at(b"theirs", 10).unwrap();
            container.zero(50, 10).unwrap();
            assert!(container.changed_by_map().unwrap());
            container.map_logged(false).unwrap();
            assert!(container.changed_by_map().unwrap());
            container.map_logged(true).unwrap();
            assert!(!container.changed_by_map().unwrap());
        }
    }
}
