//! Chunks that go as what differs from a copy of a basis, where that is much less.
//!
//! Which bytes of it a chunk most likely came from is known once it is known where the chunks
//! before and behind it stand there. So what differs is not sent at once, but with the next chunk
//! that is found, if that comes soon.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use segue_core::delta::{Basis, MatchedChunk};
use segue_core::namespace::{LEAF_EXTENTS_MAX, leaf_name, leaf_of};
use segue_core::nouns::{Fingerprint, Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{Delta, Leaf};
use segue_rpc::Rpc;
use segue_rpc::codec::difference;

use super::basis::Alike;
use crate::disk::files::Container;
use crate::net::WireChunk;
use crate::write_back::WriteBack;

/// What of a store was found in its basis so far.
pub(crate) struct Differ {
    alike: Alike,
    /// The chunks that are to be a leaf, the last ones without a gap between them.
    run: Vec<MatchedChunk>,
    /// Where those chunks stand in the file that were not found and are not sent.
    places: BTreeMap<Fingerprint, Range<u64>>,
    /// Bytes that were not found since the last that were.
    between: u64,
}

/// How chunks may be told as differences.
pub(crate) struct Hints {
    copy: Arc<Container>,
    of: (Ino, Version),
    dictionaries: BTreeMap<Fingerprint, Range<u64>>,
}

impl Differ {
    pub(crate) fn new(alike: Alike) -> Differ {
        let (run, places, between) = Default::default();
        Differ { alike, run, places, between }
    }

    pub(crate) fn basis(&self) -> &Basis {
        &self.alike.basis
    }

    /// Takes in the next chunk of the store; true if the basis has it.
    pub(crate) fn finds(&mut self, offset: u64, (name, len): (Fingerprint, u32)) -> bool {
        let found = self.alike.basis.find(offset, &name, len);
        self.run.push((name, len, found));
        if found.is_some() {
            self.between = 0;
            return true;
        }
        self.between += u64::from(len);
        if self.alike.copy.is_some() {
            self.places.insert(name, offset..offset + u64::from(len));
        }
        false
    }

    /// True if what was not found is to wait for the next chunk that is.
    pub(crate) fn waits(&self, size: u64) -> bool {
        let longest = self.alike.basis.cutter(size).longest() as u64;
        !self.places.is_empty() && self.between > 0 && self.between <= longest
    }

    /// True if something of the run is known to the server only by where it stands.
    pub(super) fn has_found(&self) -> bool {
        self.run.iter().any(|(.., found)| found.is_some())
    }

    /// The leaf of the run, which ends.
    pub(super) fn leaf(&mut self) -> Option<Leaf> {
        let run = self.end_run();
        let chunks: Vec<_> = run.iter().map(|(name, len, _)| (*name, *len)).collect();
        debug_assert!(chunks.len() <= LEAF_EXTENTS_MAX, "a run is staged when it is as long");
        Some(Leaf { name: leaf_name(&leaf_of(&chunks))?, parts: self.basis().parts(&run) })
    }

    /// What comes next stands behind a gap.
    pub(super) fn end_run(&mut self) -> Vec<MatchedChunk> {
        std::mem::take(&mut self.run)
    }

    /// How the chunks may be told that were not found so far.
    pub(super) fn hints(&mut self) -> Option<Hints> {
        let copy = Arc::clone(self.alike.copy.as_ref()?);
        let basis = &self.alike.basis;
        let places = std::mem::take(&mut self.places);
        let dictionary =
            |(name, range): (Fingerprint, Range<u64>)| Some((name, basis.dictionary(&range)?));
        let dictionaries = places.into_iter().filter_map(dictionary).collect();
        Some(Hints { copy, of: basis.of(), dictionaries })
    }
}

impl Hints {
    /// Those of `chunks` that are much shorter as differences, each with its place among them.
    pub(super) fn differences(&self, chunks: &[WireChunk]) -> Vec<(Delta, Vec<u8>)> {
        let (ino, version) = self.of;
        let difference = |(index, (name, raw)): (u32, &WireChunk)| {
            let range = self.dictionaries.get(name)?.clone();
            let len = usize::try_from(range.end - range.start).ok()?;
            // What cannot be read here is not missed.
            let dictionary = self.copy.read(range.start, len).ok()?;
            let bytes = difference(raw, &dictionary)?;
            Some((Delta { index, ino, version, range }, bytes))
        };
        (0..).zip(chunks).filter_map(difference).collect()
    }
}

impl WriteBack {
    /// Gives the server chunks for `files`, as differences where that is much less and leads there.
    pub(crate) async fn put(
        &self,
        rpc: &Rpc,
        chunks: &[WireChunk],
        files: Vec<Ino>,
        hints: Option<&Hints>,
    ) -> Result<(), Refusal> {
        let deltas = hints.map(|hints| hints.differences(chunks)).unwrap_or_default();
        let differ = deltas.len();
        let lacking = self.remote.put(rpc, chunks, deltas, files.clone()).await?;
        if hints.is_some() {
            let (all, lack) = (chunks.len(), lacking.len());
            tracing::debug!("{differ} of {all} chunks went as differences, {lack} led nowhere");
        }
        let whole = lacking.iter().filter_map(|&index| chunks.get(index as usize).cloned());
        let whole: Vec<WireChunk> = whole.collect();
        if !whole.is_empty() {
            self.remote.put(rpc, &whole, Vec::new(), files).await?;
        }
        Ok(())
    }
}
