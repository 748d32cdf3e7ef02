//! The way from callers to a connection's writer.
//!
//! A message is handed over as events: opened with its head, then offered bytes, then closed or
//! aborted. The sender of a message holds its [`Sending`]. Dropping that before the message is
//! complete aborts it, so a cancelled future leaves nothing behind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use segue_core::nouns::Class;
use segue_core::sched::{Discipline, MessageId};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::body::{BUFFER_BYTES, Body, BodySource, Piece, Stopped};
use crate::close::{CallError, CloseCode, StreamCode};
use crate::frame;
use crate::lane::SmallCallLane;
use crate::record::{self, Note, Recorder, Side, Times};
use crate::rpc::{Rpc, UnderWay};
use crate::stats::Counters;

/// Bytes of a body that enter the queue together. Several fit into its buffer, so that one is
/// produced while another is sent.
const PIECE_BYTES: usize = BUFFER_BYTES / 4;

/// A message up to this long is a packet.
pub(crate) const PACKET: usize = 1 << 10;

/// A message to the writer.
#[derive(Debug)]
pub(crate) enum Event {
    Open(Opening),
    Raise(MessageId, Class),
    Offer(MessageId, Bytes),
    Close(MessageId),
    Abort(MessageId, StreamCode),
    /// Most bytes a second that may be sent; `None`: as many as the path takes.
    Limit(Option<u64>),
    /// All other traffic on the path goes first, or not.
    Background(bool),
}

/// Whether more bytes follow those that open a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// No bytes follow.
    Closed,
    /// The rest of its body.
    Open,
    /// Small messages, one after the other, without end.
    Never,
}

/// A new message.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) id: MessageId,
    pub(crate) class: Class,
    pub(crate) stream: SendStream,
    /// The head, and the body if it is in memory.
    pub(crate) bytes: [Bytes; 2],
    /// The bytes that follow.
    pub(crate) end: Ending,
    /// Space for the rest of the body; the writer returns the space of sent bytes.
    pub(crate) space: Arc<Semaphore>,
    pub(crate) done: oneshot::Sender<Result<(), CallError>>,
    /// Told when its bytes are handed over.
    pub(crate) times: Option<Arc<Times>>,
}

/// A connection as its callers share it. The last one to drop it closes it.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) connection: Connection,
    pub(crate) counters: Arc<Counters>,
    pub(crate) discipline: Discipline,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    ids: AtomicU64,
    /// Where calls are noted, and this connection's name there.
    recorder: OnceLock<(Recorder, u64)>,
}

impl Outbox {
    /// Also returns the writer's receiver. The channel needs no bound: streams limit the messages,
    /// and the space of each limits its bytes.
    pub(crate) fn new(
        connection: Connection,
        discipline: Discipline,
    ) -> (Outbox, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let counters = Arc::default();
        let (ids, recorder) = Default::default();
        (Outbox { connection, counters, discipline, events, ids, recorder }, receiver)
    }

    /// Notes calls from now on.
    pub(crate) fn record(&self, recorder: Recorder) {
        let name = record::name_of(&self.connection);
        // Only the first recorder counts.
        let _ = self.recorder.set((recorder, name));
    }

