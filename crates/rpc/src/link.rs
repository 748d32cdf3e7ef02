//! A client's connection that heals itself.
//!
//! ```text
//!  Connecting ──connected, greeted──▶ Online ──link lost──▶ Offline ──▶ (again, after a wait)
//!      │                                ▲                      ▲
//!      ├──not reached────────────────── │ ─────────────────────┤
//!      └──denied by the server──▶ Refused, or OtherVersion ──(again, after a longer wait)
//! ```
//!
//! A call is sent again on a new connection if the old one ended before the reply's head came. So a
//! call may arrive twice. Every request is safe to repeat (records carry their OpId), and the
//! caller gets exactly one reply. A call on a live connection may take any time; only the
//! connection's signs of life are watched. A [silent](crate::silence) connection is replaced
//! without going offline, when another gets through.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use segue_core::backoff::Backoff;
use segue_core::nouns::Class;
use segue_core::wire::{Request, Welcome};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::close::CallError;
use crate::dial::Target;
use crate::enrol::GreetError;
use crate::identity::Identity;
use crate::keeper::{Current, Keeper, Kept};
use crate::peer::{Peer, Response};
use crate::random::random;
use crate::rpc::Rpc;
use crate::stats::LinkStats;

/// How often a call is sent again that a live server left unanswered, as a stopping server does. A
/// request that always fails there must not be sent for ever.
const UNANSWERED_MAX: u32 = 4;

/// However long there has been no connection a call waits for one for so long: it has the next
/// attempt begin within a second, and a server that is back answers within another.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Opens the session on each new connection, usually with [`greet`](crate::greet).
pub type Greeting = Arc<
    dyn Fn(Peer) -> Pin<Box<dyn Future<Output = Result<Welcome, GreetError>> + Send>> + Send + Sync,
>;

/// Whether the server can be reached.
#[derive(Clone, PartialEq, Debug)]
pub enum LinkState {
    /// The first attempt is under way.
    Connecting,
    /// A session is open.
    Online {
        /// Since when.
        since: Instant,
        /// The server's answer to the greeting.
        welcome: Arc<Welcome>,
        /// Grows with each connection.
        generation: u64,
    },
    /// It cannot be reached, and is tried again.
    Offline {
        /// Since when.
        since: Instant,
        /// The error of the last attempt.
        why: String,
    },
    /// It refuses this host. It is tried again now and then, because a person may change that.
    Refused {
        /// The server's words.
        why: String,
    },
    /// It speaks another version. It is tried again now and then, because it may be upgraded.
    OtherVersion {
        /// Which side is to be upgraded.
        why: String,
    },
}

/// A client's way to one server. Clones share it; the last one dropped ends it.
#[derive(Clone, Debug)]
pub struct Link {
    current: watch::Receiver<Current>,
    states: watch::Receiver<LinkState>,
    silent: watch::Receiver<bool>,
    wanted: watch::Sender<usize>,
    identity: Arc<str>,
    task: Arc<Task>,
}

/// A caller's wait for a connection, until this is dropped.
struct Wanted<'a>(&'a watch::Sender<usize>);

