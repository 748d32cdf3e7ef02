//! The drain: sends the update log to the server, a batch of each lane at a time, and carries out
//! what the answers ask for.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::host::cache::AsOf;
use segue_core::host::call::{Call, Settle};
use segue_core::host::log::{Change, Lane, Logged};
use segue_core::host::send::Without;
use segue_core::nouns::{INLINE_MAX, Ino, Outcome, Stamped, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::Applied;
use segue_rpc::LinkState;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::upload::Prepared;
use super::{Mount, Shared, lock};
use crate::remote::WireChunk;

/// So many changes are company enough.
const COMPANY: usize = 64;
/// Outcomes taken in under one lock.
const SETTLE_MAX: usize = 64;
/// A change that nobody waits for may wait this long for company.
const LINGER: Duration = Duration::from_millis(5);
/// The log is rewritten when so much was added since it was written last, or as much as it had
/// then, and everything is settled..
const REWRITE_SETTLED: u64 = 1 << 20;
/// ..or this, whatever is pending.
const REWRITE_PENDING: u64 = 64 << 20;
/// After a failure that is not the network's, wait this long.
const PAUSE: Duration = Duration::from_secs(1);

/// How one lane fares.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// There may be something to send.
    wakes: Notify,
    /// Why the last batch could not be sent, if it could not.
    hindered: Mutex<Option<Refusal>>,
}

/// All lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    metadata: Sending,
    fast: Sending,
    data: Sending,
    /// Wakes the calls that carry something when a user pushes: it may be what they carry.
    pub(super) pushed: watch::Sender<()>,
}

impl Lanes {
    pub(super) fn of(&self, lane: Lane) -> &Sending {
        match lane {
            Lane::Metadata => &self.metadata,
            Lane::Fast => &self.fast,
            Lane::Data => &self.data,
        }
    }

    /// There may be something to send.
    pub(super) fn wake(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.of(lane).wakes.notify_one());
    }

    /// Why something could not be sent, if there is such a reason.
    pub(super) fn hindered(&self) -> Option<Refusal> {
        Lane::ALL.into_iter().find_map(|lane| *lock(&self.of(lane).hindered))
    }
}

/// What the server answered to a batch.
struct Exchanged {
    /// Of as much of it as it took.
    outcomes: Vec<Outcome>,
    as_of: AsOf,
    /// Which session was told of all up to which commit, when that was asked for.
    heard: Option<(u64, u64, Time)>,
    /// Why the server takes no chunks, if it takes none.
    full: Option<Refusal>,
}

/// Outcomes, from when they are, and which session was told of all up to which commit.
type Answered = (Vec<Outcome>, AsOf, Option<(u64, u64, Time)>);

/// True if the server stores chunks for a change.
fn has_chunks(change: &Change) -> bool {
    change.bytes() > INLINE_MAX as u64
}

