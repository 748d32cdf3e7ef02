//! What of a file's data is asked of the server, and what of its answer is taken.

use std::ops::Range;

use crate::host::cache::FileData;
use crate::nouns::Version;

/// Read-ahead grows from this, where the link brings as much in a moment.
pub(super) const WINDOW_FIRST: u64 = 256 << 10;
/// However slow the link is.
const WINDOW_MIN: u64 = 16 << 10;
/// Reads so far out of order are sequential.
const APART: u64 = 256 << 10;

impl FileData {
    /// What a reader of `range` still needs and nobody is fetching.
    pub fn to_fetch(&self, range: Range<u64>, size: u64) -> Vec<Range<u64>> {
        let range = range.start.min(size)..range.end.min(size);
        let mut gaps = Vec::new();
        for gap in self.valid.missing(range) {
            gaps.extend(self.fetching.missing(gap));
        }
        gaps
    }

    /// True while something is being fetched.
    pub fn is_fetching(&self) -> bool {
        !self.fetching.is_empty()
    }

    /// `range` is being fetched.
    pub fn fetch_began(&mut self, range: Range<u64>) {
        self.fetching.insert(range);
    }

    /// The fetch of `range` ended, with or without result.
    pub fn fetch_ended(&mut self, range: Range<u64>) {
        self.fetching.remove(range);
    }

    /// Which parts of fetched `range` of `version` may be put into the container: bytes that
    /// were written here meanwhile are newer, bytes that were cut off here are gone, and bytes
    /// of another version do not belong, nor of the one before another file's data came.
    pub fn fillable(&self, range: Range<u64>, version: Version) -> Vec<Range<u64>> {
        let range = range.start..range.end.min(self.clean_len);
        match version != self.version || self.is_cloning() {
            true => Vec::new(),
            false => self.valid.missing(range),
        }
    }

    /// `range` is in the container now.
    pub fn filled(&mut self, range: Range<u64>) {
        self.valid.insert(range);
        self.is_noted = false;
    }

    /// The container may hold anything in `range`: of what is clean there nothing is valid any
    /// more, nor of what is on its way there once the server has that. What was written since can
    /// be had from nowhere else.
    pub fn spoiled(&mut self, range: Range<u64>) {
        self.is_noted = false;
        for part in self.dirty.missing(range) {
            for clean in self.sealed_ranges.missing(part.clone()) {
                self.valid.remove(clean);
            }
            for sealed in self.sealed_ranges.within(part) {
                self.spoiled.insert(sealed);
            }
        }
    }

    /// What to fetch ahead of a read of `range`, if reading is sequential. The window doubles
    /// while it lasts, up to `window_max` bytes, and is never longer: of most files only the
    /// beginning is read, and what nobody wants takes seconds of a slow link.
    pub fn read_ahead(
        &mut self,
        range: Range<u64>,
        size: u64,
        window_max: u64,
    ) -> Option<Range<u64>> {
        // Kernels issue the reads of one stream a little out of order.
        let sequential = range.start <= self.next_sequential.saturating_add(APART)
            && range.end.saturating_add(APART) >= self.next_sequential;
        self.next_sequential = self.next_sequential.max(range.end);
        if !sequential {
            self.next_sequential = range.end;
            self.window = WINDOW_FIRST;
            return None;
        }
        let window_max = window_max.max(WINDOW_MIN);
        let window = self.window.min(window_max);
        let ahead = range.end.min(size)..range.end.saturating_add(window).min(size);
        // While a quarter of a window is on its way or here, that is enough.
        let quarter = ahead.start..(ahead.start + window / 4).min(size);
        if self.to_fetch(quarter, size).is_empty() {
            return None;
        }
        let wanted = self.to_fetch(ahead, size).into_iter().next()?;
        self.window = (window * 2).min(window_max);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::log::DataChange;
    use crate::nouns::{Base, ContainerId, Ino, Timestamp};

    fn version(counter: u64) -> Version {
        Version { epoch: 1, counter }
    }

    #[test]
    fn a_late_fill_does_not_cover_what_was_written_meanwhile() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.write(10..20, 100);
        assert_eq!(data.fillable(0..30, version(1)), [0..10, 20..30]);
        assert!(data.fillable(0..30, version(2)).is_empty());
    }

