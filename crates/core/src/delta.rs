//! What a new version of a file has in common with a basis: an earlier version of it, or another
//! file, that the server has.
//!
//! ```text
//!   basis   |  a  |   b   | c |    d    |  e  |
//!   new     |  a  |   b   |   X   |    d    |  e  |
//!            └── a run ──┘ between └──── a run ────┘
//! ```
//!
//! A chunk of the new version *matches* where the basis has a chunk of its length and with the same
//! first bytes of a fingerprint. Matches next to each other are told as one run. What the two runs
//! around a chunk leave open in the basis is what it most likely came from: its dictionary.
//!
//! A match may be wrong, once in about 10^15 pairs of chunks. Nothing here is believed: a leaf is
//! made only under the name that its host gave it, and a difference has to lead to the fingerprint.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::nouns::{Fingerprint, Ino, Version};
use crate::wire::{Brief, DICTIONARY_MAX, LeafPart, Outlined};

/// Chunks of a basis that are kept in memory: of a file of 256 GB.
const CHUNKS_MAX: usize = 1 << 18;
/// So much more than a chunk is long is taken where only one side of it is known.
const SLACK: u64 = 256 << 10;

/// A chunk of a new version: its name, its length, and where the basis has it.
pub type MatchedChunk = (Fingerprint, u32, Option<u64>);

/// An earlier version, and what was found in it.
#[derive(Clone, Debug)]
pub struct Basis {
    ino: Ino,
    version: Version,
    size: u64,
    /// What may be a chunk, with its place.
    chunks: BTreeSet<(Brief, u32, u64)>,
    /// Up to where the basis is known.
    known: u64,
    /// By its place in the new version: where a run stands in the basis, and how long it is.
    runs: BTreeMap<u64, (u64, u64)>,
}

impl Basis {
    /// A version of a file, of which nothing is known.
    pub fn new(ino: Ino, version: Version) -> Basis {
        let (chunks, runs) = Default::default();
        Basis { ino, version, size: 0, chunks, known: 0, runs }
    }

    /// Which version of which file it is.
    pub fn of(&self) -> (Ino, Version) {
        (self.ino, self.version)
    }

    /// Takes in how a part of it is cut, and says from where on more is to be asked for.
    pub fn learn(&mut self, outlined: &Outlined) -> Option<u64> {
        self.size = outlined.size;
        let mut at = outlined.start;
        for (len, brief) in &outlined.parts {
            let end = at.saturating_add(*len);
            if let (Some(brief), Ok(len)) = (brief, u32::try_from(*len))
                && end <= self.size
            {
                self.chunks.insert((*brief, len, at));
            }
            at = end;
        }
        let is_more = at > self.known && at < self.size && self.chunks.len() < CHUNKS_MAX;
        self.known = self.known.max(at);
        is_more.then_some(at)
    }

    /// True if nothing can be found in it.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The size by which a new version of `size` bytes is cut: as the basis was, unless it is much
    /// longer. Or a byte more would change all cuts of a file whose size is at a limit, and what is
    /// stored while it is still written would be cut in another way than what it will be.
    pub fn cut_size(&self, size: u64) -> u64 {
        if size / 2 <= self.size { self.size } else { size }
    }

    /// Where the basis has a chunk that stands at `offset` of the new version. Of several places
    /// the one behind what was found last.
    pub fn find(&mut self, offset: u64, name: &Fingerprint, len: u32) -> Option<u64> {
        let brief = Brief::from(name);
        let before = self.runs.last_key_value().map(|(at, (from, len))| (*at, *from, *len));
        let next = before.map(|(_, from, len)| from + len);
        let first = || {
            let from = (brief, len, 0)..=(brief, len, u64::MAX);
            self.chunks.range(from).next().map(|(.., at)| *at)
        };
        let found = next.filter(|at| self.chunks.contains(&(brief, len, *at))).or_else(first)?;
        match before {
            Some((at, from, run)) if at + run == offset && from + run == found => {
                self.runs.insert(at, (from, run + u64::from(len)));
            }
            _ => drop(self.runs.insert(offset, (found, u64::from(len)))),
        }
        Some(found)
    }

    /// Which bytes of the basis are most like those that stand in `range` of the new version and
    /// were not found.
    pub fn dictionary(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let before = self.runs.range(..range.start).next_back();
        let after = self.runs.range(range.end..).next();
        // Each: where it touches what is between, in the new version and in the basis.
        let (new_from, from) = before.map_or((0, 0), |(at, (from, len))| (at + len, from + len));
        let (new_to, to) = after.map_or((u64::MAX, self.size), |(at, (from, _))| (*at, *from));
        if from >= to {
            return None;
        }
        if to - from <= DICTIONARY_MAX {
            return Some(from..to);
        }
        let len = (range.end - range.start).saturating_add(2 * SLACK).min(DICTIONARY_MAX);
        let start = match (before, after) {
            (None, Some(_)) => to.saturating_sub(new_to - range.start).saturating_sub(SLACK),
            _ => from.saturating_add(range.start - new_from).saturating_sub(SLACK),
        };
        let start = start.clamp(from, to - len);
        Some(start..start + len)
    }

    /// What a leaf of these chunks is made of.
    pub fn parts(&self, chunks: &[MatchedChunk]) -> Vec<LeafPart> {
        let mut parts: Vec<LeafPart> = Vec::new();
        for (name, len, found) in chunks {
            let Some(at) = *found else {
                parts.push(LeafPart::Chunk(*name, *len));
                continue;
            };
            let end = at + u64::from(*len);
            match parts.last_mut() {
                Some(LeafPart::Run { range, .. }) if range.end == at => range.end = end,
                _ => {
                    let (ino, version) = self.of();
                    parts.push(LeafPart::Run { ino, version, range: at..end });
                }
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests;
