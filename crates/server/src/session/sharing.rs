//! Files that one host has changed and another opens [MFS 5, server pull].
//!
//! ```text
//!   opener                server                  writer's host
//!      │                    │◀── Dirty ──────────────│ it has changed a file
//!      │── Open ───────────▶│── Pull ───────────────▶│ seals and sends it, before other data
//!      │                    │◀── Offer, Put, Apply ──│
//!      │◀── Opened ─────────│◀── Pulled ─────────────│
//! ```

use std::sync::Arc;

use segue_core::namespace::{awaited_news, read, take_in_awaited};
use segue_core::nouns::{Ino, Role};
use segue_core::refusal::Refusal;
use segue_core::sharing::{GRACE, Progress};
use segue_core::wire::{DIRTY_MAX, Dirty, Found, Opened, Reply, Request, are_valid};
use segue_rpc::{Body, Peer};
use tokio::time::timeout;

use super::read::promised;
use super::{Answer, Bound, Session, refuse, settled};
use crate::meta::StoreError;

impl Session {
    pub(super) async fn dirty(&self, bound: &Bound, dirty: Dirty) -> Answer {
        if bound.rights.role == Role::Reader {
            return Err(refuse(Refusal::Access, "this identity changes no files"));
        }
        if dirty.changed.len() > DIRTY_MAX || dirty.clean.len() > DIRTY_MAX as u64 {
            let words = format!("at most {DIRTY_MAX} files are named at a time");
            return Err(refuse(Refusal::Limit, words));
        }
        if !are_valid(&dirty.changed) {
            return Err(refuse(Refusal::Invalid, "a file cannot be as one of these is announced"));
        }
        let (store, of) = (&self.server.data.store, (bound.volume, bound.client));
        store.promises().dirty(&bound.holder, &dirty);
        let dirty = Arc::new(dirty);
        let told = Arc::clone(&dirty);
        // Few of them are about empty files, and no other costs a commit.
        let news = store.read(move |kv| awaited_news(kv, of, &told)).await?;
        if !news.map_err(StoreError::from)?.is_empty() {
            store.write_later(move |txn| take_in_awaited(txn, of, &dirty));
        }
        Ok((Reply::Marked(()), Body::Empty))
    }

    /// Attributes for a program that opens a file, once the hosts that have changed it have sent
    /// that.
    pub(super) async fn open(&self, bound: &Bound, ino: Ino) -> Answer {
        let (volume, store) = (bound.volume, &self.server.data.store);
        let (mut wait, writers) = store.promises().open_wait(&bound.holder, ino);
        for (client, peer) in writers {
            wait.answered(client, self.while_connected(pull(&peer, ino)).await?);
        }
        // Only from here on is it work.
        let _place = self.rooms.urgent.acquire().await;
        let asked = store.promises().ask();
        let found = store.read(move |kv| read::getattr_or_remnant(kv, volume, ino)).await;
        let (node, is_remnant) = settled(found)?;
        let is_hidden = wait.hides(node.attr.size);
        let reply = Reply::Opened(Opened { found: Found { node, promised: None }, is_hidden });
        if is_remnant {
            self.server.remnants.asked(volume, ino);
            return Ok((reply, Body::Empty));
        }
        Ok((promised(reply, asked, bound), Body::Empty))
    }
}

/// Has a host send what it has changed of `ino`. False if it did not, and went or fell silent.
async fn pull(peer: &Peer, ino: Ino) -> bool {
    let request = Request::Pull(ino);
    let mut call = std::pin::pin!(peer.call(&request, Body::Empty));
    let received = || peer.stats().received_bytes;
    let mut progress = Progress::from(received());
    loop {
        match timeout(GRACE, &mut call).await {
            Ok(answer) => {
                return matches!(answer.map(|answer| answer.reply), Ok(Reply::Pulled(true)));
            }
            Err(_) if progress.goes_on(received()) => {}
            Err(_) => {
                tracing::debug!(%ino, "a host does not send a file that another one opens");
                return false;
            }
        }
    }
}
