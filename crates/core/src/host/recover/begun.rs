//! Changes that a process had begun when it died: the log has them, and the containers do not.
//!
//! A process that dies has at most begun its last change, and told nobody that it was done. A host
//! that loses power, or a disk that fails, may take any part of what was not synced.

use std::ops::Range;

use super::LeftDisk;
use crate::host::Host;
use crate::host::log::{DataChange, Entry, Redo, lacking, replay};
use crate::host::planted::Fault;
use crate::nouns::{ContainerId, Ino};

/// Changes that were begun.
#[derive(Default)]
pub(super) struct Begun {
    /// Of which files.
    pub(super) ranges: Vec<(Ino, Range<u64>)>,
    /// What a damaged disk lacks of changes that were done.
    pub(super) damaged: Damaged,
    /// Which entries of the log they are.
    pub(super) entries: Vec<usize>,
    /// True if the last entry of the log is one of them.
    is_last: bool,
    /// The log without that one.
    log: Vec<Entry>,
}

/// Data that were durable, or of a process that died alone, and are not on the disk.
#[derive(Default)]
pub(super) struct Damaged {
    /// In containers.
    pub(super) written: Vec<((Ino, ContainerId), Range<u64>)>,
    /// Preserved of these changes.
    pub(super) preserved: Vec<u64>,
    /// Unsealed data of which some are in `written`, as they were.
    unsealed: Vec<DataChange>,
}

impl Damaged {
    /// True if the disk lacks some of these `ranges` of a container.
    pub(super) fn lacks(&self, key: (Ino, ContainerId), ranges: &[Range<u64>]) -> bool {
        self.written.iter().any(|(of, lost)| {
            *of == key
                && ranges.iter().any(|range| range.start < lost.end && lost.start < range.end)
        })
    }

    /// Finds the unsealed data of a log of which the disk lacks some.
    fn find_unsealed(&mut self, log: &[Entry]) {
        let all = replay(log).unsealed.into_iter();
        let lacking = all.filter(|data| self.lacks((data.ino, data.container), &data.ranges));
        self.unsealed = lacking.collect();
    }

    /// Puts the lost bytes back into `unsealed` data: they are sealed as they were, and the store
    /// is found to be lost.
    pub(super) fn amend(&self, unsealed: &mut Vec<DataChange>) {
        unsealed.retain(|data| self.unsealed.iter().all(|lacking| lacking.ino != data.ino));
        unsealed.extend(self.unsealed.iter().cloned());
    }
}

/// The first entry of which the disk lacks data.
fn first_lacking<D: LeftDisk>(
    disk: &D,
    entries: &[Entry],
    first_unsynced: usize,
) -> Result<Option<usize>, D::Error> {
    let lacking = lacking(
        entries,
        first_unsynced,
        |key, range, sums, later| disk.has_written(key, &range, sums, later),
        |seq, range, sums, later| disk.has_preserved(seq, range, sums, later),
    )?;
    Ok(lacking.first().copied())
}

/// Cuts the log off at the first entry of which a loss of power took data.
pub(super) fn cut_lost<D: LeftDisk>(
    disk: &mut D,
    entries: &mut Vec<Entry>,
    first_unsynced: usize,
) -> Result<Begun, D::Error> {
    while let Some(first) = first_lacking(disk, entries, first_unsynced)? {
        disk.report_lost(entries.get(first..).unwrap_or_default())?;
        entries.truncate(first);
        disk.cut_log(entries)?;
    }
    Ok(Begun::default())
}

/// Takes out of `entries` what was only begun. The log on the disk has it until the index has heard
/// of it.
pub(super) fn take_out<D: LeftDisk>(
    disk: &D,
    entries: &mut Vec<Entry>,
    first_unsynced: usize,
) -> Result<Begun, D::Error> {
    let mut begun = Begun::default();
    let mut left: Vec<usize> = (0..entries.len()).collect();
    while let Some(first) = first_lacking(disk, entries, first_unsynced)? {
        if begun.entries.is_empty() {
            begun.log = entries.clone();
        }
        let index = left.remove(first);
        // The log is locked until a change is done, so all others are damage of the disk.
        let is_last = index + 1 == begun.log.len();
        begun.entries.push(index);
        begun.is_last |= is_last;
        match entries.remove(first) {
            Entry::Written { place, offset, data } => {
                let range = offset..offset.saturating_add(data.len());
                if !is_last {
                    begun.damaged.written.push(((place.ino, place.container), range.clone()));
                }
                begun.ranges.push((place.ino, range));
            }
            Entry::Preserved { seq, .. } if !is_last => begun.damaged.preserved.push(seq),
            _ => {}
        }
    }
    if begun.is_last {
        begun.log.pop();
    }
    begun.damaged.find_unsealed(&begun.log);
    Ok(begun)
}

impl Host {
    /// Notes in the index which bytes a begun change spoiled, and then takes the change out of the
    /// log. If the process dies in between, the next one finds the change again.
    pub(super) fn forget_begun<D: LeftDisk>(
        &mut self,
        disk: &mut D,
        begun: &Begun,
    ) -> Result<(), D::Error> {
        for (ino, range) in &begun.ranges {
            self.spoil_begun(disk, *ino, range.clone())?;
        }
        if self.has_planted(Fault::ForgetsBegun) {
            begun.ranges.iter().try_for_each(|(ino, _)| disk.forget_file(*ino))?;
        } else if !self.has_planted(Fault::BelievesBegun) {
            let notes = self.take_notes();
            disk.note(&notes, begun.log.len())?;
            self.noted(&notes, true);
        }
        if begun.is_last { disk.cut_log(&begun.log) } else { Ok(()) }
    }

    /// A change of `range` was begun, and is not done.
    fn spoil_begun<D: LeftDisk>(
        &mut self,
        disk: &mut D,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<(), D::Error> {
        let size = self.tree.size_here(ino);
        let believes = self.has_planted(Fault::BelievesBegun);
        let Some(file) = self.files.get_mut(&ino) else {
            // Nothing of it is this host's only.
            return if believes { Ok(()) } else { disk.forget_file(ino) };
        };
        file.spoiled(range);
        let key = (ino, file.container());
        match size {
            Some(size) if disk.has_container(ino, key.1) => disk.redo(key, Redo::Cut(size)),
            _ => Ok(()),
        }
    }
}
