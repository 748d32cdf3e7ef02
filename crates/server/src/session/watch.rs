//! Who watches a directory is told of changes below it as they are committed, in the order of
//! commits.

use std::time::Duration;

use segue_core::namespace::changes::Span;
use segue_core::namespace::watch;
use segue_core::wire::{Reply, Watch, WatchedAll};
use segue_rpc::Body;
use tokio::time::timeout;

use super::{Answer, Bound, Session};
use crate::meta::{Kv, MetaFault, StoreError};

/// An answer comes after so long, with changes or without.
const PATIENCE: Duration = Duration::from_secs(10);

impl Session {
    pub(super) async fn watch(&self, bound: &Bound, asked: Watch) -> Answer {
        let Watch { directory, since } = asked;
        let store = &self.server.data.store;
        let (volume, promises) = (bound.volume, store.promises());
        let nothing = |commit| WatchedAll { commit, changes: Vec::new(), others: false };
        let Some(since) = since else {
            return Ok(answer(nothing(promises.heard_through(&bound.holder))));
        };
        let waiting = timeout(PATIENCE, promises.heard_beyond(&bound.holder, since));
        if self.while_connected(waiting).await?.is_err() {
            return Ok(answer(nothing(since)));
        }
        // Many may have waited for the same commit.
        let Ok(_permit) = self.rooms.small.acquire().await else {
            return Ok(answer(nothing(since)));
        };
        let through = promises.heard_through(&bound.holder);
        let look = move |snapshot: &mut Kv<'_>| -> Result<_, MetaFault> {
            let span = Span { since, through };
            watch::since(snapshot, volume, directory, span)
        };
        let all = store.read(look).await?.map_err(StoreError::from)?;
        Ok(answer(all))
    }
}

fn answer(all: WatchedAll) -> (Reply, Body) {
    (Reply::Watched(all), Body::Empty)
}
