//! Waiting until what this host has committed is *visible*: until no other host relies on what was
//! before (DESIGN.md 6). That is what a close waits for that promises something to others.

use std::sync::Arc;

use segue_core::refusal::Refusal;

use crate::shell::Shell;
use crate::waits::waits;

impl Shell {
    /// True if other hosts may rely on what was before a change that is committed.
    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen.lock().pending(self.host.now()).is_some()
    }

    /// Waits until no other host relies on what was before a change that is committed. One that is
    /// silent is waited for until the server gives it up, after 20 seconds.
    pub(crate) async fn visible(&self) -> Result<(), Refusal> {
        let pending = self.unseen.lock().pending(self.host.now());
        let Some(answer) = pending else { return Ok(()) };
        let heard = || "other hosts to be told of it".to_owned();
        Box::pin(waits(heard, self.remote.visible())).await?;
        self.unseen.lock().seen(answer);
        Ok(())
    }

    /// The same, where somebody looks from time to time whether it is so.
    pub(crate) fn make_visible(self: &Arc<Self>) -> tokio::task::JoinHandle<()> {
        let shell = Arc::clone(self);
        tokio::spawn(async move {
            match shell.visible().await {
                // Who looks looks again when something is settled.
                Ok(()) => shell.wakes.settled.send_replace(()),
                Err(refusal) => tracing::debug!("others may not have heard: {refusal}"),
            }
        })
    }
}