    /// A late reply brought back bytes that a truncation had cut off; where a later write left
    /// a gap they were then read instead of zeros.
    #[test]
    fn a_late_fill_does_not_bring_back_what_was_cut_off() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.truncate(5, 100);
        assert_eq!(data.fillable(0..100, version(1)), [0..5]);
        data.seal(7);
        assert_eq!(data.fillable(0..100, version(1)), [0..5]);
        data.committed(7, version(2));
        assert_eq!(data.fillable(0..100, version(2)), [0..100]);
    }

    /// A write that failed half-way was taken for what the server has, and kept as that.
    #[test]
    fn what_a_failed_write_left_is_fetched_again_unless_the_server_lacks_it() {
        let mut data = FileData::new(version(1), ContainerId(1));
        data.filled(0..100);
        data.write(10..20, 100);
        data.seal(7);
        data.write(30..40, 100);
        data.spoiled(5..50);
        assert_eq!(data.to_fetch(0..100, 100), [5..10, 20..30, 40..50]);
        assert_eq!(data.unsealed().unwrap().ranges, [30..40]);
    }

    /// Once the change had been sent as it was, this host showed other data than the server had.
    #[test]
    fn what_a_failed_write_left_of_a_change_on_its_way_is_fetched_once_the_server_has_it() {
        let spoiled = || {
            let mut data = FileData::new(version(1), ContainerId(1));
            data.filled(0..100);
            data.write(10..30, 100);
            data.seal(7);
            data.spoiled(15..25);
            assert!(data.is_valid(0..100, 100), "the server has not got it");
            data.write(18..20, 100);
            data
        };
        let mut data = spoiled();
        data.committed(7, version(2));
        assert_eq!(data.to_fetch(0..100, 100), [15..18, 20..25]);
        // The next process goes by what is noted.
        let note = spoiled().to_note().unwrap();
        let sealed = DataChange {
            ino: Ino(7),
            container: ContainerId(1),
            base: Base::Version(version(1)),
            cut: None,
            size: 100,
            ranges: vec![10..30],
            mtime: Timestamp::default(),
        };
        let mut data = FileData::restored(note);
        data.requeued(7, &sealed);
        data.left_unsealed(&DataChange { ranges: vec![18..20], ..sealed });
        assert!(data.is_valid(0..100, 100));
        data.committed(7, version(2));
        assert_eq!(data.to_fetch(0..100, 100), [15..18, 20..25]);
    }

    #[test]
    fn sequential_reads_are_fetched_ahead_and_random_ones_are_not() {
        let mut data = FileData::new(version(1), ContainerId(1));
        let size = 64 << 20;
        let max = 4 * WINDOW_FIRST;
        let first = data.read_ahead(0..4096, size, max).unwrap();
        assert_eq!(first, 4096..4096 + WINDOW_FIRST);
        data.fetch_began(first.clone());
        assert_eq!(data.read_ahead(4096..8192, size, max), None);
        let mut read = first;
        for window in [2, 4, 4].map(|times| times * WINDOW_FIRST) {
            let next = data.read_ahead(read, size, max).unwrap();
            assert_eq!(next.end - next.start, window);
            data.fetch_began(next.clone());
            read = next;
        }
        assert_eq!(data.read_ahead(32 << 20..(32 << 20) + 4096, size, max), None);
    }

    /// The head of a file took seconds of a link of 64 KB/s from everybody else.
    #[test]
    fn no_more_is_fetched_ahead_than_a_slow_link_brings() {
        let size = 64 << 20;
        let ahead = |read: Range<u64>, window_max| {
            let mut data = FileData::new(version(1), ContainerId(1));
            let ahead = data.read_ahead(read, size, window_max).unwrap();
            ahead.end - ahead.start
        };
        assert_eq!(ahead(0..4096, 20_000), 20_000);
        assert_eq!(ahead(0..4096, 100), WINDOW_MIN);
        assert_eq!(ahead(0..131_072, 20_000), 20_000);
        // A link that became slower.
        let mut data = FileData::new(version(1), ContainerId(1));
        let first = data.read_ahead(0..4096, size, 4 << 20).unwrap();
        data.fetch_began(first.clone());
        let next = data.read_ahead(first, size, 20_000).unwrap();
        assert_eq!(next.end - next.start, 20_000);
    }
}
