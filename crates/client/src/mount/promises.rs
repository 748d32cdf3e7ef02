//! The server's promises: keeping their lease, and hearing that they are over.

use std::time::Duration;

use segue_core::refusal::Refusal;
use segue_core::types::{Ino, Name};
use segue_core::wire::{Refused, Reply, Request};
use segue_rpc::{Body, Calls, Incoming};
use tokio::sync::mpsc;

use super::{Mount, Shared};

/// Calls of the server that wait to be heard.
const WAITING: usize = 16;
/// So often it is looked whether the lease is to be renewed.
const LOOK: Duration = Duration::from_secs(1);

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
        while let Some(incoming) = heard.recv().await {
            let reply = match &incoming.request {
                Request::Break(broken) => {
                    self.hear(&broken.inodes).await;
                    Reply::Broken(())
                }
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
        for ino in open {
            let mount = Shared::clone(self);
            // Readers have it open: they are to see what it is now.
            tokio::spawn(async move {
                if let Err(refusal) = mount.ask_attr(ino).await {
                    tracing::debug!("#{ino} changed: {refusal}");
                }
            });
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
            // Any question does.
            if wants_lease
                && !self.remote.is_silent()
                && let Err(refusal) = self.ask_attr(Ino::ROOT).await
            {
                tracing::debug!("the lease is not renewed: {refusal}");
            }
        }
    }
}
