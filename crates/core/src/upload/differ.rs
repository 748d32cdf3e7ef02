//! Chunks that go as differences from a copy of a basis, where that is much less.
//!
//! Which bytes of the basis a chunk most likely came from is known once the places of the chunks
//! before and behind it are known there. So differing chunks are not sent at once, but with the
//! next chunk that is found, if that comes soon.

use std::collections::BTreeMap;
use std::ops::Range;

use super::sizes::Sizes;
use super::{Candidate, Chunk};
use crate::delta::{Basis, MatchedChunk};
use crate::namespace::{leaf_name, leaf_of};
use crate::nouns::{Fingerprint, Ino, Version};
use crate::wire::{Delta, Leaf};

/// The parts of a store that were found in its basis so far.
#[derive(Debug)]
pub(super) struct Differ<C> {
    basis: Basis,
    copy: Option<C>,
    /// The chunks that are to be a leaf, the last ones without a gap between them.
    run: Vec<MatchedChunk>,
    /// Where those chunks stand in the file that were not found and are not sent.
    places: BTreeMap<Fingerprint, Range<u64>>,
    /// Bytes that were not found since the last that were.
    between: u64,
}

/// How chunks may be told as differences from a copy on the host's disk.
#[derive(Clone, Debug)]
pub struct Hints<C> {
    /// The copy.
    pub copy: C,
    of: (Ino, Version),
    dictionaries: BTreeMap<Fingerprint, Range<u64>>,
}

impl<C: Clone> Differ<C> {
    pub(super) fn new(basis: Basis, copy: Option<C>) -> Differ<C> {
        let (run, places, between) = Default::default();
        Differ { basis, copy, run, places, between }
    }

    /// The size by which a new version of `size` bytes is cut.
    pub(super) fn cut_size(&self, size: u64) -> u64 {
        self.basis.cut_size(size)
    }

    /// Takes in the next chunk of the store; true if the basis has it.
    pub(super) fn finds(&mut self, offset: u64, (name, len): (Fingerprint, u32)) -> bool {
        let found = self.basis.find(offset, &name, len);
        self.run.push((name, len, found));
        if found.is_some() {
            self.between = 0;
            return true;
        }
        self.between += u64::from(len);
        if self.copy.is_some() {
            self.places.insert(name, offset..offset + u64::from(len));
        }
        false
    }

    /// True if chunks that were not found are to wait for the next chunk that is.
    pub(super) fn waits(&self, size: u64, sizes: &Sizes) -> bool {
        let longest = sizes.cutter(self.cut_size(size)).longest() as u64;
        !self.places.is_empty() && self.between > 0 && self.between <= longest
    }

    /// True if a chunk of the run is known to the server only by where it stands.
    pub(super) fn has_found(&self) -> bool {
        self.run.iter().any(|(.., found)| found.is_some())
    }

    /// The leaf of the run, which ends.
    pub(super) fn leaf(&mut self) -> Option<Leaf> {
        let run = self.end_run();
        let chunks: Vec<_> = run.iter().map(|(name, len, _)| (*name, *len)).collect();
        Some(Leaf { name: leaf_name(&leaf_of(&chunks))?, parts: self.basis.parts(&run) })
    }

    /// The next chunk stands behind a gap.
    pub(super) fn end_run(&mut self) -> Vec<MatchedChunk> {
        std::mem::take(&mut self.run)
    }

    /// How the chunks may be told that were not found so far.
    pub(super) fn hints(&mut self) -> Option<Hints<C>> {
        let copy = self.copy.clone()?;
        let places = std::mem::take(&mut self.places);
        let dictionary =
            |(name, range): (Fingerprint, Range<u64>)| Some((name, self.basis.dictionary(&range)?));
        let dictionaries = places.into_iter().filter_map(dictionary).collect();
        Some(Hints { copy, of: self.basis.of(), dictionaries })
    }
}

impl<C> Hints<C> {
    /// Those of `chunks` that are much shorter as differences. `difference` makes the difference of
    /// a chunk from a range of the copy, if that can be read and is worth its while.
    pub fn differences<B>(
        &self,
        chunks: &[Chunk<B>],
        difference: impl Fn(&B, Range<u64>) -> Option<Vec<u8>>,
    ) -> Vec<(Delta, Vec<u8>)> {
        let (ino, version) = self.of;
        let differs = |(index, chunk): (u32, &Chunk<B>)| {
            let range = self.dictionaries.get(&chunk.name)?.clone();
            let bytes = difference(&chunk.bytes, range.clone())?;
            Some((Delta { index, ino, version, range }, bytes))
        };
        (0..).zip(chunks).filter_map(differs).collect()
    }
}

impl<C> Candidate<C> {
    /// The basis, of which nothing is known.
    pub(super) fn basis(&self) -> Basis {
        Basis::new(self.ino, self.version)
    }
}
