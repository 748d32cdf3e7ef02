//! Progress towards the server.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use segue_core::host::Host;
use segue_core::host::call::Seals;
use segue_core::refusal::Refusal;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::status::{is_denied, unreachable_words};
use crate::mount::{Mount, Shared};
use crate::replies::{AnyPath, SyncReply};

/// Progress of a sync is told this often.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// What a sync waits for.
#[derive(Clone, Debug)]
pub(super) enum Scope {
    /// Everything.
    All,
    /// These files, and everything below these directories.
    Below(Vec<AnyPath>),
}

/// Changes that somebody waits for.
#[derive(Debug)]
enum Target {
    /// All up to this one.
    Through(u64),
    /// These.
    These(BTreeSet<u64>),
}

impl Default for Target {
    fn default() -> Target {
        Target::These(BTreeSet::new())
    }
}

impl Target {
    /// How many of them are not settled, and how many bytes of data these have.
    fn pending(&self, core: &Host) -> (u64, u64) {
        let (records, bytes) = match self {
            Target::Through(seq) => core.queue().up_to(*seq),
            Target::These(seqs) => core.queue().among(seqs),
        };
        (records, bytes.saturating_sub(core.ahead().sent()))
    }
}

/// The changes that must be settled for `scope`: what they follow is so before them.
fn target_of(mount: &Mount, scope: &Scope) -> Target {
    match scope {
        Scope::All => {
            mount.host.lock().queue().newest_seq().map_or(Target::default(), Target::Through)
        }
        Scope::Below(paths) => Target::These(mount.host.lock().changes_below(&tops(paths))),
    }
}

/// How many changes of `scope` the server refused, before this wait or in it, and are kept here.
/// One of which the path is not known may be anywhere.
fn refused_in(mount: &Mount, scope: &Scope) -> u64 {
    let refused = &mount.disk.for_user.refused;
    match scope {
        Scope::Below(paths) if refused.count() > 0 => {
            let tops: Vec<_> =
                paths.iter().map(|path| String::from_utf8_lossy(path.as_bytes())).collect();
            let is_below = |path: &str| {
                let is_unknown = path.is_empty() || path.starts_with('#');
                is_unknown || tops.iter().any(|top| Path::new(path).starts_with(&**top))
            };
            refused.list().iter().filter(|change| is_below(&change.path)).count() as u64
        }
        _ => refused.count(),
    }
}

/// Paths in the volume, for the host.
pub(super) fn tops(paths: &[AnyPath]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| path.as_bytes().to_vec()).collect()
}

/// Tells progress until everything of `scope` is on the server's disk (or on this host's,
/// with `to_server` false). Ends at `timeout`, or with `fail_offline` as soon as the server
/// cannot be found.
pub(crate) async fn sync(
    mount: Shared,
    scope: Scope,
    to_server: bool,
    timeout: Option<Duration>,
    fail_offline: bool,
    tell: mpsc::Sender<SyncReply>,
) {
    let reply = match sync_inner(&mount, scope, to_server, timeout, fail_offline, &tell).await {
        Ok(reply) => reply,
        Err(refusal) => SyncReply { error: refusal.to_string(), ..SyncReply::default() },
    };
    tell.send(SyncReply { done: true, ..reply }).await.ok();
}

async fn sync_inner(
    mount: &Shared,
    scope: Scope,
    to_server: bool,
    timeout: Option<Duration>,
    fail_offline: bool,
    tell: &mpsc::Sender<SyncReply>,
) -> Result<SyncReply, Refusal> {
    let began = mount.host.now();
    let mut left = mount.shell.seal_all(Seals::Decided)?;
    // What was begun goes on all the same.
    match timeout {
        None => mount.disk.sync_disk().await?,
        Some(timeout) => match tokio::time::timeout(timeout, mount.disk.sync_disk()).await {
            Ok(synced) => synced?,
            Err(_) => {
                let error = "this host's disk has not written everything yet".into();
                return Ok(SyncReply { error, ..SyncReply::default() });
            }
        },
    }
    let mut target = if to_server { target_of(mount, &scope) } else { Target::default() };
    if to_server {
        mount.shell.send_now();
    }
    let mut settled = mount.wakes.settled.subscribe();
    let mut telling = None;
    loop {
        let (pending_records, pending_bytes) = target.pending(&mount.host.lock());
        let offline = mount.remote.is_offline();
        let is_committed = pending_records == 0;
        if is_committed && to_server && !left.is_empty() {
            // What the server knows a further name of goes after all.
            mount.shell.seal_all(Seals::These(std::mem::take(&mut left)))?;
            target = target_of(mount, &scope);
            continue;
        }
        let ok = is_committed && !(to_server && mount.shell.is_unseen());
        let denied = offline && is_denied(mount);
        let mut reply = SyncReply {
            ok,
            pending_records,
            pending_bytes,
            offline,
            denied,
            ..SyncReply::default()
        };
        let late = timeout.is_some_and(|timeout| mount.host.now().since(began) >= timeout);
        if offline && !is_committed {
            reply.error = unreachable_words(mount);
        }
        if is_committed && !ok {
            reply.error = "committed, but other hosts may not have been told yet".into();
            if telling.as_ref().is_none_or(JoinHandle::is_finished) && !offline {
                telling = Some(mount.shell.make_visible());
            }
        }
        if ok || late {
            reply.refused = if to_server { refused_in(mount, &scope) } else { 0 };
            return Ok(reply);
        }
        if offline && fail_offline {
            if mount.remote.link().find().await.is_ok() {
                continue;
            }
            let (error, denied) = (unreachable_words(mount), is_denied(mount));
            return Ok(SyncReply { error, denied, ..reply });
        }
        if tell.send(reply).await.is_err() {
            return Err(Refusal::Unreachable);
        }
        let rest = timeout.map(|timeout| timeout.saturating_sub(mount.host.now().since(began)));
        let wait = rest.map_or(TELL_EVERY, |rest| rest.min(TELL_EVERY));
        tokio::time::timeout(wait, settled.changed()).await.ok();
    }
}
