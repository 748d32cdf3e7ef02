//! The chores that are due every few seconds.

use std::sync::Arc;
use std::time::Duration;

use segue_core::refusal::Refusal;

use crate::mount::{Mount, Shared};

/// A logged change is durable at most this long after it was made.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// It is looked so often whether there are inode numbers enough.
const GRANTS_EVERY: Duration = Duration::from_secs(5);
/// Grants of inode numbers that are asked for without a pause: as many as a new host needs.
const GRANTS_AT_ONCE: usize = 4;

/// Syncs and notes, once a second.
pub(crate) async fn tick(mount: Shared) {
    loop {
        tokio::time::sleep(SYNC_EVERY).await;
        mount.disk.measure_pending();
        mount.shell.note_maps(None).ok();
        mount.shell.fetcher.follow_link();
        mount.disk.tidy_log().await;
        if mount.disk.log.lock().needs_sync()
            && let Err(refusal) = mount.disk.sync_disk().await
        {
            tracing::error!(
                "changes of the last second may not survive a crash of this host: {refusal}"
            );
        }
        tidy(&mount).await;
    }
}

/// Notes what is known, and removes what nobody needs.
pub(crate) async fn tidy(mount: &Shared) {
    let mount = Arc::clone(mount);
    let job = move || {
        if cfg!(debug_assertions) {
            mount.host.lock().check_invariants();
        }
        mount.host.lock().shrink(mount.host.now());
        let is_due = mount.host.lock().notes_now(mount.host.now());
        if is_due && let Err(refusal) = mount.disk.note() {
            tracing::warn!("the index of the cache is not up to date: {refusal}");
        }
        let in_doubt = mount.host.lock().is_in_doubt();
        if !in_doubt && let Err(error) = mount.disk.numbers.lock().clear_power_loss() {
            tracing::warn!("cannot write state.json: {error}");
        }
        mount.disk.let_go_of_bases();
        mount.disk.sweep();
    };
    if let Err(error) = tokio::task::spawn_blocking(job).await {
        tracing::error!("{error}");
    }
}

/// Has numbers for files that are made without a network, for as long as the mount lives.
/// Nothing else waits for the server's answer.
pub(super) async fn keep_numbers(mount: Shared) {
    loop {
        tokio::time::sleep(GRANTS_EVERY).await;
        if let Err(refusal) = refill_numbers(&mount).await {
            tracing::debug!("inode numbers: {refusal}");
        }
    }
}

async fn refill_numbers(mount: &Mount) -> Result<(), Refusal> {
    // A server that grants little, or the same again, is asked again later.
    for _ in 0..GRANTS_AT_ONCE {
        let asks = !mount.volume.options.read_only && !mount.remote.is_offline();
        if !asks || mount.disk.numbers.lock().are_plenty() {
            break;
        }
        let grant = mount.remote.grant().await?;
        let added = mount.disk.numbers.lock().add_grant(grant);
        added.map_err(|error| mount.disk.disk_refusal("state.json", &error))?;
    }
    Ok(())
}
