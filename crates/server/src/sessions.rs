//! The connections there are now, so that they can be ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::types::ClientId;
use segue_rpc::{CloseCode, Peer};

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    live: BTreeMap<u64, Live>,
}

struct Live {
    peer: Peer,
    fingerprint: String,
    client: Option<ClientId>,
}

/// One session's place in the table, for as long as it lives.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    number: u64,
}

impl Sessions {
    /// Enters a connection of the identity with that fingerprint.
    pub(crate) fn enter(self: &Arc<Self>, peer: &Peer, fingerprint: &str) -> Place {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let live = Live { peer: peer.clone(), fingerprint: fingerprint.to_owned(), client: None };
        table.live.insert(number, live);
        Place { sessions: self.clone(), number }
    }

    /// Ends every session of an identity.
    pub(crate) fn expel(&self, fingerprint: &str, words: &str) {
        for live in self.lock().live.values() {
            if live.fingerprint == fingerprint {
                live.peer.close(CloseCode::Denied, words);
            }
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().live.len()
    }

    /// The clients that are connected.
    pub(crate) fn clients(&self) -> BTreeSet<ClientId> {
        self.lock().live.values().filter_map(|live| live.client).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The session is that of `client`, whose earlier session is over: a client has one.
    pub(crate) fn claim(&self, client: ClientId) {
        let mut table = self.sessions.lock();
        for (number, live) in &mut table.live {
            if *number == self.number {
                live.client = Some(client);
            } else if live.client == Some(client) {
                live.peer.close(CloseCode::Done, "the same cache has connected again");
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().live.remove(&self.number);
    }
}