    /// Whether calls are noted.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.get().is_some()
    }

    /// The note of a call that begins on `stream`, if calls are noted.
    pub(crate) fn note(
        &self,
        stream: &SendStream,
        side: Side,
        what: (&'static str, Class),
    ) -> Option<Note> {
        let (recorder, name) = self.recorder.get()?;
        Some(Note::new(recorder.clone(), *name, stream, side, what))
    }

    pub(crate) fn next_id(&self) -> MessageId {
        MessageId(self.ids.fetch_add(1, Relaxed))
    }

    /// Limits the sent bytes from now on.
    pub(crate) fn limit(&self, bytes_per_second: Option<u64>) {
        // A writer that has ended sends nothing.
        let _ = self.events.send(Event::Limit(bytes_per_second));
    }

    /// Has all other traffic on the path go first from now on, or not.
    pub(crate) fn set_background(&self, is_background: bool) {
        let _ = self.events.send(Event::Background(is_background));
    }

    /// Begins to send a message, with its body if that is in memory, else with what the
    /// returned source will give. A request says how the other side hears that it is raised.
    ///
    /// A question ahead of time that is a packet goes at the class of one that somebody waits for,
    /// and only its answer at its own: behind write-back it would come when it is not ahead any
    /// more, while nothing came the other way.
    fn open(
        &self,
        rpc: &Rpc,
        stream: SendStream,
        (message, body): (&[u8], Body),
        times: Option<Arc<Times>>,
        lane: Option<&Arc<SmallCallLane>>,
    ) -> Result<(Sending, Option<BodySource>), CallError> {
        let (body, source) = match body {
            Body::Empty => (Bytes::new(), None),
            Body::Bytes(bytes) => (bytes, None),
            Body::Stream(source) => (Bytes::new(), Some(source)),
        };
        let request = lane.map(|lane| (stream.id().into(), Arc::downgrade(lane)));
        let is_packet = message.len() <= PACKET && body.is_empty() && source.is_none();
        let is_question = request.is_some() && is_packet;
        rpc.begin(|class| {
            let sent = match class {
                Class::Prefetch if is_question => Class::Fetch,
                class => class,
            };
            let (class, sent) = (self.discipline.class(class), self.discipline.class(sent));
            let bytes = [frame::encode(class, message)?, body];
            let end = if source.is_none() { Ending::Closed } else { Ending::Open };
            let message = self.next_id();
            let sending = Sending::open(message, sent, (stream, end), bytes, times, &self.events);
            Ok(((sending, source), UnderWay { message, events: self.events.clone(), request }))
        })
    }

    /// Sends a request in the background, for as long as the result is kept.
    pub(crate) fn start(
        &self,
        rpc: &Rpc,
        stream: SendStream,
        message: (&[u8], Body),
        times: Option<Arc<Times>>,
        lane: &Arc<SmallCallLane>,
    ) -> Result<InFlight, CallError> {
        Ok(match self.open(rpc, stream, message, times, Some(lane))? {
            (sending, None) => InFlight::Queued { _sending: sending },
            (mut sending, Some(source)) => InFlight::Pumped(tokio::spawn(async move {
                sending.pump(source).await;
                // The guard stays until the last byte has left the queue.
                let _ = sending.done().await;
            })),
        })
    }

    /// Sends a reply and returns once all of it was handed to QUIC.
    pub(crate) async fn send(
        &self,
        rpc: &Rpc,
        stream: SendStream,
        message: (&[u8], Body),
        times: Option<Arc<Times>>,
    ) -> Result<(), CallError> {
        let (mut sending, source) = self.open(rpc, stream, message, times, None)?;
        if let Some(source) = source {
            sending.pump(source).await;
        }
        sending.done().await
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.connection.close(CloseCode::Done.to_wire(), b"");
    }
}

/// A message being sent in the background. Dropping it cancels its unsent part.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// All of it is with the writer.
    Queued { _sending: Sending },
    /// Its body is still being produced.
    Pumped(JoinHandle<()>),
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let InFlight::Pumped(task) = self {
            task.abort();
        }
    }
}

/// The sender's hold on a message.
#[derive(Debug)]
pub(crate) struct Sending {
    id: MessageId,
    events: mpsc::UnboundedSender<Event>,
    space: Arc<Semaphore>,
    done: oneshot::Receiver<Result<(), CallError>>,
}

impl Sending {
    fn open(
        id: MessageId,
        class: Class,
        (stream, end): (SendStream, Ending),
        bytes: [Bytes; 2],
        times: Option<Arc<Times>>,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Sending {
        let space = Arc::new(Semaphore::new(BUFFER_BYTES));
        let (done, is_done) = oneshot::channel();
        let opening = Opening { id, class, stream, bytes, end, space: space.clone(), done, times };
        // A writer that has ended drops the event, and with it `done`.
        let _ = events.send(Event::Open(opening));
        Sending { id, events: events.clone(), space, done: is_done }
    }

    /// A message that grows while it is kept.
    pub(crate) fn endless(
        id: MessageId,
        class: Class,
        stream: SendStream,
        head: Bytes,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Sending {
        Sending::open(id, class, (stream, Ending::Never), [head, Bytes::new()], None, events)
    }

    /// Moves a body into the queue as space allows, then closes the message or cuts it.
    async fn pump(&mut self, mut source: BodySource) {
        loop {
            let event = match source.pieces.recv().await {
                Some(Piece::Bytes(bytes)) => match self.offer(bytes).await {
                    Ok(()) => continue,
                    Err(Stopped) => return,
                },
                Some(Piece::End) => Event::Close(self.id),
                None => Event::Abort(self.id, StreamCode::Cut),
            };
            let _ = self.events.send(event);
            return;
        }
    }

    /// Adds bytes to the queue, once there is space for them.
    pub(crate) async fn offer(&self, mut bytes: Bytes) -> Result<(), Stopped> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            let permits = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            // The writer closes the space of a message that has ended.
            self.space.acquire_many(permits).await.map_err(|_| Stopped)?.forget();
            self.events.send(Event::Offer(self.id, piece)).map_err(|_| Stopped)?;
        }
        Ok(())
    }

    /// Waits until QUIC has all of the message, or the message ended otherwise.
    async fn done(&mut self) -> Result<(), CallError> {
        (&mut self.done).await.unwrap_or(Err(CallError::Cancelled))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Abort(self.id, StreamCode::Cancelled));
    }
}
