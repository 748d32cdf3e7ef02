//! Who watches a directory is told of changes below it as they are committed, in the order of commits.

use std::collections::BTreeSet;
use std::time::Duration;

use segue_core::namespace::changes::{self, Changed, Span};
use segue_core::namespace::watch::watched;
use segue_core::wire::{Reply, WATCHED_MAX, Watch, WatchedAll};
use segue_rpc::Body;
use tokio::time::timeout;

use super::{Answer, Bound, Session};
use crate::meta::{Kv, MetaFault, StoreError};

/// An answer comes after so long, with changes or without.
const PATIENCE: Duration = Duration::from_secs(10);

impl Session {
    pub(super) async fn watch(&self, bound: &Bound, watch: Watch) -> Answer {
        let Watch { directory, since } = watch;
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
            let (mut all, mut count) = (Changed::default(), 0);
            let commit = changes::since(snapshot, volume, Span { since, through }, |changed| {
                let names = changed.names.values().map(BTreeSet::len).sum::<usize>();
                count += changed.inodes.len() + names;
                all.and(changed);
                count < WATCHED_MAX
            })?;
            match commit {
                Some(commit) => {
                    let changes = watched(snapshot, volume, directory, &all)?;
                    Ok(WatchedAll { commit, changes, others: false })
                }
                None => Ok(WatchedAll { others: true, ..nothing(through) }),
            }
        };
        let all = store.read(look).await?.map_err(StoreError::from)?;
        Ok(answer(all))
    }
}

fn answer(all: WatchedAll) -> (Reply, Body) {
    (Reply::Watched(all), Body::Empty)
}
