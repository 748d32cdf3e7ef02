//! Calls from the other side, and the answers to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};
use segue_core::nouns::Class;
use segue_core::wire::{Reply, Request};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::asked::{Asked, Listed};
use crate::body::{Body, BodyReader};
use crate::close::{CallError, CloseCode, StreamCode};
use crate::frame::{self, Budget, Head, Opened};
use crate::lane::{self, Answering, Frame, Frames};
use crate::outbox::{Outbox, PACKET, Sending};
use crate::record::{End, Note, Side};
use crate::rpc::Rpc;
use crate::transport::STREAMS_MAX;

/// A call whose head has arrived.
pub(crate) struct Arrival {
    request: Request,
    rpc: Rpc,
    body: Option<RecvStream>,
    way: Way,
    share: Option<OwnedSemaphorePermit>,
}

/// The way of an answer.
#[derive(Debug)]
enum Way {
    Stream(SendStream, Listed),
    Lane(Answering),
}

/// The calls from the other side of a connection.
#[derive(Clone, Debug)]
pub struct Calls {
    outbox: Weak<Outbox>,
    arrivals: Arc<Mutex<mpsc::Receiver<Arrival>>>,
}

impl Calls {
    /// Receives for as long as the connection lives.
    pub(crate) fn receive(outbox: &Arc<Outbox>, budget: Budget) -> Calls {
        let (sender, arrivals) = mpsc::channel(STREAMS_MAX as usize);
        let receiver = Receiver {
            connection: outbox.connection.clone(),
            outbox: Arc::downgrade(outbox),
            budget,
            arrivals: sender,
            asked: Asked::default(),
            has_lane: Arc::default(),
        };
        tokio::spawn(receiver.receive());
        Calls { outbox: Arc::downgrade(outbox), arrivals: Arc::new(Mutex::new(arrivals)) }
    }

    /// Returns the next call; `None` when the connection is over.
    pub async fn accept(&self) -> Option<Incoming> {
        let Arrival { request, rpc, body, way, share } = self.arrivals.lock().await.recv().await?;
        let outbox = self.outbox.upgrade()?;
        let class = rpc.class();
        let note = match &way {
            Way::Stream(stream, _) => outbox.note(stream, Side::Answering, (request.name(), class)),
            Way::Lane(_) => None,
        };
        let way = Some(way);
        let responder = Responder { way, rpc: rpc.clone(), outbox: outbox.clone(), note };
        let body = BodyReader::new(body, outbox, None);
        Some(Incoming { request, class, rpc, body, responder, _share: share })
    }
}

/// Reads the heads of calls from the other side, each on a task of its own, so a slow one delays no
/// other.
#[derive(Clone)]
struct Receiver {
    connection: Connection,
    outbox: Weak<Outbox>,
    budget: Budget,
    arrivals: mpsc::Sender<Arrival>,
    asked: Asked,
    has_lane: Arc<AtomicBool>,
}

impl Receiver {
    async fn receive(self) {
        while let Ok((send, receive)) = self.connection.accept_bi().await {
            tokio::spawn(self.clone().open(send, receive));
        }
    }

    async fn open(self, mut send: SendStream, mut receive: RecvStream) {
        let error = match frame::read(&mut receive, &self.budget).await {
            Ok(Opened::Lane) if !self.has_lane.swap(true, Ordering::Relaxed) => {
                return self.serve_lane(send, receive).await;
            }
            Ok(Opened::Lane) => CallError::Protocol("there is a lane already".into()),
            Ok(Opened::Call(Head { class, message, share })) => match Request::decode(&message) {
                Ok(request) => {
                    let listed = self.asked.came(send.id().into(), class);
                    let rpc = listed.rpc.clone();
                    let (body, way) = (Some(receive), Way::Stream(send, listed));
                    // It fails when the connection is over.
                    let _ = self.arrivals.send(Arrival { request, rpc, body, way, share }).await;
                    return;
                }
                Err(error) => CallError::Protocol(error.to_string()),
            },
            Err(error) => error.into(),
        };
        tracing::debug!(%error, "a call did not arrive");
        let code = match error {
            CallError::Protocol(_) => StreamCode::Protocol,
            _ => StreamCode::Cancelled,
        };
        let _ = send.reset(code.to_wire());
        let _ = receive.stop(code.to_wire());
    }

