//! One connection: which identity it has, which cache it serves, and an answer to each request.
//!
//! ```text
//!   connection ─▶ identity known, not revoked? ─ no ─▶ closed, with words
//!        │ yes
//!      Hello ─▶ cache bound, floor raised, numbers granted ─▶ every other request
//! ```
//!
//! Each request has its own task. How many run at once is bounded, and more tightly for those
//! that hold data, so that a client which asks for everything at once waits for itself only.

mod apply;
mod clone;
mod delta;
mod enrol;
mod fetch;
mod hello;
mod read;
mod resume;
mod sharing;
mod stage;
mod upload;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use segue_core::namespace::{Rights, Stop};
use segue_core::nouns::{Class, ClientId, Fingerprint, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::wire::{LIMIT_MIN, Limit, Refused, Renewed, Reply, Request};
use segue_rpc::{Body, CloseCode, Incoming, Peer, Rpc};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::meta::StoreError;
use crate::principals::{self, IdentityRow};
use crate::promises::Holder;
use crate::serve::Server;
use crate::sessions::SessionSlot;

/// A host that has its certificate says at once which cache it serves.
const HELLO: Duration = Duration::from_secs(30);
/// Hellos of one connection: a host that is told that its cache is a copy says a second.
const HELLOS_MAX: usize = 3;
/// Requests of one session under way, waiting ones included.
const REQUESTS_MAX: usize = 1024;
/// Of these, requests about metadata that run at once: more would queue for the disk.
const SMALL_MAX: usize = 64;
/// Requests that hold file data, each up to about 12 MiB, that run at once at each class. A
/// class has places of its own, or a prefetch whose answer trickles out between more urgent
/// ones would keep a demand fetch waiting.
const BULK_MAX: [(Class, usize); 6] = [
    (Class::Validate, 2),
    (Class::Fetch, 8),
    (Class::StoreAttr, 2),
    (Class::StoreFast, 4),
    (Class::StoreData, 8),
    (Class::Prefetch, 4),
];
/// Chunks that a session has shown to possess: 8 GiB of the smallest kind. The oldest are
/// forgotten first, and offered again.
const PROVEN_MAX: usize = 1 << 17;

/// An answer, or why there is none.
type Answer = Result<(Reply, Body), Refused>;

/// A connection with a known identity.
struct Session {
    server: Arc<Server>,
    peer: Peer,
    fingerprint: String,
    identity: IdentityRow,
    place: SessionSlot,
    bound: OnceLock<Bound>,
    /// Hellos that came.
    hellos: AtomicUsize,
    proven: Mutex<Proven>,
    rooms: Rooms,
    /// Dropped last: then the server may end.
    _alive: mpsc::Sender<()>,
}

/// Differences that are undone at once, each with 16 MiB beside its request's.
const DIFFERENCES_MAX: usize = 2;

/// Places for requests that run.
struct Rooms {
    /// For requests that somebody waits for.
    urgent: Semaphore,
    /// For other requests without file data.
    small: Semaphore,
    bulk: BTreeMap<Class, Semaphore>,
    /// For differences, of requests that have a place.
    differences: Semaphore,
}

impl Rooms {
    fn new() -> Rooms {
        let bulk = BULK_MAX.map(|(class, places)| (class, Semaphore::new(places)));
        let small = || Semaphore::new(SMALL_MAX);
        let differences = Semaphore::new(DIFFERENCES_MAX);
        Rooms { urgent: small(), small: small(), bulk: bulk.into(), differences }
    }

    /// Waits for a place where `request` runs: at its class, or at the one to which it is raised.
    async fn enter(&self, request: &Request, rpc: &Rpc) -> Option<SemaphorePermit<'_>> {
        loop {
            let class = rpc.class();
            let room = self.of(request, class)?;
            tokio::select! {
                // The semaphores are never closed.
                permit = room.acquire() => return permit.ok(),
                () = rpc.raised_above(class) => {}
            }
        }
    }

    /// Where `request` runs; nowhere if it does nothing but wait.
    fn of(&self, request: &Request, class: Class) -> Option<&Semaphore> {
        if matches!(request, Request::Visible(()) | Request::Watch(_) | Request::Open(_)) {
            return None;
        }
        let bulk = matches!(
            request,
            Request::Fetch(_) | Request::Offer(_) | Request::Put(_) | Request::Readdir(_)
        );
        match self.bulk.get(&class) {
            Some(room) if bulk => Some(room),
            _ if class <= Class::Fetch => Some(&self.urgent),
            _ => Some(&self.small),
        }
    }
}

