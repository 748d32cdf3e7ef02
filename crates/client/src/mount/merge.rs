//! The task that has duplicates merged, each by a [`Call::Merge`].

use std::collections::BTreeSet;
use std::time::Duration;

use segue_core::host::call::Call;
use segue_core::host::conflict::may_merge_later;

use crate::mount::Shared;

/// A merge that could not be made is tried again after this, and after twice as long each time that
/// it fails.
const AGAIN: Duration = Duration::from_secs(5);
/// But no later than this.
const AGAIN_MAX: Duration = Duration::from_secs(5 * 60);

/// Merges for as long as the mount lives.
pub(super) async fn merge_what_was_made_twice(mount: Shared) {
    // As far as this process tried: the next one may be luckier.
    let mut given_up = BTreeSet::new();
    let mut pause = AGAIN;
    loop {
        let mut left = false;
        let kept = mount.disk.for_user.conflicts.lock().list();
        for kept in kept {
            let Some(duplicate) = kept.duplicate() else { continue };
            let (ino, at) = (duplicate.ino, duplicate.at.clone());
            if given_up.contains(&ino) {
                continue;
            }
            match mount.shell.call_asking(Call::Merge(duplicate)).await {
                Ok(_) => {
                    mount.disk.for_user.conflicts.lock().forget(at.parent, at.name.as_bytes());
                    pause = AGAIN;
                }
                Err(refusal) if may_merge_later(refusal) => left = true,
                Err(refusal) => {
                    tracing::warn!("{}: this conflict copy is not merged: {refusal}", kept.path);
                    given_up.insert(ino);
                }
            }
        }
        tokio::select! {
            () = mount.wakes.merges.notified() => pause = AGAIN,
            () = tokio::time::sleep(pause), if left => pause = (2 * pause).min(AGAIN_MAX),
        }
    }
}
