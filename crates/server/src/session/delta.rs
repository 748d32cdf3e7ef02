//! Chunks that come as what differs from a part of a file.
//!
//! The part is named as in a fetch, and may be read by whoever may fetch it. If it is not what the
//! host had, the difference does not lead to the chunk's fingerprint, and the chunk has to come
//! whole: that is nobody's fault, since files change.

use std::sync::Arc;

use bytes::Bytes;
use segue_core::chunk::fingerprint;
use segue_core::nouns::Fingerprint;
use segue_core::refusal::Refusal;
use segue_core::wire::{DICTIONARY_MAX, Delta, Fetch, Put, Refused};
use segue_rpc::codec::{Block, compress, undifference};

use super::{Bound, Session, lost, refuse};
use crate::packs::StoredChunk;
use crate::segments::{Part, Placed, placed};
use crate::serve::Server;

/// Refuses what no host sends: dictionaries that are too long, or differences out of order.
pub(super) fn check(put: &Put) -> Result<(), Refused> {
    let ascend = put.deltas.is_sorted_by(|one, next| one.index < next.index);
    let fits = |delta: &Delta| {
        let len = delta.range.end.checked_sub(delta.range.start);
        len.is_some_and(|len| (1..=DICTIONARY_MAX).contains(&len))
            && (delta.index as usize) < put.chunks.len()
    };
    match ascend && put.deltas.iter().all(fits) {
        true => Ok(()),
        false => Err(refuse(Refusal::Protocol, "a difference has no valid basis")),
    }
}

impl Session {
    /// The chunk that `block` makes of a part of a file; `None` if it does not lead there.
    pub(super) async fn undelta(
        &self,
        bound: &Bound,
        delta: &Delta,
        (name, block): (Fingerprint, Block),
    ) -> Result<Option<StoredChunk>, Refused> {
        // The semaphore is never closed.
        let _place = self.rooms.differences.acquire().await;
        let volume = bound.volume;
        let (offset, len) = (delta.range.start, delta.range.end - delta.range.start);
        let ask = Fetch { ino: delta.ino, version: delta.version, offset, len };
        let pin = self.server.data.packs.pin();
        // What is damaged here has to come whole, too.
        let Ok(placed) = self.server.data.store.read(move |kv| placed(kv, volume, &ask)).await?
        else {
            return Ok(None);
        };
        let server = self.server.clone();
        let work = move || {
            let dictionary = gather(&server, &placed)?;
            let raw = undifference(block.raw_len, &block.stored, &dictionary).ok()?;
            let raw_len = u32::try_from(raw.len()).ok().filter(|_| fingerprint(&raw) == name)?;
            let stored = compress(&raw).map_or(raw, Bytes::from);
            Some(StoredChunk { fingerprint: name, raw_len, stored })
        };
        let chunk = tokio::task::spawn_blocking(work).await.map_err(lost)?;
        drop(pin);
        Ok(chunk)
    }
}

/// The bytes of a range, at most [`DICTIONARY_MAX`]; `None` if they cannot be read.
fn gather(server: &Arc<Server>, placed: &[Placed]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for placed in placed {
        match placed.read(&server.data.packs).ok()? {
            Part::Hole => {
                let len = usize::try_from(placed.segment.len).ok()?;
                bytes.resize(bytes.len().checked_add(len)?, 0);
            }
            Part::Bytes(part) | Part::Chunk(_, part) => bytes.extend_from_slice(&part),
        }
    }
    Some(bytes)
}
