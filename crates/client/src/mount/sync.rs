//! Durability on this host, progress towards the server, and the clock-driven chores.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::host::cache::Scrap;
use segue_core::host::log::Logged;
use segue_core::host::{Host, call};
use segue_core::refusal::Refusal;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::verify::mend;
use super::why::waits;
use super::{Mount, Shared, lock, wall_millis};
use crate::control::types::{AnyPath, SyncReply};

/// A logged change is durable at most this long after it was made.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Written and still open files go to the server about this often.
const SEAL_EVERY: u32 = 5;
/// Progress of a sync is told this often.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// It is looked so often whether there are inode numbers enough.
const GRANTS_EVERY: Duration = Duration::from_secs(5);
/// Grants of inode numbers that are asked for without a pause: as many as a new host needs.
const GRANTS_AT_ONCE: usize = 4;

/// What a sync waits for.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
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
            Target::Through(seq) => core.queue.up_to(*seq),
            Target::These(seqs) => core.queue.among(seqs),
        };
        (records, bytes.saturating_sub(core.ahead.sent()))
    }
}

impl Mount {
    /// Makes the log durable, with all data that it speaks of and does not have itself. What one
    /// file lacks would cut the log off for all of them after a loss of power.
    pub(crate) async fn sync_disk(self: &Shared) -> Result<(), Refusal> {
        let mount = Shared::clone(self);
        let synced = tokio::task::spawn_blocking(move || mount.sync_disk_now());
        waits(|| "this host's disk".to_owned(), synced).await.map_err(|_| Refusal::Io)?
    }

    pub(super) fn sync_disk_now(&self) -> Result<(), Refusal> {
        let mark = self.log.lock().data_mark();
        self.sync_data().map_err(|error| self.disk_refusal("containers", &error))?;
        let marked = self.log.lock().data_synced(mark);
        let synced = marked.and_then(|()| self.sync_log());
        synced.map_err(|error| self.disk_refusal("update.log", &error))
    }

    /// The same, but that it fails where its disk does.
    pub(super) fn try_sync_disk(&self) -> io::Result<()> {
        let mark = self.log.lock().data_mark();
        self.sync_data()?;
        self.log.lock().data_synced(mark)?;
        self.try_sync_log()
    }

    /// Makes durable what was written and is not in the log.
    fn sync_data(&self) -> io::Result<()> {
        let synced = self.containers.sync().and_then(|()| self.preserved.sync());
        synced.or_else(|error| self.mend(&error))
    }

    fn mend(&self, error: &io::Error) -> io::Result<()> {
        mend(error, &self.log.lock(), &self.containers, &self.preserved)
    }

    /// Makes the log durable, and with it what is settled. Where its disk fails it is written anew.
    fn sync_log(&self) -> io::Result<()> {
        self.try_sync_log().or_else(|error| {
            tracing::error!("cannot sync update.log: {error}; rewriting it");
            self.rewrite_log()
        })
    }

    /// Makes the log durable. Who comes second waits for the first: until that has ended nobody
    /// knows what the disk has.
    pub(super) fn try_sync_log(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let (begun, settled) = {
            let log = self.log.lock();
            (log.begin_sync(), self.core().acked_below())
        };
        if let Some(sync) = begun? {
            let ended = sync.wait();
            self.log.lock().synced(&sync, ended)?;
        }
        self.acked_below.fetch_max(settled, Ordering::Relaxed);
        Ok(())
    }

    /// Writes what the log says anew, in less. The index has all of it before, and all data are
    /// durable: also those that only the log had so far, for the new one has none itself. While it
    /// is locked no more of them come.
    pub(super) fn rewrite_log(&self) -> io::Result<()> {
        self.rewrite_log_if(|| true)
    }

