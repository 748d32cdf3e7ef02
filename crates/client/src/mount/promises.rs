//! The server's promises: keeping their lease, and hearing that they are over.

use std::time::Duration;

use segue_core::nouns::{Ino, Name};
use segue_core::promise::KEPT_SECONDS;
use segue_core::refusal::Refusal;
use segue_core::wire::{Refused, Reply, Request, Welcome};
use segue_rpc::{Body, Calls, Incoming, Peer, Response};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Mount, Shared};

/// Calls of the server that wait to be heard.
const WAITING: usize = 16;
/// Calls for damaged chunks that wait for their answer; the server makes one at a time.
const HEALS: usize = 1;
/// So often it is looked whether the lease is to be renewed.
const LOOK: Duration = Duration::from_secs(1);

/// So long it is waited before what changed while it was asked for is asked for again.
const FOLLOW: Duration = Duration::from_millis(100);
/// What other hosts removed is asked for so often while it is open here: a third of the time for
/// which the server keeps it.
const KEEP: Duration = Duration::from_secs(KEPT_SECONDS / 3);
/// Most of these at a time, beyond which the server would keep no more either.
const KEEP_MAX: usize = 4096;
/// So long the first answer over a new connection is waited for: then all is asked anew.
const RESUME_PATIENCE: Duration = Duration::from_secs(10);

/// Where the calls of the server go, from whichever connection.
pub(super) type Heard = mpsc::Sender<Incoming>;

/// The way from the connections to [`Mount::hear_breaks`].
pub(super) fn channel() -> (Heard, mpsc::Receiver<Incoming>) {
    mpsc::channel(WAITING)
}

/// Hands the calls of one connection on until it is over.
pub(super) async fn listen(calls: Calls, heard: Heard) {
    while let Some(incoming) = calls.accept().await {
        if heard.send(incoming).await.is_err() {
            return;
        }
    }
}

impl Mount {
    /// Hears what changed, for as long as the mount lives.
    pub(super) async fn hear_breaks(self: Shared, mut heard: mpsc::Receiver<Incoming>) {
        let (to_heal, asked) = mpsc::channel(HEALS);
        tokio::spawn(Shared::clone(&self).answer_heals(asked));
        while let Some(mut incoming) = heard.recv().await {
            if matches!(incoming.request, Request::Heal(_)) {
                // Breaks do not wait for chunks.
                match to_heal.try_send(incoming) {
                    Ok(()) => continue,
                    Err(full) => incoming = full.into_inner(),
                }
            }
            let reply = match &incoming.request {
                Request::Break(broken) => {
                    self.hear(&broken.inodes).await;
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

    /// These have changed on the server. Nothing uses what was known of them when this returns.
    async fn hear(self: &Shared, inodes: &[Ino]) {
        let now = self.now();
        let (mut names, mut open): (Vec<(Ino, Name)>, Vec<Ino>) = Default::default();
        let keeps_places = self.kernel.keeps_places();
        let has_dropped = {
            let mut core = self.core();
            for &ino in inodes {
                core.tree.broken(ino, now);
                // Elsewhere the name of a directory is looked up again within its lifetime.
                let may_go = |name: &&Name| keeps_places || !core.tree.names_directory(ino, name);
                let known = core.tree.known_names(ino).filter(may_go).cloned();
                names.extend(known.map(|name| (ino, name)));
                open.extend(Some(ino).filter(|_| core.is_open(ino)));
            }
            core.tree.take_dropped()
        };
        self.kernel.take_back(inodes, names, has_dropped).await;
        self.follow_open(open);
    }

    /// Readers have these open, which changed: they are to see what they are now.
    fn follow_open(self: &Shared, open: Vec<Ino>) {
        for ino in open {
            let mount = Shared::clone(self);
            tokio::spawn(async move { mount.follow(ino).await });
        }
    }

    /// `ino`, which somebody has open, has changed: asks what it is now, until that is promised. Of
    /// a change behind an answer that is not, nobody would hear.
    async fn follow(&self, ino: Ino) {
        loop {
            if let Err(refusal) = self.ask_attr(ino).await {
                return tracing::debug!("#{ino} changed: {refusal}");
            }
            // Over the next connection it is asked what changed.
            if !self.core().is_to_follow(ino, self.now()) || self.remote.is_silent() {
                return;
            }
            tokio::time::sleep(FOLLOW).await;
        }
    }

    /// Has the server promise over a new connection what it promised over the last one, but for
    /// what changed meanwhile. Without it all that is asked for is asked anew.
    pub(super) async fn resume(self: &Shared, peer: &Peer, welcome: &Welcome) {
        let Welcome { epoch, commit, .. } = *welcome;
        let resume = self.core().tree.to_resume(epoch);
        let Some(resume) = resume else { return self.core().tree.begin_connection(epoch, commit) };
        let (asked, held) = (self.now(), resume.held.clone());
        let request = Request::Resume(resume);
        let answer = timeout(RESUME_PATIENCE, peer.call(&request, Body::Empty)).await;
        let resumed = match answer {
            // No more can have changed than was asked for.
            Ok(Ok(Response { reply: Reply::Resumed(resumed), .. })) => {
                resumed.filter(|resumed| resumed.changed.len() <= held.len())
            }
            Ok(Ok(response)) => {
                let name = response.reply.name();
                tracing::warn!("callback promises are not resumed: the server answered {name}");
                None
            }
            Ok(Err(error)) => {
                tracing::debug!("callback promises are not resumed: {error}");
                None
            }
            Err(_) => {
                let seconds = RESUME_PATIENCE.as_secs();
                tracing::info!("callback promises are not resumed: no answer within {seconds} s");
                None
            }
        };
        let mut core = self.core();
        let Some(resumed) = resumed else { return core.tree.begin_connection(epoch, commit) };
        core.tree.resume(&held, &resumed, self.now());
        let open = resumed.changed.iter().filter(|ino| core.is_open(*ino)).collect();
        drop(core);
        self.remote.answered(asked);
        self.follow_open(open);
        let (held, changed) = (held.len(), resumed.changed.len());
        tracing::info!(held, changed, "the cache was compared with the server");
    }

    /// Has the server keep what other hosts removed and somebody reads here, for as long as the
    /// mount lives.
    pub(super) async fn keep_removed(self: Shared) {
        loop {
            tokio::time::sleep(KEEP).await;
            let removed = self.core().to_keep(KEEP_MAX);
            for ino in removed {
                if self.remote.is_silent() {
                    break;
                }
                if let Err(refusal) = self.ask_attr(ino).await {
                    tracing::debug!("#{ino} is removed and open: {refusal}");
                }
            }
        }
    }

    /// Has the server keep its promises, for as long as the mount lives.
    pub(super) async fn keep_lease(self: Shared) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.wake_up().await;
            let now = self.now();
            let wants_lease = {
                let mut core = self.core();
                core.tree.forget_breaks(now);
                core.tree.wants_lease(now)
            };
            if !wants_lease || self.remote.is_silent() {
                continue;
            }
            match self.remote.renew().await {
                Ok((session, commit)) => self.core().tree.heard_through(session, commit, now),
                Err(refusal) => tracing::debug!("the lease is not renewed: {refusal}"),
            }
        }
    }
}
