//! After a restart: the next process shows the files as the one before did, and sends the changes
//! that it had logged.
//!
//! ```text
//!   log ─▶ without changes that were only begun ─▶ with the index: what was known
//!       ─▶ containers as the log says ─▶ index and log without what was begun
//!       ─▶ unsealed data sealed
//! ```
//!
//! Invariant: a process may die between any two changes of the disk. The next one finds a disk from
//! which it comes to the same end.

mod begun;
mod lost;
mod relive;

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Host, Notes};
use crate::host::cache::{FileNote, NodeNote};
use crate::host::log::{DataChange, Entry, Redo, covered_by, left_of, redo};
use crate::host::planted::Fault;
use crate::nouns::{Caller, ContainerId, Ino, Name, RangeSet, Time};

pub(in crate::host) use relive::{Needs, needs};

/// The disk of an earlier process. A change of it that fails ends the recovery.
pub trait LeftDisk {
    /// Why something failed.
    type Error;

    /// How many entries of the log, which has so `many`, the index knows of. An index that knows of
    /// more is emptied: the log was durable before it, so one of them was replaced or damaged.
    fn noted(&mut self, many: usize) -> Result<usize, Self::Error>;
    /// The index's note of an inode.
    fn node(&self, ino: Ino) -> Option<NodeNote>;
    /// The index's note of a name: what it means, or that it means nothing.
    fn name(&self, directory: Ino, name: &Name) -> Option<Option<Ino>>;
    /// The index's note of a file's data.
    fn file(&self, ino: Ino) -> Option<FileNote>;
    /// True if there is such a container.
    fn has_container(&self, ino: Ino, container: ContainerId) -> bool;
    /// True if a container has in `range` what these checksums are of, but for what was written
    /// `later`.
    fn has_written(
        &self,
        key: (Ino, ContainerId),
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> Result<bool, Self::Error>;
    /// The same of what was preserved of change `seq`.
    fn has_preserved(
        &self,
        seq: u64,
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> Result<bool, Self::Error>;

    /// Reserves numbers of changes from `first` on, durably; those below the returned one may be
    /// used.
    fn reserve_seqs(&mut self, first: u64) -> Result<u64, Self::Error>;
    /// Bytes of a container may not be durable.
    fn mark_unsynced(&mut self, ino: Ino, container: ContainerId);
    /// Changes a container, which is made if there is none.
    fn redo(&mut self, key: (Ino, ContainerId), step: Redo<'_>) -> Result<(), Self::Error>;
    /// Forgets the index's note of a file's data.
    fn forget_file(&mut self, ino: Ino) -> Result<(), Self::Error>;
    /// Makes containers and log durable, and then the index with these notes, which are what the
    /// first `entries` of the log did.
    fn note(&mut self, notes: &Notes, entries: usize) -> Result<(), Self::Error>;
    /// Cuts the log off behind `entries`, with which it begins.
    fn cut_log(&mut self, entries: &[Entry]) -> Result<(), Self::Error>;
    /// Keeps word, for the user, of entries that a loss of power took out of the log.
    fn report_lost(&mut self, lost: &[Entry]) -> Result<(), Self::Error>;
    /// Appends to the log.
    fn append(&mut self, entry: &Entry) -> Result<(), Self::Error>;
    /// The changes for which there are preserved bytes.
    fn preserved(&self) -> Result<Vec<u64>, Self::Error>;
    /// Notes that no data are in doubt after a loss of power.
    fn end_doubt(&mut self) -> Result<(), Self::Error>;
}

/// The log that an earlier process left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftLog {
    /// All that it says.
    pub entries: Vec<Entry>,
    /// The data of which those before this one speak are durable.
    pub first_unsynced: usize,
    /// The host went down under it.
    pub lost_power: bool,
}

impl Host {
    /// Recovers. Returns data that were written and are nowhere.
    pub fn recover<D: LeftDisk>(
        &mut self,
        disk: &mut D,
        left: LeftLog,
        now: Time,
    ) -> Result<Vec<DataChange>, D::Error> {
        let LeftLog { mut entries, first_unsynced, lost_power } = left;
        self.reserve_seqs(disk.reserve_seqs(self.next_seq)?);
        let begun = match lost_power {
            // Later entries may rely on it.
            true => begun::cut_lost(disk, &mut entries, first_unsynced)?,
            false => begun::take_out(disk, &mut entries, first_unsynced)?,
        };
        let noted = disk.noted(entries.len() + begun.entries.len())?;
        let noted = left_of(noted, &begun.entries);
        let files = self.load_needs(disk, needs(&entries, noted));
        let mut unsealed = self.take_in_log(entries.clone(), noted, &files, now);
        begun.damaged.amend(&mut unsealed);
        // Before anything is written again: what was evicted would be made anew, with holes.
        let covered = covered_by(&entries);
        let is_there = |ino, id| disk.has_container(ino, id);
        self.check_data(lost_power, &covered, is_there);
        let lost = self.drop_lost(&mut unsealed, &covered, is_there);
        self.find_lost(disk, &covered, &begun.damaged)?;
        self.redo(disk, &entries)?;
        if lost_power {
            self.cut_containers(disk)?;
        }
        if !begun.ranges.is_empty() {
            self.forget_begun(disk, &begun)?;
        }
        self.seal_left(disk, unsealed, lost_power, now)?;
        self.find_lost(disk, &covered, &begun.damaged)?;
        self.found_preserved(disk.preserved()?);
        // Not before: what was not synced must be known to be in doubt until it was looked at.
        if lost_power && (!self.is_in_doubt() || self.has_planted(Fault::ForgetsDoubt)) {
            disk.end_doubt()?;
        }
        Ok(lost)
    }

    /// Loads notes of inodes and names into memory. Returns the notes of data.
    fn load_needs<D: LeftDisk>(&mut self, disk: &D, needs: Needs) -> BTreeMap<Ino, FileNote> {
        let mut files = BTreeMap::new();
        for ino in needs.inodes {
            if let Some(note) = disk.node(ino) {
                self.tree.install_note(note);
            }
            let file = disk.file(ino).filter(|note| disk.has_container(ino, note.container));
            files.extend(file.map(|note| (ino, note)));
        }
        for (directory, name) in needs.names {
            if let Some(meaning) = disk.name(directory, &name) {
                self.tree.install_noted_name(directory, name, meaning);
            }
        }
        files
    }

    /// Writes what the log has itself into the containers again. Whatever of the rest was not
    /// synced is with the next sync.
    fn redo<D: LeftDisk>(&self, disk: &mut D, entries: &[Entry]) -> Result<(), D::Error> {
        if self.has_planted(Fault::RedoesNothing) {
            return Ok(());
        }
        // A container that is lost is not made again in part: the next process, which may come
        // before the store is refused, is to find it lost, too.
        let is_needed = |ino, container| {
            self.needs_container(ino, container)
                && (disk.has_container(ino, container) || !self.has_lost_only(ino, container))
        };
        let steps = redo(entries).into_iter();
        let needed: Vec<_> =
            steps.filter(|((ino, container), _)| is_needed(*ino, *container)).collect();
        for place in entries.iter().filter_map(Entry::place) {
            if self.needs_container(place.ino, place.container) {
                disk.mark_unsynced(place.ino, place.container);
            }
        }
        needed.into_iter().try_for_each(|(key, step)| disk.redo(key, step))
    }

    /// Cuts off what containers have behind the ends of their files: nobody logged it.
    fn cut_containers<D: LeftDisk>(&self, disk: &mut D) -> Result<(), D::Error> {
        for (key, size) in self.ends() {
            if disk.has_container(key.0, key.1) {
                disk.redo(key, Redo::Cut(size))?;
            }
        }
        Ok(())
    }

    /// Seals data that no process has sealed.
    fn seal_left<D: LeftDisk>(
        &mut self,
        disk: &mut D,
        unsealed: Vec<DataChange>,
        lost_power: bool,
        now: Time,
    ) -> Result<(), D::Error> {
        let says_so = lost_power && !self.has_planted(Fault::HidesItsLoss);
        for data in unsealed {
            if self.seqs_left() == 0 {
                self.reserve_seqs(disk.reserve_seqs(self.next_seq)?);
            }
            let entry = self.draft_leftover(data, Caller::nobody(), says_so);
            disk.append(&entry)?;
            self.admit(entry, now);
        }
        Ok(())
    }
}