    async fn serve_lane(self, send: SendStream, receive: RecvStream) {
        let Some(outbox) = self.outbox.upgrade() else { return };
        let id = outbox.next_id();
        let answers = Sending::endless(id, lane::CLASS, send, Bytes::new(), &outbox.events);
        drop(outbox);
        let (answers, mut frames) = (Arc::new(answers), Frames::new(receive));
        let slots = Arc::new(Semaphore::new(lane::CALLS_MAX));
        let over = loop {
            let (number, message) = match frames.next().await {
                Ok(Some(Frame::Call(number, message))) => (number, message),
                Ok(Some(Frame::Raise(stream, class))) => {
                    self.asked.raise(stream, class);
                    continue;
                }
                Ok(Some(Frame::Answer(..))) => break "it answers where it should call".to_owned(),
                Ok(None) => return,
                Err(CallError::Protocol(words)) => break words,
                Err(_) => return,
            };
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let answering = Answering::new(answers.clone(), number, slot);
            let request = match Request::decode(&message) {
                Ok(request) => request,
                Err(error) => {
                    tracing::debug!(%error, "a small call is not answered");
                    continue;
                }
            };
            let way = Way::Lane(answering);
            let rpc = Rpc::new(lane::CLASS);
            let arrival = Arrival { request, rpc, body: None, way, share: None };
            if self.arrivals.send(arrival).await.is_err() {
                return;
            }
        };
        self.connection.close(CloseCode::Protocol.to_wire(), over.as_bytes());
    }
}

/// A call from the other side.
#[derive(Debug)]
pub struct Incoming {
    /// The request.
    pub request: Request,
    /// The class at which it came.
    pub class: Class,
    /// The class now. The reply goes no lower.
    pub rpc: Rpc,
    /// The request's body. If it is dropped unread, the other side is told to stop.
    pub body: BodyReader,
    /// The way to answer.
    pub responder: Responder,
    _share: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    /// Answers, and drops the unread rest of the request's body.
    pub async fn reply(self, reply: Reply, body: Body) -> Result<(), CallError> {
        self.responder.reply(reply, body).await
    }
}

/// The way to answer one call. Dropping it unused tells the caller that no answer will come.
#[derive(Debug)]
pub struct Responder {
    /// `None` once used.
    way: Option<Way>,
    rpc: Rpc,
    /// Keeps the connection open until there is an answer.
    outbox: Arc<Outbox>,
    note: Option<Note>,
}

impl Responder {
    /// Answers at the call's class, without a body at that of such an answer, or at the top one if
    /// it is a packet. Returns once all of it was handed to QUIC, so that as many bodies are in
    /// memory as there are answers being given; dropping the future cancels the answer.
    pub async fn reply(mut self, reply: Reply, body: Body) -> Result<(), CallError> {
        match self.way.take() {
            Some(Way::Stream(mut stream, _listed)) => match reply.encode() {
                Ok(message) => {
                    // Such an answer acknowledges bulk. The next bulk must not wait for a pause of
                    // the other direction.
                    if matches!(body, Body::Empty) {
                        let is_packet = message.len() <= PACKET;
                        let of_more = self.rpc.class().of_answer();
                        self.rpc.raise(if is_packet { Class::Validate } else { of_more });
                    }
                    self.note.iter_mut().for_each(Note::reply_queued);
                    let times = self.note.as_ref().map(Note::times);
                    let sent = self.outbox.send(&self.rpc, stream, (&message, body), times).await;
                    let end = match &sent {
                        Ok(()) => End::Ok,
                        Err(CallError::Cancelled) => End::Cancelled,
                        Err(_) => End::Error,
                    };
                    self.note.iter_mut().for_each(|note| note.ended(end));
                    sent
                }
                Err(error) => {
                    self.note.iter_mut().for_each(|note| note.ended(End::Error));
                    let _ = stream.reset(StreamCode::NoAnswer.to_wire());
                    Err(CallError::Protocol(error.to_string()))
                }
            },
            Some(Way::Lane(answering)) if matches!(body, Body::Empty) => {
                answering.answer(&reply).await
            }
            Some(Way::Lane(_)) => Err(CallError::Protocol("a small answer has no body".into())),
            None => Err(CallError::NoAnswer),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(Way::Stream(mut stream, _)) = self.way.take() {
            self.note.iter_mut().for_each(|note| note.ended(End::Error));
            let _ = stream.reset(StreamCode::NoAnswer.to_wire());
        }
    }
}
