//! All rows of a table, one after the other, read in slices.

use std::collections::VecDeque;

use crate::namespace::{MetaSnapshot, keys};

/// Rows read at a time: 4 MiB of the largest, which are extended attributes of 64 KiB.
const SLICE: usize = 64;

/// A key and its value.
pub(in crate::upkeep) type Row = (Vec<u8>, Vec<u8>);

/// The rows from a key to the end of a table.
pub(in crate::upkeep) struct Scan {
    from: Vec<u8>,
    end: Vec<u8>,
    rows: VecDeque<Row>,
    more: bool,
}

impl Scan {
    /// All rows whose keys begin with `prefix`.
    pub(in crate::upkeep) fn new(prefix: Vec<u8>) -> Scan {
        let end = keys::after(&prefix);
        Scan { from: prefix, end, rows: VecDeque::new(), more: true }
    }

    /// Those of them from the key `from` on.
    pub(in crate::upkeep) fn starting(prefix: &[u8], from: Vec<u8>) -> Scan {
        Scan { from, end: keys::after(prefix), rows: VecDeque::new(), more: true }
    }

    /// All rows from one key on and before another.
    pub(in crate::upkeep) fn between((from, end): (Vec<u8>, Vec<u8>)) -> Scan {
        Scan { from, end, rows: VecDeque::new(), more: true }
    }

    /// The row that [`Scan::next`] will give.
    pub(in crate::upkeep) fn peek<S: MetaSnapshot>(
        &mut self,
        snapshot: &mut S,
    ) -> Result<Option<&Row>, S::Error> {
        if self.rows.is_empty() && self.more {
            let rows = snapshot.range(&self.from, &self.end, SLICE)?;
            self.more = rows.len() == SLICE;
            if let Some((last, _)) = rows.last() {
                // No key stands between one and the same with a zero.
                self.from.clone_from(last);
                self.from.push(0);
            }
            self.rows = rows.into();
        }
        Ok(self.rows.front())
    }

    /// The next row.
    pub(in crate::upkeep) fn next<S: MetaSnapshot>(
        &mut self,
        snapshot: &mut S,
    ) -> Result<Option<Row>, S::Error> {
        self.peek(snapshot)?;
        Ok(self.rows.pop_front())
    }
}
