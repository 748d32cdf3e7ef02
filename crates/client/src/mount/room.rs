//! What quotas have left: asked for now and then, so that what will not fit is refused at once.

use std::collections::BTreeSet;
use std::time::Duration;

use segue_core::nouns::Ino;

use crate::mount::Shared;

/// The server is asked no more often than this.
const PERIOD: Duration = Duration::from_secs(2);

/// Asks the server at first, and when something is changed, for as long as the mount lives.
pub(super) async fn watch_room(mount: Shared) {
    let mut quotas = BTreeSet::from([None]);
    loop {
        for quota in quotas {
            let answer = mount.remote.to_refresh().space(quota.unwrap_or(Ino::ROOT)).await;
            match answer {
                Ok(space) => {
                    let now = mount.host.now();
                    mount.note_space(quota, space);
                    mount.host.lock().told_space(quota, &space, now);
                }
                Err(refusal) => tracing::debug!("the space left is not known: {refusal}"),
            }
        }
        tokio::time::sleep(PERIOD).await;
        mount.wakes.short_of_room.notified().await;
        quotas = mount.host.lock().quotas_to_ask();
    }
}
