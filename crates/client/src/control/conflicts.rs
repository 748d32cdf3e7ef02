//! Conflict copies and refused changes, as users ask for them.

use segue_core::refusal::Refusal;

use super::status::find;
use crate::mount::{Mount, Shared};
use crate::replies::{Conflict, ConflictKind};

/// Hears of them until the mount ends.
pub(crate) async fn hear_of_copies(mount: Shared) {
    loop {
        let since = mount.disk.for_user.beside.since();
        match mount.remote.watch_copies(since).await {
            Ok(all) => mount.disk.for_user.beside.hear(&all),
            Err(refusal) => {
                tracing::debug!("conflict copies are not told of: {refusal}");
                mount.write_back.pause().await;
            }
        }
    }
}

/// Those that are there. Of others the server may not have told that they are gone.
async fn copies_beside_now(mount: &Mount) -> Vec<Conflict> {
    let mut there = mount.disk.for_user.beside.copies();
    for copy in std::mem::take(&mut there) {
        match find(mount, copy.path.as_bytes()).await {
            Err(refusal) if refusal != Refusal::Unreachable && refusal != Refusal::Io => {
                mount.disk.for_user.beside.forget(&copy.path);
            }
            _ => there.push(copy),
        }
    }
    there
}

/// The copies that this host's changes became, those of which only that is known, and the
/// changes that were refused. Of those that are gone, as somebody else has dealt with them,
/// nothing is known any more.
pub(super) async fn conflict_list(mount: &Mount) -> Vec<Conflict> {
    let mut list = Vec::new();
    let copies = mount.disk.for_user.conflicts.lock().list();
    for kept in copies {
        let Some((parent, name)) = kept.place() else { continue };
        let found = mount.lookup(parent, &name).await;
        if matches!(found, Ok(None) | Err(Refusal::Stale)) {
            mount.disk.for_user.conflicts.lock().forget(parent, name.as_bytes());
            continue;
        }
        let attr = found.ok().flatten();
        list.push(Conflict {
            kind: ConflictKind::Copy,
            path: format!("{}/{name}", mount.host.lock().tree().path(parent)),
            of: kept.of,
            bytes: attr.map_or(0, |attr| attr.size),
            time_seconds: kept.time_seconds,
            ..Conflict::default()
        });
    }
    list.extend(mount.disk.for_user.conflicts.lock().unreadable());
    list.extend(mount.disk.for_user.refused.list());
    list.extend(copies_beside_now(mount).await);
    list
}

/// The copy at `path` stays as it is, and is none any more. False if there was none.
pub(super) async fn keep_both(mount: &Mount, path: &str) -> bool {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let Ok(parent) = find(mount, directory.as_bytes()).await else { return false };
    mount.disk.for_user.conflicts.lock().forget(parent.ino, name.as_bytes())
}
