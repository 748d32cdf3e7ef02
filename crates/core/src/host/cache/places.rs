//! Where bytes are on this host: containers, and bytes that are kept for a change after they were
//! overwritten in its container.
//!
//! Invariant: what a change in the queue refers to stays as it was when it was logged, until
//! the server has it: so a store is a state that the file really had (DESIGN.md section 8).

use std::collections::BTreeSet;
use std::ops::Range;

use crate::host::cache::FileData;
use crate::host::log::{Change, DataChange};
use crate::host::{Fault, Host};
use crate::nouns::{ContainerId, Ino, RangeSet, Time, Version};

/// A file of the cache directory that nobody needs any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scrap {
    /// A container.
    Container(Ino, ContainerId),
    /// What was preserved for a change.
    Preserved(u64),
}

/// Where the bytes of a range of a file are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sight {
    /// The file.
    pub ino: Ino,
    /// What of the range is before the file's end.
    pub range: Range<u64>,
    /// What of it is not here.
    pub missing: Vec<Range<u64>>,
    /// Where the rest is.
    pub container: ContainerId,
    /// The data version of what is clean.
    pub version: Version,
}

impl Host {
    /// Where the bytes of a range of `ino` are.
    pub fn sight(&mut self, ino: Ino, range: &Range<u64>) -> Option<Sight> {
        let size = self.tree.peek(ino)?.size;
        let range = range.start.min(size)..range.end.min(size);
        let file = self.file(ino)?;
        let missing = file.valid().missing(range.clone()).into_iter().collect();
        Some(Sight { ino, range, missing, container: file.container(), version: file.version() })
    }

    /// Containers are numbered from `first` on: higher than in any earlier life.
    pub fn number_containers(&mut self, first: u64) {
        self.next_container = self.next_container.max(first);
    }

    pub(in crate::host) fn fresh_container(&mut self) -> ContainerId {
        self.next_container += 1;
        ContainerId(self.next_container - 1)
    }

    pub(in crate::host) fn queued_data(
        &self,
        ino: Ino,
    ) -> impl Iterator<Item = (u64, &DataChange)> {
        self.queue.iter().filter_map(move |(logged, _)| match &logged.change {
            Change::Data(data) if data.ino == ino => Some((logged.seq, data)),
            _ => None,
        })
    }

    /// The file is not in `container` any more.
    pub(in crate::host) fn abandon(&mut self, ino: Ino, container: ContainerId) {
        if !self.queued_data(ino).any(|(_, data)| data.container == container) {
            self.scrap.insert(Scrap::Container(ino, container));
        }
    }

    /// A change of data has left the queue.
    pub(in crate::host) fn release_data(&mut self, seq: u64, data: &DataChange) {
        if self.preserved.remove(&seq).is_some() {
            self.scrap_preserved(seq);
        }
        let is_current =
            self.files.get(&data.ino).is_none_or(|file| file.container() == data.container);
        if !is_current {
            self.abandon(data.ino, data.container);
        }
    }

    /// Nobody needs what was preserved for a change that has left the queue.
    pub(in crate::host) fn scrap_preserved(&mut self, seq: u64) {
        let scrap = Scrap::Preserved(seq);
        // It may have been written since the shell took it.
        self.going.remove(&scrap);
        self.scrap.insert(scrap);
    }

    /// The disk of an earlier process has bytes that were preserved for these changes.
    pub(in crate::host) fn found_preserved(&mut self, seqs: Vec<u64>) {
        for seq in seqs {
            match self.queue.change(seq).is_some() {
                true => drop(self.preserved.entry(seq).or_default()),
                false => self.scrap_preserved(seq),
            }
        }
    }

    /// A file that cannot be reached any more leaves memory, and its container the disk.
    pub fn forget_file(&mut self, ino: Ino, now: Time) {
        if let Some(file) = self.files.remove(&ino) {
            self.abandon(ino, file.container());
        }
        self.tree.forget(ino, now);
    }

    /// What nobody needs any more since the last call. It is to be removed before the next.
    pub fn take_scrap(&mut self) -> BTreeSet<Scrap> {
        self.going = std::mem::take(&mut self.scrap);
        self.going.clone()
    }

    /// Containers that nobody needs any more, and that are not being removed.
    pub fn scrapped_containers(&self) -> Vec<(Ino, ContainerId)> {
        let container = |scrap: &Scrap| match scrap {
            Scrap::Container(ino, container) => Some((*ino, *container)),
            Scrap::Preserved(_) => None,
        };
        self.scrap.iter().filter_map(container).collect()
    }

