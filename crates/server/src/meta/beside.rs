//! Damaged rows beside a place in the table: whether what is looked for could be one of them.
//!
//! A search that finds nothing ends where the row would stand. A damaged row there may be that
//! row with another key, or have led the search astray. It is neither where it stands between
//! whole rows that enclose what is looked for, and its key is its own: the one with which its
//! sum is right after one bit is flipped back, or else, its value being what is damaged, the key
//! that it has, if that is in its place.

use super::seal::original;
use super::sqlite::{Stored, damage};

/// Most damaged rows in sequence that are looked at: more are no flipped bits.
const DAMAGED_MAX: usize = 64;

/// What stands on one side of a place.
#[derive(Default)]
pub(super) struct Beside {
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

    /// An error if one of them, which stand `between` two whole rows, may have a key of those
    /// that are `wanted`.
    pub(super) fn are_others(
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
