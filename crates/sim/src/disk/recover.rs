//! Recovery: core takes in the disk that an earlier process left, until that is done or the process
//! dies, after so many changes of the disk.

use std::ops::Range;

use segue_core::host::cache::{FileNote, NodeNote};
use segue_core::host::log::{Change, Entry, Logged, Redo};
use segue_core::host::{Host, LeftDisk, LeftLog, Notes};
use segue_core::nouns::{ContainerId, Ino, Name, RangeSet, Time};

use super::container::bytes_of;
use super::edit::{blocks, sum};
use super::{HostDisk, Kept, Key};
use crate::Violation;
use crate::plan::Bug;

/// Why a recovery did not come to its end.
enum Halted {
    Died,
    Violation(Violation),
}

impl From<Violation> for Halted {
    fn from(violation: Violation) -> Halted {
        Halted::Violation(violation)
    }
}

struct LeftKept<'a> {
    disk: &'a mut HostDisk,
    /// Changes of the disk that the process lives for.
    steps: u32,
    lost_power: bool,
    now: Time,
}

impl LeftKept<'_> {
    /// One more change of the disk.
    fn step(&mut self) -> Result<&mut Kept, Halted> {
        self.steps = self.steps.checked_sub(1).ok_or(Halted::Died)?;
        Ok(&mut self.disk.kept)
    }
}

impl HostDisk {
    /// Has core take in the disk of an earlier process. The process dies if that takes more than
    /// `steps` changes of it.
    pub(crate) fn recover(
        &mut self,
        core: &mut Host,
        steps: u32,
        now: Time,
    ) -> Result<(), Violation> {
        match self.try_recover(core, steps, now) {
            Err(Halted::Violation(violation)) => Err(violation),
            Ok(()) | Err(Halted::Died) => Ok(()),
        }
    }

    fn try_recover(&mut self, core: &mut Host, steps: u32, now: Time) -> Result<(), Halted> {
        self.kept.sync_log();
        self.kept.starts += 1;
        let lost_power = self.kept.lost_power;
        if lost_power && self.bug != Some(Bug::ClientBelievesNotedData) {
            self.kept.save_index().clear_files();
        }
        core.number_containers(self.first_container());
        let entries = self.kept.log.clone();
        let log = LeftLog { entries, first_unsynced: self.kept.first_unsynced(), lost_power };
        core.recover(&mut LeftKept { disk: self, steps, lost_power, now }, log, now)?;
        self.sweep(core);
        self.sweep_left(core);
        // What was only begun is not in the log any more.
        self.changed_at = self.kept.end;
        Ok(())
    }
}

impl LeftDisk for LeftKept<'_> {
    type Error = Halted;

    fn noted(&mut self, _: usize) -> Result<usize, Halted> {
        Ok(self.disk.kept.noted())
    }

    fn node(&self, ino: Ino) -> Option<NodeNote> {
        self.disk.kept.index.node(ino).cloned()
    }

    fn name(&self, directory: Ino, name: &Name) -> Option<Option<Ino>> {
        self.disk.kept.index.name(&(directory, name.clone()))
    }

    fn file(&self, ino: Ino) -> Option<FileNote> {
        self.disk.kept.index.file(ino).cloned()
    }

    fn has_container(&self, ino: Ino, container: ContainerId) -> bool {
        let believes = self.disk.bug == Some(Bug::ClientBelievesEvicted);
        believes || self.disk.kept.containers.contains_key(&(ino, container))
    }

    fn has_written(
        &self,
        key: Key,
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> Result<bool, Halted> {
        let Some(container) = self.disk.kept.containers.get(&key) else { return Ok(false) };
        let mut blocks = blocks(range).zip(sums);
        Ok(blocks.all(|(block, expected)| {
            later.overlaps(block.clone()) || sum(&bytes_of(&container.bytes, &block)) == *expected
        }))
    }

    /// A loss of power takes it from the log at once ([`Kept::lose_power`]).
    fn has_preserved(
        &self,
        _: u64,
        _: &Range<u64>,
        _: &[u32],
        _: &RangeSet,
    ) -> Result<bool, Halted> {
        Ok(true)
    }

    fn reserve_seqs(&mut self, first: u64) -> Result<u64, Halted> {
        Ok(self.step()?.reserve_seqs(first))
    }

    fn mark_unsynced(&mut self, ino: Ino, container: ContainerId) {
        self.disk.kept.unsynced.insert((ino, container));
    }

    fn redo(&mut self, key: Key, step: Redo<'_>) -> Result<(), Halted> {
        self.step()?.containers.entry(key).or_default().redo(step);
        Ok(())
    }

    fn forget_file(&mut self, ino: Ino) -> Result<(), Halted> {
        self.step()?.save_index().forget_file(ino);
        Ok(())
    }

    fn note(&mut self, notes: &Notes, entries: usize) -> Result<(), Halted> {
        let now = self.now;
        let kept = self.step()?;
        kept.sync_log();
        kept.note(notes, entries, now);
        Ok(())
    }

    fn cut_log(&mut self, entries: &[Entry]) -> Result<(), Halted> {
        let kept = self.step()?;
        while kept.log.len() > entries.len() {
            kept.cut_last();
        }
        Ok(())
    }

    fn report_lost(&mut self, _: &[Entry]) -> Result<(), Halted> {
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<(), Halted> {
        self.step()?;
        if self.disk.kept.loses_power {
            self.disk.acknowledged.remember(self.disk.kept.end);
        }
        self.disk.acknowledged.logged(entry)?;
        if let (true, Entry::Change(Logged { seq, change: Change::Data(_), .. })) =
            (self.lost_power, entry)
        {
            self.disk.kept.left.insert(*seq);
        }
        self.disk.kept.append(entry.clone());
        Ok(())
    }

    fn preserved(&self) -> Result<Vec<u64>, Halted> {
        Ok(self.disk.kept.preserved.keys().copied().collect())
    }

    fn end_doubt(&mut self) -> Result<(), Halted> {
        self.step()?.lost_power = false;
        Ok(())
    }
}