    /// The same if it `is_wanted` once nobody else is at it: who came first may have done it.
    pub(super) fn rewrite_log_if(&self, is_wanted: impl FnOnce() -> bool) -> io::Result<()> {
        let _noting = self.noting.lock();
        if !is_wanted() {
            return Ok(());
        }
        // Most of it before anybody waits for the log.
        let is_settled = self.core().queue.is_empty();
        match is_settled {
            true => self.containers.put_down()?,
            false => self.containers.sync_all().or_else(|error| self.mend(&error))?,
        }
        let mut log = self.log.lock();
        let (notes, entries, settled) = {
            let mut core = self.core();
            (core.take_notes(), core.log_entries(), core.acked_below())
        };
        let synced = match entries.is_empty() {
            true => self.containers.put_down(),
            false => self.containers.sync_all().and_then(|()| self.preserved.sync()),
        };
        // Or the index would be ahead of it, if power went before the new one is there. After a
        // failed sync only the new one can be made durable.
        let synced = synced.and_then(|()| match log.begin_sync() {
            Ok(Some(sync)) => log.synced(&sync, sync.wait()),
            _ => Ok(()),
        });
        let index = |error: rusqlite::Error| io::Error::other(format!("index.db: {error}"));
        let saved = synced.and_then(|()| {
            let gone = self.index.save(&notes, log.position(), wall_millis()).map_err(index)?;
            self.index.sync().map_err(index)?;
            Ok(gone)
        });
        self.core().noted(&notes, saved.is_ok());
        for (ino, container) in saved? {
            self.remove(Scrap::Container(ino, container));
        }
        log.rewrite(&entries)?;
        self.acked_below.fetch_max(settled, Ordering::Relaxed);
        Ok(())
    }

    /// Syncs, seals and notes, once a second.
    pub(super) async fn tick(self: Shared) {
        let mut second: u32 = 0;
        loop {
            tokio::time::sleep(SYNC_EVERY).await;
            second = second.wrapping_add(1);
            self.measure_pending();
            self.note_maps(None).ok();
            self.follow_link();
            self.tidy_log().await;
            if self.log.lock().needs_sync()
                && let Err(refusal) = self.sync_disk().await
            {
                tracing::error!(
                    "changes of the last second may not survive a crash of this host: {refusal}"
                );
            }
            self.tidy().await;
            if second.is_multiple_of(SEAL_EVERY) {
                self.seal_due();
            }
        }
    }

    /// Notes what is known, and removes what nobody needs.
    async fn tidy(self: &Shared) {
        let mount = Shared::clone(self);
        let job = move || {
            mount.core().shrink(mount.now());
            if let Err(refusal) = mount.note() {
                tracing::warn!("the index of the cache is not up to date: {refusal}");
            }
            let in_doubt = mount.core().is_in_doubt();
            if !in_doubt && let Err(error) = lock(&mount.numbers).clear_power_loss() {
                tracing::warn!("cannot write state.json: {error}");
            }
            mount.let_go_of_bases();
            mount.sweep();
        };
        if let Err(error) = tokio::task::spawn_blocking(job).await {
            tracing::error!("{error}");
        }
    }

    /// Has numbers for files that are made without a network, for as long as the mount lives.
    /// Nothing else waits for the server's answer.
    pub(super) async fn keep_numbers(self: Shared) {
        loop {
            tokio::time::sleep(GRANTS_EVERY).await;
            if let Err(refusal) = self.refill_numbers().await {
                tracing::debug!("inode numbers: {refusal}");
            }
        }
    }

    async fn refill_numbers(&self) -> Result<(), Refusal> {
        // A server that grants little, or the same again, is asked again later.
        for _ in 0..GRANTS_AT_ONCE {
            let asks = !self.options.read_only && !self.remote.is_offline();
            if !asks || lock(&self.numbers).are_plenty() {
                break;
            }
            let grant = self.remote.grant().await?;
            let added = lock(&self.numbers).add_grant(grant);
            added.map_err(|error| self.disk_refusal("state.json", &error))?;
        }
        Ok(())
    }

    /// The changes that must be settled for `scope`: what they follow is so before them.
    fn target(&self, scope: &Scope) -> Target {
        match scope {
            Scope::All => self.core().queue.newest_seq().map_or(Target::default(), Target::Through),
            Scope::Below(paths) => Target::These(self.below(paths)),
        }
    }

