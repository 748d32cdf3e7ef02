//! Containers, and what was kept of changes.

use std::collections::BTreeMap;
use std::ops::Range;

use segue_core::host::log::{Entry, Payload, Redo, redo};

use super::{Kept, Key};
use crate::rng::Rng;

/// Blocks reach the disk in any order. Small, as the files are.
const BLOCK: usize = 16;

/// A place in memory.
pub(crate) fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// `range` of a container; what lies beyond its end is zeros.
pub(crate) fn bytes_of(container: &[u8], range: &Range<u64>) -> Vec<u8> {
    let from = place(range.start).min(container.len());
    let to = place(range.end).min(container.len());
    let mut bytes = container[from..to].to_vec();
    bytes.resize(place(range.end - range.start), 0);
    bytes
}

/// Writes to a container.
pub(crate) fn put(container: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (start, end) = (place(at), place(at) + bytes.len());
    if container.len() < end {
        container.resize(end, 0);
    }
    container[start..end].copy_from_slice(bytes);
}

/// Bytes of one inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Container {
    pub(crate) bytes: Vec<u8>,
    /// As they were at the last sync.
    durable: Option<Vec<u8>>,
}

impl Container {
    pub(super) fn sync(&mut self) {
        self.durable = Some(self.bytes.clone());
    }

    /// Cuts off what is behind `size`.
    pub(crate) fn cut(&mut self, size: u64) {
        self.bytes.truncate(place(size));
    }

    /// Changes it as the log says.
    pub(crate) fn redo(&mut self, step: Redo<'_>) {
        match step {
            Redo::Bytes(offset, bytes) => put(&mut self.bytes, offset, bytes),
            Redo::Zeros(range) => {
                put(&mut self.bytes, range.start, &vec![0; place(range.end - range.start)]);
            }
            Redo::Cut(size) => self.cut(size),
        }
    }

    /// These bytes stand there after all.
    pub(super) fn keeps(&mut self, offset: u64, bytes: &[u8]) {
        put(&mut self.bytes, offset, bytes);
        self.sync();
    }

    /// False if it was never synced and is gone.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) -> bool {
        if self.durable.is_none() && rng.chance(300) {
            return false;
        }
        let old = self.durable.take().unwrap_or_default();
        if old != self.bytes {
            let len = rng.pick(&[old.len(), self.bytes.len()]);
            self.bytes.resize(len, 0);
            for (at, block) in (0..).step_by(BLOCK).zip(self.bytes.chunks_mut(BLOCK)) {
                if rng.chance(500) {
                    let rest = old.get(at..).unwrap_or_default();
                    let had = |at: usize| rest.get(at).copied().unwrap_or_default();
                    block.iter_mut().enumerate().for_each(|(at, byte)| *byte = had(at));
                }
            }
        }
        self.sync();
        true
    }
}

/// What was kept of a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preserved {
    pub(crate) bytes: BTreeMap<u64, u8>,
    /// What was there at the last sync, if there is more now.
    pub(super) durable: Option<BTreeMap<u64, u8>>,
}

impl Preserved {
    pub(crate) fn keep(&mut self, bytes: impl IntoIterator<Item = (u64, u8)>) {
        let durable = || self.bytes.clone();
        self.durable.get_or_insert_with(durable);
        self.bytes.extend(bytes);
    }
}

impl Kept {
    /// A process dies before it made files for what is little and new: of some containers there is
    /// what the log has. Bytes that the log lacks are in a file at once.
    pub(crate) fn lose_young(&mut self, rng: &mut Rng) {
        let mut logged: BTreeMap<Key, Container> = BTreeMap::new();
        for (key, step) in redo(&self.log) {
            logged.entry(key).or_default().redo(step);
        }
        let is_summed = |entry: &&Entry| {
            let Entry::Written { data, .. } = entry else { return false };
            matches!(data, Payload::Summed { .. } | Payload::Durable { .. })
        };
        let summed = self.log.iter().filter(is_summed).filter_map(Entry::place);
        for place in summed {
            logged.remove(&(place.ino, place.container));
        }
        let noted = &self.index;
        self.containers.retain(|key, container| {
            let is_young = container.durable.is_none() && noted.container(key.0) != Some(key.1);
            let is_logged = || logged.get(key).is_some_and(|file| file.bytes == container.bytes);
            !(is_young && is_logged() && rng.chance(500))
        });
    }
}
