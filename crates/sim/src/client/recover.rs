//! What an earlier process left on a disk, for core to take in: until that is done or the process
//! dies, after so many changes of the disk.

use std::ops::Range;

use segue_core::host::cache::{FileNote, NodeNote};
use segue_core::host::log::{Change, Entry, Logged, Redo};
use segue_core::host::{LeftDisk, LeftLog, Notes};
use segue_core::nouns::{ContainerId, Ino, Name, RangeSet, Time};

use super::Mount;
use super::torn::{blocks, sum};
use crate::Violation;
use crate::check::acknowledged::Acknowledged;
use crate::disk::{Kept, Key, bytes_of};
use crate::plan::Bug;

/// Why a recovery did not come to its end.
pub(super) enum Broken {
    Died,
    Violation(Violation),
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Broken {
        Broken::Violation(violation)
    }
}

struct Left<'a> {
    kept: &'a mut Kept,
    acknowledged: &'a mut Acknowledged,
    /// Changes of the disk that it lives for.
    steps: u32,
    lost_power: bool,
    bug: Option<Bug>,
    now: Time,
}

impl Left<'_> {
    /// One more change of the disk.
    fn step(&mut self) -> Result<&mut Kept, Broken> {
        self.steps = self.steps.checked_sub(1).ok_or(Broken::Died)?;
        Ok(self.kept)
    }
}

impl Mount {
    /// Takes in what an earlier process left, and dies if that takes more than so many `steps`.
    pub(super) fn recover(&mut self, steps: u32) -> Result<(), Violation> {
        match self.try_recover(steps) {
            Err(Broken::Violation(violation)) => Err(violation),
            Ok(()) | Err(Broken::Died) => Ok(()),
        }
    }

    fn try_recover(&mut self, steps: u32) -> Result<(), Broken> {
        self.kept.sync_log();
        self.kept.starts += 1;
        let lost_power = self.kept.lost_power;
        if lost_power && self.bug != Some(Bug::ClientBelievesNotedData) {
            self.kept.save_index().clear_files();
        }
        self.core.number_containers(self.kept.starts << 32);
        let entries = self.kept.log.clone();
        let log = LeftLog { entries, first_unsynced: self.kept.first_unsynced(), lost_power };
        let Mount { kept, acknowledged, bug, now, .. } = self;
        let (bug, now) = (*bug, *now);
        let mut left = Left { kept, acknowledged, steps, lost_power, bug, now };
        self.core.recover(&mut left, log, now)?;
        self.sweep();
        self.sweep_left();
        Ok(())
    }
}

impl LeftDisk for Left<'_> {
    type Error = Broken;

    fn noted(&mut self, _: usize) -> Result<usize, Broken> {
        Ok(self.kept.noted())
    }

    fn node(&self, ino: Ino) -> Option<NodeNote> {
        self.kept.index.node(ino).cloned()
    }

    fn name(&self, directory: Ino, name: &Name) -> Option<Option<Ino>> {
        self.kept.index.name(&(directory, name.clone()))
    }

    fn file(&self, ino: Ino) -> Option<FileNote> {
        self.kept.index.file(ino).cloned()
    }

    fn has_container(&self, ino: Ino, container: ContainerId) -> bool {
        let believes = self.bug == Some(Bug::ClientBelievesEvicted);
        believes || self.kept.containers.contains_key(&(ino, container))
    }

    fn has_written(
        &self,
        key: Key,
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> Result<bool, Broken> {
        let Some(container) = self.kept.containers.get(&key) else { return Ok(false) };
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
    ) -> Result<bool, Broken> {
        Ok(true)
    }

    fn reserve_seqs(&mut self, first: u64) -> Result<u64, Broken> {
        Ok(self.step()?.reserve_seqs(first))
    }

    fn mark_unsynced(&mut self, ino: Ino, container: ContainerId) {
        self.kept.unsynced.insert((ino, container));
    }

    fn redo(&mut self, key: Key, step: Redo<'_>) -> Result<(), Broken> {
        self.step()?.containers.entry(key).or_default().redo(step);
        Ok(())
    }

    fn forget_file(&mut self, ino: Ino) -> Result<(), Broken> {
        self.step()?.save_index().forget_file(ino);
        Ok(())
    }

    fn note(&mut self, notes: &Notes, entries: usize) -> Result<(), Broken> {
        let now = self.now;
        let kept = self.step()?;
        kept.sync_log();
        kept.note(notes, entries, now);
        Ok(())
    }

    fn cut_log(&mut self, entries: &[Entry]) -> Result<(), Broken> {
        let kept = self.step()?;
        while kept.log.len() > entries.len() {
            kept.cut_last();
        }
        Ok(())
    }

    fn report_lost(&mut self, _: &[Entry]) -> Result<(), Broken> {
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.step()?;
        if self.kept.loses_power {
            self.acknowledged.remember(self.kept.end);
        }
        self.acknowledged.logged(entry)?;
        if let (true, Entry::Change(Logged { seq, change: Change::Data(_), .. })) =
            (self.lost_power, entry)
        {
            self.kept.left.insert(*seq);
        }
        self.kept.append(entry.clone());
        Ok(())
    }

    fn keep_preserved(&mut self, seqs: &[u64]) -> Result<(), Broken> {
        self.step()?.preserved.retain(|seq, _| seqs.contains(seq));
        Ok(())
    }

    fn end_doubt(&mut self) -> Result<(), Broken> {
        self.step()?.lost_power = false;
        Ok(())
    }
}
