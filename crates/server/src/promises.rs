//! The table of promises, between the sessions and the store thread; and the telling.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::promise::{Ask, Object, Promises as Table, SessionId};
use segue_core::types::{Ino, VolumeId};
use segue_core::wire::{BREAK_MAX, Break, Reply, Request};
use segue_rpc::{Body, CloseCode, Peer};
use tokio::sync::Notify;

/// Promises at a time, to all sessions: 213 bytes each where no two have the same.
const PROMISES_MAX: usize = 1 << 20;
/// Of these, to one session. Beyond, it is answered without.
const OF_SESSION_MAX: usize = 1 << 18;

/// All promises of this server.
pub(crate) struct Promises(Mutex<Shared>);

struct Shared {
    table: Table,
    wakes: BTreeMap<SessionId, Arc<Notify>>,
}

/// A session that may be promised something, for as long as it lives.
pub(crate) struct Holder {
    promises: Arc<Promises>,
    /// Which.
    pub(crate) id: SessionId,
}

/// A question that is being answered, until it is dropped.
pub(crate) struct Asked<'a> {
    promises: &'a Promises,
    ask: Option<Ask>,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises(Mutex::new(Shared {
            table: Table::new(PROMISES_MAX, OF_SESSION_MAX),
            wakes: BTreeMap::new(),
        }))
    }
}

impl Promises {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session on `volume` begins: breaks are told to `peer` as long as that lives.
    pub(crate) fn enter(self: &Arc<Self>, volume: VolumeId, peer: &Peer) -> Holder {
        let wake = Arc::new(Notify::new());
        let mut shared = self.lock();
        let id = shared.table.enter(volume);
        shared.wakes.insert(id, wake.clone());
        drop(shared);
        tokio::spawn(tell(Arc::clone(self), id, wake, peer.clone()));
        Holder { promises: Arc::clone(self), id }
    }

    /// Something is about to be read that will be answered.
    pub(crate) fn ask(&self) -> Asked<'_> {
        Asked { promises: self, ask: Some(self.lock().table.ask()) }
    }

    /// `author` committed changes of these inodes, or nobody who has a session.
    pub(crate) fn changed(&self, objects: Vec<Object>, author: Option<SessionId>) {
        let mut shared = self.lock();
        for id in shared.table.changed(objects, author) {
            if let Some(wake) = shared.wakes.get(&id) {
                wake.notify_one();
            }
        }
    }

    /// Promises that are held now.
    pub(crate) fn held(&self) -> usize {
        self.lock().table.held()
    }
}

impl Asked<'_> {
    /// The answer says what `inodes` are. True if `holder` will hear of their changes.
    pub(crate) fn answered(mut self, holder: &Holder, inodes: &[Ino]) -> bool {
        let ask = self.ask.take();
        ask.is_some_and(|ask| self.promises.lock().table.answered(ask, holder.id, inodes))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(ask) = self.ask.take() {
            self.promises.lock().table.unanswered(ask);
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut shared = self.promises.lock();
        shared.table.leave(self.id);
        shared.wakes.remove(&self.id);
    }
}

/// Tells a session of its breaks, one call at a time: what breaks meanwhile goes with the next.
async fn tell(promises: Arc<Promises>, id: SessionId, wake: Arc<Notify>, peer: Peer) {
    let telling = async {
        loop {
            wake.notified().await;
            loop {
                let inodes = promises.lock().table.take_breaks(id, BREAK_MAX);
                if inodes.is_empty() {
                    break;
                }
                let told = peer.call(&Request::Break(Break { inodes }), Body::Empty).await;
                if !matches!(told.map(|told| told.reply), Ok(Reply::Broken(()))) {
                    // What it was promised would not be so any more.
                    return peer.close(CloseCode::Protocol, "a break was not taken in");
                }
            }
        }
    };
    tokio::select! {
        () = telling => {}
        _ = peer.closed() => {}
    }
}
