//! What is noted on disk of a file's data, and how the data of an earlier life come back.

use crate::host::cache::{FileData, FileNote};
use crate::host::log::DataChange;
use crate::nouns::{Base, ContainerId, RangeSet, Version};

impl FileData {
    /// A file of which some was kept from an earlier life.
    pub fn restored(note: FileNote) -> FileData {
        let FileNote { version, container, valid } = note;
        FileData { valid, is_noted: true, ..FileData::new(version, container) }
    }

    /// A file created here by record `seq`: all of its nothing is valid.
    pub fn created(seq: u64, container: ContainerId) -> FileData {
        FileData { sealed: Some(seq), ..FileData::new(Version::default(), container) }
    }

    /// What is to be noted on disk, if that is not what is noted. Of a container that a map may
    /// write into nothing would be known to be the server's after this process has died.
    pub fn to_note(&mut self) -> Option<FileNote> {
        let was_noted = std::mem::replace(&mut self.is_noted, true);
        let valid = || {
            let mut valid = if self.is_mapped { RangeSet::default() } else { self.valid.clone() };
            self.spoiled.iter().for_each(|range| valid.remove(range));
            valid
        };
        (!was_noted).then(|| FileNote {
            version: self.version,
            container: self.container,
            valid: valid(),
        })
    }

    /// What was to be noted is not on disk.
    pub fn not_noted(&mut self) {
        self.is_noted = false;
    }

    /// True if what is noted on disk is what is here.
    pub fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// Moves the file to another container, of which nothing is valid.
    pub fn move_to(&mut self, container: ContainerId) {
        if self.container != container {
            self.container = container;
            self.valid.clear();
            self.spoiled.clear();
            self.is_noted = false;
            self.is_mapped = false;
        }
    }

    /// Takes `base` as the version that an earlier life changed, as its log says.
    pub fn rebase(&mut self, base: Base) {
        if let Base::Version(version) = base
            && self.sealed.is_none()
        {
            self.version = version;
        }
    }

    /// Change `data` of an earlier life is on its way to the server.
    pub fn requeued(&mut self, seq: u64, data: &DataChange) {
        // What was emptied since has another container, and these bytes are not the file's.
        let is_here = data.container == self.container;
        for range in data.ranges.iter().filter(|_| is_here) {
            // What is on its way, and left out where the rest is noted, was spoiled.
            if self.is_noted {
                let left_out = self.valid.missing(range.clone());
                left_out.into_iter().for_each(|part| self.spoiled.insert(part));
            }
            self.valid.insert(range.clone());
            self.sealed_ranges.insert(range.clone());
        }
        self.clean_len = self.clean_len.min(data.cut.unwrap_or(u64::MAX));
        self.sealed = Some(seq);
    }

    /// Marks record `seq` of an earlier life, which made the file, as pending.
    pub fn requeue_made(&mut self, seq: u64) {
        self.sealed = Some(seq);
    }

    /// An earlier life left `data` unsealed.
    pub fn left_unsealed(&mut self, data: &DataChange) {
        for range in &data.ranges {
            self.valid.insert(range.clone());
            self.spoiled.remove(range.clone());
            self.dirty.insert(range.clone());
        }
        self.cut = data.cut;
        self.clean_len = self.clean_len.min(data.cut.unwrap_or(u64::MAX));
        self.dirty_changes = true;
    }

    /// Change `seq` is not sent: its `data`, with what was written since, are unsealed again;
    /// `before` is the change that they were made on, if it is not settled.
    pub fn unsealed_again(&mut self, seq: u64, data: &DataChange, before: Option<u64>) {
        self.left_unsealed(data);
        if self.sealed == Some(seq) {
            self.sealed = before;
        }
        if self.sealed.is_none() {
            self.sealed_ranges.clear();
        }
        self.is_noted = false;
    }

    /// The host went down while the file was ahead of the server.
    pub fn doubted(&mut self) {
        self.is_doubtful = true;
    }

    /// True if the host went down while the file was ahead of the server, which it is still.
    pub fn is_doubted(&self) -> bool {
        self.is_doubtful && self.is_ahead()
    }

    /// True if what is here is to be fetched anew: the server has all of it now, perhaps otherwise.
    pub fn is_to_go(&self) -> bool {
        self.is_doubtful && !self.is_ahead()
    }
}
