//! One connection: calls to the other side, and calls from it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use quinn::{Connection, RecvStream, SendStream};
use rustls::pki_types::CertificateDer;
use segue_core::types::Class;
use segue_core::wire::{Reply, Request};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::body::{Body, BodyReader};
use crate::close::{CallError, CloseCode, CloseReason, StreamCode};
use crate::frame::{self, Budget, Head};
use crate::identity::PeerIdentity;
use crate::options::Options;
use crate::outbox::{InFlight, Outbox};
use crate::silence::Traffic;
use crate::stats::LinkStats;
use crate::transport::STREAMS_MAX;
use crate::writer::Writer;

/// Calls that may be under way at the classes of write-back and prefetch. The other side takes
/// [`STREAMS_MAX`] at once; the difference stays free for what somebody waits for.
const BULK_CALLS_MAX: usize = STREAMS_MAX as usize * 3 / 4;

/// The other side of one connection. Clones share it; when the last one, and the last message
/// in either direction, is dropped, the connection is closed.
#[derive(Clone, Debug)]
pub struct Peer {
    outbox: Arc<Outbox>,
    bulk: Arc<Semaphore>,
    /// Calls that have not got all of their reply.
    waiting: Arc<AtomicUsize>,
    budget: Budget,
    arrivals: Arrivals,
    identity: Option<Arc<PeerIdentity>>,
}

type Arrivals = Arc<Mutex<mpsc::Receiver<Arrival>>>;

/// A request whose head has arrived.
type Arrival = (Request, Head, SendStream, RecvStream);

/// A reply. Dropping it, or its body before the end, cancels what is left of the call.
#[derive(Debug)]
pub struct Response {
    /// What was answered.
    pub reply: Reply,
    /// Its body.
    pub body: BodyReader,
}

/// What a call holds until its reply's body has been read.
#[derive(Debug)]
pub(crate) struct Call {
    _sending: InFlight,
    _slot: Option<OwnedSemaphorePermit>,
    _waiting: Waiting,
}

/// Counts one who waits for a reply.
#[derive(Debug)]
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn count(waiting: &Arc<AtomicUsize>) -> Waiting {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    /// Takes charge of a connection whose handshake is done.
    pub(crate) fn new(connection: Connection, options: &Options) -> Peer {
        let (outbox, events) = Outbox::new(connection.clone(), options.discipline.clone());
        tokio::spawn(Writer::new(&outbox, events).run());
        let identity = identity(&connection).map(Arc::new);
        let budget = Budget::new(identity.is_some());
        let (sender, arrivals) = mpsc::channel(STREAMS_MAX as usize);
        tokio::spawn(receive(connection.clone(), budget.clone(), sender));
        Peer {
            outbox: Arc::new(outbox),
            bulk: Arc::new(Semaphore::new(BULK_CALLS_MAX)),
            waiting: Arc::default(),
            budget,
            arrivals: Arc::new(Mutex::new(arrivals)),
            identity,
        }
    }

    /// Calls at the request's own class.
    pub async fn call(&self, request: &Request, body: Body) -> Result<Response, CallError> {
        self.call_at(request.class(), request, body).await
    }

    /// Calls at `class`, at which the reply travels too. Returns when the reply's head is
    /// here; dropping the future before that cancels the call.
    pub async fn call_at(
        &self,
        class: Class,
        request: &Request,
        body: Body,
    ) -> Result<Response, CallError> {
        let message = request.encode().map_err(|error| CallError::Protocol(error.to_string()))?;
        let slot = self.bulk_slot(class).await;
        let class = self.outbox.discipline.class(class);
        let frame = frame::encode(class, &message)?;
        let (send, mut receive) = self.outbox.connection.open_bi().await?;
        let waiting = Waiting::count(&self.waiting);
        let sending = self.outbox.start(class, send, frame, body);
        let head = match frame::read(&mut receive, &self.budget).await {
            Ok(head) => head,
            Err(error) => return Err(error.into()),
        };
        match Reply::decode(&head.message) {
            Ok(reply) => {
                let call = Call { _sending: sending, _slot: slot, _waiting: waiting };
                Ok(self.response(reply, receive, call))
            }
            Err(error) => {
                let _ = receive.stop(StreamCode::Protocol.to_wire());
                Err(CallError::Protocol(error.to_string()))
            }
        }
    }

    fn response(&self, reply: Reply, receive: RecvStream, call: Call) -> Response {
        Response { reply, body: BodyReader::new(receive, self.outbox.clone(), Some(call)) }
    }

    async fn bulk_slot(&self, class: Class) -> Option<OwnedSemaphorePermit> {
        if class <= Class::Fetch {
            return None;
        }
        // The semaphore is never closed.
        self.bulk.clone().acquire_owned().await.ok()
    }

    /// The next call from the other side; `None` when the connection is over.
    pub async fn accept(&self) -> Option<Incoming> {
        self.calls().accept().await
    }

    /// The calls from the other side, for whoever is not to keep the connection open.
    pub fn calls(&self) -> Calls {
        Calls { outbox: Arc::downgrade(&self.outbox), arrivals: self.arrivals.clone() }
    }

    /// The connection as it is now.
    pub fn stats(&self) -> LinkStats {
        self.outbox.counters.report(&self.outbox.connection.stats())
    }

    /// Takes a sample of the rates.
    pub(crate) fn measure(&self, now: Instant) {
        self.outbox.counters.measure(now);
    }

    /// What was asked on this connection, and what of it was heard.
    pub(crate) fn traffic(&self) -> Traffic {
        let stats = self.outbox.connection.stats();
        let sent = stats.frame_tx;
        // QUIC's own probe of a silent other side is an IMMEDIATE_ACK beside old frames.
        let asked = sent.stream + sent.ping + sent.immediate_ack + sent.reset_stream;
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        Traffic { asked, heard: stats.frame_rx.acks, waits }
    }

    /// Sends something that QUIC itself answers: a stream that is over before it began.
    pub(crate) async fn probe(&self) {
        // It fails when the connection is over, which says enough.
        if let Ok((mut send, _)) = self.outbox.connection.open_bi().await {
            let _ = send.reset(StreamCode::Cancelled.to_wire());
        }
    }

    /// Whose certificate the other side has shown; `None` if none.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_deref()
    }

    /// Where the other side is now; it may move.
    pub fn remote_address(&self) -> SocketAddr {
        self.outbox.connection.remote_address()
    }

    /// Ends the connection at once: what was not sent or received is lost.
    pub fn close(&self, code: CloseCode, words: &str) {
        self.outbox.connection.close(code.to_wire(), words.as_bytes());
    }

    /// Waits until the connection is over.
    pub async fn closed(&self) -> CloseReason {
        self.outbox.connection.closed().await.into()
    }
}

