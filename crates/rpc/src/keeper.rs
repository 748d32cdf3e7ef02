//! The task behind a [`Link`](crate::Link): it connects, watches, and connects again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::backoff::Backoff;
use segue_core::wire::Welcome;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::close::{CloseCode, CloseReason};
use crate::dial::{ConnectError, Target, redial};
use crate::enrol::GreetError;
use crate::identity::Identity;
use crate::link::{Greeting, LinkState};
use crate::paths::PathKnowledge;
use crate::peer::Peer;
use crate::random::random;
use crate::silence::{Silence, Verdict};

/// How long one attempt to connect may take: five round trips of a bad satellite link.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
/// How long the greeting may take on a connection that lives: the server may be catching up
/// with its log after a crash.
const GREET_PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait between attempts while somebody waits for a call.
const WANTED_WAIT: Duration = Duration::from_secs(1);
/// How often a connection's signs of life and rates are read: short beside the time of a suspicion.
const LOOK: Duration = Duration::from_millis(250);
/// The wait after a refusal, which a person has to lift.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

/// The published state; state and connection change together.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    /// The state of the link.
    pub(crate) state: LinkState,
    /// The connection, while online.
    pub(crate) peer: Option<Peer>,
    /// Where the server was last.
    pub(crate) address: Option<SocketAddr>,
}

/// The keeper's way to publish.
struct Publisher {
    current: watch::Sender<Current>,
    states: watch::Sender<LinkState>,
    silent: watch::Sender<bool>,
}

impl Publisher {
    /// The connection first, so that an observer of "online" can call.
    fn publish(&self, state: LinkState, peer: Option<Peer>) {
        self.silent.send_replace(false);
        self.current.send_modify(|current| {
            let address = peer.as_ref().map(Peer::remote_address).or(current.address);
            *current = Current { state: state.clone(), peer, address };
        });
        self.states.send_replace(state);
    }
}

/// The task that connects, and connects again.
pub(crate) struct Keeper {
    target: Target,
    identity: Identity,
    greeting: Greeting,
    publisher: Publisher,
    /// How many calls wait for a connection.
    waiting: watch::Receiver<usize>,
    generation: u64,
    /// The path, by the last connection.
    known: Arc<PathKnowledge>,
}

/// A connection that was greeted, with the server's welcome.
type Greeted = (Peer, Welcome);

/// Why one attempt, or one connection, ended.
enum Setback {
    Offline(String),
    /// Another process with the same cache has connected.
    Replaced(String),
    Refused(String),
    OtherVersion(String),
}

/// A link's view of its keeper.
pub(crate) struct Kept {
    /// Ends when it is aborted.
    pub(crate) task: JoinHandle<()>,
    /// State and connection.
    pub(crate) current: watch::Receiver<Current>,
    /// The state alone.
    pub(crate) states: watch::Receiver<LinkState>,
    /// Whether the connection is silent.
    pub(crate) silent: watch::Receiver<bool>,
}

impl Keeper {
    /// Begins to connect; `waiting` says how many calls wait for a connection.
    pub(crate) fn start(
        target: Target,
        identity: Identity,
        greeting: Greeting,
        waiting: watch::Receiver<usize>,
    ) -> Kept {
        let (sender, current) =
            watch::channel(Current { state: LinkState::Connecting, peer: None, address: None });
        let (states_sender, states) = watch::channel(LinkState::Connecting);
        let (silent_sender, silent) = watch::channel(false);
        let publisher = Publisher { current: sender, states: states_sender, silent: silent_sender };
        let known = Arc::default();
        let keeper =
            Keeper { target, identity, greeting, publisher, waiting, generation: 0, known };
        Kept { task: tokio::spawn(keeper.run()), current, states, silent }
    }

