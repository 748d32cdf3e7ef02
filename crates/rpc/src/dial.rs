//! The client's end: one attempt to reach a server.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, ConnectionError, Endpoint, TokioRuntime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::close::{self, CloseCode, CloseReason};
use crate::identity::{Identity, MountUrl, SERVER_NAME};
use crate::options::Options;
use crate::paths::PathKnowledge;
use crate::peer::Peer;
use crate::tls::{self, Pin};
use crate::{transport, version};

/// Head start of each of a host's addresses before the next is tried beside it (RFC 8305).
const ADDRESS_STAGGER: Duration = Duration::from_millis(250);
/// The first wait until a silent server is asked once more, from another socket. A server that
/// was just starting did not hear the first packet, and QUIC itself repeats that after one
/// second, three, and seven.
const AGAIN_FIRST: Duration = Duration::from_millis(300);
/// And at least after so many round trips.
const AGAIN_TRIPS: u32 = 2;
/// The same for a path that is not known: beside QUIC's own.
const AGAIN_UNKNOWN: Duration = Duration::from_millis(1_500);
/// Each further wait is so many times longer: a packet takes a second at 1.2 KB/s, and what is
/// asked too often is in the way of the answer.
const AGAIN_FACTOR: u32 = 4;
/// How long the rest may take once the server has answered: ten packets each way, of three seconds.
const ANSWERED: Duration = Duration::from_secs(60);
/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Which server, and how it is sent to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Fingerprint of its authority.
    pub authority: String,
    /// How to send to it.
    pub options: Options,
}

impl Target {
    /// The server of `url` with the authority that was pinned for it.
    pub fn new(url: &MountUrl, authority: &str) -> Target {
        let (host, authority) = (url.host().into(), authority.into());
        Target { host, port: url.port(), authority, options: Options::default() }
    }
}

/// Why a server cannot be reached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("cannot resolve {0}")]
    Resolve(String),
    /// No server answers.
    #[error("cannot reach {0}")]
    Unreachable(String),
    /// Another server answers.
    #[error(
        "another server answers: its certificate authority is {found}, but {expected} is \
         expected; if the server was set up anew, get a new invite from it: segue invite"
    )]
    WrongAuthority {
        /// The pinned authority.
        expected: String,
        /// The presented authority.
        found: String,
    },
    /// It speaks another version of the protocol.
    #[error("{0}")]
    OtherVersion(String),
    /// It does not want this host.
    #[error("denied by the server: {0}")]
    Denied(String),
}

/// Connects to a server: within `patience`, or not.
///
/// The server judges a certificate only after this side's handshake is done, so one that it
/// does not accept shows at the first call, as [`CloseCode::Denied`]. So does a version that
/// the server does not speak, as [`CloseCode::OtherVersion`].
pub async fn dial(
    target: &Target,
    identity: Option<&Identity>,
    patience: Duration,
) -> Result<Peer, ConnectError> {
    redial(target, identity, patience, &Arc::default()).await
}

/// The same over a path of which something is `known`.
///
/// Patience is for silence. Once the server has answered, a thin link may take longer for the rest.
pub(crate) async fn redial(
    target: &Target,
    identity: Option<&Identity>,
    patience: Duration,
    known: &Arc<PathKnowledge>,
) -> Result<Peer, ConnectError> {
    let name = format!("{}:{}", target.host, target.port);
    let (answered, is_answered) = watch::channel(None);
    let attempt = Attempt {
        target: target.clone(),
        identity: identity.cloned(),
        known: Arc::clone(known),
        answered: Arc::new(answered),
    };
    tokio::select! {
        result = race(&attempt, &name) => result,
        silence = end_of(patience, is_answered) => {
            Err(ConnectError::Unreachable(format!("{name}: {silence}")))
        }
    }
}

/// Returns what took too long.
async fn end_of(patience: Duration, mut answered: watch::Receiver<Option<Answered>>) -> String {
    let answer = answered.wait_for(Option::is_some);
    if timeout(patience, answer).await.is_err() {
        return format!("no answer within {patience:?}");
    }
    sleep(ANSWERED).await;
    format!("an answer, but no connection within {ANSWERED:?}")
}

