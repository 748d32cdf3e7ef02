//! What one client's applications were told, kept outside of the client so that no crash of it
//! forgets: each acknowledged byte must be logged, sealed, sent and settled.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::modlog::{DataChange, Entry, PieceBytes, Store};
use segue_core::types::Ino;

use crate::Violation;

/// What was acknowledged since the last seal of a file.
#[derive(Clone, Debug, Default)]
struct Unsealed {
    dirty: BTreeSet<u64>,
    cut: Option<u64>,
    size: u64,
}

/// Promises made to applications.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The last acknowledged value of each byte that was written here.
    bytes: BTreeMap<Ino, BTreeMap<u64, u8>>,
    unsealed: BTreeMap<Ino, Unsealed>,
    /// Changes that were logged.
    pub(crate) seqs: BTreeSet<u64>,
    /// What changes were of when they were logged.
    stores: BTreeMap<u64, BTreeMap<u64, u8>>,
    /// Changes that were settled: sent again after a power loss, they change nothing.
    settled: BTreeSet<u64>,
}

impl Told {
    /// An application was told that `bytes` stand at `offset`.
    pub(crate) fn wrote(&mut self, ino: Ino, offset: u64, bytes: &[u8], old_size: u64) {
        let file = self.unsealed.entry(ino).or_default();
        let truth = self.bytes.entry(ino).or_default();
        for (at, byte) in (offset..).zip(bytes) {
            file.dirty.insert(at);
            truth.insert(at, *byte);
        }
        file.size = old_size.max(offset + bytes.len() as u64);
    }

    /// An application was told that `ino` is `size` bytes long.
    pub(crate) fn resized(&mut self, ino: Ino, size: u64, old_size: u64) {
        let file = self.unsealed.entry(ino).or_default();
        if size < old_size {
            file.dirty.split_off(&size);
            file.cut = Some(file.cut.map_or(size, |cut| cut.min(size)));
            self.bytes.entry(ino).or_default().split_off(&size);
        }
        file.size = size;
    }

    /// An entry went into the log.
    pub(crate) fn logged(&mut self, entry: &Entry) -> Result<(), Violation> {
        if let Entry::Settled { seq, .. } = entry {
            self.settled.insert(*seq);
        }
        let Some(logged) = entry.change() else { return Ok(()) };
        if !self.seqs.insert(logged.seq) {
            return Err(Violation(format!("seq {} is used twice", logged.seq)));
        }
        match &logged.change {
            segue_core::modlog::Change::Data(data) => self.sealed(logged.seq, data),
            segue_core::modlog::Change::Record(_) => Ok(()),
        }
    }

    fn sealed(&mut self, seq: u64, data: &DataChange) -> Result<(), Violation> {
        let Some(told) = self.unsealed.remove(&data.ino) else {
            return Err(Violation(format!("sealed what nobody wrote: {data:?}")));
        };
        let ranges: BTreeSet<u64> = data.ranges.iter().cloned().flatten().collect();
        if ranges != told.dirty || data.cut != told.cut || data.size != told.size {
            return Err(Violation(format!("sealed {data:?}, told {told:?}")));
        }
        let truth = self.bytes.entry(data.ino).or_default();
        let store = ranges.iter().filter_map(|at| Some((*at, *truth.get(at)?))).collect();
        self.stores.insert(seq, store);
        Ok(())
    }

    /// `store` is what goes to the server for `data`, change `seq`.
    pub(crate) fn sent(&self, seq: u64, data: &DataChange, store: &Store) -> Result<(), Violation> {
        if self.settled.contains(&seq) {
            return Ok(());
        }
        let mut sent = BTreeMap::new();
        for piece in &store.pieces {
            if let PieceBytes::Inline(bytes) = &piece.bytes {
                sent.extend((piece.offset..).zip(bytes.iter().copied()));
            }
        }
        let none = BTreeMap::new();
        // Whatever was written since.
        let truth = self.stores.get(&seq).unwrap_or(&none);
        for (at, byte) in truth {
            let at = *at;
            if sent.get(&at) != Some(byte) {
                let words =
                    format!("byte {at} of #{} is {byte}, sent {:?}", data.ino, sent.get(&at));
                return Err(Violation(words));
            }
        }
        Ok(())
    }

    /// Files that were written and not sealed.
    pub(crate) fn unsealed(&self) -> impl Iterator<Item = Ino> + '_ {
        self.unsealed.keys().copied()
    }
}
