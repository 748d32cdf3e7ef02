//! How stores are made.

use crate::chunk::Cutter;
use crate::host::send::{BASIS_MIN, OFFER_FROM};
use crate::namespace::LEAF_EXTENTS_MAX;
use crate::nouns::INLINE_MAX;

/// A hole that is shorter stays in the chunk around it: two chunks and a gap between them cost more
/// than zeros, which compress.
const HOLE_MIN: u64 = 64 << 10;

/// From which sizes on, in bytes, a store is made in another way. A simulation has small ones.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The average chunk. `None`: as fits the file.
    pub average: Option<usize>,
    /// Longest store whose bytes are in its record.
    pub inline_max: u64,
    /// Shortest store for which a basis is looked for.
    pub basis_min: u64,
    /// Shortest hole that is told.
    pub hole_min: u64,
    /// From so many on chunks are offered. Less goes along with the records.
    pub offer_from: u64,
    /// Most chunks of one leaf: a number.
    pub leaf: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            average: None,
            inline_max: INLINE_MAX as u64,
            basis_min: BASIS_MIN,
            hole_min: HOLE_MIN,
            offer_from: OFFER_FROM,
            leaf: LEAF_EXTENTS_MAX,
        }
    }
}

impl Sizes {
    /// The cutter for a file of `size` bytes.
    pub(super) fn cutter(&self, size: u64) -> Cutter {
        self.average.map_or_else(|| Cutter::for_file(size), Cutter::of_average)
    }
}
