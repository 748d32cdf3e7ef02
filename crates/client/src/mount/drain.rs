//! The drain: sends the update log to the server, in order, a batch at a time, and carries out
//! what the answers ask for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::cache::touched;
use segue_core::client::Effect;
use segue_core::modlog::{Change, Entry, Logged, Outcome};
use segue_core::refusal::Refusal;
use segue_core::types::Ino;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::upload::Prepared;
use super::{Mount, Shared, lock};

/// Records in one batch; more only delay the answers that someone waits for.
const BATCH_RECORDS: usize = 64;
/// Bytes of data in one batch, unless one record alone has more.
const BATCH_BYTES: u64 = 8 << 20;
/// A change that nobody waits for may wait this long for company.
const LINGER: Duration = Duration::from_millis(5);
/// The log is rewritten when it is larger than this and everything is settled..
const REWRITE_SETTLED: u64 = 1 << 20;
/// ..or larger than this whatever is pending.
const REWRITE_PENDING: u64 = 64 << 20;
/// After a failure that is not the network's, wait this long.
const PAUSE: Duration = Duration::from_secs(1);

impl Mount {
    /// Sends changes for as long as the mount lives.
    pub(super) async fn drain(self: Shared) {
        loop {
            if self.core().queue.is_empty() {
                self.logged.notified().await;
                continue;
            }
            self.linger().await;
            let batch = self.core().queue.batch(BATCH_RECORDS, BATCH_BYTES);
            if let Err(refusal) = self.send(batch).await {
                tracing::debug!("write-back: {refusal}");
                self.pause().await;
            }
        }
    }

    /// Gives what belongs together the time to get together: create, write, utimes and chmod
    /// of one file travel as one. Nobody who waits is kept waiting by this.
    async fn linger(&self) {
        let end = tokio::time::sleep(LINGER);
        tokio::pin!(end);
        while lock(&self.waiters).is_empty() && self.core().queue.len() < BATCH_RECORDS {
            tokio::select! {
                () = &mut end => return,
                () = self.logged.notified() => {}
            }
        }
    }

