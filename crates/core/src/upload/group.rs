//! Chunks of the stores that are being made, which go to the server together.

use std::collections::BTreeSet;

use super::{Chunk, bytes_of};
use crate::nouns::Ino;
use crate::wire::OFFER_MAX;

/// The chunks.
#[derive(Debug)]
pub(super) struct Group<B> {
    /// The server hears their names only.
    is_named: bool,
    chunks: Vec<Chunk<B>>,
    bytes: u64,
    /// The files that they are for.
    files: BTreeSet<Ino>,
}

impl<B> Group<B> {
    pub(super) fn new(is_named: bool) -> Group<B> {
        Group { is_named, chunks: Vec::new(), bytes: 0, files: BTreeSet::new() }
    }

    pub(super) fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if it is to be sent before it grows further: it has `bytes`, and waits for no more, or
    /// it can take no more.
    pub(super) fn is_due(&self, bytes: usize, waits: bool) -> bool {
        self.chunks.len() >= OFFER_MAX || !waits && self.bytes >= bytes as u64
    }

    /// Adds a chunk of `ino`.
    pub(super) fn add(&mut self, ino: Ino, chunk: Chunk<B>) {
        if !self.is_named {
            self.bytes += u64::from(chunk.len);
            self.files.insert(ino);
            self.chunks.push(chunk);
        }
    }

    /// Takes its chunks, and the files that they are for, if there are any.
    pub(super) fn take(&mut self) -> Option<(Vec<Chunk<B>>, Vec<Ino>)> {
        let files = std::mem::take(&mut self.files).into_iter().collect();
        let chunks = self.take_along();
        (!chunks.is_empty()).then_some((chunks, files))
    }

    /// Takes its chunks.
    pub(super) fn take_along(&mut self) -> Vec<Chunk<B>> {
        let chunks = std::mem::take(&mut self.chunks);
        assert_eq!(bytes_of(&chunks), self.bytes, "its bytes are those of its chunks");
        self.bytes = 0;
        chunks
    }
}
