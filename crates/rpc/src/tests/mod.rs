//! Real connections over loopback, in one process.

pub(crate) mod allocations;
mod attacks;
mod calls;
mod decoders;
mod doors;
mod hostile;
mod lane;
mod limit;
mod link;
pub(crate) mod mutation;
mod order;
mod record;
mod relay;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use segue_core::nouns::{Ino, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::{Refused, Reply, Request};
use tempfile::TempDir;

use crate::identity::{Authority, Identities, Identity, KeyRequest};
use crate::*;

/// Ends a test that hangs; long enough for the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server's address, its authority, and a host that is enrolled there.
struct World {
    authority: Authority,
    identity: Identity,
    directory: PathBuf,
    /// `directory`, where it goes with the world.
    _temporary: Option<TempDir>,
}

impl World {
    fn new() -> World {
        let temporary = tempfile::tempdir().unwrap();
        let authority = Authority::open(&temporary.path().join("server")).unwrap();
        let identities = Identities::at(temporary.path().join("host"));
        let key = KeyRequest::generate().unwrap();
        let issued = authority.sign(&key.request_der, "laptop").unwrap();
        let place = (authority.fingerprint(), "home");
        identities.store(place, &key, &issued.certificate_pem, Role::Writer).unwrap();
        let world = World::at(temporary.path());
        World { _temporary: Some(temporary), ..world }
    }

    /// One that another process has made.
    fn at(directory: &Path) -> World {
        let authority = Authority::open(&directory.join("server")).unwrap();
        let identities = Identities::at(directory.join("host"));
        let identity = identities.load(authority.fingerprint(), "home").unwrap().unwrap();
        World { authority, identity, directory: directory.to_owned(), _temporary: None }
    }

    fn listen(&self) -> Listener {
        Listener::bind(loopback(0), &self.authority, &Options::default()).unwrap()
    }

    fn target(&self, address: SocketAddr) -> Target {
        Target {
            host: address.ip().to_string(),
            port: address.port(),
            authority: self.authority.fingerprint().to_owned(),
            options: Options::default(),
        }
    }

    async fn dial(&self, address: SocketAddr) -> Peer {
        dial(&self.target(address), Some(&self.identity), PATIENCE).await.unwrap()
    }

    /// Both ends of one connection; the listener must live as long.
    async fn pair(&self) -> (Peer, Peer, Listener) {
        let listener = self.listen();
        let client = self.dial(listener.local_address()).await;
        let server = listener.accept().await.unwrap();
        (client, server, listener)
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn getattr(number: u64) -> Request {
    Request::Getattr(Ino(number))
}

/// A reply that is told apart by its words.
fn answer(words: impl Into<String>) -> Reply {
    Reply::Refused(Refused { refusal: Refusal::NotFound, words: words.into() })
}

/// Answers each call with its inode's number as words, and its own body.
async fn echo(peer: Peer) {
    while let Some(incoming) = peer.accept().await {
        tokio::spawn(async move {
            let words = match &incoming.request {
                Request::Getattr(ino) => ino.to_string(),
                other => other.name().to_owned(),
            };
            let Incoming { mut body, responder, .. } = incoming;
            let Ok(Some(first)) = body.next().await else {
                let _ = responder.reply(answer(words), Body::Empty).await;
                return;
            };
            let (sender, reply_body) = Body::channel();
            let replied = tokio::spawn(responder.reply(answer(words), reply_body));
            let mut piece = first;
            loop {
                if sender.send(piece).await.is_err() {
                    return;
                }
                match body.next().await {
                    Ok(Some(next)) => piece = next,
                    _ => break,
                }
            }
            let _ = sender.finish().await;
            let _ = replied.await;
        });
    }
}
