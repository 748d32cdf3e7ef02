//! Ranges of files that go out.
//!
//! A fetch sees one snapshot, and everything it sends is checked before the answer begins, so
//! that damage is a refusal with words and not a body that breaks off.

use std::sync::Arc;

use bytes::Bytes;
use segue_core::namespace;
use segue_core::nouns::{Ino, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::upkeep::check::path;
use segue_core::wire::{FETCH_MAX, Fetch, Fetched, Refused, Reply};
use segue_rpc::Body;
use segue_rpc::codec::{block_from_stored, encode_block};

use super::{Answer, Bound, Session, lost, refuse, settled};
use crate::segments::{Part, Placed, placed};
use crate::serve::Server;

/// Small pieces are put together into blocks of at least so many bytes.
const BLOCK_BYTES: usize = 64 << 10;

const DAMAGED: &str = "the server's copy of this file is damaged; other hosts that \
                       have it cached are asked for it; see the server's log";

impl Session {
    pub(super) async fn fetch(&self, bound: &Bound, ask: Fetch) -> Answer {
        let ino = ask.ino;
        let last = ask.offset.saturating_add(ask.len.min(FETCH_MAX).saturating_sub(1));
        let answer = self.range(bound, ask).await;
        if answer.as_ref().is_err_and(|refused| refused.refusal == Refusal::Io) {
            self.name_unreadable(bound.volume, ino).await;
            // They may be in two parts.
            for offset in [ask.offset, last] {
                self.server.healing.found(bound.volume, ino, offset);
            }
        }
        answer
    }

    /// Tells the log which file it was that could not be read.
    async fn name_unreadable(&self, volume: VolumeId, ino: Ino) {
        let found = self.server.data.store.read(move |kv| {
            let name = namespace::volume(kv, volume).ok().flatten().map(|row| row.name);
            (name, path(kv, volume, ino).ok().flatten())
        });
        let (volume, path) = found.await.unwrap_or_default();
        let (volume, path) = (volume.as_deref(), path.as_deref());
        tracing::error!(volume, path, %ino, "cannot read a file; the line before has the reason");
    }

    async fn range(&self, bound: &Bound, ask: Fetch) -> Answer {
        let volume = bound.volume;
        let pin = self.server.data.packs.pin();
        let found = self.server.data.store.read(move |kv| placed(kv, volume, &ask));
        let placed = settled(found.await)?;
        let segments = summary(&placed);
        let bytes = segments.iter().filter(|(_, data)| *data).map(|(len, _)| *len).sum();
        let server = self.server.clone();
        let body = tokio::task::spawn_blocking(move || gather(&server, &placed)).await;
        drop(pin);
        let body = body.map_err(lost)??;
        self.server.metrics.bytes_fetched.inc_by(bytes);
        Ok((Reply::Fetched(Fetched { segments }), Body::from(body)))
    }
}

/// Lengths of data and holes, neighbours joined.
fn summary(placed: &[Placed]) -> Vec<(u64, bool)> {
    let mut summary: Vec<(u64, bool)> = Vec::new();
    for Placed { segment, .. } in placed {
        let data = segment.source.is_some();
        match summary.last_mut() {
            Some((len, last)) if *last == data => *len += segment.len,
            _ => summary.push((segment.len, data)),
        }
    }
    summary
}

/// The bytes of all data segments as blocks.
fn gather(server: &Arc<Server>, placed: &[Placed]) -> Result<Bytes, Refused> {
    let mut blocks = Vec::new();
    let mut small = Vec::new();
    for placed in placed {
        let part = placed.read(&server.data.packs).map_err(|words| {
            server.metrics.damaged.inc();
            tracing::error!("{words}");
            refuse(Refusal::Io, DAMAGED)
        })?;
        match part {
            Part::Hole => {}
            Part::Bytes(bytes) => small.extend_from_slice(&bytes),
            Part::Chunk(chunk, raw) => {
                flush(&mut small, &mut blocks);
                blocks.extend_from_slice(&block_from_stored(raw.len(), &chunk.stored));
            }
        }
        if small.len() >= BLOCK_BYTES {
            flush(&mut small, &mut blocks);
        }
    }
    flush(&mut small, &mut blocks);
    Ok(blocks.into())
}

fn flush(small: &mut Vec<u8>, blocks: &mut Vec<u8>) {
    for part in small.chunks(segue_rpc::codec::BLOCK_MAX) {
        blocks.extend_from_slice(&encode_block(part));
    }
    small.clear();
}