    /// These of them were nowhere but in memory, and have gone.
    pub fn scrap_gone(&mut self, gone: &[(Ino, ContainerId)]) {
        for (ino, container) in gone {
            self.scrap.remove(&Scrap::Container(*ino, *container));
        }
    }

    /// What was taken last is there still.
    pub fn keep_scrap(&mut self) {
        self.scrap.append(&mut self.going);
    }

    /// True if `container` is being removed, or about to be: the index may not know yet.
    pub(in crate::host) fn is_going(&self, ino: Ino, container: ContainerId) -> bool {
        let scrap = Scrap::Container(ino, container);
        let is_going = self.scrap.contains(&scrap) || self.going.contains(&scrap);
        is_going || self.forgetting.contains(&ino)
    }

    /// Which bytes of changes on their way must be preserved before `range` of `ino` is changed
    /// in its container.
    pub fn to_preserve(&self, ino: Ino, range: &Range<u64>) -> Vec<(u64, Range<u64>)> {
        let Some(file) = self.files.get(&ino) else { return Vec::new() };
        if self.has_planted(Fault::OverwritesPending) {
            return Vec::new();
        }
        if !file.sealed_ranges().overlaps(range.clone()) {
            return Vec::new();
        }
        let container = file.container();
        let nothing = RangeSet::default();
        let mut parts = Vec::new();
        for (seq, data) in self.queued_data(ino).filter(|(_, data)| data.container == container) {
            let preserved = self.preserved.get(&seq).unwrap_or(&nothing);
            for part in &data.ranges {
                let part = part.start.max(range.start)..part.end.min(range.end).min(data.size);
                if part.start < part.end {
                    parts.extend(preserved.missing(part).into_iter().map(|part| (seq, part)));
                }
            }
        }
        parts
    }

    /// Which bytes of change `seq` are not in its container any more.
    pub fn preserved(&self, seq: u64) -> RangeSet {
        self.preserved.get(&seq).cloned().unwrap_or_default()
    }

    /// True if `container` has bytes of `ino` that are in use.
    pub fn needs_container(&self, ino: Ino, container: ContainerId) -> bool {
        self.files.get(&ino).is_some_and(|file| file.container() == container)
            || self.queued_data(ino).any(|(_, data)| data.container == container)
    }

    /// Forgets which data of `ino` are in `container`, for it is to go from the disk. False, and
    /// nothing happens, if somebody uses the file or may write to it by a map, if the server lacks
    /// some of it, or if what is noted is not what is here; nor if the container goes anyway, once
    /// the log says durably that nobody needs it.
    pub fn evict(&mut self, ino: Ino, container: ContainerId) -> bool {
        if self.is_open(ino) {
            return false;
        }
        if self.has_planted(Fault::EvictsPending) {
            self.files.remove(&ino);
            return true;
        }
        if self.queue.has_data(ino) || self.is_going(ino, container) {
            return false;
        }
        let may_go = self.files.get(&ino).is_none_or(|file| {
            file.container() == container
                && file.is_noted()
                && !file.is_ahead()
                && !file.is_fetching()
                && !file.is_mapped()
        });
        if may_go {
            self.files.remove(&ino);
        }
        may_go
    }

    /// Gives up what is cached of `ino`, if nobody has it open and the server lacks nothing of it.
    pub fn let_go_of_data(&mut self, ino: Ino) -> bool {
        if self.is_open(ino) || self.is_ahead(ino) || self.queue.has_data(ino) {
            return false;
        }
        let fresh = self.fresh_container();
        let Some(file) = self.files.get_mut(&ino) else { return false };
        let (old, version) = (file.container(), file.version());
        file.discard(version, fresh);
        self.abandon(ino, old);
        true
    }

    /// The containers of all files in memory, and where what belongs to them ends. What a container
    /// has behind that, after a loss of power, nobody logged; it would be seen where the file grows
    /// over it.
    pub(in crate::host) fn ends(&self) -> Vec<((Ino, ContainerId), u64)> {
        let end = |(ino, file): (&Ino, &FileData)| {
            let container = file.container();
            let queued = self.queued_data(*ino).filter(|(_, data)| data.container == container);
            // A change needs its preserved bytes there no more.
            let here = |(seq, data): (u64, &DataChange)| {
                let preserved = self.preserved(seq);
                let parts = data.ranges.iter().flat_map(|range| preserved.missing(range.clone()));
                parts.map(|part| part.end).max()
            };
            let size = self.tree.size_here(*ino)?;
            Some(((*ino, container), queued.filter_map(here).fold(size, u64::max)))
        };
        self.files.iter().filter_map(end).collect()
    }
}
