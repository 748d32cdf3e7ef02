//! Bytes of files: read from containers, fetched into them, and read again for the server.

use std::ops::Range;

use segue_core::host::Host;
use segue_core::host::log::DataChange;
use segue_core::nouns::{Ino, Version};
use segue_core::refusal::Refusal;

use super::HostDisk;
use super::container::{bytes_of, place, put};
use crate::plan::Bug;

impl HostDisk {
    /// Makes the data state of `ino`.
    pub(crate) fn load(&self, core: &mut Host, ino: Ino) -> Result<(), Refusal> {
        let noted = self.kept.index.file(ino).cloned();
        let believes = self.bug == Some(Bug::ClientBelievesEvicted);
        let noted = noted
            .filter(|note| believes || self.kept.containers.contains_key(&(ino, note.container)));
        match core.load(ino, noted) {
            true => Ok(()),
            false => Err(Refusal::Stale),
        }
    }

    /// The valid bytes of a file, with their offsets.
    pub(crate) fn here(&mut self, core: &mut Host, ino: Ino) -> Vec<(u64, Vec<u8>)> {
        let Some(size) = core.tree().peek(ino).map(|attr| attr.size) else { return Vec::new() };
        if self.load(core, ino).is_err() {
            return Vec::new();
        }
        let Some(file) = core.data_of(ino) else { return Vec::new() };
        let container = self.kept.bytes_of_container((ino, file.container()));
        let valid = file.valid().within(0..size);
        valid.map(|range| (range.start, bytes_of(container, &range))).collect()
    }

    /// Reads from the container of a file.
    pub(crate) fn read(
        &mut self,
        core: &mut Host,
        ino: Ino,
        range: &Range<u64>,
    ) -> Result<Vec<u8>, Refusal> {
        self.failing.try_read()?;
        let container = core.container(ino).map(|id| self.kept.bytes_of_container((ino, id)));
        Ok(container.map_or_else(Vec::new, |container| bytes_of(container, range)))
    }

    /// Puts fetched bytes into the container where nothing newer is.
    pub(crate) fn fill(
        &mut self,
        core: &mut Host,
        (ino, version): (Ino, Version),
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let key = (ino, core.container(ino).ok_or(Refusal::Stale)?);
        let parts = core.to_fill(key, at..at + bytes.len() as u64, version)?;
        let container = self.kept.bytes_of_container(key);
        for part in &parts {
            put(container, part.start, &bytes[place(part.start - at)..place(part.end - at)]);
        }
        core.filled(key, parts, version);
        Ok(())
    }

    /// The bytes of change `seq` in `range`, as they were when it was logged.
    pub(crate) fn source(
        &self,
        core: &Host,
        (seq, data): (u64, &DataChange),
        range: &Range<u64>,
    ) -> Vec<u8> {
        let container = self.kept.containers.get(&(data.ino, data.container));
        let container = container.map_or(&[][..], |container| &container.bytes);
        let mut bytes = bytes_of(container, range);
        let preserved = core.preserved(seq);
        for at in preserved.within(range.clone()).flatten() {
            let kept = self.kept.preserved.get(&seq).and_then(|kept| kept.bytes.get(&at));
            bytes[place(at - range.start)] = kept.copied().unwrap_or_default();
        }
        bytes
    }
}
