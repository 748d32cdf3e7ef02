//! Writes that are not in the transaction yet.
//!
//! A rule reads through the overlay and writes into it. Dropping it leaves the transaction as
//! it was, which is how a refusal changes nothing.

use std::collections::BTreeMap;

use super::{MetaSnapshot, MetaTxn, PastDamage};

/// A transaction with pending writes above it.
pub(crate) struct Overlay<'a, T> {
    below: &'a mut T,
    /// `None`: removed.
    pending: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl<'a, T: MetaTxn> Overlay<'a, T> {
    pub(crate) fn new(below: &'a mut T) -> Self {
        Overlay { below, pending: BTreeMap::new() }
    }

    /// Writes everything into the transaction below and gives it back.
    pub(super) fn flush(self) -> Result<&'a mut T, T::Error> {
        for (key, value) in self.pending {
            match value {
                Some(value) => self.below.put(&key, &value)?,
                None => self.below.remove(&key)?,
            }
        }
        Ok(self.below)
    }
}

impl<T: MetaTxn> MetaSnapshot for Overlay<'_, T> {
    type Error = T::Error;

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, T::Error> {
        match self.pending.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(key),
        }
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, T::Error> {
        self.merged(from, to, limit, T::range)
    }

    fn range_past_damage(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<PastDamage, T::Error> {
        self.merged(from, to, limit, T::range_past_damage)
    }

    fn is_damage(error: &T::Error) -> bool {
        T::is_damage(error)
    }
}

impl<T: MetaTxn> Overlay<'_, T> {
    /// What `range` says of the transaction below, with the pending writes in it.
    #[allow(clippy::type_complexity)]
    fn merged<V: From<Vec<u8>>>(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        range: impl FnOnce(&mut T, &[u8], &[u8], usize) -> Result<Vec<(Vec<u8>, V)>, T::Error>,
    ) -> Result<Vec<(Vec<u8>, V)>, T::Error> {
        if from >= to {
            return Ok(Vec::new());
        }
        let pending = self.pending.range(from.to_vec()..to.to_vec());
        let pending: Vec<_> = pending.map(|(key, value)| (key.clone(), value.clone())).collect();
        // Each pending write hides at most one row below.
        let rows = range(self.below, from, to, limit.saturating_add(pending.len()))?;
        if pending.is_empty() {
            return Ok(rows);
        }
        let mut merged: BTreeMap<_, _> = rows.into_iter().map(|(k, v)| (k, Some(v))).collect();
        merged.extend(pending.into_iter().map(|(key, value)| (key, value.map(V::from))));
        Ok(merged.into_iter().filter_map(|(k, v)| Some((k, v?))).take(limit).collect())
    }
}

impl<T: MetaTxn> MetaTxn for Overlay<'_, T> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), T::Error> {
        self.pending.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), T::Error> {
        self.pending.insert(key.to_vec(), None);
        Ok(())
    }
}
