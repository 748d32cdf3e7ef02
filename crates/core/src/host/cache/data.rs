//! What of a file's data is on this host: which ranges are valid, and which the server lacks.
//!
//! ```text
//!              fill                write               seal               commit
//!   (missing) ─────▶ valid, clean ─────▶ valid, dirty ─────▶ valid, sealed ─────▶ valid, clean
//!       ▲                 │
//!       └── forget ───────┘  the server has another version, and nothing here is dirty
//! ```
//!
//! Invariants: dirty and sealed ranges are valid; all clean valid bytes are of one data
//! version; nothing dirty or sealed is ever forgotten but by `discard`, which a conflict needs.

mod fetch;
mod noted;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::nouns::{Base, ContainerId, RangeSet, Version};

/// So many ranges are one change at the most: it is sent as one message and committed in one
/// transaction, and each range is a chunk at least.
pub(crate) const RANGES_MAX: usize = 8192;
/// Ranges of more than this together are cut into so many chunks that they count, unless they
/// are so few that leaves hold most of these.
const SCATTERED_MAX: u64 = 1 << 30;
const FEW_RANGES: usize = 64;

/// What of a file's data is on this host, as it is noted on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileNote {
    /// The data version of the clean bytes.
    pub version: Version,
    /// Where they are.
    pub container: ContainerId,
    /// Which.
    pub valid: RangeSet,
}

/// Data of one inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileData {
    version: Version,
    container: ContainerId,
    valid: RangeSet,
    dirty: RangeSet,
    cut: Option<u64>,
    /// Clean bytes of `version` from here on were cut off here.
    clean_len: u64,
    dirty_changes: bool,
    /// Seq of the newest sealed change that is not committed.
    sealed: Option<u64>,
    sealed_ranges: RangeSet,
    /// Of these the container may have anything; what is on its way is preserved elsewhere.
    spoiled: RangeSet,
    /// Seq of the record that gives the file another one's data, until it is settled.
    cloning: Option<u64>,
    /// What is dirty was written above this withdrawn change.
    above: Option<u64>,
    fetching: RangeSet,
    next_sequential: u64,
    window: u64,
    /// The kernel may have pages of this version.
    in_kernel: bool,
    /// What is noted on disk is what is here.
    is_noted: bool,
    /// The host went down while it was ahead: the container may have what nobody logged.
    is_doubtful: bool,
    /// A map may write into the container, of which nobody tells.
    is_mapped: bool,
}

/// The changes of a file since its last seal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsealed {
    /// What they were made on.
    pub base: Base,
    /// Smallest size in between.
    pub cut: Option<u64>,
    /// Ranges written.
    pub ranges: Vec<Range<u64>>,
}

impl FileData {
    /// Nothing valid yet of `version`.
    pub fn new(version: Version, container: ContainerId) -> FileData {
        FileData {
            version,
            container,
            valid: RangeSet::default(),
            dirty: RangeSet::default(),
            cut: None,
            clean_len: u64::MAX,
            dirty_changes: false,
            sealed: None,
            sealed_ranges: RangeSet::default(),
            spoiled: RangeSet::default(),
            cloning: None,
            above: None,
            fetching: RangeSet::default(),
            next_sequential: 0,
            window: fetch::WINDOW_FIRST,
            in_kernel: false,
            is_noted: false,
            is_doubtful: false,
            is_mapped: false,
        }
    }

    /// Notes that the kernel may cache pages from now on; true if it did before, of this same
    /// version.
    pub fn shown_to_kernel(&mut self) -> bool {
        std::mem::replace(&mut self.in_kernel, true)
    }

    /// The kernel caches no pages from now on, but for those that it has; true if it may have some
    /// of this version.
    pub fn hidden_from_kernel(&mut self) -> bool {
        std::mem::take(&mut self.in_kernel)
    }

    /// Maps may write into the container from now on, or none is left.
    pub fn mapped(&mut self, is_mapped: bool) {
        self.is_noted &= self.is_mapped == is_mapped;
        self.is_mapped = is_mapped;
    }

    /// True if maps may write into the container.
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Where the bytes are.
    pub fn container(&self) -> ContainerId {
        self.container
    }

    /// Ranges whose bytes are on their way to the server.
    pub fn sealed_ranges(&self) -> &RangeSet {
        &self.sealed_ranges
    }

    /// The data version of the clean bytes.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Ranges whose bytes are here.
    pub fn valid(&self) -> &RangeSet {
        &self.valid
    }

    /// True if something was changed since the last seal.
    pub fn has_dirty(&self) -> bool {
        self.dirty_changes
    }

