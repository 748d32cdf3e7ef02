//! The client's end: one attempt to reach a server.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, Endpoint, TokioRuntime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::close::{self, CloseCode, CloseReason};
use crate::identity::{Identity, MountUrl, SERVER_NAME};
use crate::options::Options;
use crate::peer::Peer;
use crate::tls::{self, Pin};
use crate::{transport, version};

/// Head start of each of a host's addresses before the next is tried beside it (RFC 8305).
const ADDRESS_STAGGER: Duration = Duration::from_millis(250);
/// The first wait until a silent server is asked once more, from another socket. A server that
/// was just starting did not hear the first packet, and QUIC itself repeats that after one
/// second, three, and seven.
const AGAIN_FIRST: Duration = Duration::from_millis(300);
/// The longest such wait.
const AGAIN_LONGEST: Duration = Duration::from_secs(1);
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
    let name = format!("{}:{}", target.host, target.port);
    match timeout(patience, race(target, &name, identity)).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::Unreachable(format!("{name}: no answer within {patience:?}"))),
    }
}

/// Tries all addresses of the host, each a little later than the one before, and all of them
/// again while none answers; the first that does wins.
async fn race(
    target: &Target,
    name: &str,
    identity: Option<&Identity>,
) -> Result<Peer, ConnectError> {
    let resolved = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
    let resolved = resolved.map_err(|error| {
        // The resolver's own words stand last.
        let words = error.to_string();
        let words = words.rsplit(": ").next().unwrap_or(&words).to_owned();
        ConnectError::Resolve(format!("the name {}: {words}", target.host))
    })?;
    let addresses: Vec<_> = resolved.take(ADDRESSES_MAX).collect();
    let mut attempts = JoinSet::new();
    let begin = |attempts: &mut JoinSet<_>| {
        for (index, address) in (0..).zip(addresses.iter().copied()) {
            let (target, identity) = (target.clone(), identity.cloned());
            attempts.spawn(async move {
                sleep(ADDRESS_STAGGER * index).await;
                connect(address, &target, identity.as_ref()).await
            });
        }
    };
    begin(&mut attempts);
    let mut worst = ConnectError::Resolve(format!("the name {}: it has no address", target.host));
    let mut wait = AGAIN_FIRST;
    loop {
        let attempt = match timeout(wait, attempts.join_next()).await {
            Ok(Some(attempt)) => attempt,
            Ok(None) => return Err(worst),
            Err(_) => {
                begin(&mut attempts);
                wait = AGAIN_LONGEST.min(wait * 2);
                continue;
            }
        };
        match attempt {
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

async fn connect(
    address: SocketAddr,
    Target { authority, options, .. }: &Target,
    identity: Option<&Identity>,
) -> Result<Peer, ConnectError> {
    let unreachable = |words: String| ConnectError::Unreachable(format!("{address}: {words}"));
    let pin = Pin::new(authority);
    let tls = tls::client(pin.clone(), identity).map_err(|error| unreachable(error.to_string()))?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport::config(options.control)));
    let endpoint = endpoint().map_err(|error| unreachable(error.to_string()))?;
    let connecting = endpoint
        .connect_with(config, address, SERVER_NAME)
        .map_err(|error| unreachable(error.to_string()))?;
    let error = match connecting.await {
        Ok(connection) => return Ok(Peer::dialled(connection, options, endpoint)),
        Err(error) => error,
    };
    if let Some(found) = pin.other_authority() {
        let (expected, found) = (authority.clone(), found.to_owned());
        return Err(ConnectError::WrongAuthority { expected, found });
    }
    if close::is_other_protocol(&error) {
        return Err(ConnectError::OtherVersion(version::silent_words()));
    }
    match CloseReason::from(error) {
        CloseReason::Closed { code: CloseCode::Denied, words } => Err(ConnectError::Denied(words)),
        CloseReason::Closed { code: CloseCode::OtherVersion, words } => {
            Err(ConnectError::OtherVersion(words))
        }
        reason => Err(unreachable(reason.to_string())),
    }
}

/// A socket of its own for each connection: one that the system has closed, or that is bound to
/// an address which is gone, never outlives the connection that suffers from it.
fn endpoint() -> io::Result<Endpoint> {
    let socket = transport::bind((Ipv6Addr::UNSPECIFIED, 0).into())
        .or_else(|_| transport::bind((Ipv4Addr::UNSPECIFIED, 0).into()))?;
    Endpoint::new(transport::dialing(), None, socket, Arc::new(TokioRuntime))
}