/// What `Hello` said.
struct Bound {
    volume: VolumeId,
    client: ClientId,
    incarnation: u32,
    host: String,
    rights: Rights,
    nonce: [u8; 32],
    holder: Holder,
}

/// Serves a connection to its end, and holds `alive` until nothing of it is under way.
pub(crate) async fn run(server: Arc<Server>, peer: Peer, alive: mpsc::Sender<()>) {
    let Some(fingerprint) = peer.identity().map(|identity| identity.fingerprint.clone()) else {
        return enrol::run(&server, &peer).await;
    };
    // Entered before the identity is looked up, so that a revocation meanwhile finds it.
    let place = match server.sessions.enter(&peer, &fingerprint) {
        Ok(place) => place,
        Err(words) => {
            tracing::warn!(address = %peer.remote_address(), "refused a host: {words}");
            return peer.close(CloseCode::Stopping, words);
        }
    };
    let key = fingerprint.clone();
    let row = server.data.store.read(move |snapshot| principals::identity(snapshot, &key)).await;
    let identity = match row.map(|row| row.map_err(StoreError::from)) {
        Ok(Ok(Some(row))) if row.revoked.is_none() => row,
        Ok(Ok(Some(_))) => {
            return peer.close(CloseCode::Denied, REVOKED);
        }
        Ok(Ok(None)) => {
            let words = "this server does not know this host's identity; mount with a new invite: \
                 segue invite";
            return peer.close(CloseCode::Denied, words);
        }
        Ok(Err(error)) | Err(error) => {
            tracing::error!("cannot look up an identity: {error}");
            return peer.close(CloseCode::Stopping, &error.to_string());
        }
    };
    let session = Arc::new(Session {
        server,
        peer,
        fingerprint,
        identity,
        place,
        bound: OnceLock::new(),
        hellos: AtomicUsize::new(0),
        proven: Mutex::default(),
        rooms: Rooms::new(),
        _alive: alive,
    });
    session.run().await;
}

/// What a host hears whose identity was revoked.
pub(crate) const REVOKED: &str =
    "this host's identity was revoked on the server; get a new invite from it: segue invite";

/// What a host hears whose volume was deleted while it was connected.
pub(crate) const DELETED: &str = "the volume was deleted on the server; pending changes stay in \
                                  the cache directory of this host";

impl Session {
    async fn run(self: Arc<Self>) {
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        tokio::spawn(self.clone().expect_hello());
        while let Some(incoming) = self.peer.accept().await {
            let Ok(permit) = requests.clone().acquire_owned().await else { return };
            let session = self.clone();
            tokio::spawn(async move {
                session.serve(incoming).await;
                drop(permit);
            });
        }
        if let Some(bound) = self.bound.get() {
            self.leave(bound);
        }
    }

    /// Ends a connection that takes a place and does nothing with it.
    async fn expect_hello(self: Arc<Self>) {
        let over = timeout(HELLO, self.peer.closed()).await.is_ok();
        if !over && self.bound.get().is_none() {
            self.peer.close(CloseCode::Protocol, "this connection sent no Hello");
        }
    }

    async fn serve(&self, incoming: Incoming) {
        let (name, begun) = (incoming.request.name(), Instant::now());
        let is_hello = matches!(incoming.request, Request::Hello(_));
        let _permit = self.rooms.enter(&incoming.request, &incoming.rpc).await;
        let Incoming { request, body, responder, .. } = incoming;
        let (reply, body) = match self.answer(request, body).await {
            Ok(answer) => answer,
            Err(refused) => {
                tracing::debug!(request = name, ?refused, "refused");
                (Reply::Refused(refused), Body::Empty)
            }
        };
        self.server.metrics.answered(name, begun.elapsed());
        let is_refused = is_hello && matches!(reply, Reply::Refused(_));
        if let Err(error) = responder.reply(reply, body).await {
            tracing::debug!(request = name, %error, "an answer did not go out");
        }
        if is_refused && self.hellos.load(Ordering::Relaxed) >= HELLOS_MAX {
            self.peer.close(CloseCode::Protocol, "too many hellos were refused");
        }
    }

