//! Durability of the log and of the bytes that it names; rewriting of the log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use segue_core::host::cache::Scrap;
use segue_core::refusal::Refusal;

use crate::clock::wall_millis;
use crate::disk::CacheDisk;
use crate::disk::files::DataMark;
use crate::disk::verify::mend;
use crate::waits::waits;

/// The log is rewritten when so much was added since it was written last, or as much as it had
/// then, and everything is settled, and nothing was added in the last second..
const REWRITE_QUIET: u64 = 1 << 20;
/// ..or this, and everything is settled. Writers wait for the disk meanwhile..
const REWRITE_SETTLED: u64 = 16 << 20;
/// ..or this, whatever is pending.
const REWRITE_PENDING: u64 = 64 << 20;

/// True if a log to which so much was added is to be written anew. Writers are held up meanwhile,
/// so it is done in a pause, if there is one.
fn wants_rewriting(
    is_long: impl Fn(u64) -> bool,
    is_quiet: bool,
    is_settled: impl Fn() -> bool,
) -> bool {
    let least = if is_quiet { REWRITE_QUIET } else { REWRITE_SETTLED };
    is_long(least) && (is_long(REWRITE_PENDING) || is_settled())
}

impl CacheDisk {
    /// Measures the pending bytes. Called once a second, it notes whether the log is quiet.
    pub(crate) fn measure_pending(&self) {
        let (len, position) = {
            let log = self.log.lock();
            (log.len(), log.position())
        };
        let before = self.measured.lock().replace(position);
        self.is_log_quiet.store(before == Some(position), Ordering::Relaxed);
        self.host.lock().measure_pending(len);
    }