    /// The changes that touch these files, or what is below these directories.
    pub(super) fn below(&self, paths: &[AnyPath]) -> BTreeSet<u64> {
        let core = self.core();
        let is_meant = |logged: &&Logged| {
            let inodes = logged.change.inodes().into_iter();
            inodes.map(|ino| core.tree.path_bytes(ino)).any(|path| is_below(paths, &path))
        };
        let changes = core.queue.iter().map(|(logged, _)| logged);
        changes.filter(is_meant).map(|logged| logged.seq).collect()
    }

    /// Tells progress until everything of `scope` is on the server's disk (or on this host's,
    /// with `to_server` false). Ends at `timeout`, or with `fail_offline` as soon as the server
    /// cannot be found.
    pub(crate) async fn sync(
        self: Shared,
        scope: Scope,
        to_server: bool,
        timeout: Option<Duration>,
        fail_offline: bool,
        tell: mpsc::Sender<SyncReply>,
    ) {
        let reply = match self.sync_inner(scope, to_server, timeout, fail_offline, &tell).await {
            Ok(reply) => reply,
            Err(refusal) => SyncReply { error: refusal.to_string(), ..SyncReply::default() },
        };
        tell.send(SyncReply { done: true, ..reply }).await.ok();
    }

    async fn sync_inner(
        self: &Shared,
        scope: Scope,
        to_server: bool,
        timeout: Option<Duration>,
        fail_offline: bool,
        tell: &mpsc::Sender<SyncReply>,
    ) -> Result<SyncReply, Refusal> {
        let began = self.now();
        self.note_maps(None)?;
        let mut left = self.seal_all();
        // What was begun goes on all the same.
        match timeout {
            None => self.sync_disk().await?,
            Some(timeout) => match tokio::time::timeout(timeout, self.sync_disk()).await {
                Ok(synced) => synced?,
                Err(_) => {
                    let error = "this host's disk has not written everything yet".into();
                    return Ok(SyncReply { error, ..SyncReply::default() });
                }
            },
        }
        let mut target = if to_server { self.target(&scope) } else { Target::default() };
        if to_server {
            self.send_now();
        }
        let mut settled = self.settled.subscribe();
        let mut telling = None;
        loop {
            let (pending_records, pending_bytes) = target.pending(&self.core());
            let offline = self.remote.is_offline();
            let is_committed = pending_records == 0;
            if is_committed && to_server && !left.is_empty() {
                // What the server knows a further name of goes after all.
                std::mem::take(&mut left).into_iter().for_each(|ino| self.seal_early(ino));
                target = self.target(&scope);
                continue;
            }
            let ok = is_committed && !(to_server && self.is_unseen());
            let denied = offline && self.is_denied();
            let mut reply = SyncReply {
                ok,
                pending_records,
                pending_bytes,
                offline,
                denied,
                ..SyncReply::default()
            };
            let late = timeout.is_some_and(|timeout| self.now().since(began) >= timeout);
            if offline && !is_committed {
                reply.error = self.unreachable_words();
            }
            if is_committed && !ok {
                reply.error = "committed, but other hosts may not have been told yet".into();
                if telling.as_ref().is_none_or(JoinHandle::is_finished) && !offline {
                    telling = Some(self.make_visible());
                }
            }
            if ok || late {
                return Ok(reply);
            }
            if offline && fail_offline {
                if self.remote.link().find().await.is_ok() {
                    continue;
                }
                let (error, denied) = (self.unreachable_words(), self.is_denied());
                return Ok(SyncReply { error, denied, ..reply });
            }
            if tell.send(reply).await.is_err() {
                return Err(Refusal::Unreachable);
            }
            let rest = timeout.map(|timeout| timeout.saturating_sub(self.now().since(began)));
            let wait = rest.map_or(TELL_EVERY, |rest| rest.min(TELL_EVERY));
            tokio::time::timeout(wait, settled.changed()).await.ok();
        }
    }
}

/// True if `path` is one of `tops` or below one. Where nobody knows what something is called it may
/// be.
pub(super) fn is_below(tops: &[AnyPath], path: &[u8]) -> bool {
    tops.iter().any(|top| call::is_below(top.as_bytes(), path))
}