    async fn answer(&self, request: Request, body: segue_rpc::BodyReader) -> Answer {
        match request {
            // Each takes work of the store thread, which all volumes share. Those that do not wait
            // for the answers to others get none.
            Request::Hello(_) if self.hellos.fetch_add(1, Ordering::Relaxed) >= HELLOS_MAX => {
                return Err(refuse(Refusal::Protocol, "too many hellos"));
            }
            Request::Hello(hello) => return self.hello(hello).await,
            Request::Enrol(_) => {
                return Err(refuse(Refusal::Protocol, "this host has an identity already"));
            }
            Request::Limit(limit) => return Ok(self.limit(limit)),
            _ => {}
        }
        let bound =
            self.bound.get().ok_or_else(|| refuse(Refusal::Protocol, "Hello comes first"))?;
        match request {
            Request::Fetch(fetch) => self.fetch(bound, fetch).await,
            Request::Offer(offer) => self.offer(bound, offer).await,
            Request::Put(put) => self.put(bound, put, body).await,
            Request::Stage(stage) => self.stage(bound, stage).await,
            Request::Apply(apply) => self.apply(bound, apply, body).await,
            Request::Grant(()) => self.grant(bound).await,
            Request::Resume(resume) => self.resume(bound, resume).await,
            Request::Watch(watch) => self.watch(bound, watch).await,
            Request::Open(ino) => self.open(bound, ino).await,
            Request::Dirty(dirty) => self.dirty(bound, dirty).await,
            Request::Renew(()) => {
                let commit = self.server.data.store.promises().heard_through(&bound.holder);
                Ok((Reply::Renewed(Renewed { commit }), Body::Empty))
            }
            Request::Visible(()) => {
                let promises = self.server.data.store.promises();
                self.while_connected(promises.visible(bound.volume, &bound.holder)).await?;
                Ok((Reply::Visible(()), Body::Empty))
            }
            other => self.read(bound, other).await,
        }
    }

    /// The host wants no more than that.
    fn limit(&self, limit: Limit) -> (Reply, Body) {
        self.peer.limit(limit.bytes_per_second.map(|bytes| bytes.max(LIMIT_MIN)));
        self.peer.set_background(limit.is_background);
        (Reply::Limited(()), Body::Empty)
    }

    /// Waits for others, which nobody need do for a host that is gone: it would keep the server
    /// from ending.
    async fn while_connected<R>(&self, waiting: impl Future<Output = R>) -> Result<R, Refused> {
        tokio::select! {
            done = waiting => Ok(done),
            _ = self.peer.closed() => Err(refuse(Refusal::Unreachable, "the connection is over")),
        }
    }

    fn proven(&self) -> MutexGuard<'_, Proven> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chunks that a session has shown to possess.
#[derive(Default)]
struct Proven {
    set: BTreeSet<Fingerprint>,
    /// Oldest first.
    order: VecDeque<Fingerprint>,
}

impl Proven {
    fn insert(&mut self, fingerprint: Fingerprint) {
        if !self.set.insert(fingerprint) {
            return;
        }
        self.order.push_back(fingerprint);
        if self.order.len() > PROVEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }

    fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.set.contains(fingerprint)
    }
}

/// A refusal with words.
fn refuse(refusal: Refusal, words: impl Into<String>) -> Refused {
    Refused { refusal, words: words.into() }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        let refusal = match error {
            StoreError::Full => Refusal::NoSpace,
            _ => Refusal::Io,
        };
        refuse(refusal, error.to_string())
    }
}

/// What a read on a snapshot came to.
fn settled<R>(result: Result<Result<R, Stop<rusqlite::Error>>, StoreError>) -> Result<R, Refused> {
    match result? {
        Ok(value) => Ok(value),
        Err(Stop::Refused(refusal)) => Err(refuse(refusal, "")),
        Err(Stop::Fault(fault)) => {
            let error = StoreError::from(fault);
            tracing::error!("a read failed: {error}");
            Err(error.into())
        }
    }
}

/// Work that a worker did not finish.
fn lost(error: tokio::task::JoinError) -> Refused {
    tracing::error!("a worker failed: {error}");
    refuse(Refusal::Io, "internal error of the server; see the server's log")
}
