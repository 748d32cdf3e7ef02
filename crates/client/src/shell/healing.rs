//! Chunks that are damaged on the server, and that this host has in its cache.
//!
//! The server says where they stand in a file, and their fingerprints. A chunk of which the cache
//! has other bytes is not sent, so neither a file that changed here nor a damaged cache matters.

use std::sync::Arc;

use segue_core::nouns::Class;
use segue_core::refusal::Refusal;
use segue_core::wire::{Heal, OFFER_MAX, Reply, Request};
use segue_rpc::{Body, Incoming, Rpc};
use tokio::sync::mpsc;

use crate::shell::Shell;

impl Shell {
    /// Answers the server's questions one by one, for as long as there may be any.
    pub(super) async fn answer_heals(self: Arc<Self>, mut asked: mpsc::Receiver<Incoming>) {
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
        self.disk.load_node(heal.ino);
        self.disk.load(heal.ino)?;
        let mut sent = 0;
        for (offset, name, len) in heal.chunks.iter().take(OFFER_MAX) {
            let Some(chunk) = self.disk.cached_chunk(heal.ino, (*offset, *name, *len))? else {
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
}
