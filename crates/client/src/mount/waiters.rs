//! The channels to calls that wait for the outcomes of changes. Which outcomes and why is in
//! [`segue_core::host::send::Waiters`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use segue_core::host::Host;
use segue_core::host::send::{Claim, WaiterId};
use segue_core::nouns::Outcome;
use tokio::sync::oneshot;

use super::{Mount, lock};

/// The channels, and the waiters that gave up since the core was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    channels: Mutex<HashMap<WaiterId, oneshot::Sender<Outcome>>>,
    left: Arc<Mutex<Vec<(u64, WaiterId)>>>,
}

/// A call that waits for an outcome. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Awaited {
    told: oneshot::Receiver<Outcome>,
    number: (u64, WaiterId),
    left: Arc<Mutex<Vec<(u64, WaiterId)>>>,
}

impl Awaited {
    /// The outcome. `None` if the mount ends before.
    pub(super) async fn outcome(&mut self) -> Option<Outcome> {
        (&mut self.told).await.ok()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        lock(&self.left).push(self.number);
    }
}

impl Told {
    /// Takes the waiters that gave up out of the core and of this table.
    pub(super) fn forget_left(&self, core: &mut Host) {
        let left = std::mem::take(&mut *lock(&self.left));
        if left.is_empty() {
            return;
        }
        let mut channels = lock(&self.channels);
        for (seq, waiter) in left {
            core.waiters.leave(seq, waiter);
            channels.remove(&waiter);
        }
    }

    /// Tells an outcome to a waiter that the core has just taken out. False if it has stopped.
    pub(super) fn tell(&self, waiter: WaiterId, outcome: Outcome) -> bool {
        let channel = lock(&self.channels).remove(&waiter);
        channel.is_some_and(|tell| tell.send(outcome).is_ok())
    }

    /// The channel of a waiter that the core has just added. Call it while the core is locked.
    pub(super) fn hears(&self, number: (u64, WaiterId)) -> Awaited {
        let (tell, told) = oneshot::channel();
        lock(&self.channels).insert(number.1, tell);
        Awaited { told, number, left: Arc::clone(&self.left) }
    }
}

impl Mount {
    /// Waits for the outcome of change `seq`.
    pub(super) fn await_as(&self, core: &mut Host, seq: u64, claim: Claim) -> Awaited {
        let waiter = core.waiters.add(seq, claim);
        self.lanes.wake();
        self.waiters.hears((seq, waiter))
    }
}
