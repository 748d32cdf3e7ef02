//! The bytes of a change as they were when it was logged: in its container, or preserved beside it
//! where they have been overwritten since. Nothing is locked while they are read: what was read in
//! the container counts if it had not been preserved until afterwards.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use segue_core::host::log::DataChange;
use segue_core::nouns::RangeSet;
use segue_core::refusal::Refusal;

use crate::disk::CacheDisk;
use crate::disk::files::Container;

/// Where they are.
pub(crate) struct Source<'a> {
    disk: &'a CacheDisk,
    seq: u64,
    container: Arc<Container>,
    /// There was a container. A disk may have lost it.
    has_container: bool,
}

impl Source<'_> {
    fn preserved(&self) -> RangeSet {
        self.disk.host.lock().preserved(self.seq)
    }

    /// The parts of the change that are somewhere, though some of it is lost.
    pub(crate) fn left(&self, data: &DataChange) -> Vec<Range<u64>> {
        if self.has_container {
            return data.ranges.clone();
        }
        let preserved = self.preserved();
        data.ranges.iter().flat_map(|range| preserved.within(range.clone())).collect()
    }

    /// `len` bytes at `offset`.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let range = offset..offset + len as u64;
        loop {
            let preserved: Vec<Range<u64>> = self.preserved().within(range.clone()).collect();
            let mut bytes = self.container.read(offset, len)?;
            for part in &preserved {
                let at = usize::try_from(part.start - offset).unwrap_or(usize::MAX);
                let end = usize::try_from(part.end - offset).unwrap_or(usize::MAX);
                if let Some(place) = bytes.get_mut(at..end) {
                    let kept = self.disk.preserved.read(self.seq, part.start, place.len())?;
                    place.copy_from_slice(&kept);
                }
            }
            if self.preserved().within(range.clone()).eq(preserved) {
                return Ok(bytes);
            }
        }
    }

    /// The first run of bytes in `range` that take room; empty, at its end, if none do. What lies
    /// before it are zeros.
    pub(crate) fn next_data(&self, range: Range<u64>) -> io::Result<Range<u64>> {
        let data = self.container.next_data(range.clone())?;
        match self.preserved().within(range).next() {
            Some(first) if first.start < data.start || data.is_empty() => Ok(first),
            _ => Ok(data),
        }
    }
}

impl CacheDisk {
    /// The bytes of change `seq`.
    pub(crate) fn source(&self, seq: u64, data: &DataChange) -> Result<Source<'_>, Refusal> {
        let has_container = self.containers.exists((data.ino, data.container));
        let container = self.open_container(data.ino, data.container)?;
        Ok(Source { disk: self, seq, container, has_container })
    }
}
