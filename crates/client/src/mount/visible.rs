//! Waiting until what this host has committed is *visible*: until no other host relies on what was
//! before (DESIGN.md 6). That is what a close waits for that promises something to others.

use segue_core::refusal::Refusal;

use super::why::waits;
use super::{Mount, Shared, lock};

impl Mount {
    /// True if other hosts may rely on what was before a change that is committed.
    pub(super) fn is_unseen(&self) -> bool {
        lock(&self.unseen).pending(self.now()).is_some()
    }

    /// Waits until no other host relies on what was before a change that is committed. One that is
    /// silent is waited for until the server gives it up, after 20 seconds.
    pub(super) async fn visible(&self) -> Result<(), Refusal> {
        let pending = lock(&self.unseen).pending(self.now());
        let Some(answer) = pending else { return Ok(()) };
        let heard = || "other hosts to be told of it".to_owned();
        waits(heard, self.remote.visible()).await?;
        lock(&self.unseen).seen(answer);
        Ok(())
    }

    /// The same, where somebody looks from time to time whether it is so.
    pub(super) fn make_visible(self: &Shared) -> tokio::task::JoinHandle<()> {
        let mount = Shared::clone(self);
        tokio::spawn(async move {
            match mount.visible().await {
                // Who looks looks again when something is settled.
                Ok(()) => mount.settled.send_replace(()),
                Err(refusal) => tracing::debug!("others may not have heard: {refusal}"),
            }
        })
    }
}
