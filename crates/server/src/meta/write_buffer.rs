//! Rows of one commit that SQLite has not been given yet, and what it was asked meanwhile.
//!
//! A group of jobs changes some rows again and again: the volume's tally and the directory with
//! every record. They are put into SQLite once, when the group is done, in the order of keys;
//! and what a job has read the next one need not look up. A job that fails takes back its own
//! writes and no other's.
//!
//! Invariant: what stands here is what SQLite would answer after all writes so far, because
//! nobody else writes.

use std::collections::BTreeMap;

type Key = Vec<u8>;
/// `None`: there is no such row.
type Value = Option<Vec<u8>>;

/// Bytes from which on rows go to SQLite after a job. A job that does many things one after the
/// other ends there ([`super::Kv::is_large`]), so a group holds that and what one thing writes,
/// at most a clone of 32 MiB.
pub(super) const LARGE: usize = 8 << 20;

#[derive(Clone)]
struct Row {
    value: Value,
    /// SQLite does not have it.
    is_new: bool,
}

/// The rows.
pub(super) struct WriteBuffer {
    rows: BTreeMap<Key, Row>,
    /// What the running job has overwritten, oldest first.
    undo: Vec<(Key, Option<Row>)>,
    bytes: usize,
    /// How many of them are many.
    large: usize,
}

impl WriteBuffer {
    /// None yet, and many from `large` bytes on.
    pub(super) fn new(large: usize) -> WriteBuffer {
        WriteBuffer { rows: BTreeMap::new(), undo: Vec::new(), bytes: 0, large }
    }

    /// What is known of `key`; `None`: nothing.
    pub(super) fn get(&self, key: &[u8]) -> Option<Value> {
        self.rows.get(key).map(|row| row.value.clone())
    }

    /// Remembers what SQLite has under `key`.
    pub(super) fn learn(&mut self, key: &[u8], value: &Value) {
        self.insert(key, value.clone(), false);
    }

    /// The running job writes `value` under `key`.
    pub(super) fn set(&mut self, key: &[u8], value: Value) {
        let before = self.insert(key, value, true);
        self.undo.push((key.to_vec(), before));
    }

    fn insert(&mut self, key: &[u8], value: Value, is_new: bool) -> Option<Row> {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.rows.insert(key.to_vec(), Row { value, is_new })
    }

    /// How many rows from `from` on and before `to` SQLite has otherwise.
    pub(super) fn new_in(&self, from: &[u8], to: &[u8]) -> usize {
        self.new_rows(from, to).count()
    }

    fn new_rows(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&Key, &Value)> {
        // A range that ends before it begins is empty, and not a reason to panic.
        let range = (from < to).then(|| self.rows.range(from.to_vec()..to.to_vec()));
        let new = range.into_iter().flatten().filter(|(_, row)| row.is_new);
        new.map(|(key, row)| (key, &row.value))
    }

    /// The first `limit` of the rows `below` that SQLite has from `from` on and before `to`,
    /// with the new ones among them.
    pub(super) fn merge<V: From<Vec<u8>>>(
        &self,
        (from, to): (&[u8], &[u8]),
        limit: usize,
        below: Vec<(Key, V)>,
    ) -> Vec<(Key, V)> {
        let mut merged: BTreeMap<Key, Option<V>> =
            below.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let new = self.new_rows(from, to);
        merged.extend(new.map(|(key, value)| (key.clone(), value.clone().map(V::from))));
        let there = merged.into_iter().filter_map(|(key, value)| Some((key, value?)));
        there.take(limit).collect()
    }

    /// The keys that the running job has written, some perhaps more than once.
    pub(super) fn written(&self) -> impl Iterator<Item = &[u8]> {
        self.undo.iter().map(|(key, _)| key.as_slice())
    }

    /// The running job is done and its writes stay.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// The running job has failed: its writes go.
    pub(super) fn take_back(&mut self) {
        for (key, before) in self.undo.drain(..).rev() {
            match before {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }

    /// True if SQLite should have the rows now.
    pub(super) fn is_large(&self) -> bool {
        self.bytes >= self.large
    }

    /// Everything that SQLite does not have, in order of keys; nothing is known afterwards.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Key, Value)> + use<> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows).into_iter();
        rows.filter(|(_, row)| row.is_new).map(|(key, row)| (key, row.value))
    }
}