    /// Writes the log anew where that is worth its while, on a thread that may wait for the disk.
    pub(crate) async fn tidy_log(self: &Arc<Self>) {
        if !self.is_log_long() {
            return;
        }
        let disk = Arc::clone(self);
        let job = move || disk.rewrite_log_if(|| disk.is_log_long());
        match tokio::task::spawn_blocking(job).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cannot rewrite update.log: {error}"),
            Err(error) => tracing::error!("{error}"),
        }
    }

    fn is_log_long(&self) -> bool {
        // What is dead in it counts against the bound as well.
        let most = self.volume.options.log_max / 8;
        let is_long = |bytes: u64| self.log.lock().is_worth_rewriting(bytes.min(most));
        let is_settled = || {
            let core = self.host.lock();
            core.queue().is_empty() && !core.has_unsealed()
        };
        wants_rewriting(is_long, self.is_log_quiet.load(Ordering::Relaxed), is_settled)
    }

    /// Makes the log durable, with all data that it speaks of and does not have itself. What one
    /// file lacks would cut the log off for all of them after a loss of power.
    pub(crate) async fn sync_disk(self: &Arc<Self>) -> Result<(), Refusal> {
        let disk = Arc::clone(self);
        let synced = tokio::task::spawn_blocking(move || disk.sync_disk_now());
        waits(|| "this host's disk".to_owned(), synced).await.map_err(|_| Refusal::Io)?
    }

    fn sync_disk_now(&self) -> Result<(), Refusal> {
        self.or_rewritten(self.sync_overwritten())
            .map_err(|error| self.disk_refusal("preserved", &error))?;
        let (mark, settled) = self.data_mark();
        self.sync_data().map_err(|error| self.disk_refusal("containers", &error))?;
        let marked = self.log.lock().data_synced(mark);
        let synced = marked.and_then(|()| self.sync_log());
        synced.map_err(|error| self.disk_refusal("update.log", &error))?;
        self.settled_durably(settled);
        Ok(())
    }

    /// The same, but that it fails where its disk does.
    pub(crate) fn try_sync_disk(&self) -> io::Result<()> {
        self.sync_overwritten()?;
        let (mark, settled) = self.data_mark();
        self.sync_data()?;
        self.log.lock().data_synced(mark)?;
        self.try_sync_log()?;
        self.settled_durably(settled);
        Ok(())
    }

    /// The place in the log up to which the data are about to be durable, and below which seq all
    /// is settled there.
    fn data_mark(&self) -> (DataMark, u64) {
        let log = self.log.lock();
        (log.data_mark(), self.host.lock().acked_below())
    }

    /// A loss of power leaves the outcomes of all changes below this seq: the server may forget
    /// them. It would cut the log off at the first entry without its data, so these are durable.
    fn settled_durably(&self, below: u64) {
        self.acked_below.fetch_max(below, Ordering::Relaxed);
    }

    /// Makes the overwritten bytes of changes durable. If there were any, the log goes next, which
    /// says where they are, and then the containers. If one was durable alone, a loss of power
    /// would leave the change with later bytes than its own. Who comes second waits for all of it.
    fn sync_overwritten(&self) -> io::Result<()> {
        let mut is_log_next = self.overwriting.lock();
        if self.preserved.needs_sync() {
            *is_log_next = true;
            self.preserved.sync().or_else(|error| self.mend(&error))?;
        }
        if *is_log_next {
            self.try_sync_log()?;
            *is_log_next = false;
        }
        Ok(())
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
        self.or_rewritten(self.try_sync_log())
    }

    fn or_rewritten(&self, synced: io::Result<()>) -> io::Result<()> {
        synced.or_else(|error| {
            tracing::error!("cannot sync update.log: {error}; rewriting it");
            self.rewrite_log()
        })
    }

    /// Makes the log durable. Who comes second waits for the first: until that has ended nobody
    /// knows what the disk has.
    fn try_sync_log(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let begun = self.log.lock().begin_sync();
        if let Some(sync) = begun? {
            let ended = sync.wait();
            self.log.lock().synced(&sync, ended)?;
        }
        Ok(())
    }

    /// Writes what the log says anew, in less. The index has all of it before, and all data are
    /// durable: also those that only the log had so far, for the new one has none itself. While it
    /// is locked no more of them come.
    fn rewrite_log(&self) -> io::Result<()> {
        self.rewrite_log_if(|| true)
    }

    /// The same if it `is_wanted` once nobody else is at it: who came first may have done it.
    fn rewrite_log_if(&self, is_wanted: impl FnOnce() -> bool) -> io::Result<()> {
        let _noting = self.noting.lock();
        if !is_wanted() {
            return Ok(());
        }
        // A log that cannot be synced is about to be written anew.
        if let Err(error) = self.sync_overwritten()
            && self.preserved.needs_sync()
        {
            return Err(error);
        }
        self.let_young_go();
        // Most of it before anybody waits for the log.
        let is_settled = self.host.lock().queue().is_empty();
        match is_settled {
            true => self.containers.put_down()?,
            false => self.containers.sync_all().or_else(|error| self.mend(&error))?,
        }
        let mut log = self.log.lock();
        let (notes, entries, settled) = {
            let mut core = self.host.lock();
            (core.take_notes(), core.log_entries(), core.acked_below())
        };
        // Or the index would be ahead of it, if power went before the new one is there. After a
        // failed sync only the new one can be made durable.
        let synced = self.preserved.sync().and_then(|()| match log.begin_sync() {
            Ok(Some(sync)) => log.synced(&sync, sync.wait()),
            _ => Ok(()),
        });
        self.let_young_go();
        let synced = synced.and_then(|()| match entries.is_empty() {
            true => self.containers.put_down(),
            false => self.containers.sync_all(),
        });
        let index = |error: rusqlite::Error| io::Error::other(format!("index.db: {error}"));
        let saved = synced.and_then(|()| {
            let gone = self.index.save(&notes, log.position(), wall_millis()).map_err(index)?;
            self.index.sync().map_err(index)?;
            Ok(gone)
        });
        self.host.lock().noted(&notes, saved.is_ok());
        for (ino, container) in saved? {
            self.remove(Scrap::Container(ino, container));
        }
        log.rewrite(&entries)?;
        self.settled_durably(settled);
        Ok(())
    }
}

impl CacheDisk {
    /// Leaves the cache directory in order: all of it durable.
    pub(crate) async fn end(self: &Arc<Self>) -> Result<(), Refusal> {
        let disk = Arc::clone(self);
        let end = move || {
            disk.log.lock().finish();
            disk.sync_disk_now()?;
            disk.note()?;
            disk.sweep();
            let synced = disk.containers.sync_all();
            synced.map_err(|error| disk.disk_refusal("containers", &error))?;
            disk.index.sync().map_err(|error| {
                tracing::error!("cannot sync index.db: {error}");
                Refusal::Io
            })?;
            let clean = disk.numbers.lock().mark_clean();
            clean.map_err(|error| disk.disk_refusal("state.json", &error))
        };
        tokio::task::spawn_blocking(end).await.map_err(|_| Refusal::Io)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was written anew after each megabyte, for which a thousand small files waited once or
    /// twice.
    #[test]
    fn the_log_is_written_anew_in_a_pause_or_when_it_is_long() {
        let wants = |added: u64, is_quiet, is_settled| {
            wants_rewriting(|bytes| added >= bytes, is_quiet, || is_settled)
        };
        assert!(wants(REWRITE_QUIET, true, true) && !wants(REWRITE_QUIET - 1, true, true));
        assert!(!wants(REWRITE_QUIET, true, false));
        assert!(wants(REWRITE_SETTLED, false, true) && !wants(REWRITE_SETTLED - 1, false, true));
        assert!(!wants(REWRITE_SETTLED, false, false));
        assert!(wants(REWRITE_PENDING, false, false));
    }
}