    /// Waits until trying again makes sense.
    async fn pause(&self) {
        let mut link = self.remote.link().watch();
        if self.remote.is_offline() {
            link.changed().await.ok();
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The server's outcomes of a batch, or of as much of it as it takes; and whether it is full.
    async fn exchange(
        self: &Shared,
        batch: &mut Vec<Logged>,
    ) -> Result<(Vec<Outcome>, bool), Refusal> {
        let Prepared { records, chunks, is_full } = self.prepare(batch).await?;
        let acked_below = self.acked_below.load(Ordering::Relaxed);
        if let Some(last) = batch.last() {
            self.core().room.sends(last.seq);
        }
        let outcomes = self.remote.apply(records, &chunks, acked_below).await?;
        match (1..=batch.len()).contains(&outcomes.len()) {
            true => Ok((outcomes, is_full)),
            false => Err(Refusal::Protocol),
        }
    }

    /// Sends a batch and settles what is final. An error means that the next attempt has to wait.
    pub(super) async fn send(self: &Shared, mut batch: Vec<Logged>) -> Result<(), Refusal> {
        let (outcomes, is_full) = loop {
            match self.exchange(&mut batch).await {
                // Less of it may fit into a message..
                Err(Refusal::TooLarge) if batch.len() > 1 => batch.truncate(batch.len() / 2),
                // ..and what alone does not never will.
                Err(Refusal::TooLarge) => {
                    break (vec![Outcome::Refused { refusal: Refusal::TooLarge }], false);
                }
                exchanged => break exchanged?,
            }
        };
        for (logged, outcome) in batch.into_iter().zip(outcomes) {
            match outcome {
                Outcome::NeedsWhole if lock(&self.whole).insert(logged.seq) => {}
                // It was whole: something is wrong.
                Outcome::NeedsWhole => return Err(Refusal::Changed),
                // It fits, and others were faster with what they send.
                Outcome::Missing { .. } if is_full => return Err(Refusal::Quota),
                // The next attempt offers all chunks again.
                Outcome::Missing { chunks } => {
                    tracing::debug!("{} chunks are missing for {}", chunks.len(), logged.seq);
                    return Err(Refusal::Changed);
                }
                outcome => {
                    let is_refused = matches!(outcome, Outcome::Refused { .. });
                    self.settle(&logged, outcome)?;
                    if is_refused && let Change::Data(data) = &logged.change {
                        // Its size here is still that of what was refused.
                        self.ask_attr(data.ino).await.ok();
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a final outcome in. Nothing is forgotten before what it leaves behind is on disk;
    /// where that fails nothing has happened, and the change is sent again and answered the
    /// same: the server forgets no outcome whose `Settled` is not durable here.
    fn settle(&self, logged: &Logged, outcome: Outcome) -> Result<(), Refusal> {
        let seq = logged.seq;
        let parking = self.parking(logged, &outcome)?;
        let is_awaited = lock(&self.waiters)
            .get(&seq)
            .is_some_and(|waiting| waiting.iter().any(|tell| !tell.is_closed()));
        if let Some(parking) = parking.as_ref().filter(|_| !is_awaited) {
            self.park(parking)?;
        }
        let effects = self.take_out(seq, &outcome)?;
        lock(&self.whole).remove(&seq);
        let waiting = lock(&self.waiters).remove(&seq).unwrap_or_default();
        let mut claimed = false;
        for tell in waiting {
            claimed |= tell.send(outcome.clone()).is_ok();
        }
        // Whoever waited has stopped just now.
        if let Some(parking) = parking.filter(|_| is_awaited && !claimed) {
            // It fails with words, and the change is settled.
            self.park(&parking).ok();
        }
        for effect in effects {
            self.carry_out(effect, logged, claimed);
        }
        self.reap(logged);
        self.tidy_log();
        self.settled.send_replace(seq + 1);
        Ok(())
    }

    /// Takes the oldest change out of the log and the core. A container that is given up goes
    /// under the same locks: a write is part of the core before, or finds another container.
    fn take_out(&self, seq: u64, outcome: &Outcome) -> Result<Vec<Effect>, Refusal> {
        let mut log = lock(&self.log);
        let logged = log.append(&Entry::Settled { seq });
        logged.map_err(|error| self.disk_refusal("update.log", &error))?;
        let mut core = self.core();
        let effects = core.settle(seq, outcome, self.now());
        for effect in &effects {
            if let Effect::Replace(ino) = effect
                && let Err(refusal) = self.drop_container(*ino)
            {
                tracing::error!("#{ino}: its container stays: {refusal}");
            }
        }
        Ok(effects)
    }

    fn carry_out(&self, effect: Effect, logged: &Logged, claimed: bool) {
        match effect {
            Effect::Replace(_) => {}
            Effect::Conflict { parent, name, .. } => {
                self.kernel_forgets(logged);
                self.kernel.forget_name(parent, name.clone());
                if !claimed {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                    let directory = self.core().tree.path(parent);
                    tracing::warn!("conflict: kept as {directory}/{name}");
                }
            }
            Effect::Refused { .. } => self.kernel_forgets(logged),
        }
    }

    /// What the kernel was told when the change was made is not so.
    fn kernel_forgets(&self, logged: &Logged) {
        match &logged.change {
            Change::Record(record) => {
                let touched = touched(record);
                for (parent, name) in touched.names {
                    self.kernel.forget_name(parent, name);
                }
                touched.inodes.into_iter().for_each(|ino| self.kernel.forget_data(ino));
            }
            Change::Data(data) => self.kernel.forget_data(data.ino),
        }
    }

    /// Drops what is here of files that are gone everywhere.
    fn reap(&self, logged: &Logged) {
        let Change::Record(record) = &logged.change else { return };
        touched(record).inodes.into_iter().for_each(|ino| self.reap_one(ino));
    }

    fn reap_one(&self, ino: Ino) {
        let mut core = self.core();
        if core.is_gone(ino) {
            core.files.remove(&ino);
            core.tree.forget(ino);
            self.drop_local(ino);
        }
    }

    /// The kernel has let go of `ino`, and asks for it by a name if it wants it again.
    pub(crate) fn let_go(&self, ino: Ino) {
        let was_held = self.core().let_go(ino);
        if was_held {
            self.reap_one(ino);
        }
    }

    fn drop_local(&self, ino: Ino) {
        if let Err(error) = self.index.remove(ino) {
            tracing::warn!("index.db: {error}");
        }
        if let Err(error) = self.containers.replace(ino) {
            tracing::warn!("containers: #{ino}: {error}");
        }
    }

    fn tidy_log(&self) {
        let mut log = lock(&self.log);
        let core = self.core();
        let settled = core.queue.is_empty() && core.unsealed().is_empty();
        let limit = if settled { REWRITE_SETTLED } else { REWRITE_PENDING };
        if log.len() < limit {
            return;
        }
        let entries = core.log_entries();
        drop(core);
        if let Err(error) = log.rewrite(&entries) {
            tracing::warn!("update.log: {error}");
        }
    }

    /// Waits for an outcome, but for an unreachable server no longer than `grace`.
    pub(crate) async fn outcome(
        &self,
        mut told: oneshot::Receiver<Outcome>,
    ) -> Result<Outcome, Refusal> {
        let mut link = self.remote.link().watch();
        // Counted from the loss of the link: every failed attempt to connect changes its state.
        let mut until = None;
        loop {
            let offline = self.remote.is_offline();
            if !offline {
                until = None;
            }
            let deadline = *until.get_or_insert_with(|| Instant::now() + self.options.grace);
            tokio::select! {
                outcome = &mut told => return outcome.map_err(|_| Refusal::Unreachable),
                _ = link.changed() => {}
                () = tokio::time::sleep_until(deadline), if offline => {
                    return Err(Refusal::Unreachable);
                }
            }
        }
    }
}
