//! The metadata store under the simulated server: an ordered map, and transactions that say
//! afterwards which rows they changed.

use std::collections::BTreeMap;
use std::convert::Infallible;

use segue_core::namespace::{MapStore, MetaSnapshot, MetaTxn};
use segue_core::nouns::Fingerprint;

/// The server's disk.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    /// Rows by key.
    pub(crate) rows: MapStore,
    /// Bytes of chunks.
    pub(crate) packs: BTreeMap<Fingerprint, Vec<u8>>,
}

/// Rows that were written since some moment: each key with the value it had before.
pub(crate) type Written = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A transaction. The server crashes before one or after one: so none is ever undone.
pub(crate) struct Txn<'a> {
    disk: &'a mut Disk,
    written: Written,
}

impl<'a> Txn<'a> {
    pub(crate) fn begin(disk: &'a mut Disk) -> Txn<'a> {
        Txn { disk, written: Written::new() }
    }

    /// What was written since `begin` or the last call, for whoever checks it.
    pub(crate) fn take_written(&mut self) -> Written {
        std::mem::take(&mut self.written)
    }

    /// The rows as they are now.
    pub(crate) fn rows(&self) -> &MapStore {
        &self.disk.rows
    }

    /// Bytes of a chunk: they come before its row and go behind it.
    pub(crate) fn packs(&mut self) -> &mut BTreeMap<Fingerprint, Vec<u8>> {
        &mut self.disk.packs
    }

    fn remember(&mut self, key: &[u8]) {
        if !self.written.contains_key(key) {
            self.written.insert(key.to_vec(), self.disk.rows.0.get(key).cloned());
        }
    }
}

impl MetaSnapshot for Txn<'_> {
    type Error = Infallible;

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        self.disk.rows.get(key)
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Infallible> {
        self.disk.rows.range(from, to, limit)
    }
}

impl MetaTxn for Txn<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.remember(key);
        self.disk.rows.put(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Infallible> {
        self.remember(key);
        self.disk.rows.remove(key)
    }
}