    async fn run(mut self) {
        let (mut backoff, mut of_copies) = (Backoff::default(), Backoff::of_copies());
        let mut offline_since = None;
        loop {
            let setback = match self.connect().await {
                Ok(session) => {
                    backoff.reset();
                    offline_since = None;
                    self.serve(session).await
                }
                Err(setback) => setback,
            };
            if !matches!(setback, Setback::Replaced(_)) {
                of_copies.reset();
            }
            let wait = match setback {
                Setback::Replaced(why) => {
                    let wait = of_copies.next(random());
                    let host = &self.target.host;
                    tracing::warn!(%host, %why, ?wait, "another process has this cache");
                    let since = *offline_since.get_or_insert_with(Instant::now);
                    self.publisher.publish(LinkState::Offline { since, why }, None);
                    // However many calls wait: both copies have some.
                    sleep(wait).await;
                    continue;
                }
                Setback::Offline(why) => {
                    tracing::info!(host = %self.target.host, %why, "offline");
                    let since = *offline_since.get_or_insert_with(Instant::now);
                    self.publisher.publish(LinkState::Offline { since, why }, None);
                    backoff.next(random())
                }
                Setback::Refused(why) => {
                    tracing::warn!(host = %self.target.host, %why, "the server refused this host");
                    self.publisher.publish(LinkState::Refused { why }, None);
                    REFUSED_WAIT
                }
                Setback::OtherVersion(why) => {
                    let host = &self.target.host;
                    tracing::warn!(%host, %why, "the server speaks another version");
                    self.publisher.publish(LinkState::OtherVersion { why }, None);
                    REFUSED_WAIT
                }
            };
            self.pause(wait).await;
        }
    }

    /// Waits, but not for long while somebody else waits for the outcome.
    async fn pause(&mut self, wait: Duration) {
        let soon = wait.min(WANTED_WAIT);
        sleep(soon).await;
        let wanted = self.waiting.wait_for(|waiting| *waiting > 0);
        // The count ends only when no caller is left to wait.
        let _ = timeout(wait - soon, wanted).await;
    }

    async fn connect(&self) -> Result<Greeted, Setback> {
        let peer = self.dial().await?;
        self.greet(peer).await
    }

    async fn dial(&self) -> Result<Peer, ConnectError> {
        redial(&self.target, Some(&self.identity), DIAL_PATIENCE, &self.known).await
    }

    async fn greet(&self, peer: Peer) -> Result<Greeted, Setback> {
        let greeted = tokio::select! {
            greeted = timeout(GREET_PATIENCE, (self.greeting)(peer.clone())) => greeted,
            () = death(&peer) => {
                let why = "the server fell silent while it was greeted";
                peer.close(CloseCode::Done, why);
                return Err(Setback::Offline(why.into()));
            }
        };
        match greeted {
            Ok(Ok(welcome)) => Ok((peer, welcome)),
            Ok(Err(GreetError::Again(why))) => Err(Setback::Offline(why)),
            Ok(Err(GreetError::Refused(why) | GreetError::Copied(why))) => {
                Err(Setback::Refused(why))
            }
            Ok(Err(GreetError::OtherVersion(why))) => Err(Setback::OtherVersion(why)),
            Err(_) => Err(Setback::Offline("the server does not answer the greeting".into())),
        }
    }

    /// Lends connections out, the next when one is silent, until one is over.
    async fn serve(&mut self, session: Greeted) -> Setback {
        let mut peer = self.lend(session);
        loop {
            let next = match self.successor(&peer).await {
                Ok(next) => next,
                Err(reason) => return reason.into(),
            };
            let host = &self.target.host;
            tracing::info!(%host, "the old connection is silent, using a new one");
            let next = self.lend(next);
            peer.close(CloseCode::Done, "replaced by a new connection");
            peer = next;
        }
    }

    fn lend(&mut self, (peer, welcome): Greeted) -> Peer {
        self.generation += 1;
        let state = LinkState::Online {
            since: Instant::now(),
            welcome: Arc::new(welcome),
            generation: self.generation,
        };
        self.publisher.publish(state, Some(peer.clone()));
        peer
    }