/// The calls from the other side of a connection.
#[derive(Debug)]
pub struct Calls {
    outbox: Weak<Outbox>,
    arrivals: Arrivals,
}

impl Calls {
    /// The next one; `None` when the connection is over.
    pub async fn accept(&self) -> Option<Incoming> {
        let (request, head, send, receive) = self.arrivals.lock().await.recv().await?;
        let outbox = self.outbox.upgrade()?;
        let Head { class, share, .. } = head;
        let responder = Responder { stream: Some(send), class, outbox: outbox.clone() };
        let body = BodyReader::new(receive, outbox, None);
        Some(Incoming { request, class, body, responder, _share: share })
    }
}

/// Reads the heads of calls from the other side, each on its own task: one that arrives slowly
/// delays no other.
async fn receive(connection: Connection, budget: Budget, arrivals: mpsc::Sender<Arrival>) {
    while let Ok((send, receive)) = connection.accept_bi().await {
        let (budget, arrivals) = (budget.clone(), arrivals.clone());
        tokio::spawn(receive_head(send, receive, budget, arrivals));
    }
}

async fn receive_head(
    mut send: SendStream,
    mut receive: RecvStream,
    budget: Budget,
    arrivals: mpsc::Sender<Arrival>,
) {
    let head = frame::read(&mut receive, &budget).await.map_err(CallError::from);
    let request = head.and_then(|head| match Request::decode(&head.message) {
        Ok(request) => Ok((request, Head { message: Vec::new(), ..head })),
        Err(error) => Err(CallError::Protocol(error.to_string())),
    });
    match request {
        Ok((request, head)) => {
            // It fails when the connection is over.
            let _ = arrivals.send((request, head, send, receive)).await;
        }
        Err(error) => {
            tracing::debug!(%error, "a call did not arrive");
            let code = match error {
                CallError::Protocol(_) => StreamCode::Protocol,
                _ => StreamCode::Cancelled,
            };
            let _ = send.reset(code.to_wire());
            let _ = receive.stop(code.to_wire());
        }
    }
}

/// A call from the other side.
#[derive(Debug)]
pub struct Incoming {
    /// What is asked.
    pub request: Request,
    /// At which class; the reply goes at the same.
    pub class: Class,
    /// The request's body. Dropped unread, the other side is told to stop sending it.
    pub body: BodyReader,
    /// The way to answer.
    pub responder: Responder,
    _share: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    /// Answers, and drops what is left of the request's body.
    pub async fn reply(self, reply: Reply, body: Body) -> Result<(), CallError> {
        self.responder.reply(reply, body).await
    }
}

/// The way to answer one call. Dropping it unused tells the caller that no answer will come.
#[derive(Debug)]
pub struct Responder {
    /// `None` once used.
    stream: Option<SendStream>,
    class: Class,
    outbox: Arc<Outbox>,
}

impl Responder {
    /// Answers. Returns once all of the answer was handed to QUIC, so that as many bodies are
    /// in memory as there are answers being given; dropping the future cancels the answer.
    pub async fn reply(mut self, reply: Reply, body: Body) -> Result<(), CallError> {
        let message = reply.encode().map_err(|error| CallError::Protocol(error.to_string()))?;
        let frame = frame::encode(self.class, &message)?;
        let Some(stream) = self.stream.take() else { return Err(CallError::NoAnswer) };
        self.outbox.send(self.class, stream, frame, body).await
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            let _ = stream.reset(StreamCode::NoAnswer.to_wire());
        }
    }
}

fn identity(connection: &Connection) -> Option<PeerIdentity> {
    let certificates = connection.peer_identity()?.downcast::<Vec<CertificateDer>>().ok()?;
    PeerIdentity::of(certificates.first()?)
}