    /// True if the server lacks something, sealed or not.
    pub fn is_ahead(&self) -> bool {
        self.dirty_changes || self.sealed.is_some()
    }

    /// Bytes written here since the last seal.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// True if it is time to seal what was written: one change cannot hold much more.
    pub fn is_full(&self) -> bool {
        let ranges = self.dirty.len();
        ranges >= RANGES_MAX || ranges > FEW_RANGES && self.dirty.bytes() >= SCATTERED_MAX
    }

    /// Bytes that the server lacks.
    pub fn unsafe_bytes(&self) -> u64 {
        let mut all = self.sealed_ranges.clone();
        self.dirty.iter().for_each(|range| all.insert(range));
        all.bytes()
    }

    /// What a change made now is made on.
    pub fn base(&self) -> Base {
        self.sealed.or(self.above).map_or(Base::Version(self.version), Base::Result)
    }

    /// `range` was written here, the file being `old_size` long before.
    pub fn write(&mut self, range: Range<u64>, old_size: u64) {
        if old_size < range.start {
            // The gap is zeros, and the container has it as a hole.
            self.valid.insert(old_size..range.start);
        }
        self.valid.insert(range.clone());
        self.spoiled.remove(range.clone());
        self.dirty.insert(range);
        self.dirty_changes = true;
        self.is_noted = false;
    }

    /// The file was made `size` bytes long here, from `old_size`.
    pub fn truncate(&mut self, size: u64, old_size: u64) {
        if size < old_size {
            self.valid.remove(size..u64::MAX);
            self.dirty.remove(size..u64::MAX);
            self.spoiled.remove(size..u64::MAX);
            self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
            self.clean_len = self.clean_len.min(size);
        } else {
            self.valid.insert(old_size..size);
        }
        self.dirty_changes = true;
        self.is_noted = false;
    }

    /// The changes since the last seal, if there are any.
    pub fn unsealed(&self) -> Option<Unsealed> {
        self.dirty_changes.then(|| Unsealed {
            base: self.base(),
            cut: self.cut,
            ranges: self.dirty.iter().collect(),
        })
    }

    /// Forgets that anything was changed since the last seal; true if it was.
    pub fn drop_dirty(&mut self) -> bool {
        self.dirty.clear();
        self.cut = None;
        self.above = None;
        std::mem::take(&mut self.dirty_changes)
    }

    /// The file was removed, and no process has it open. Nothing in its container counts as the
    /// server's any more.
    pub fn forget_valid(&mut self) {
        self.valid.clear();
        self.is_noted = false;
    }

    /// Closes the changes since the last seal as record `seq`.
    pub fn seal(&mut self, seq: u64) {
        for range in self.dirty.iter() {
            assert!(self.valid.contains(range.clone()), "what is sealed is here");
            self.sealed_ranges.insert(range);
        }
        self.dirty.clear();
        self.dirty_changes = false;
        self.cut = None;
        self.sealed = Some(seq);
        self.above = None;
    }

    /// Record `seq` gives this file, which is empty, the data of another, in `container`: what they
    /// are is not known before it is settled.
    pub fn cloned(&mut self, seq: u64, container: ContainerId) {
        self.move_to(container);
        self.valid.clear();
        self.sealed = Some(seq);
        self.cloning = Some(seq);
        self.is_noted = false;
    }

    /// True while such a record is not settled.
    pub fn is_cloning(&self) -> bool {
        self.cloning.is_some()
    }

    /// Record `seq` (a creation or a seal) is committed and led to `version`.
    pub fn committed(&mut self, seq: u64, version: Version) {
        self.version = version;
        self.is_noted = false;
        self.cloning = self.cloning.filter(|cloning| *cloning != seq);
        if self.sealed == Some(seq) {
            self.drop_sealed();
            self.clean_len = self.cut.unwrap_or(u64::MAX);
        }
    }

    fn drop_sealed(&mut self) {
        self.sealed = None;
        self.sealed_ranges.clear();
        for range in std::mem::take(&mut self.spoiled).iter() {
            self.valid.remove(range);
        }
    }

    /// Record `seq` will never be committed here. What was written since stays dirty, and goes
    /// where that record went: without its bytes it would be something nobody wrote.
    pub fn withdrawn(&mut self, seq: u64) {
        self.cloning = self.cloning.filter(|cloning| *cloning != seq);
        if self.sealed == Some(seq) {
            self.drop_sealed();
            self.above = self.dirty_changes.then_some(seq);
        }
    }

