//! The drain: sends the update log to the server, a batch of each lane at a time, and carries out
//! what the answers ask for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::host::action::{Deliver, Delivered, Done, Event, Undone};
use segue_core::host::call::Call;
use segue_core::host::log::Lane;
use segue_core::nouns::Class;
use segue_core::refusal::Refusal;
use segue_core::wire::{Applied, Apply};
use segue_rpc::{LinkState, Rpc};
use tokio::time::{Instant, timeout};

use crate::shell::{Asked, Ran, Running};
use crate::write_back::WriteBack;
use crate::write_back::upload::Prepared;

/// After unmounting, this long is spent on sending what the last calls left; the rest stays
/// logged for the next mount.
pub(crate) const PARTING: Duration = Duration::from_secs(2);

/// After a loss of power, the longest that a mount waits until the server has what is left.
const CATCH_UP: Duration = Duration::from_secs(60);

/// A change that nobody waits for may wait this long for company.
const LINGER: Duration = Duration::from_millis(5);
/// After a failure that is not the network's, wait this long.
const PAUSE: Duration = Duration::from_secs(1);

impl WriteBack {
    /// Sends changes of a lane for as long as the write_back lives.
    pub(crate) async fn drain(self: Arc<Self>, lane: Lane) {
        let sending = self.wakes.lanes.of(lane);
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
            self.wakes.lanes.wake_all();
            *sending.hindered.lock() = sent.err();
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
        while !self.host.lock().has_company() {
            tokio::select! {
                () = &mut end => return,
                () = self.wakes.lanes.hurry.notified() => {}
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
    pub(crate) async fn pause(&self) {
        let mut link = self.remote.link().watch();
        if self.remote.is_offline() {
            link.changed().await.ok();
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Carries out a call that sends a batch, and settles it. False if there is none. An error
    /// means that the next attempt has to wait.
    pub(crate) async fn send(self: &Arc<Self>, call: Call) -> Result<bool, Refusal> {
        let mut running = Running::new(&self.shell, &call);
        let mut event = Event::Call { id: running.id, call };
        let sent = loop {
            let asked = match self.shell.run(&mut running, event, &[]) {
                Ran::Answered(answer) => break answer?,
                Ran::Asks(asked) => asked,
            };
            let done = match asked {
                Asked::Deliver(delivery) => self.deliver(delivery).await,
                Asked::Release(numbers) => {
                    self.shell.kernel.release_pages(numbers).await;
                    Ok(Done::Carried)
                }
                asked => self.shell.answer(&Rpc::new(Class::Fetch), asked).await,
            };
            event = Event::Done { id: running.id, done: done.map_err(Undone::from) };
        };
        if sent.answer.has_sent {
            self.disk.tidy_log().await;
        }
        Ok(sent.answer.has_sent)
    }

    /// Makes the records of a batch, sends their chunks, and asks for their outcomes.
    async fn deliver(
        self: &Arc<Self>,
        Deliver { lane, batch, without }: Deliver,
    ) -> Result<Done, Refusal> {
        let class = lane.class();
        let changes: Vec<u64> = batch.iter().map(|logged| logged.seq).collect();
        let Prepared { records, chunks } =
            match self.prepare(class, &batch, without.is_some()).await {
                Err(refusal) => return Done::without_chunks(refusal),
                Ok(prepared) => prepared,
            };
        if self.remote.is_offline() {
            // It was not sent, and may still be cancelled.
            return Err(Refusal::Unreachable);
        }
        let acked_below = self.disk.acked_below.load(Ordering::Relaxed);
        let awaited = self.host.lock().mark_sending(&batch, self.host.now());
        let (asked, began) = (self.host.now(), Instant::now());
        let (remote, chunks) = (&self.remote, &chunks);
        let apply = Apply { records, acked_below, awaited, ..Apply::default() };
        let apply = |rpc| async move { remote.apply(&rpc, apply, chunks).await };
        let (applied, promised) = match self.until_due(class, &changes, apply).await {
            Err(refusal @ Refusal::NoSpace) if !chunks.is_empty() => {
                return Ok(Done::NoChunks(refusal));
            }
            answer => answer?,
        };
        let Applied { outcomes, visible, heard, .. } = applied;
        self.shell.unseen.lock().answered(visible, self.host.now());
        let round_trip = self.remote.link().stats().map_or(Duration::ZERO, |stats| stats.rtt);
        let took = began.elapsed();
        let delivered = Delivered { outcomes, promised, heard, asked, took, round_trip };
        Ok(Done::Delivered(Box::new(delivered)))
    }

    /// After a loss of power the log may have forgotten what the server already has. While that is
    /// unknown what this host takes for its own truth is of the past: so what is left is sent
    /// before anybody looks, if the server is there.
    pub(crate) async fn catch_up_first(self: &Arc<Self>) {
        timeout(CATCH_UP, self.send_pending()).await.ok();
        let mut core = self.host.lock();
        core.begin_anew();
    }

    pub(crate) async fn send_last_changes(self: &Arc<Self>) {
        // Whatever is cut off here is sent again next time, and answered the same.
        timeout(PARTING, self.send_pending()).await.ok();
    }

    async fn send_pending(self: &Arc<Self>) {
        {
            // Whoever did so before does not any more. While the log is locked nobody makes a
            // change that waits another one, which would be sent as it was.
            let _log = self.disk.log.lock();
            self.host.lock().put_all_back();
        }
        while !self.remote.is_offline() {
            // What is open is still written to: what is in a batch is not changed any more.
            if self.send(Call::SendLast).await != Ok(true) {
                return;
            }
        }
    }
}
