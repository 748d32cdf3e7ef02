//! What the kernel was told, for as long as the server's promises hold; and taking it back when
//! they end earlier: with another connection, and with a sleep, during which its clock stands
//! still.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use segue_core::host::call::{Call, Ended};
use segue_core::nouns::{Class, ClientId, Ino, InoGrant, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::Welcome;
use segue_rpc::{Peer, Rpc};

use super::{Mount, Shared, lock};
use crate::clock::slept;

/// The kernel's clock may stand still for so long unnoticed: the lease is shorter than it could be
/// by more.
const NAP: Duration = Duration::from_millis(200);

/// What may end it.
#[derive(Debug)]
pub(super) struct Told {
    /// For how long this host had slept when it was looked last.
    slept: Mutex<Duration>,
    /// Held while the kernel is to forget.
    taking_back: tokio::sync::Mutex<()>,
}

impl Default for Told {
    fn default() -> Told {
        Told { slept: Mutex::new(slept()), taking_back: tokio::sync::Mutex::default() }
    }
}

/// What a mount does around the hello of a new connection: from then on the server's promises to
/// the one before count no more, unless they are resumed.
#[derive(Clone, Default)]
pub(super) struct AtHello(Arc<OnceLock<Weak<Mount>>>);

impl AtHello {
    fn mount(&self) -> Option<Shared> {
        self.0.get()?.upgrade()
    }

    pub(super) async fn before(&self) {
        if let Some(mount) = self.mount() {
            mount.remote.end_session();
            mount.take_back_told(true).await;
        }
    }

    /// No change of the mount has this seq or a later one, if there is a mount.
    pub(super) fn next_seq(&self) -> Option<u64> {
        self.mount().map(|mount| lock(&mount.numbers).first_seq())
    }

    /// The latest version of anything that the mount knows, if there is a mount.
    pub(super) fn known(&self) -> Option<Option<Version>> {
        self.mount().map(|mount| mount.latest_known())
    }

    /// The mount, if there is one, goes on as another client, with inode numbers of its own.
    pub(super) fn become_client(
        &self,
        client: ClientId,
        grants: &[InoGrant],
    ) -> std::io::Result<()> {
        let Some(mount) = self.mount() else { return Ok(()) };
        mount.core().tree.become_another();
        lock(&mount.numbers).become_client(client, grants)
    }

    pub(super) async fn after(&self, peer: &Peer, welcome: &Welcome) -> Result<(), Refusal> {
        if let Some(mount) = self.mount() {
            let (forgetting, of) = (Arc::clone(&mount), welcome.clone());
            let forgotten = tokio::task::spawn_blocking(move || forgetting.forget_lost(&of)).await;
            forgotten.map_err(|_| Refusal::Io)??;
            mount.resume(peer, welcome).await;
        }
        Ok(())
    }
}

impl Mount {
    /// From now on the server's promises end before another connection says hello; and the kernel
    /// is told for as long as they hold, if it can be made to forget all of it at any time.
    pub(super) fn tell_for_long(self: &Shared, at_hello: &AtHello) {
        // Nobody else sets it.
        at_hello.0.set(Arc::downgrade(self)).ok();
        if self.kernel.can_be_told_for_long() {
            self.core().tree.tell_for_the_lease();
        }
    }

    /// True if this host slept since this was asked last.
    fn has_slept(&self) -> bool {
        let slept = slept();
        let mut known = lock(&self.kernel.told.slept);
        let has_slept = slept.saturating_sub(*known) > NAP;
        *known = slept;
        has_slept
    }

    /// Has the kernel forget all that it was told because of promises, if this host slept, or the
    /// session is `over` and some of them would count still.
    async fn take_back_told(&self, over: bool) {
        let _one = self.kernel.told.taking_back.lock().await;
        let ended = match (self.has_slept(), over) {
            (true, _) => Ended::Slept,
            (false, true) => Ended::Session,
            (false, false) => return,
        };
        tracing::debug!("what the kernel was told is taken back: {ended:?}");
        if let Err(refusal) = self.call_asking(&Rpc::new(Class::Fetch), Call::TakeBack(ended)).await
        {
            tracing::error!("the kernel may use what it was told for a while: {refusal}");
        }
    }

    /// Takes back what the kernel was told before a sleep.
    pub(super) async fn wake_up(&self) {
        self.take_back_told(false).await;
    }

    /// The kernel is to call `ino` something else from now on.
    pub(super) fn forget_names_of(&self, ino: Ino) {
        let (place, links) = {
            let core = self.core();
            (core.tree.place(ino), core.tree.peek(ino).map_or(0, |attr| attr.nlink))
        };
        match place {
            Some((directory, name)) if links < 2 => self.kernel.forget_name(directory, name),
            _ => self.kernel.forget_all_names(),
        }
    }
}