    /// The server's data are `version`: true if what is here was of an older one and is
    /// forgotten, so that the container must be replaced before anything is filled. A reply
    /// that was overtaken by the outcome of a store made here changes nothing; one of a later
    /// `epoch` than the data that are known was not overtaken, but these were lost with the
    /// volume that was restored.
    pub fn observe(&mut self, version: Version, epoch: u32, fresh: ContainerId) -> bool {
        let overtaken = version < self.version && epoch <= self.version.epoch;
        if self.is_ahead() || version == self.version || overtaken {
            return false;
        }
        *self = FileData::new(version, fresh);
        true
    }

    /// Forgets everything, also what is dirty: it has been kept elsewhere.
    pub fn discard(&mut self, version: Version, fresh: ContainerId) {
        *self = FileData::new(version, fresh);
    }

    /// True if all of `range` below `size` is here.
    pub fn is_valid(&self, range: Range<u64>, size: u64) -> bool {
        self.valid.contains(range.start.min(size)..range.end.min(size))
    }

    /// The longest range from `at` on, below `size`, of which all is here or nothing is; and
    /// which of both.
    pub fn run(&self, at: u64, size: u64) -> (Range<u64>, bool) {
        match self.valid.within(at..size).next() {
            Some(here) if here.start == at => (here, true),
            Some(here) => (at..here.start, false),
            None => (at..size, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(counter: u64) -> Version {
        Version { epoch: 1, counter }
    }

    #[test]
    fn a_new_version_is_forgotten_only_when_nothing_here_is_ahead() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.filled(0..100);
        data.write(0..1, 100);
        assert!(!data.observe(version(2), 1, ContainerId(2)));
        assert_eq!(data.unsealed().unwrap().base, Base::Version(version(1)));
        data.seal(7);
        assert!(!data.observe(version(2), 1, ContainerId(2)));
        data.committed(7, version(3));
        assert!(data.is_valid(0..100, 100));
        assert!(!data.observe(version(2), 1, ContainerId(2)), "it was overtaken");
        assert!(data.observe(version(4), 1, ContainerId(2)));
        assert!(!data.is_valid(0..100, 100));
    }

    /// Its end is the other file's by then: behind the end of the old one there were zeros.
    #[test]
    fn nothing_fetched_is_of_a_file_that_gets_the_data_of_another() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.cloned(7, ContainerId(2));
        assert!(data.fillable(0..100, version(1)).is_empty());
        data.committed(7, version(2));
        assert_eq!(data.fillable(0..100, version(2)), [0..100]);
    }

    /// The server's older data after a restore are no reply that was overtaken.
    #[test]
    fn data_that_a_restore_lost_are_forgotten() {
        let mut data = FileData::new(version(9), ContainerId(1));
        data.filled(0..100);
        assert!(!data.observe(version(9), 2, ContainerId(2)), "the restore has them");
        assert!(data.observe(version(3), 2, ContainerId(2)));
        assert!(!data.is_valid(0..100, 100));
        assert_eq!(data.base(), Base::Version(version(3)));
    }

    #[test]
    fn a_cut_remembers_the_smallest_size() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.filled(0..100);
        data.truncate(10, 100);
        data.truncate(50, 10);
        data.truncate(30, 50);
        data.write(40..45, 30);
        let unsealed = data.unsealed().unwrap();
        assert_eq!(unsealed.cut, Some(10));
        assert_eq!(unsealed.ranges, [40..45]);
        data.seal(1);
        assert!(data.is_valid(0..45, 45));
        assert_eq!(data.base(), Base::Result(1));
    }

    /// A store of more pieces than a session of the server remembers was sent for ever.
    /// Proves S23.6.
    #[test]
    fn a_change_is_full_with_many_ranges_or_large_ones() {
        let filled = |count: u64, len: u64| {
            let mut data = FileData::new(version(1), ContainerId(1));
            (0..count).for_each(|n| data.write(2 * n * len..(2 * n + 1) * len, 2 * n * len));
            data.is_full()
        };
        assert_eq!([8191, 8192].map(|count| filled(count, 1)), [false, true]);
        assert_eq!([64, 65].map(|count| filled(count, 1 << 24)), [false, true]);
    }

    #[test]
    fn runs_are_here_or_not() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.write(10..20, 100);
        data.filled(20..30);
        assert_eq!(data.run(0, 100), (0..10, false));
        assert_eq!(data.run(15, 100), (15..30, true));
        assert_eq!(data.run(15, 25), (15..25, true));
        assert_eq!(data.run(30, 100), (30..100, false));
    }
}
