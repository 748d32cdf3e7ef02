//! Chunks that are damaged on the server, and that this host has in its cache.
//!
//! The server says where they stand in a file, and their fingerprints. A chunk of which the cache
//! has other bytes is not sent, so neither a file that changed here nor a damaged cache matters.

use bytes::Bytes;
use segue_core::chunk::{CHUNK_MAX, fingerprint};
use segue_core::nouns::{Class, Fingerprint, Ino};
use segue_core::refusal::Refusal;
use segue_core::wire::{Heal, OFFER_MAX, Reply, Request};
use segue_rpc::{Body, Incoming, Rpc};
use tokio::sync::mpsc;

use super::{Mount, Shared};
use crate::remote::WireChunk;

impl Mount {
    /// Answers the server's questions one by one, for as long as there may be any.
    pub(super) async fn answer_heals(self: Shared, mut asked: mpsc::Receiver<Incoming>) {
        while let Some(incoming) = asked.recv().await {
            let Request::Heal(heal) = &incoming.request else { continue };
            let sent = self.heal(heal).await.unwrap_or_else(|refusal| {
                tracing::debug!("#{}: damage on the server is not healed: {refusal}", heal.ino);
                0
            });
            if let Err(error) = incoming.reply(Reply::Healed(sent), Body::Empty).await {
                tracing::debug!("the server does not hear of the chunks that were sent: {error}");
            }
        }
    }

    /// Sends those chunks that are here. Returns how many.
    async fn heal(&self, heal: &Heal) -> Result<u32, Refusal> {
        self.load_node(heal.ino);
        self.load(heal.ino)?;
        let mut sent = 0;
        for (offset, name, len) in heal.chunks.iter().take(OFFER_MAX) {
            let Some(chunk) = self.cached_chunk(heal.ino, (*offset, *name, *len))? else {
                continue;
            };
            // Another host's reader waits for it.
            let rpc = Rpc::new(Class::StoreFast);
            self.remote.put(&rpc, &[chunk], Vec::new(), vec![heal.ino]).await?;
            sent += 1;
        }
        if sent > 0 {
            tracing::info!("#{}: sent {sent} chunks that are damaged on the server", heal.ino);
        }
        Ok(sent)
    }

    /// The chunk that stands at `offset` of a file, if that is what the cache has there.
    fn cached_chunk(
        &self,
        ino: Ino,
        (offset, name, len): (u64, Fingerprint, u32),
    ) -> Result<Option<WireChunk>, Refusal> {
        let end = offset.checked_add(u64::from(len)).ok_or(Refusal::Protocol)?;
        if len as usize > CHUNK_MAX {
            return Err(Refusal::Protocol);
        }
        let sight = self.core().sight(ino, &(offset..end)).ok_or(Refusal::Stale)?;
        if sight.range != (offset..end) || !sight.missing.is_empty() {
            return Ok(None);
        }
        let read = self.open_container(ino, sight.container)?.read(offset, len as usize);
        let bytes = Bytes::from(read.map_err(|error| self.disk_refusal("containers", &error))?);
        Ok((fingerprint(&bytes) == name).then_some((name, bytes)))
    }
}
