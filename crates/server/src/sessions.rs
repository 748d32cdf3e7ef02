//! The connections there are now, so that they can be ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::nouns::ClientId;
use segue_rpc::places::{Full, Places, network};
use segue_rpc::{CloseCode, Peer};

/// Connections of hosts that are let in: many times what one server's disk serves at once.
const SESSIONS_MAX: usize = 1024;
/// Of these, connections of one identity: a host's mounts of one volume, and some that it lost
/// within the last 20 seconds. It takes 64 hosts to fill the server.
const OF_IDENTITY_MAX: usize = 16;
/// Connections without an identity: each lives for half a minute at most.
const STRANGERS_MAX: usize = 64;
/// Of these, connections from one address, behind which there may be a whole office.
const OF_ADDRESS_MAX: usize = 8;

/// All sessions.
pub(crate) struct Sessions {
    table: Mutex<Table>,
}

struct Table {
    next: u64,
    live: BTreeMap<u64, Live>,
    known: Places<String>,
    strangers: Places<IpAddr>,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            table: Mutex::new(Table {
                next: 0,
                live: BTreeMap::new(),
                known: Places::new(SESSIONS_MAX, OF_IDENTITY_MAX),
                strangers: Places::new(STRANGERS_MAX, OF_ADDRESS_MAX),
            }),
        }
    }
}

struct Live {
    peer: Peer,
    fingerprint: String,
    client: Option<ClientId>,
    is_replaced: Arc<AtomicBool>,
}

/// One session's slot in the table, until the session ends.
pub(crate) struct SessionSlot {
    sessions: Arc<Sessions>,
    number: u64,
    is_replaced: Arc<AtomicBool>,
}

impl Sessions {
    /// Enters a connection of the identity with that fingerprint, or says why not.
    pub(crate) fn enter(
        self: &Arc<Self>,
        peer: &Peer,
        fingerprint: &str,
    ) -> Result<SessionSlot, &'static str> {
        let mut table = self.lock();
        table.known.enter(fingerprint.to_owned()).map_err(|full| match full {
            Full::All => "this server has reached its limit of connections; the host will retry",
            Full::Own => "this host has reached its limit of connections; it will retry",
        })?;
        let number = table.next;
        table.next += 1;
        let is_replaced = Arc::new(AtomicBool::new(false));
        let live = Live {
            peer: peer.clone(),
            fingerprint: fingerprint.to_owned(),
            client: None,
            is_replaced: is_replaced.clone(),
        };
        table.live.insert(number, live);
        Ok(SessionSlot { sessions: self.clone(), number, is_replaced })
    }

    /// Enters a connection without identity, or says why not.
    pub(crate) fn enter_stranger(
        self: &Arc<Self>,
        peer: &Peer,
    ) -> Result<StrangersPlace, &'static str> {
        let from = network(peer.remote_address().ip());
        self.lock()
            .strangers
            .enter(from)
            .map_err(|_| "too many hosts are enrolling at the same time; try again in a minute")?;
        Ok(StrangersPlace { sessions: self.clone(), from })
    }

    /// Ends every session of an identity.
    pub(crate) fn expel(&self, fingerprint: &str, code: CloseCode, words: &str) {
        for live in self.lock().live.values() {
            if live.fingerprint == fingerprint {
                live.peer.close(code, words);
            }
        }
    }

    /// Ends every connection from `address`, as if nothing had been heard for the idle timeout.
    #[cfg(debug_assertions)]
    pub(crate) fn lose(&self, address: IpAddr) {
        for live in self.lock().live.values() {
            if live.peer.remote_address().ip().to_canonical() == address {
                live.peer.close(CloseCode::Done, "lost for a test");
            }
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().live.len()
    }

    /// The identities of hosts that are connected.
    pub(crate) fn identities(&self) -> BTreeSet<String> {
        self.lock().live.values().map(|live| live.fingerprint.clone()).collect()
    }

    /// The clients that are connected.
    pub(crate) fn clients(&self) -> BTreeSet<ClientId> {
        self.lock().live.values().filter_map(|live| live.client).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionSlot {
    /// Makes the session that of a client, whose earlier session is over: a client has one.
    pub(crate) fn claim(&self) -> impl FnOnce(ClientId) + Send + use<> {
        let (sessions, own) = (self.sessions.clone(), self.number);
        move |client| {
            let mut table = sessions.lock();
            for (number, live) in &mut table.live {
                if *number == own {
                    live.client = Some(client);
                } else if live.client == Some(client) {
                    live.is_replaced.store(true, Ordering::Release);
                    let words = "the same cache, or a copy of it, has connected again";
                    live.peer.close(CloseCode::Replaced, words);
                }
            }
        }
    }

    /// Turns true once a later session has claimed the client of this one.
    pub(crate) fn replaced(&self) -> &Arc<AtomicBool> {
        &self.is_replaced
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        if let Some(live) = table.live.remove(&self.number) {
            table.known.leave(&live.fingerprint);
        }
    }
}

/// The place of a connection without identity, for as long as it lives.
pub(crate) struct StrangersPlace {
    sessions: Arc<Sessions>,
    from: IpAddr,
}

impl Drop for StrangersPlace {
    fn drop(&mut self) {
        self.sessions.lock().strangers.leave(&self.from);
    }
}