impl Mount {
    /// Sends changes of a lane for as long as the mount lives.
    pub(super) async fn drain(self: Shared, lane: Lane) {
        let sending = self.lanes.of(lane);
        loop {
            // What nobody can send is not taken: it may become part of what comes later, or be
            // cancelled.
            self.reachable().await;
            if lane == Lane::Metadata {
                self.linger().await;
            }
            let batch = self.next_batch(lane);
            if batch.is_empty() {
                tokio::select! {
                    () = sending.wakes.notified() => {}
                    () = self.company_came() => {}
                }
                continue;
            }
            let sent = self.send(lane, batch).await;
            // What waited for these may go in the other one.
            self.lanes.wake();
            *lock(&sending.hindered) = sent.err();
            if let Err(refusal) = sent {
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
        let is_awaited = || !self.core().waiters.is_empty();
        let is_long = || self.core().queue.len() >= COMPANY;
        while !is_awaited() && !is_long() {
            tokio::select! {
                () = &mut end => return,
                () = self.lanes.of(Lane::Metadata).wakes.notified() => {}
            }
        }
    }

    /// Waits until there is a connection.
    async fn reachable(&self) {
        let mut link = self.remote.link().watch();
        if link.wait_for(|state| matches!(state, LinkState::Online { .. })).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until trying again makes sense.
    pub(super) async fn pause(&self) {
        let mut link = self.remote.link().watch();
        if self.remote.is_offline() {
            link.changed().await.ok();
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The server's outcomes of a batch, or of as much of it as it takes. `None` if the batch has
    /// to wait for other changes.
    async fn exchange(
        self: &Shared,
        lane: Lane,
        batch: &mut Vec<Logged>,
    ) -> Result<Option<Exchanged>, Refusal> {
        let mut prepared = self.prepare(lane.class(), batch).await?;
        while let Some(Prepared { records, chunks, full }) = prepared {
            let brings = !chunks.is_empty();
            let refusal = match self.ask(lane, batch, (records, &chunks)).await {
                Err(refusal @ Refusal::NoSpace) if brings => refusal,
                Err(refusal) => return Err(refusal),
                Ok((outcomes, as_of, heard)) => {
                    if full.is_none() && batch.iter().any(|logged| has_chunks(&logged.change)) {
                        self.core().note_chunks_taken();
                    }
                    return Ok(Some(Exchanged { outcomes, as_of, heard, full }));
                }
            };
            prepared = match self.without_chunks(batch, refusal)? {
                Without::Fewer => self.prepare(lane.class(), batch).await?,
                Without::Later => None,
                Without::Named => Some(self.named(lane.class(), batch, refusal).await?),
            };
        }
        Ok(None)
    }

    /// Asks the server for the outcomes of a batch.
    async fn ask(
        self: &Shared,
        lane: Lane,
        batch: &[Logged],
        (records, chunks): (Vec<Stamped>, &[WireChunk]),
    ) -> Result<Answered, Refusal> {
        let is_rewritten = |logged: &Logged| self.core().queue.is_rewritten(logged.seq);
        if !self.remote.is_offline() && batch.iter().any(is_rewritten) {
            self.sync_disk().await?;
        }
        let acked_below = self.acked_below.load(Ordering::Relaxed);
        if self.remote.is_offline() {
            // It was not sent, and may still be cancelled.
            return Err(Refusal::Unreachable);
        }
        self.core().mark_sending(batch, self.now());
        let (asked, began) = (self.now(), Instant::now());
        let remote = &self.remote;
        let apply = |rpc| async move { remote.apply(&rpc, records, chunks, acked_below).await };
        let applied = self.until_due(lane.class(), apply).await;
        let (Applied { outcomes, visible, heard, .. }, promised) = applied?;
        let (now, session) = (self.now(), promised.as_ref().map(|promised| promised.session));
        let round_trip = self.remote.link().stats().map_or(Duration::ZERO, |stats| stats.rtt);
        let as_of = {
            let mut core = self.core();
            core.batch_answered(lane, batch, began.elapsed(), round_trip);
            core.tree.as_of(promised, [asked, now])
        };
        let heard = session.map(|session| (session, heard, asked));
        lock(&self.unseen).answered(visible, now);
        match (1..=batch.len()).contains(&outcomes.len()) {
            true => Ok((outcomes, as_of, heard)),
            false => Err(Refusal::Protocol),
        }
    }

    /// Sends a batch, settles what is final, and puts the rest back. An error means that the next
    /// attempt has to wait.
    pub(super) async fn send(
        self: &Shared,
        lane: Lane,
        mut batch: Vec<Logged>,
    ) -> Result<(), Refusal> {
        let exchanged = loop {
            match self.exchange(lane, &mut batch).await {
                // Less of it may fit into a message..
                Err(Refusal::TooLarge) if batch.len() > 1 => self.core().halve(&mut batch),
                // ..and what alone does not never will.
                Err(Refusal::TooLarge) => {
                    break Ok(Some(Exchanged {
                        outcomes: vec![Outcome::Refused { refusal: Refusal::TooLarge }],
                        as_of: self.core().tree.as_of(None, [self.now(); 2]),
                        heard: None,
                        full: None,
                    }));
                }
                exchanged => break exchanged,
            }
        };
        let seqs: Vec<u64> = batch.iter().map(|logged| logged.seq).collect();
        let sent = match exchanged {
            Ok(Some(exchanged)) => self.take_in(batch, exchanged).await,
            Ok(None) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        self.core_ahead().put_back(seqs);
        sent
    }

    /// Takes in what the server answered to a batch.
    async fn take_in(
        self: &Shared,
        batch: Vec<Logged>,
        Exchanged { outcomes, as_of, heard, full }: Exchanged,
    ) -> Result<(), Refusal> {
        let (Settle { answered, as_of }, not_yet) = Settle::of_batch(batch, outcomes, as_of);
        for slice in answered.chunks(SETTLE_MAX) {
            self.flush_maps_of_released(slice).await;
            let settle = Settle { answered: slice.to_vec(), as_of: as_of.clone() };
            self.call(Call::Settle(Arc::new(settle)))?;
        }
        if let Some((session, commit, asked)) = heard {
            self.core().tree.heard_through(session, commit, asked);
        }
        self.tidy_log().await;
        for (logged, outcome) in answered {
            if let (Outcome::Refused { .. }, Change::Data(data)) = (outcome, &logged.change) {
                // Its size here is still that of what was refused.
                self.ask_attr(data.ino).await.ok();
            }
        }
        match not_yet {
            Some((logged, outcome)) => self.core().not_yet(logged.seq, &outcome, full),
            None => Ok(()),
        }
    }

    /// How a batch goes on whose chunks the server did not take.
    pub(super) fn without_chunks(
        &self,
        batch: &mut Vec<Logged>,
        refusal: Refusal,
    ) -> Result<Without, Refusal> {
        self.core_ahead().without_chunks(batch, refusal, self.now())
    }

    pub(super) fn reap_one(&self, ino: Ino) {
        let mut core = self.core();
        if core.is_gone(ino) {
            core.forget_file(ino, self.now());
        }
    }

    /// The kernel has let go of `ino`, and asks for it by a name if it wants it again.
    pub(crate) fn let_go(&self, ino: Ino) {
        let was_held = self.core().let_go(ino);
        if was_held {
            self.reap_one(ino);
        }
    }

    /// Writes the log anew where that is worth its while, on a thread that may wait for the disk.
    pub(super) async fn tidy_log(self: &Shared) {
        if !self.is_log_long() {
            return;
        }
        let mount = Shared::clone(self);
        let job = move || mount.rewrite_log_if(|| mount.is_log_long());
        match tokio::task::spawn_blocking(job).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cannot rewrite update.log: {error}"),
            Err(error) => tracing::error!("{error}"),
        }
    }

    fn is_log_long(&self) -> bool {
        let is_long = |bytes| self.log.lock().is_worth_rewriting(bytes);
        // What is dead in it counts against the bound as well.
        let most = self.options.log_max / 8;
        if !is_long(REWRITE_SETTLED.min(most)) {
            return false;
        }
        let settled = {
            let core = self.core();
            core.queue.is_empty() && !core.has_unsealed()
        };
        settled || is_long(REWRITE_PENDING.min(most))
    }
}
