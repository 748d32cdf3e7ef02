//! The server's promises: keeping their lease, and hearing that they are over.

use std::sync::Arc;
use std::time::Duration;

use segue_core::host::action::{Done, Event, Undone};
use segue_core::host::call::{Call, Ended};
use segue_core::nouns::{Class, Ino};
use segue_core::refusal::Refusal;
use segue_core::wire::{Refused, Reply, Request, Resume, Welcome};
use segue_rpc::{Body, Calls, Incoming, Peer, Response, Rpc};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::shell::{Asked, Ran, Running, Shell};

/// Calls of the server that wait to be heard.
const WAITING: usize = 16;
/// Calls for damaged chunks that wait for their answer; the server makes one at a time.
const HEALS: usize = 1;
/// Files that other hosts wait for at a time, which are sealed and sent.
pub(crate) const PULLS: usize = 256;
/// So often it is looked whether this host slept.
const LOOK: Duration = Duration::from_secs(1);
/// So long the answer to the last announcement is waited for.
const LAST_WORD: Duration = Duration::from_secs(2);
/// So long the first answer over a new connection is waited for: then all is asked anew.
const RESUME_PATIENCE: Duration = Duration::from_secs(10);

/// Where the calls of the server go, from whichever connection.
pub(crate) type Heard = mpsc::Sender<Incoming>;

/// The way from the connections to [`Shell::hear_breaks`].
pub(crate) fn channel() -> (Heard, mpsc::Receiver<Incoming>) {
    mpsc::channel(WAITING)
}

/// Hands the calls of one connection on until it is over.
pub(crate) async fn listen(calls: Calls, heard: Heard) {
    while let Some(incoming) = calls.accept().await {
        if heard.send(incoming).await.is_err() {
            return;
        }
    }
}

impl Shell {
    /// Answers the breaks of the server, for as long as the shell lives.
    pub(crate) async fn hear_breaks(self: Arc<Self>, mut heard: mpsc::Receiver<Incoming>) {
        let (to_heal, asked) = mpsc::channel(HEALS);
        tokio::spawn(Arc::clone(&self).answer_heals(asked));
        while let Some(mut incoming) = heard.recv().await {
            if matches!(incoming.request, Request::Heal(_)) {
                // Breaks do not wait for chunks.
                match to_heal.try_send(incoming) {
                    Ok(()) => continue,
                    Err(full) => incoming = full.into_inner(),
                }
            }
            if let Request::Pull(ino) = incoming.request {
                tokio::spawn(Arc::clone(&self).send_pulled(ino, incoming));
                continue;
            }
            let reply = match &incoming.request {
                Request::Break(broken) => {
                    self.hear(broken.inodes.clone()).await;
                    Reply::Broken(())
                }
                Request::Heal(_) => Reply::Healed(0),
                other => Reply::Refused(Refused {
                    refusal: Refusal::Protocol,
                    words: format!("a client answers no {}", other.name()),
                }),
            };
            if let Err(error) = incoming.reply(reply, Body::Empty).await {
                tracing::debug!("a break is not acknowledged: {error}");
            }
        }
    }

    /// Another host opens `ino`: sends what was changed of it here, and says when that is over.
    async fn send_pulled(self: Arc<Self>, ino: Ino, incoming: Incoming) {
        let Ok(_place) = self.pulls.acquire().await else { return };
        tracing::debug!(%ino, "another host opens a file that has changed here");
        let sent = self.call_asking(Call::Pull(ino)).await;
        let is_sent = sent.is_ok_and(|sent| sent.answer.is_settled);
        if let Err(error) = incoming.reply(Reply::Pulled(is_sent), Body::Empty).await {
            tracing::debug!("another host waits no longer: {error}");
        }
    }

    /// Tells the server what is left that it does not have, before the mount ends. Others would
    /// wait in vain for what it has.
    pub(crate) async fn announce_last(&self) {
        self.host.lock().announce_all();
        match timeout(LAST_WORD, self.call_asking(Call::Announce)).await {
            Ok(Ok(_)) => {}
            Ok(Err(refusal)) => tracing::debug!("the server may take files for changed: {refusal}"),
            Err(_) => tracing::debug!("the server may take files for changed: no answer"),
        }
    }

    /// These have changed on the server. Nothing uses what was known of them when this returns.
    async fn hear(&self, inodes: Vec<Ino>) {
        let call = Call::TakeBack(Ended::Broken(inodes));
        if let Err(refusal) = self.call_asking(call).await {
            tracing::error!("what changed on the server may be used for a while: {refusal}");
        }
    }

    /// Has the server promise over a new connection what it promised over the last one, but for
    /// what changed meanwhile. Without it all that is asked for is asked anew.
    pub(super) async fn resume(&self, peer: &Peer, welcome: &Welcome) {
        let Welcome { epoch, commit, .. } = *welcome;
        let call = Call::Resume { epoch, commit };
        let mut running = Running::new(self, &call);
        let mut event = Event::Call { id: running.id, call };
        while let Ran::Asks(asked) = self.run(&mut running, event, &[]) {
            let done = match asked {
                Asked::Resume(resume) => self.asked_to_resume(peer, *resume).await,
                asked => self.answer(&Rpc::new(Class::Fetch), asked).await,
            };
            event = Event::Done { id: running.id, done: done.map_err(Undone::from) };
        }
    }

    async fn asked_to_resume(&self, peer: &Peer, resume: Resume) -> Result<Done, Refusal> {
        let (asked, held) = (self.host.now(), resume.held.len());
        let request = Request::Resume(resume);
        let answer = timeout(RESUME_PATIENCE, peer.call(&request, Body::Empty)).await;
        match answer {
            Ok(Ok(Response { reply: Reply::Resumed(Some(resumed)), .. })) => {
                self.remote.answered(asked);
                let changed = resumed.changed.len();
                tracing::info!(held, changed, "the cache was compared with the server");
                return Ok(Done::Resumed(resumed));
            }
            Ok(Ok(response)) => {
                let name = response.reply.name();
                tracing::warn!("callback promises are not resumed: the server answered {name}");
            }
            Ok(Err(error)) => tracing::debug!("callback promises are not resumed: {error}"),
            Err(_) => {
                let seconds = RESUME_PATIENCE.as_secs();
                tracing::info!("callback promises are not resumed: no answer within {seconds} s");
            }
        }
        Err(Refusal::Unreachable)
    }

    /// Tells the host of time, for as long as the shell lives.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        loop {
            let deadline = self.host.lock().next_deadline();
            tokio::select! {
                () = tokio::time::sleep(deadline.since(self.host.now()).min(LOOK)) => {}
                () = self.wakes.time.notified() => {}
            }
            self.wake_up().await;
            self.hand_in(Event::Time, false);
        }
    }

    /// Carries out the calls that the host starts itself, each on its own, for as long as the
    /// shell lives.
    pub(crate) async fn start_calls(self: Arc<Self>, mut started: mpsc::UnboundedReceiver<Call>) {
        while let Some(call) = started.recv().await {
            let shell = Arc::clone(&self);
            tokio::spawn(async move {
                let (what, is_seal) = (format!("{call:?}"), matches!(call, Call::SealAll(_)));
                match shell.call_asking(call).await {
                    Err(refusal) if is_seal => {
                        tracing::warn!("some written data are not queued yet: {refusal}");
                    }
                    Err(refusal) => tracing::debug!("{what}: {refusal}"),
                    Ok(_) => {}
                }
            });
        }
    }
}
