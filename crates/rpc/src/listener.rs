//! The server's end: connections that hosts open.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::crypto::{CryptoError, HmacKey};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, VarInt};
use segue_core::wire::VERSION;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::close::{self, CloseCode};
use crate::handshakes::{Admission, HandshakePlace, Handshakes};
use crate::identity::Authority;
use crate::options::Options;
use crate::paths::{PathKnowledge, Paths};
use crate::peer::Peer;
use crate::tls::{self, TlsError};
use crate::{transport, version};

/// Connections with a finished handshake that wait to be accepted.
const BACKLOG: usize = 64;
/// A handshake is two round trips. A host that takes so long is making none.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken, or not of this host.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// The authority's files failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A listening server.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    address: SocketAddr,
    peers: tokio::sync::Mutex<mpsc::Receiver<Peer>>,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one. Needs a tokio runtime.
    pub fn bind(
        address: SocketAddr,
        authority: &Authority,
        options: &Options,
    ) -> Result<Listener, ListenError> {
        let server = ServerConfig::with_crypto(Arc::new(tls::server(authority)?));
        let bind = |error| ListenError::Bind { address, error };
        let socket = transport::bind(address).map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        let config = endpoint_config(authority);
        let endpoint = Endpoint::new(config, Some(server.clone()), socket, Arc::new(TokioRuntime));
        let endpoint = endpoint.map_err(bind)?;
        let (sender, peers) = mpsc::channel(BACKLOG);
        let door = Door {
            server,
            options: options.clone(),
            peers: sender,
            handshakes: Shared::default(),
            paths: Paths::default(),
        };
        tokio::spawn(shake_hands(endpoint.clone(), door));
        Ok(Listener { endpoint, address, peers: tokio::sync::Mutex::new(peers) })
    }

    /// The address at which hosts can reach it.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next connection with a finished handshake; `None` once closed. One without
    /// identity may be served [`Request::Enrol`](segue_core::wire::Request::Enrol) only.
    pub async fn accept(&self) -> Option<Peer> {
        self.peers.lock().await.recv().await
    }

    /// Closes every connection and waits until the other sides were told.
    pub async fn close(&self, code: CloseCode, words: &str) {
        self.endpoint.close(code.to_wire(), words.as_bytes());
        self.endpoint.wait_idle().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.endpoint.close(CloseCode::Stopping.to_wire(), b"");
    }
}

/// What each handshake needs.
struct Door {
    server: ServerConfig,
    options: Options,
    peers: mpsc::Sender<Peer>,
    handshakes: Shared,
    paths: Paths,
}

async fn shake_hands(endpoint: Endpoint, door: Door) {
    let door = Arc::new(door);
    while let Some(incoming) = endpoint.accept().await {
        let is_proven = incoming.remote_address_validated() || !incoming.may_retry();
        let admission = lock(&door.handshakes).admit(incoming.remote_address().ip(), is_proven);
        match admission {
            Admission::Enter(place) => {
                let door = Arc::clone(&door);
                let place = Taken { handshakes: Arc::clone(&door.handshakes), place };
                tokio::spawn(async move {
                    door.shake_hand(incoming).await;
                    drop(place);
                });
            }
            // It fails only where there may be none.
            Admission::Prove => drop(incoming.retry()),
            Admission::Wait => incoming.ignore(),
            Admission::Refuse => incoming.refuse(),
        }
    }
}

/// The handshakes under way, and the networks from which hosts came.
type Shared = Arc<Mutex<Handshakes>>;

/// A place, until the handshake has ended.
struct Taken {
    handshakes: Shared,
    place: HandshakePlace,
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.handshakes).leave(self.place);
    }
}

fn lock(handshakes: &Shared) -> MutexGuard<'_, Handshakes> {
    handshakes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    async fn shake_hand(&self, incoming: Incoming) {
        let address = incoming.remote_address();
        let known = self.paths.to(address.ip());
        let mut server = self.server.clone();
        let mut transport = transport::listening(self.options.control);
        known.configure(address.ip(), &mut transport);
        server.transport_config(Arc::new(transport));
        let shaken = async { incoming.accept_with(Arc::new(server))?.await };
        match timeout(HANDSHAKE, shaken).await {
            Ok(Ok(connection)) => match version::other_version(&connection) {
                Some(theirs) => refuse(&connection, theirs),
                None => self.enter(connection, known).await,
            },
            Ok(Err(error)) if close::is_other_protocol(&error) => {
                tracing::warn!(%address, "refused a host: it knows no version of Segue's protocol");
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "handshake failed"),
            Err(_) => tracing::debug!(%address, "handshake took too long"),
        }
    }

    async fn enter(&self, connection: Connection, known: Arc<PathKnowledge>) {
        let from = connection.remote_address().ip();
        self.paths.keep(from, &known);
        let peer = Peer::new(connection.clone(), &self.options, known);
        if peer.identity().is_some() {
            lock(&self.handshakes).came(from);
            let window = transport::CONNECTION_WINDOW_BYTES;
            connection.set_receive_window(VarInt::from_u32(window));
        }
        // It fails when the listener is gone.
        drop(self.peers.send(peer).await);
    }
}

/// Tells a host of another version how to go on.
fn refuse(connection: &Connection, theirs: u32) {
    let words = version::words(VERSION, theirs);
    tracing::warn!(address = %connection.remote_address(), "refused a host: {words}");
    connection.close(CloseCode::OtherVersion.to_wire(), words.as_bytes());
}

/// A server that restarts ends its predecessor's connections when it hears of them. Otherwise hosts
/// would notice only after the idle timeout.
fn endpoint_config(authority: &Authority) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(ResetKey(authority.derive("segue reset 1"))));
    transport::name_connections(&mut config);
    config
}

/// Makes the tokens by which a server proves that its predecessor's connection is over.
struct ResetKey([u8; 32]);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        signature.copy_from_slice(blake3::keyed_hash(&self.0, data).as_bytes());
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        // The comparison of hashes takes the same time for all values.
        let valid = blake3::Hash::from_slice(signature)
            .is_ok_and(|signature| signature == blake3::keyed_hash(&self.0, data));
        if valid { Ok(()) } else { Err(CryptoError) }
    }
}
