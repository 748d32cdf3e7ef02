//! What the kernel was told, for longer than the server's promises surely hold; and taking it back
//! before they end: with another connection, and after a sleep, during which its clock stands
//! still. The host notices the end of the lease.

use std::sync::{Arc, OnceLock, Weak};

use segue_core::host::call::{Call, Ended};
use segue_core::nouns::{ClientId, InoGrant, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::Welcome;
use segue_rpc::Peer;

use crate::shell::Shell;

/// What a mount does around the hello of a new connection: from then on the server's promises to
/// the one before count no more, unless they are resumed.
#[derive(Clone, Default)]
pub(crate) struct AtHello(Arc<OnceLock<Weak<Shell>>>);

impl AtHello {
    fn shell(&self) -> Option<Arc<Shell>> {
        self.0.get()?.upgrade()
    }

    pub(crate) async fn before(&self) {
        if let Some(shell) = self.shell() {
            shell.remote.end_session();
            shell.take_back_told(true).await;
        }
    }

    /// No change of the mount has this seq or a later one, if there is a mount.
    pub(crate) fn next_seq(&self) -> Option<u64> {
        self.shell().map(|shell| shell.disk.numbers.lock().first_seq())
    }

    /// The latest version of anything that the mount knows, if there is a mount.
    pub(crate) fn known(&self) -> Option<Option<Version>> {
        self.shell().map(|shell| shell.disk.latest_known())
    }

    /// The mount, if there is one, goes on as another client, with inode numbers of its own.
    pub(crate) fn become_client(
        &self,
        client: ClientId,
        grants: &[InoGrant],
    ) -> std::io::Result<()> {
        let Some(shell) = self.shell() else { return Ok(()) };
        shell.host.lock().become_another();
        shell.disk.numbers.lock().become_client(client, grants)
    }

    pub(crate) async fn after(&self, peer: &Peer, welcome: &Welcome) -> Result<(), Refusal> {
        if let Some(shell) = self.shell() {
            let (forgetting, of) = (Arc::clone(&shell), welcome.clone());
            let forgotten = tokio::task::spawn_blocking(move || forgetting.forget_lost(&of)).await;
            forgotten.map_err(|_| Refusal::Io)??;
            shell.resume(peer, welcome).await;
        }
        Ok(())
    }
}

impl Shell {
    /// From now on the server's promises end before another connection says hello; and the kernel
    /// is told for long, if it can be made to forget all of it at any time.
    pub(crate) fn tell_for_long(self: &Arc<Self>, at_hello: &AtHello) {
        // Nobody else sets it.
        at_hello.0.set(Arc::downgrade(self)).ok();
        if self.kernel.cache.can_be_told_for_long() {
            self.host.lock().tell_for_long();
        }
    }

    /// Has the kernel forget all that it was told because of promises, if this host slept, or the
    /// session is `over` and some of them would count still.
    async fn take_back_told(&self, over: bool) {
        let _one = self.kernel.cache.told.taking_back.lock().await;
        let ended = match (self.kernel.has_slept(), over) {
            (true, _) => Ended::Slept,
            (false, true) => Ended::Session,
            (false, false) => return,
        };
        tracing::debug!("what the kernel was told is taken back: {ended:?}");
        if let Err(refusal) = self.call_asking(Call::TakeBack(ended)).await {
            tracing::error!("the kernel may use what it was told for a while: {refusal}");
        }
    }

    /// Takes back what the kernel was told before a sleep.
    pub(super) async fn wake_up(&self) {
        self.take_back_told(false).await;
    }
}
