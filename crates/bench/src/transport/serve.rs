//! The server's end: it answers, and keeps nothing.
//!
//! Of each request only its kind counts, and how much is fetched. It keeps no more than the names
//! of what arrived whole ([`Ledger`]), where it is told names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use segue_core::nouns::{Fingerprint, Ino, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::{
    Enrol, Enrolled, Fetch, Fetched, Put, Refused, Reply, Request, Seek, Sought, Stored, Welcome,
};
use segue_rpc::identity::Authority;
use segue_rpc::{Body, BodyReader, BodySender, Incoming, Listener, Peer};
use tokio::runtime::Runtime;

use super::ledger::{Ledger, message};
use super::variant::Variant;
use super::wrong;
use segue_bed::{Doing, Result};

/// What is handed over of a body at once.
const PIECE_BYTES: usize = 64 << 10;

/// With its head, the tag and the length before it this makes 50 bytes.
pub(super) const ANSWER: &str = "no such name, which is said in few words.";

/// What is fetched from here is noise, of the number that its offset says; else it is zeros.
pub(super) const NOISE: Ino = Ino(2);
/// Seeking from this offset asks for the ledger's counts.
pub(super) const TALLY: u64 = 1;
/// Most bytes of a message that has a name.
const NAMED_BYTES_MAX: usize = 1 << 20;

/// What the server's process is told.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Directory of its authority.
    pub authority: PathBuf,
    /// Where to listen.
    pub address: SocketAddr,
    /// Which transport.
    #[arg(long, value_enum)]
    pub variant: Variant,
}

/// What all connections share.
struct Server {
    authority: Authority,
    /// Bytes of bodies that came.
    received: AtomicU64,
    since: Instant,
    ledger: Mutex<Ledger>,
}

/// Serves until its process is killed; `is_ready` is called once it listens.
pub fn serve(options: &Serve, is_ready: impl FnOnce()) -> Result<()> {
    let authority = Authority::load(&options.authority).map_err(wrong)?;
    let (received, ledger) = (AtomicU64::new(0), Mutex::default());
    let server = Server { authority, received, since: Instant::now(), ledger };
    let server = Arc::new(server);
    Runtime::new().doing("start the server's threads")?.block_on(async {
        let sending = options.variant.options();
        let listener = Listener::bind(options.address, &server.authority, &sending);
        let listener = listener.map_err(wrong)?;
        is_ready();
        while let Some(peer) = listener.accept().await {
            tokio::spawn(converse(server.clone(), peer));
        }
        Ok(())
    })
}

async fn converse(server: Arc<Server>, peer: Peer) {
    while let Some(incoming) = peer.accept().await {
        tokio::spawn(answer(server.clone(), incoming));
    }
}

async fn answer(server: Arc<Server>, incoming: Incoming) {
    let Incoming { request, body, responder, .. } = incoming;
    let (reply, reply_body) = match request {
        Request::Put(put) => match server.put(&put, body).await {
            Some(reply) => (reply, Body::Empty),
            None => return,
        },
        Request::Fetch(fetch) => fetched(&fetch),
        Request::Seek(seek) => (Reply::Sought(server.count(&seek)), Body::Empty),
        Request::Enrol(enrol) => (server.enrol(&enrol), Body::Empty),
        Request::Hello(_) => (welcome(), Body::Empty),
        _ => (refused(ANSWER), Body::Empty),
    };
    // It fails when the caller has gone away, as all do in the end.
    let _ = responder.reply(reply, reply_body).await;
}

fn fetched(fetch: &Fetch) -> (Reply, Body) {
    let reply = Reply::Fetched(Fetched { segments: vec![(fetch.len, true)] });
    if fetch.ino == NOISE {
        let bytes = usize::try_from(fetch.len).unwrap_or(usize::MAX).min(NAMED_BYTES_MAX);
        return (reply, message(fetch.offset, bytes).into());
    }
    let (sender, body) = Body::channel();
    tokio::spawn(pour(sender, fetch.len));
    (reply, body)
}

fn welcome() -> Reply {
    Reply::Welcome(Welcome {
        volume_uuid: [0; 16],
        epoch: 0,
        role: Role::Writer,
        grants: Vec::new(),
        nonce: [0; 32],
        commit: 0,
        history: None,
    })
}

impl Server {
    /// Takes what was sent, against its name if it has one; none if it was cut.
    async fn put(&self, put: &Put, body: BodyReader) -> Option<Reply> {
        match put.chunks.first() {
            Some((name, _)) => self.enter(*name, body).await,
            None => self.swallow(body).await.then_some(Reply::Stored(Stored::default())),
        }
    }

    async fn enter(&self, name: Fingerprint, body: BodyReader) -> Option<Reply> {
        let message = body.collect(NAMED_BYTES_MAX).await.ok()?;
        self.received.fetch_add(message.len() as u64, Relaxed);
        let is_whole = self.ledger().enter(name, &message);
        Some(if is_whole {
            Reply::Stored(Stored::default())
        } else {
            refused("this is not what was named")
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a body to its end; false if it was cut.
    async fn swallow(&self, mut body: BodyReader) -> bool {
        loop {
            match body.next().await {
                Ok(Some(piece)) => self.received.fetch_add(piece.len() as u64, Relaxed),
                Ok(None) => return true,
                Err(_) => return false,
            };
        }
    }

    /// Bytes that came, and microseconds since the start; or the ledger's two counts.
    fn count(&self, seek: &Seek) -> Sought {
        if seek.offset == TALLY {
            let [start, end] = self.ledger().counts();
            return Sought { start, end };
        }
        let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        Sought { start: self.received.load(Relaxed), end: micros }
    }

    /// Lets everybody in.
    fn enrol(&self, enrol: &Enrol) -> Reply {
        match self.authority.sign(&enrol.request_der, &enrol.host) {
            Ok(issued) => Reply::Enrolled(Enrolled {
                certificate_pem: issued.certificate_pem,
                authority_pem: self.authority.certificate_pem().to_owned(),
                volume: super::pair::VOLUME.to_owned(),
                role: Role::Writer,
            }),
            Err(error) => refused(&error.to_string()),
        }
    }
}

pub(super) fn refused(words: &str) -> Reply {
    Reply::Refused(Refused { refusal: Refusal::NotFound, words: words.to_owned() })
}

/// Gives `body` so many bytes, as long as they are wanted.
pub(super) async fn pour(body: BodySender, bytes: u64) {
    for piece in pieces(bytes) {
        if body.send(piece).await.is_err() {
            return;
        }
    }
    // It fails when nobody wants to know that this was all.
    let _ = body.finish().await;
}

/// So many bytes, in the pieces in which they are handed over.
pub(super) fn pieces(bytes: u64) -> impl Iterator<Item = Bytes> + Send {
    let piece = Bytes::from(vec![0; PIECE_BYTES]);
    let mut left = bytes;
    std::iter::from_fn(move || {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        left -= length as u64;
        (length > 0).then(|| piece.slice(..length))
    })
}
