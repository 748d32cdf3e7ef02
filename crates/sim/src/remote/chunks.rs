//! Chunks: pieces of stores that travel beside their records, once.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::chunk::fingerprint;
use segue_core::nouns::{Fingerprint, PieceBytes, Record, Stamped};

use crate::Violation;

/// What a client knows of the server's chunks.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentChunks {
    /// Pieces of so many bytes are chunks, if any are.
    pub(crate) least: Option<usize>,
    /// Those that were sent over this connection.
    sent: BTreeSet<Fingerprint>,
}

impl SentChunks {
    /// Takes the bytes of chunks out of `records`. Returns the names and the bytes of those that
    /// are sent beside, if it `brings` any.
    pub(super) fn cut_out(
        &mut self,
        records: &mut [Stamped],
        brings: bool,
    ) -> (Vec<(Fingerprint, u32)>, Vec<u8>) {
        let mut beside = BTreeMap::new();
        let stores = records.iter_mut().filter_map(|stamped| match &mut stamped.record {
            Record::Store(store) => Some(store),
            _ => None,
        });
        for piece in stores.flat_map(|store| &mut store.pieces) {
            let PieceBytes::Inline(bytes) = &piece.bytes else { continue };
            if self.least.is_none_or(|least| bytes.len() < least) {
                continue;
            }
            let (name, len) = (fingerprint(bytes), u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            if brings && self.sent.insert(name) {
                beside.insert(name, bytes.clone());
            }
            piece.bytes = PieceBytes::Chunk { fingerprint: name, len };
        }
        let body = beside.values().flatten().copied().collect();
        let named = |(name, bytes): (Fingerprint, Vec<u8>)| {
            (name, u32::try_from(bytes.len()).unwrap_or(u32::MAX))
        };
        (beside.into_iter().map(named).collect(), body)
    }

    /// There is another connection.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
    }

    /// The server does not have these.
    pub(super) fn missing(&mut self, chunks: &[Fingerprint]) -> Result<(), Violation> {
        match chunks.iter().find(|chunk| !self.sent.remove(chunk)) {
            Some(chunk) => Err(Violation(format!("nobody sent {chunk:?}"))),
            None => Ok(()),
        }
    }
}