/// Tries all addresses of the host, each a little later than the one before, and all of them
/// again while none answers; the first that does wins.
async fn race(attempt: &Attempt, name: &str) -> Result<Peer, ConnectError> {
    let Target { host, port, .. } = &attempt.target;
    let resolved = tokio::net::lookup_host((host.as_str(), *port)).await;
    let resolved = resolved.map_err(|error| {
        // The resolver's own words stand last.
        let words = error.to_string();
        let words = words.rsplit(": ").next().unwrap_or(&words).to_owned();
        ConnectError::Resolve(format!("the name {host}: {words}"))
    })?;
    let addresses: Vec<_> = resolved.take(ADDRESSES_MAX).collect();
    let mut attempts = JoinSet::new();
    let mut number = 0;
    let mut begin = |attempts: &mut JoinSet<_>| {
        for (index, address) in (0..).zip(addresses.iter().copied()) {
            let attempt = attempt.clone();
            number += 1;
            let number = number;
            attempts.spawn(async move {
                sleep(ADDRESS_STAGGER * index).await;
                attempt.run(address, number).await
            });
        }
    };
    begin(&mut attempts);
    let mut worst = ConnectError::Resolve(format!("the name {host}: it has no address"));
    let trip = attempt.known.trip();
    let mut wait = trip.map_or(AGAIN_UNKNOWN, |trip| AGAIN_FIRST.max(AGAIN_TRIPS * trip));
    loop {
        let ended = match timeout(wait, attempts.join_next()).await {
            Ok(Some(ended)) => ended,
            Ok(None) => return Err(worst),
            Err(_) if attempt.is_answered() => continue,
            Err(_) => {
                begin(&mut attempts);
                wait *= AGAIN_FACTOR;
                continue;
            }
        };
        match ended {
            Ok(Ok(peer)) => return Ok(peer),
            // An answer says more than silence at another address.
            Ok(Err(ConnectError::Unreachable(_))) if is_answer(&worst) => {}
            Ok(Err(error)) => worst = error,
            Err(error) => worst = ConnectError::Unreachable(format!("{name}: {error}")),
        }
    }
}

fn is_answer(error: &ConnectError) -> bool {
    !matches!(error, ConnectError::Resolve(_) | ConnectError::Unreachable(_))
}

/// The address that answered, and which attempt there.
type Answered = (SocketAddr, u32);

/// What each attempt needs.
#[derive(Clone)]
struct Attempt {
    target: Target,
    identity: Option<Identity>,
    known: Arc<PathKnowledge>,
    answered: Arc<watch::Sender<Option<Answered>>>,
}

impl Attempt {
    fn is_answered(&self) -> bool {
        self.answered.borrow().is_some()
    }

    /// Connects to `address`, unless another attempt there is answered first.
    async fn run(&self, address: SocketAddr, number: u32) -> Result<Peer, ConnectError> {
        let mut answered = self.answered.subscribe();
        let other = answered.wait_for(|answered| {
            answered.is_some_and(|(from, other)| from == address && other != number)
        });
        tokio::select! {
            result = self.connect(address, number) => result,
            _ = other => Err(ConnectError::Unreachable(format!("{address}: answered before"))),
        }
    }

    async fn connect(&self, address: SocketAddr, number: u32) -> Result<Peer, ConnectError> {
        let Target { authority, options, .. } = &self.target;
        let unreachable = |words: String| ConnectError::Unreachable(format!("{address}: {words}"));
        let pin = Pin::new(authority);
        let tls = tls::client(pin.clone(), self.identity.as_ref())
            .map_err(|error| unreachable(error.to_string()))?;
        let mut config = ClientConfig::new(Arc::new(tls));
        let mut transport = transport::config(options.control);
        self.known.configure(address.ip(), &mut transport);
        config.transport_config(Arc::new(transport));
        let endpoint = endpoint().map_err(|error| unreachable(error.to_string()))?;
        let mut connecting = endpoint
            .connect_with(config, address, SERVER_NAME)
            .map_err(|error| unreachable(error.to_string()))?;
        if connecting.handshake_data().await.is_ok() {
            self.answered.send_if_modified(|answered| {
                let is_first = answered.is_none();
                answered.get_or_insert((address, number));
                is_first
            });
        }
        match connecting.await {
            Ok(connection) => {
                Ok(Peer::dialled(connection, options, endpoint, Arc::clone(&self.known)))
            }
            Err(error) => Err(refusal(error, &pin, authority).unwrap_or_else(unreachable)),
        }
    }
}

/// What a failed handshake means; the words of one that did not get through.
fn refusal(error: ConnectionError, pin: &Pin, expected: &str) -> Result<ConnectError, String> {
    if let Some(found) = pin.other_authority() {
        let (expected, found) = (expected.to_owned(), found.to_owned());
        return Ok(ConnectError::WrongAuthority { expected, found });
    }
    if close::is_other_protocol(&error) {
        return Ok(ConnectError::OtherVersion(version::silent_words()));
    }
    match CloseReason::from(error) {
        CloseReason::Closed { code: CloseCode::Denied, words } => Ok(ConnectError::Denied(words)),
        CloseReason::Closed { code: CloseCode::OtherVersion, words } => {
            Ok(ConnectError::OtherVersion(words))
        }
        reason => Err(reason.to_string()),
    }
}

/// A socket of its own for each connection: one that the system has closed, or that is bound to
/// an address which is gone, never outlives the connection that suffers from it.
fn endpoint() -> io::Result<Endpoint> {
    let socket = transport::bind((Ipv6Addr::UNSPECIFIED, 0).into())
        .or_else(|_| transport::bind((Ipv4Addr::UNSPECIFIED, 0).into()))?;
    Endpoint::new(transport::dialing(), None, socket, Arc::new(TokioRuntime))
}
