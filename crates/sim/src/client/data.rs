//! File data, as `segue-client`'s mount/data.rs and mount/fetch.rs do.

use std::ops::Range;

use segue_core::cache::FileData;
use segue_core::modlog::Record;
use segue_core::refusal::Refusal;
use segue_core::types::{Caller, Ino};
use segue_core::wire::{Fetch, Fetched, Request};

use super::{Mount, Stop};
use crate::Violation;

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// `range` of a container; what lies beyond its end is zeros.
fn bytes_of(container: &[u8], range: &Range<u64>) -> Vec<u8> {
    let from = index(range.start).min(container.len());
    let to = index(range.end).min(container.len());
    let mut bytes = container[from..to].to_vec();
    bytes.resize(index(range.end - range.start), 0);
    bytes
}

fn put(container: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (start, end) = (index(at), index(at) + bytes.len());
    if container.len() < end {
        container.resize(end, 0);
    }
    container[start..end].copy_from_slice(bytes);
}

impl Mount {
    /// Makes the data state of `ino`. This client has no index: what a process forgets is
    /// fetched again.
    pub(super) fn load(&mut self, ino: Ino) -> Result<(), Refusal> {
        if self.core.files.contains_key(&ino) {
            return Ok(());
        }
        let version = self.core.tree.peek(ino).ok_or(Refusal::Stale)?.data_version;
        self.kept.containers.remove(&ino);
        self.core.files.insert(ino, FileData::new(version));
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Result<(), Refusal>, Violation> {
        let range = offset..offset + bytes.len() as u64;
        let old_size = self.core.tree.peek(ino).map_or(0, |attr| attr.size);
        put(self.kept.containers.entry(ino).or_default(), offset, bytes);
        let Some(entry) = self.core.draft_write(ino, range, self.wall()) else {
            return Ok(Err(Refusal::Stale));
        };
        self.log_change(entry)?;
        self.told.wrote(ino, offset, bytes, old_size);
        Ok(Ok(()))
    }

    pub(super) fn resize(&mut self, ino: Ino, size: u64) -> Result<Result<(), Refusal>, Violation> {
        let old_size = self.core.tree.peek(ino).map_or(0, |attr| attr.size);
        if old_size == size && size == 0 {
            return Ok(Ok(()));
        }
        self.kept.containers.entry(ino).or_default().resize(index(size), 0);
        let Some(entry) = self.core.draft_resize(ino, size, self.wall()) else {
            return Ok(Err(Refusal::Stale));
        };
        self.log_change(entry)?;
        self.told.resized(ino, size, old_size);
        Ok(Ok(()))
    }

    pub(super) fn seal(&mut self, ino: Ino) -> Result<(), Violation> {
        if self.core.files.get(&ino).is_some_and(FileData::has_dirty)
            && let Some(entry) = self.core.draft_seal(ino, Caller::default())
        {
            self.log_change(entry)?;
        }
        Ok(())
    }

    pub(super) fn open(&mut self, ino: Ino) {
        self.core.opened(ino);
        self.handles.push(ino);
    }

    /// Closes the open file with that index.
    pub(super) fn close(&mut self, which: usize) -> Result<Ino, Violation> {
        let ino = self.handles.remove(which);
        self.seal(ino)?;
        let last = self.core.closed(ino);
        if last && self.core.tree.peek(ino).is_some_and(|attr| attr.nlink == 0) {
            self.log_record(Record::Release { ino })?;
        }
        Ok(ino)
    }

    /// Bytes of a file, its end at the most.
    pub(crate) fn read(&mut self, ino: Ino, range: Range<u64>) -> Result<Vec<u8>, Stop> {
        let size = self.getattr(ino)?.size;
        self.load(ino)?;
        let range = range.start.min(size)..range.end.min(size);
        self.fetch(ino, range.clone(), size)?;
        let none = Vec::new();
        Ok(bytes_of(self.kept.containers.get(&ino).unwrap_or(&none), &range))
    }

    /// Ends when all of `range` is here.
    pub(super) fn fetch(&mut self, ino: Ino, range: Range<u64>, size: u64) -> Result<(), Stop> {
        let file = self.core.file(ino).ok_or(Refusal::Stale)?;
        match file.to_fetch(range, size).first() {
            None => Ok(()),
            Some(gap) => {
                let (offset, len, version) = (gap.start, gap.end - gap.start, file.version());
                self.ask(Request::Fetch(Fetch { ino, version, offset, len }))
            }
        }
    }

    /// Puts fetched bytes into the container where nothing newer is.
    pub(super) fn fill(&mut self, ask: &Fetch, fetched: &Fetched, body: &[u8]) {
        let Some(file) = self.core.files.get_mut(&ask.ino) else { return };
        let container = self.kept.containers.entry(ask.ino).or_default();
        let (mut at, mut rest) = (ask.offset, body);
        for (len, is_data) in &fetched.segments {
            let mut bytes = vec![0; index(*len)];
            if *is_data {
                let (these, after) = rest.split_at(bytes.len());
                bytes.copy_from_slice(these);
                rest = after;
            }
            for part in file.fillable(at..at + len, ask.version) {
                put(container, part.start, &bytes[index(part.start - at)..index(part.end - at)]);
                file.filled(part);
            }
            at += len;
        }
    }

    /// What stands in the container of `ino`.
    pub(super) fn container_bytes(&self, ino: Ino, range: &Range<u64>) -> Vec<u8> {
        let none = Vec::new();
        bytes_of(self.kept.containers.get(&ino).unwrap_or(&none), range)
    }
}
