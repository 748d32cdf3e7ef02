//! A store in memory: what the rules do to it is what they do to any other.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::{MetaSnapshot, MetaTxn};

/// Rows by key. Every write takes effect at once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MapStore(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl MetaSnapshot for MapStore {
    type Error = Infallible;

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Infallible> {
        if from >= to {
            return Ok(Vec::new());
        }
        let rows = self.0.range(from.to_vec()..to.to_vec()).take(limit);
        Ok(rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

impl MetaTxn for MapStore {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Infallible> {
        self.0.remove(key);
        Ok(())
    }
}
