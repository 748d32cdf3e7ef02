//! A client's connection that heals itself.
//!
//! ```text
//!  Connecting ──connected, greeted──▶ Online ──connection lost──▶ Offline ──▶ (again, after a wait)
//!      │                                ▲                            ▲
//!      ├──not reached────────────────── │ ───────────────────────────┤
//!      └──denied by the server──▶ Refused, or OtherVersion ──(again, after a longer wait)
//! ```
//!
//! A call is sent again on a new connection when the old one died before the reply's head was
//! here. So a call may arrive twice; every request is safe to repeat (records carry their
//! OpId), and exactly one reply is returned. A call on a live connection may take any time: it
//! is the connection's signs of life that are watched.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use segue_core::types::Class;
use segue_core::wire::{Request, Welcome};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::close::{CallError, CloseCode};
use crate::dial::{ConnectError, Target, dial};
use crate::enrol::GreetError;
use crate::identity::Identity;
use crate::peer::{Peer, Response};
use crate::stats::LinkStats;

/// How long one attempt to connect may take: five round trips of a bad satellite link.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
/// How long the greeting may take on a connection that lives: the server may be catching up
/// with its log after a crash.
const GREET_PATIENCE: Duration = Duration::from_secs(60);
/// The wait after a refusal, which a person has to lift.
const REFUSED_WAIT: Duration = Duration::from_secs(30);
/// How often a call is sent again that a live server left unanswered, as one does that is about
/// to stop. A request that always fails there must not be sent for ever.
const UNANSWERED_MAX: u32 = 4;

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
        /// What the server said to the greeting.
        welcome: Arc<Welcome>,
        /// Grows with each connection.
        generation: u64,
    },
    /// It cannot be reached; it is tried again.
    Offline {
        /// Since when.
        since: Instant,
        /// What the last attempt met.
        why: String,
    },
    /// It does not want this host. It is tried again now and then, because a person may change
    /// that.
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

/// What the task publishes: state and connection change together.
#[derive(Clone, Debug)]
struct Current {
    state: LinkState,
    peer: Option<Peer>,
}

/// A client's way to one server. Clones share it; the last one dropped ends it.
#[derive(Clone, Debug)]
pub struct Link {
    current: watch::Receiver<Current>,
    states: watch::Receiver<LinkState>,
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Begins to connect and keeps at it. Needs a tokio runtime.
    pub fn open(target: Target, identity: Identity, greeting: Greeting) -> Link {
        let (sender, current) =
            watch::channel(Current { state: LinkState::Connecting, peer: None });
        let (states_sender, states) = watch::channel(LinkState::Connecting);
        let publisher = Publisher { current: sender, states: states_sender };
        let keeper = Keeper { target, identity, greeting, publisher, generation: 0 };
        Link { current, states, _task: Arc::new(Task(tokio::spawn(keeper.run()))) }
    }

    /// The state now.
    pub fn state(&self) -> LinkState {
        self.states.borrow().clone()
    }

    /// The state as it changes.
    pub fn watch(&self) -> watch::Receiver<LinkState> {
        self.states.clone()
    }

    /// The connection, while online.
    pub fn peer(&self) -> Option<Peer> {
        self.current.borrow().peer.clone()
    }

