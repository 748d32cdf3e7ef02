//! Who watches a directory is told of changes below it as they are committed, in the order of
//! commits.

use std::time::{Duration, Instant};

use segue_core::namespace::changes::Span;
use segue_core::namespace::watch;
use segue_core::wire::{Refused, Reply, Watch, WatchedAll};
use segue_rpc::Body;
use tokio::time::timeout;

use super::{Answer, Bound, Session};
use crate::meta::{Kv, MetaFault, StoreError};

/// An answer comes after so long, with changes or without.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same of copies, which every mount waits for: an idle link stays idle.
const COPIES_PATIENCE: Duration = Duration::from_secs(600);
/// Commits are looked at for copies at most so often.
const COPIES_EVERY: Duration = Duration::from_secs(1);

impl Session {
    pub(super) async fn watch(&self, bound: &Bound, mut asked: Watch) -> Answer {
        if !asked.copies || asked.since.is_none() {
            return self.watch_once(bound, asked, PATIENCE).await.map(answer);
        }
        let began = Instant::now();
        loop {
            let left = COPIES_PATIENCE.saturating_sub(began.elapsed());
            let all = self.watch_once(bound, asked, left).await?;
            if !all.changes.is_empty() || began.elapsed() >= COPIES_PATIENCE {
                return Ok(answer(all));
            }
            asked.since = Some(all.commit);
            self.while_connected(tokio::time::sleep(COPIES_EVERY)).await?;
        }
    }

    /// The changes after the next commit, or none after `patience`.
    async fn watch_once(
        &self,
        bound: &Bound,
        asked: Watch,
        patience: Duration,
    ) -> Result<WatchedAll, Refused> {
        let Watch { directory, since, copies } = asked;
        let store = &self.server.data.store;
        let (volume, client, promises) = (bound.volume, bound.client, store.promises());
        let nothing = |commit| WatchedAll { commit, changes: Vec::new(), others: false };
        let Some(since) = since else {
            return Ok(nothing(promises.heard_through(&bound.holder)));
        };
        let waiting = timeout(patience, promises.heard_beyond(&bound.holder, since));
        if self.while_connected(waiting).await?.is_err() {
            return Ok(nothing(since));
        }
        // Many may have waited for the same commit.
        let Ok(_permit) = self.rooms.small.acquire().await else {
            return Ok(nothing(since));
        };
        let through = promises.heard_through(&bound.holder);
        let look = move |snapshot: &mut Kv<'_>| -> Result<_, MetaFault> {
            let span = Span { since, through };
            match copies {
                true => watch::copies_since(snapshot, (volume, client), span),
                false => watch::since(snapshot, volume, directory, span),
            }
        };
        Ok(store.read(look).await?.map_err(StoreError::from)?)
    }
}

fn answer(all: WatchedAll) -> (Reply, Body) {
    (Reply::Watched(all), Body::Empty)
}
