//! Neighbour rows: damaged rows beside a place in the table, one of which could be the wanted row.
//!
//! A search that finds nothing ends at the place of the wanted row. A damaged row there may be
//! that row with another key, or have led the search astray. It is neither if it stands between
//! whole rows that enclose the wanted key, and its key is its own. Its own key is the one with
//! which its sum is right after one bit is flipped back. If none is, the value is damaged, and the
//! key is its own if it is in its place.

use super::checksum::original;
use super::sqlite::{Stored, damage};

/// Most damaged rows in sequence that are looked at: more are no flipped bits.
const DAMAGED_MAX: usize = 64;

/// The rows on one side of a place.
#[derive(Default)]
pub(super) struct NeighbourRows {
    pub(super) damaged: Damaged,
    /// Key of the first row beyond those.
    pub(super) whole: Option<Vec<u8>>,
}

/// Damaged rows, one beside the other.
#[derive(Default)]
pub(super) struct Damaged(Vec<(Vec<u8>, Vec<u8>)>);

impl Damaged {
    pub(super) fn push(&mut self, (key, sealed): Stored<'_>) -> rusqlite::Result<()> {
        self.0.push((key.to_vec(), sealed.to_vec()));
        if self.0.len() < DAMAGED_MAX { Ok(()) } else { Err(damage(key)) }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Fails if one of them, which stand `between` two whole rows, may have one of the `wanted`
    /// keys.
    pub(super) fn check_others(
        &self,
        between: (Option<&[u8]>, Option<&[u8]>),
        wanted: impl Fn(&[u8]) -> bool,
    ) -> rusqlite::Result<()> {
        self.0.iter().try_for_each(|(key, sealed)| {
            let own = original(key, sealed);
            let own = own.as_deref().unwrap_or(key);
            if is_within(own, between) && !wanted(own) { Ok(()) } else { Err(damage(key)) }
        })
    }
}

/// True if `key` stands between two others; `None` is beyond all.
pub(super) fn is_within(key: &[u8], (before, after): (Option<&[u8]>, Option<&[u8]>)) -> bool {
    before.is_none_or(|before| before < key) && after.is_none_or(|after| key < after)
}
