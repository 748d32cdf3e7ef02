//! One connection: calls to the other side, and calls from it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quinn::{Connection, Endpoint};
use rustls::pki_types::CertificateDer;
use segue_core::nouns::Class;
use segue_core::wire::{Reply, Request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::body::{Body, BodyReader};
use crate::close::{CallError, CloseCode, CloseReason, StreamCode};
use crate::frame::{self, Budget};
use crate::identity::PeerIdentity;
use crate::incoming::{Calls, Incoming};
use crate::lane::{self, SmallCallLane};
use crate::options::Options;
use crate::outbox::{InFlight, Outbox};
use crate::paths::PathKnowledge;
use crate::record::{End, Note, Recorder, Side};
use crate::rpc::Rpc;
use crate::silence::Traffic;
use crate::stats::LinkStats;
use crate::transport::STREAMS_MAX;
use crate::writer::Writer;

/// Calls that may be under way at the classes of write-back. The other side takes [`STREAMS_MAX`]
/// at once; what these and prefetch leave is free for what somebody waits for.
const WRITE_BACK_MAX: usize = STREAMS_MAX as usize / 2;
/// The same at prefetch, which may wait for as long as others read: so not in places of write-back.
const PREFETCH_MAX: usize = STREAMS_MAX as usize / 4;
/// How long a departing side waits until the other side is told.
const FAREWELL: Duration = Duration::from_secs(1);

/// The other side of one connection. Clones share it; when the last one, and the last message
/// in either direction, is dropped, the connection is closed.
#[derive(Clone, Debug)]
pub struct Peer {
    outbox: Arc<Outbox>,
    write_back: Arc<Semaphore>,
    prefetch: Arc<Semaphore>,
    /// Calls that have not got all of their reply.
    waiting: Arc<AtomicUsize>,
    budget: Budget,
    lane: Arc<SmallCallLane>,
    calls: Calls,
    identity: Option<Arc<PeerIdentity>>,
    /// The socket of a connection that was dialled here.
    endpoint: Option<Endpoint>,
}

/// A reply. Dropping it, or its body before the end, cancels the rest of the call.
#[derive(Debug)]
pub struct Response {
    /// The answer.
    pub reply: Reply,
    /// Its body.
    pub body: BodyReader,
}

/// The resources of a call, until its reply's body has been read.
#[derive(Debug)]
pub(crate) struct Call {
    _sending: InFlight,
    _slot: Option<OwnedSemaphorePermit>,
    _waiting: WaiterCount,
    note: Option<Note>,
}

impl Call {
    /// The reply is complete, or no more of it will come.
    pub(crate) fn ended(&mut self, end: End) {
        self.note.iter_mut().for_each(|note| note.ended(end));
    }
}

/// One caller that waits for a reply.
#[derive(Debug)]
struct WaiterCount(Arc<AtomicUsize>);

impl WaiterCount {
    fn count(waiting: &Arc<AtomicUsize>) -> WaiterCount {
        waiting.fetch_add(1, Ordering::Relaxed);
        WaiterCount(waiting.clone())
    }
}

impl Drop for WaiterCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    /// Takes over a connection whose handshake is done, and notes what it tells of its path.
    pub(crate) fn new(connection: Connection, options: &Options, path: Arc<PathKnowledge>) -> Peer {
        let (outbox, events) = Outbox::new(connection.clone(), options.discipline.clone());
        tokio::spawn(Writer::new(&outbox, events, path).run());
        let identity = identity(&connection).map(Arc::new);
        let budget = Budget::new(identity.is_some());
        let outbox = Arc::new(outbox);
        Peer {
            lane: Arc::new(SmallCallLane::new(&outbox)),
            calls: Calls::receive(&outbox, budget.clone()),
            outbox,
            write_back: Arc::new(Semaphore::new(WRITE_BACK_MAX)),
            prefetch: Arc::new(Semaphore::new(PREFETCH_MAX)),
            waiting: Arc::default(),
            budget,
            identity,
            endpoint: None,
        }
    }

    /// The same for a connection that was dialled from `endpoint`, which has no other.
    pub(crate) fn dialled(
        connection: Connection,
        options: &Options,
        endpoint: Endpoint,
        path: Arc<PathKnowledge>,
    ) -> Peer {
        Peer { endpoint: Some(endpoint), ..Peer::new(connection, options, path) }
    }

    /// Calls at the request's own class.
    pub async fn call(&self, request: &Request, body: Body) -> Result<Response, CallError> {
        self.call_at(request.class(), request, body).await
    }

    /// Calls at `class`.
    pub async fn call_at(
        &self,
        class: Class,
        request: &Request,
        body: Body,
    ) -> Result<Response, CallError> {
        self.call_as(&Rpc::new(class), request, body).await
    }

    /// Calls at the class of `rpc`, at which the reply travels too. Returns when the reply's head
    /// is here; dropping the future before that cancels the call.
    pub async fn call_as(
        &self,
        rpc: &Rpc,
        request: &Request,
        body: Body,
    ) -> Result<Response, CallError> {
        let message = request.encode().map_err(|error| CallError::Protocol(error.to_string()))?;
        let waiting = WaiterCount::count(&self.waiting);
        let is_of_lane = self.outbox.discipline.class(rpc.class()) == lane::CLASS;
        let is_small = request.is_small() && matches!(body, Body::Empty);
        // Each recorded call has a stream, because its times are the stream's.
        if is_of_lane && is_small && !self.outbox.is_recorded() {
            let answer = self.lane.call(message).await?;
            let body = BodyReader::new(None, self.outbox.clone(), None);
            return Ok(Response { reply: decoded(&answer)?, body });
        }
        let slot = self.slot(rpc).await;
        let (send, mut receive) = self.outbox.connection.open_bi().await?;
        let mut note = self.outbox.note(&send, Side::Asking, (request.name(), rpc.class()));
        let times = note.as_ref().map(Note::times);
        let sending = self.outbox.start(rpc, send, (&message, body), times, &self.lane)?;
        let head = match frame::read_reply(&mut receive, &self.budget).await {
            Ok(head) => head,
            Err(error) => {
                note.iter_mut().for_each(|note| note.ended(End::Error));
                return Err(error.into());
            }
        };
        match decoded(&head.message) {
            Ok(reply) => {
                note.iter_mut().for_each(Note::reply_begun);
                let call = Call { _sending: sending, _slot: slot, _waiting: waiting, note };
                let body = BodyReader::new(Some(receive), self.outbox.clone(), Some(call));
                Ok(Response { reply, body })
            }
            Err(error) => {
                note.iter_mut().for_each(|note| note.ended(End::Error));
                let _ = receive.stop(StreamCode::Protocol.to_wire());
                Err(error)
            }
        }
    }

    /// A place among the calls of its class, if these are bounded.
    async fn slot(&self, rpc: &Rpc) -> Option<OwnedSemaphorePermit> {
        loop {
            let class = rpc.class();
            let slots = match class {
                Class::Validate | Class::Fetch => return None,
                Class::StoreAttr | Class::StoreFast | Class::StoreData => &self.write_back,
                Class::Prefetch => &self.prefetch,
            };
            tokio::select! {
                // The semaphores are never closed.
                slot = slots.clone().acquire_owned() => return slot.ok(),
                () = rpc.raised_above(class) => {}
            }
        }
    }

    /// Returns the next call from the other side; `None` when the connection is over.
    pub async fn accept(&self) -> Option<Incoming> {
        self.calls.accept().await
    }

    /// The calls from the other side, for an owner that does not keep the connection open.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// The connection as it is now.
    pub fn stats(&self) -> LinkStats {
        self.outbox.counters.report(&self.outbox.connection)
    }

    /// Limits sending to so many bytes a second from now on, counted on the wire with all headers.
    /// Classes keep their order.
    pub fn limit(&self, bytes_per_second: Option<u64>) {
        self.outbox.limit(bytes_per_second);
    }

    /// Has all other traffic on the path go first from now on, or not. What is sent then keeps half
    /// the usual queue, and makes no room for itself beside others.
    pub fn set_background(&self, is_background: bool) {
        self.outbox.set_background(is_background);
    }

    /// Notes each call that begins from now on, in either direction.
    pub fn record(&self, recorder: &Recorder) {
        self.outbox.record(recorder.clone());
    }

    /// Takes a sample of the rates.
    pub(crate) fn measure(&self, now: Instant) {
        self.outbox.counters.measure(now);
    }

    /// The questions sent on this connection, and the answers heard.
    pub(crate) fn traffic(&self) -> Traffic {
        let stats = self.outbox.connection.stats();
        let sent = stats.frame_tx;
        // QUIC's own probe of a silent other side is an IMMEDIATE_ACK beside old frames.
        let asked = sent.stream + sent.ping + sent.immediate_ack + sent.reset_stream;
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        Traffic { asked, heard: stats.frame_rx.acks, waits, trip: stats.path.rtt }
    }

    /// Sends a stream that is over before it began: QUIC itself answers it.
    pub(crate) async fn probe(&self) {
        // It fails when the connection is over, and that is answer enough.
        if let Ok((mut send, _)) = self.outbox.connection.open_bi().await {
            let _ = send.reset(StreamCode::Cancelled.to_wire());
        }
    }

    /// The identity that the other side has shown, if any.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_deref()
    }

    /// The present address of the other side; it may move.
    pub fn remote_address(&self) -> SocketAddr {
        self.outbox.connection.remote_address()
    }

    /// Ends the connection at once. Unsent and unread bytes are lost.
    pub fn close(&self, code: CloseCode, words: &str) {
        self.outbox.connection.close(code.to_wire(), words.as_bytes());
    }

    /// Ends a connection that was made from here, and waits a moment until the other side was told:
    /// a process that ends at once tells nobody.
    pub(crate) async fn leave(&self) {
        self.close(CloseCode::Done, "");
        if let Some(endpoint) = &self.endpoint {
            timeout(FAREWELL, endpoint.wait_idle()).await.ok();
        }
    }

    /// True once the connection is over.
    pub fn is_over(&self) -> bool {
        self.outbox.connection.close_reason().is_some()
    }

    /// Waits until the connection is over.
    pub async fn closed(&self) -> CloseReason {
        self.outbox.connection.closed().await.into()
    }
}

fn decoded(message: &[u8]) -> Result<Reply, CallError> {
    Reply::decode(message).map_err(|error| CallError::Protocol(error.to_string()))
}

fn identity(connection: &Connection) -> Option<PeerIdentity> {
    let certificates = connection.peer_identity()?.downcast::<Vec<CertificateDer>>().ok()?;
    PeerIdentity::of(certificates.first()?)
}