    /// The connection's figures, while online.
    pub fn stats(&self) -> Option<LinkStats> {
        self.peer().map(|peer| peer.stats())
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

    /// Calls at `class`, on as many connections as it takes. Fails with
    /// [`CallError::Offline`] when there is none for `patience`, and with
    /// [`CallError::Refused`] at once when the server does not want this host.
    pub async fn call_at(
        &self,
        class: Class,
        request: &Request,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response, CallError> {
        let mut newer_than = 0;
        let mut unanswered = 0;
        let mut backoff = Backoff::default();
        loop {
            let (peer, generation) = self.online(newer_than, patience).await?;
            match peer.call_at(class, request, body.clone().into()).await {
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
        let ready = current.wait_for(|current| match current.state {
            LinkState::Online { generation, .. } => generation > after,
            LinkState::Refused { .. } | LinkState::OtherVersion { .. } => true,
            LinkState::Connecting | LinkState::Offline { .. } => false,
        });
        match timeout(patience, ready).await {
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

fn why(state: &LinkState) -> String {
    match state {
        LinkState::Offline { why, .. }
        | LinkState::Refused { why }
        | LinkState::OtherVersion { why } => why.clone(),
        LinkState::Connecting => "no answer yet".into(),
        LinkState::Online { .. } => "the connection was lost".into(),
    }
}

struct Publisher {
    current: watch::Sender<Current>,
    states: watch::Sender<LinkState>,
}

impl Publisher {
    /// The connection first: who sees "online" can call.
    fn publish(&self, state: LinkState, peer: Option<Peer>) {
        self.current.send_replace(Current { state: state.clone(), peer });
        self.states.send_replace(state);
    }
}

/// The task that connects, and connects again.
struct Keeper {
    target: Target,
    identity: Identity,
    greeting: Greeting,
    publisher: Publisher,
    generation: u64,
}

/// Why one attempt, or one connection, came to its end.
enum Setback {
    Offline(String),
    Refused(String),
    OtherVersion(String),
}

impl Keeper {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut offline_since = None;
        loop {
            let setback = match self.connect().await {
                Ok((peer, welcome)) => {
                    backoff.reset();
                    offline_since = None;
                    self.serve(peer, welcome).await
                }
                Err(setback) => setback,
            };
            let wait = match setback {
                Setback::Offline(why) => {
                    tracing::info!(host = %self.target.host, %why, "offline");
                    let since = *offline_since.get_or_insert_with(Instant::now);
                    self.publisher.publish(LinkState::Offline { since, why }, None);
                    backoff.next(random())
                }
                Setback::Refused(why) => {
                    tracing::warn!(host = %self.target.host, %why, "refused");
                    self.publisher.publish(LinkState::Refused { why }, None);
                    REFUSED_WAIT
                }
                Setback::OtherVersion(why) => {
                    tracing::warn!(host = %self.target.host, %why, "another version");
                    self.publisher.publish(LinkState::OtherVersion { why }, None);
                    REFUSED_WAIT
                }
            };
            sleep(wait).await;
        }
    }

    async fn connect(&self) -> Result<(Peer, Welcome), Setback> {
        let peer = dial(&self.target, Some(&self.identity), DIAL_PATIENCE).await?;
        match timeout(GREET_PATIENCE, (self.greeting)(peer.clone())).await {
            Ok(Ok(welcome)) => Ok((peer, welcome)),
            Ok(Err(GreetError::Again(why))) => Err(Setback::Offline(why)),
            Ok(Err(GreetError::Refused(why))) => Err(Setback::Refused(why)),
            Ok(Err(GreetError::OtherVersion(why))) => Err(Setback::OtherVersion(why)),
            Err(_) => Err(Setback::Offline("the server does not answer the greeting".into())),
        }
    }

    /// Lends the connection out until it is over.
    async fn serve(&mut self, peer: Peer, welcome: Welcome) -> Setback {
        self.generation += 1;
        let state = LinkState::Online {
            since: Instant::now(),
            welcome: Arc::new(welcome),
            generation: self.generation,
        };
        self.publisher.publish(state, Some(peer.clone()));
        match peer.closed().await {
            crate::CloseReason::Closed { code: CloseCode::Denied, words } => {
                Setback::Refused(words)
            }
            crate::CloseReason::Closed { code: CloseCode::OtherVersion, words } => {
                Setback::OtherVersion(words)
            }
            reason => Setback::Offline(reason.to_string()),
        }
    }
}

impl From<ConnectError> for Setback {
    fn from(error: ConnectError) -> Setback {
        match error {
            ConnectError::Denied(why) => Setback::Refused(why),
            ConnectError::OtherVersion(why) => Setback::OtherVersion(why),
            // Somebody else at that address is what a strange network looks like: the right
            // server is still somewhere.
            ConnectError::WrongAuthority { .. }
            | ConnectError::Resolve(_)
            | ConnectError::Unreachable(_) => Setback::Offline(error.to_string()),
        }
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the wait is the whole one.
    let _ = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
