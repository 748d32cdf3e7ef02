//! Neighbour rows: damaged rows beside a place in the table, one of which could be the wanted row.
//!
//! A search that finds nothing ends at the place of the wanted row. A damaged row there may be
//! that row with another key, or have led the search astray. Then the search fails: it never
//! finds nothing because of damage, and it never returns the row.
//!
//! * The wanted key of a lookup is known. A damaged row whose sum is right with this key is the
//!   wanted row, however many bits of its key are damaged.
//! * A range has many keys. So the own key of the damaged row must be known to be outside. If one
//!   bit of the key, flipped back, makes the sum right, that was the own key. Otherwise the value
//!   is damaged, and the own key is the one that was read.
//! * In both cases, the own key must stand between the whole rows on both sides.
//!
//! A damaged row of which this is certain fails no search for other rows. Without own keys, a
//! server could only refuse every search that ends beside damage, for example the numbers of all
//! new files behind a damaged one. Removals and repairs need own keys, too: a damaged row that
//! names another file by a flipped key must not go with that file.

use super::checksum::own_key;
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
    pub(super) fn push(&mut self, (key, stored): Stored<'_>) -> rusqlite::Result<()> {
        self.0.push((key.to_vec(), stored.to_vec()));
        if self.0.len() < DAMAGED_MAX { Ok(()) } else { Err(damage(key)) }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Fails if one of them, which stand `between` two whole rows, may be one of the `wanted`
    /// rows. These are given by their own key, and their value with its sum.
    pub(super) fn check_others(
        &self,
        between: (Option<&[u8]>, Option<&[u8]>),
        wanted: impl Fn(Stored<'_>) -> bool,
    ) -> rusqlite::Result<()> {
        self.0.iter().try_for_each(|(key, stored)| {
            let own = own_key(key, stored);
            let own = own.as_deref().unwrap_or(key);
            if is_within(own, between) && !wanted((own, stored)) {
                Ok(())
            } else {
                Err(damage(key))
            }
        })
    }
}

/// True if `key` stands between two others; `None` is beyond all.
pub(super) fn is_within(key: &[u8], (before, after): (Option<&[u8]>, Option<&[u8]>)) -> bool {
    before.is_none_or(|before| before < key) && after.is_none_or(|after| key < after)
}