impl<'a> Wanted<'a> {
    fn count(waiting: &'a watch::Sender<usize>) -> Wanted<'a> {
        waiting.send_modify(|waiting| *waiting += 1);
        Wanted(waiting)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Begins to connect, and keeps trying. Needs a tokio runtime.
    pub fn open(target: Target, identity: Identity, greeting: Greeting) -> Link {
        let (wanted, waiting) = watch::channel(0);
        let fingerprint = identity.fingerprint().into();
        let Kept { current, states, silent, task } =
            Keeper::start(target, identity, greeting, waiting);
        Link { current, states, silent, wanted, identity: fingerprint, task: Arc::new(Task(task)) }
    }

    /// The fingerprint of the identity that it connects as.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Ends the connection, if there is one, and tells the server, before the process ends. No
    /// other one is made.
    pub async fn leave(&self) {
        self.task.0.abort();
        if let Some(peer) = self.peer() {
            peer.leave().await;
        }
    }

    /// The state now.
    pub fn state(&self) -> LinkState {
        self.states.borrow().clone()
    }

    /// The state as it changes from now on.
    pub fn watch(&self) -> watch::Receiver<LinkState> {
        let mut states = self.states.clone();
        // A clone has seen the same as the first receiver, which is nothing.
        states.mark_unchanged();
        states
    }

    /// True if the connection has been silent for a second and may be gone. Its calls wait until it
    /// speaks again, or another connection is there.
    pub fn is_silent(&self) -> bool {
        *self.silent.borrow()
    }

    /// Waits until it is silent.
    pub async fn silence(&self) {
        let mut silent = self.silent.clone();
        if silent.wait_for(|silent| *silent).await.is_err() {
            std::future::pending().await
        }
    }

    /// The number of the present connection, while online. It grows with each.
    pub fn generation(&self) -> Option<u64> {
        match self.current.borrow().state {
            LinkState::Online { generation, .. } => Some(generation),
            _ => None,
        }
    }

    /// The connection, while online.
    pub fn peer(&self) -> Option<Peer> {
        self.current.borrow().peer.clone()
    }

    /// The connection's figures, while online.
    pub fn stats(&self) -> Option<LinkStats> {
        self.peer().map(|peer| peer.stats())
    }

    /// How long who has `patience` with a server that cannot be reached waits for it from now on.
    /// That counts from when the connection was lost: after it nobody waits for longer than it
    /// takes to find the server there again, nor at all while this host has no way to where the
    /// server was.
    pub fn patience_left(&self, patience: Duration) -> Duration {
        let (state, address) = {
            let current = self.current.borrow();
            (current.state.clone(), current.address)
        };
        match state {
            LinkState::Offline { since, .. } => {
                let has_way = || address.is_none_or(has_way);
                patience_left(patience, since.elapsed(), has_way)
            }
            _ => patience,
        }
    }

    /// Waits for a connection, for as long as it takes to find a server that is there. Fails as
    /// [`Link::call_as`] does.
    pub async fn find(&self) -> Result<(), CallError> {
        self.online(0, ATTEMPT).await.map(drop)
    }

    /// Calls at the request's own class.
    pub async fn call(
        &self,
        request: &Request,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response, CallError> {
        self.call_at(request.class(), request, body, patience).await
    }

    /// Calls at `class`.
    pub async fn call_at(
        &self,
        class: Class,
        request: &Request,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response, CallError> {
        self.call_as(&Rpc::new(class), request, body, patience).await
    }

    /// Calls at the class of `rpc`, on as many connections as it takes. Fails with
    /// [`CallError::Offline`] when there is none for [what is left](Link::patience_left) of
    /// `patience`, and with [`CallError::Refused`] at once when the server does not want this host.
    pub async fn call_as(
        &self,
        rpc: &Rpc,
        request: &Request,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response, CallError> {
        let mut newer_than = 0;
        let mut unanswered = 0;
        let mut backoff = Backoff::default();
        loop {
            let (peer, generation) = self.online(newer_than, patience).await?;
            match peer.call_as(rpc, request, body.clone().into()).await {
                Err(CallError::Lost(_)) => newer_than = generation,
                Err(CallError::NoAnswer) if unanswered < UNANSWERED_MAX => {
                    unanswered += 1;
                    sleep(backoff.next(random())).await;
                }
                result => return result,
            }
        }
    }

    /// Waits for a connection made after the one of this generation.
    async fn online(&self, after: u64, patience: Duration) -> Result<(Peer, u64), CallError> {
        let mut current = self.current.clone();
        let _wanted = Wanted::count(&self.wanted);
        let ready = current.wait_for(|current| match current.state {
            LinkState::Online { generation, .. } => generation > after,
            LinkState::Refused { .. } | LinkState::OtherVersion { .. } => true,
            LinkState::Connecting | LinkState::Offline { .. } => false,
        });
        match timeout(self.patience_left(patience), ready).await {
            Ok(Ok(current)) => match (&current.state, &current.peer) {
                (LinkState::Online { generation, .. }, Some(peer)) => {
                    Ok((peer.clone(), *generation))
                }
                (state, _) => Err(CallError::Refused { why: why(state) }),
            },
            Ok(Err(_)) => Err(CallError::Offline { why: "the link is closed".into() }),
            Err(_) => Err(CallError::Offline { why: why(&self.state()) }),
        }
    }
}

fn patience_left(
    patience: Duration,
    offline: Duration,
    has_way: impl FnOnce() -> bool,
) -> Duration {
    let left = patience.saturating_sub(offline);
    if left > ATTEMPT || !has_way() { left } else { patience.min(ATTEMPT) }
}

/// False if this host has no network that leads to `address`.
fn has_way(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let tried = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(address));
    use std::io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    let is_none = |kind| matches!(kind, AddrNotAvailable | HostUnreachable | NetworkUnreachable);
    !tried.is_err_and(|error| is_none(error.kind()))
}

fn why(state: &LinkState) -> String {
    match state {
        LinkState::Offline { why, .. }
        | LinkState::Refused { why }
        | LinkState::OtherVersion { why } => why.clone(),
        LinkState::Connecting => "no answer yet".into(),
        LinkState::Online { .. } => "the connection was lost".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S11.3.
    #[test]
    fn patience_counts_from_the_loss_of_the_connection() {
        let left = |patience, offline, has_way| {
            let [patience, offline] = [patience, offline].map(Duration::from_secs);
            patience_left(patience, offline, || has_way).as_secs()
        };
        assert_eq!([0, 4, 8].map(|offline| left(10, offline, true)), [10, 6, 2]);
        assert_eq!([9, 10, 1000].map(|offline| left(10, offline, true)), [2; 3]);
        assert_eq!([0, 4, 9, 10, 1000].map(|offline| left(10, offline, false)), [10, 6, 1, 0, 0]);
        assert_eq!([0, 1, 5].map(|offline| left(1, offline, true)), [1; 3]);
    }

    #[test]
    fn there_is_a_way_to_this_host() {
        assert!(has_way(([127, 0, 0, 1], 7420).into()));
    }
}
