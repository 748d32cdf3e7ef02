//! The drain: sends the update log to the server, a batch of each lane at a time, and carries out
//! what the answers ask for.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::host::action::{Deliver, Delivered, Done, Event, Undone};
use segue_core::host::call::Call;
use segue_core::host::log::Lane;
use segue_core::nouns::{Class, Ino};
use segue_core::refusal::Refusal;
use segue_core::wire::Applied;
use segue_rpc::{LinkState, Rpc};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::shell::{Asked, Ran, Running};
use super::upload::Prepared;
use super::{Mount, Shared, lock};

/// So many changes are company enough.
const COMPANY: usize = 64;
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
            let sent = self.send(Call::Send(lane)).await;
            if sent == Ok(false) {
                sending.wakes.notified().await;
                continue;
            }
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
        let is_awaited = || self.core().has_waiters();
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

    /// Carries out a call that sends a batch, and settles it. False if there is none. An error
    /// means that the next attempt has to wait.
    pub(super) async fn send(self: &Shared, call: Call) -> Result<bool, Refusal> {
        let mut running = Running::new(self, &call);
        let mut event = Event::Call { id: running.id, call };
        let sent = loop {
            let asked = match self.run(&mut running, event, &[]) {
                Ran::Answered(answer) => break answer?,
                Ran::Asks(asked) => asked,
            };
            let done = match asked {
                Asked::Deliver(delivery) => self.deliver(delivery).await,
                Asked::SyncDisk => self.sync_disk().await.map(|()| Done::Carried),
                Asked::Release(numbers) => {
                    self.release_pages(numbers).await;
                    Ok(Done::Carried)
                }
                asked => self.answer(&Rpc::new(Class::Fetch), asked).await,
            };
            event = Event::Done { id: running.id, done: done.map_err(Undone::from) };
        };
        if sent.has_sent {
            self.tidy_log().await;
        }
        Ok(sent.has_sent)
    }

    /// Makes the records of a batch, sends their chunks, and asks for their outcomes.
    async fn deliver(
        self: &Shared,
        Deliver { lane, batch, without }: Deliver,
    ) -> Result<Done, Refusal> {
        let class = lane.class();
        let Prepared { records, chunks } =
            match self.prepare(class, &batch, without.is_some()).await {
                Err(refusal @ (Refusal::NoSpace | Refusal::Quota)) => {
                    return Ok(Done::NoChunks(refusal));
                }
                prepared => prepared?,
            };
        if self.remote.is_offline() {
            // It was not sent, and may still be cancelled.
            return Err(Refusal::Unreachable);
        }
        let acked_below = self.acked_below.load(Ordering::Relaxed);
        self.core().mark_sending(&batch, self.now());
        let (asked, began) = (self.now(), Instant::now());
        let (remote, chunks) = (&self.remote, &chunks);
        let apply = |rpc| async move { remote.apply(&rpc, records, chunks, acked_below).await };
        let (applied, promised) = match self.until_due(class, apply).await {
            Err(refusal @ Refusal::NoSpace) if !chunks.is_empty() => {
                return Ok(Done::NoChunks(refusal));
            }
            answer => answer?,
        };
        let Applied { outcomes, visible, heard, .. } = applied;
        lock(&self.unseen).answered(visible, self.now());
        let round_trip = self.remote.link().stats().map_or(Duration::ZERO, |stats| stats.rtt);
        let took = began.elapsed();
        let delivered = Delivered { outcomes, promised, heard, asked, took, round_trip };
        Ok(Done::Delivered(Box::new(delivered)))
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