    /// A connection that got through while `peer` was silent; an error if `peer` is over.
    async fn successor(&self, peer: &Peer) -> Result<Greeted, CloseReason> {
        let closed = peer.closed();
        tokio::pin!(closed);
        loop {
            tokio::select! {
                reason = &mut closed => return Err(reason),
                () = silence(peer) => {}
            }
            self.publisher.silent.send_replace(true);
            let dialled = tokio::select! {
                dialled = insist(|| self.dial()) => dialled,
                () = sign_of_life(peer) => {
                    self.publisher.silent.send_replace(false);
                    continue;
                }
                reason = &mut closed => return Err(reason),
            };
            // A greeting ends the earlier session at both sides: there is no way back.
            let next = async {
                match self.greet(dialled).await {
                    Ok(session) => session,
                    Err(_) => insist(|| self.connect()).await,
                }
            };
            tokio::pin!(next);
            tokio::select! {
                session = &mut next => return Ok(session),
                reason = &mut closed => return match reason {
                    // The server has heard the greeting: a client has one session.
                    CloseReason::Closed { code: CloseCode::Done | CloseCode::Replaced, .. } => {
                        timeout(DIAL_PATIENCE, next).await.map_err(|_| reason)
                    }
                    reason => Err(reason),
                },
            }
        }
    }
}

/// Tries until it works.
async fn insist<T, E, F: Future<Output = Result<T, E>>>(attempt: impl Fn() -> F) -> T {
    loop {
        if let Ok(done) = attempt().await {
            return done;
        }
        sleep(WANTED_WAIT).await;
    }
}

/// Waits until an answer is overdue. Asks for one while a call waits.
async fn silence(peer: &Peer) {
    let mut silence = Silence::default();
    loop {
        let now = Instant::now();
        peer.measure(now);
        match silence.handle(peer.traffic(), now) {
            Verdict::Silent => return,
            Verdict::Probe => {
                // It waits if all streams are in use; the next round then probes.
                let _ = timeout(LOOK, peer.probe()).await;
            }
            Verdict::Well => {}
        }
        sleep(LOOK).await;
    }
}

/// Waits until a connection that has not begun to serve is given up: it was silent, and then stayed
/// so for as long as an attempt to connect may take. A server that is killed in the middle of a
/// handshake leaves one: its successor ignores the rest of the handshake, and no reset comes.
async fn death(peer: &Peer) {
    loop {
        silence(peer).await;
        if timeout(DIAL_PATIENCE, sign_of_life(peer)).await.is_err() {
            return;
        }
    }
}

/// Waits until anything is heard.
async fn sign_of_life(peer: &Peer) {
    let heard = peer.traffic().heard;
    while peer.traffic().heard == heard {
        sleep(LOOK).await;
        peer.measure(Instant::now());
    }
}

impl From<CloseReason> for Setback {
    fn from(reason: CloseReason) -> Setback {
        match reason {
            CloseReason::Closed { code: CloseCode::Denied, words } => Setback::Refused(words),
            CloseReason::Closed { code: CloseCode::OtherVersion, words } => {
                Setback::OtherVersion(words)
            }
            CloseReason::Closed { code: CloseCode::Replaced, words } => Setback::Replaced(words),
            reason => Setback::Offline(reason.to_string()),
        }
    }
}

impl From<ConnectError> for Setback {
    fn from(error: ConnectError) -> Setback {
        match error {
            ConnectError::Denied(why) => Setback::Refused(why),
            ConnectError::OtherVersion(why) => Setback::OtherVersion(why),
            // A strange network often answers with another server. The right one is still
            // somewhere.
            ConnectError::WrongAuthority { .. }
            | ConnectError::Resolve(_)
            | ConnectError::Unreachable(_) => Setback::Offline(error.to_string()),
        }
    }
}
