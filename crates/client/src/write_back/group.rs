//! Chunks of the stores that are being made, which go to the server together.

use std::collections::BTreeSet;

use bytes::Bytes;
use segue_core::chunk::fingerprint;
use segue_core::nouns::{Class, Ino, Piece, PieceBytes};
use segue_core::refusal::Refusal;
use segue_core::wire::OFFER_MAX;
use tokio::task::JoinSet;

use crate::net::WireChunk;
use crate::write_back::differ::Differ;

/// Groups on their way at once: one more than are cut.
pub(super) const FLYING_MAX: usize = 2;

/// Chunks on their way to the server.
pub(crate) struct Group {
    /// At which they go.
    pub(crate) class: Class,
    pub(crate) chunks: Vec<WireChunk>,
    pub(crate) bytes: usize,
    /// How many of the last pieces are chunks without a gap between them.
    pub(crate) run: usize,
    /// What the store that is being made has in common with its basis, if it has one.
    pub(crate) differ: Option<Differ>,
    /// A leaf was not made because the basis is another one by now.
    pub(crate) is_astray: bool,
    /// The files that they are for.
    pub(crate) files: BTreeSet<Ino>,
    pub(crate) way: Way,
    pub(crate) flying: JoinSet<Result<(), Refusal>>,
}

/// What becomes of chunks.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Way {
    /// The server gets those that it lacks.
    #[default]
    Sent,
    /// It takes no more, and hears what they are called.
    Named {
        /// It may have those that come next.
        here: bool,
    },
}

impl Group {
    pub(crate) fn new(class: Class) -> Group {
        Group {
            class,
            chunks: Vec::new(),
            bytes: 0,
            run: 0,
            differ: None,
            is_astray: false,
            files: BTreeSet::new(),
            way: Way::default(),
            flying: JoinSet::new(),
        }
    }

    /// Adds a chunk as a piece of `ino` at `offset`. What its basis has need not be sent.
    pub(crate) fn piece(&mut self, ino: Ino, offset: u64, chunk: Bytes) -> Result<Piece, Refusal> {
        let fingerprint = fingerprint(&chunk);
        let len = u32::try_from(chunk.len()).map_err(|_| Refusal::TooLarge)?;
        let is_found =
            self.differ.as_mut().is_some_and(|differ| differ.finds(offset, (fingerprint, len)));
        if !is_found {
            self.bytes += chunk.len();
            self.files.insert(ino);
            self.chunks.push((fingerprint, chunk));
        }
        Ok(Piece { offset, bytes: PieceBytes::Chunk { fingerprint, len } })
    }

    /// True if what was cut is to be sent before more is, of a file of `size` bytes.
    pub(super) fn is_due(&self, bytes: usize, size: u64) -> bool {
        let waits = || self.differ.as_ref().is_some_and(|differ| differ.waits(size));
        self.chunks.len() >= OFFER_MAX || self.bytes >= bytes && !waits()
    }

    /// Waits until the server has what was sent, but for `left` groups of it.
    pub(super) async fn landed_but(&mut self, left: usize) -> Result<(), Refusal> {
        while self.flying.len() > left {
            let Some(landed) = self.flying.join_next().await else { break };
            landed.map_err(|_| Refusal::Io)??;
        }
        Ok(())
    }

    /// Waits until the server has everything that was sent.
    pub(super) async fn landed(&mut self) -> Result<(), Refusal> {
        self.landed_but(0).await
    }
}
