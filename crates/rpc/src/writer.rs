//! The one task of a connection that sends: it hands bytes to QUIC in the scheduler's order.
//!
//! QUIC gets no more than it can send now (see [`Flight`](crate::congestion::Flight)). All other
//! bytes wait here, where a more urgent message still overtakes them.
//!
//! The task never waits for one stream. A stream with a slow reader that takes nothing now is held
//! back, and the next message is tried. QUIC wakes the stream's own waker, and the message is
//! eligible again.
//!
//! Besides messages the task sends and answers the stamps, by which each side learns the wait of
//! its bytes ([`Stamps`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use quinn::{Connection, SendStream, WriteError};
use segue_core::nouns::Class;
use segue_core::sched::{MessageId, Quantum, Scheduler};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use crate::close::{CallError, CloseReason, StreamCode};
use crate::congestion::{Room, Shared, Stamps};
use crate::limit::{self, Limit, Sent};
use crate::outbox::{Ending, Event, Opening, Outbox};
use crate::paths::PathKnowledge;
use crate::record::Times;
use crate::stats::Counters;
use crate::transport::STREAMS_MAX;

/// Most bytes handed to QUIC at once: a dozen packets. Then a choice costs little beside the
/// sending.
const QUANTUM_BYTES: usize = 16 << 10;
/// Pieces written in one go: a lane's frames are small.
const PIECES_MAX: usize = 16;
/// A quantum is at most this part of a second of the path, and at least a packet.
const QUANTA_PER_SECOND: u64 = 100;
/// With nothing in flight for so long, the writer looks for the bytes that QUIC was given.
const STALL: Duration = Duration::from_millis(50);
/// Messages that one side may be sending: its calls and its replies.
const MESSAGES_MAX: usize = 2 * STREAMS_MAX as usize;
/// Quanta sent before other tasks of this thread get their turn.
const QUANTA_MAX: usize = 64;

/// Streams that can take bytes again.
#[derive(Debug, Default)]
struct Woken {
    ids: Mutex<Vec<MessageId>>,
    any: Notify,
}

impl Woken {
    fn take(&self) -> Vec<MessageId> {
        std::mem::take(&mut *self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct StreamWaker {
    id: MessageId,
    woken: Arc<Woken>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.woken.ids.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        self.woken.any.notify_one();
    }
}

/// A message's bytes and stream.
struct Outgoing {
    stream: SendStream,
    waker: Waker,
    bytes: VecDeque<Bytes>,
    /// Bytes at the front that came with the opening and used no space.
    unspaced: usize,
    space: Arc<Semaphore>,
    done: Option<oneshot::Sender<Result<(), CallError>>>,
    times: Option<Arc<Times>>,
    end: Ending,
}

impl Outgoing {
    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes.push_back(bytes);
        }
    }

    /// Returns at most so many bytes from the front, as pieces, and the number of pieces.
    fn front(&self, most: usize) -> ([Bytes; PIECES_MAX], usize) {
        let mut pieces = <[Bytes; PIECES_MAX]>::default();
        let (mut left, mut count) = (most, 0);
        for (piece, bytes) in pieces.iter_mut().zip(&self.bytes) {
            if left == 0 {
                break;
            }
            *piece = bytes.slice(..bytes.len().min(left));
            left -= piece.len();
            count += 1;
        }
        (pieces, count)
    }

    /// `count` bytes at the front are sent. For a message without end, returns how many small
    /// messages ended among them.
    fn advance(&mut self, count: usize) -> u64 {
        let (mut left, mut small, mut spaced) = (count, 0, 0);
        while let Some(front) = self.bytes.front_mut().filter(|_| left > 0) {
            let taken = front.len().min(left);
            front.advance(taken);
            left -= taken;
            let is_small = self.end == Ending::Never && self.unspaced == 0;
            let unspaced = self.unspaced.min(taken);
            self.unspaced -= unspaced;
            spaced += taken - unspaced;
            if front.is_empty() {
                self.bytes.pop_front();
                small += u64::from(is_small);
            }
        }
        self.space.add_permits(spaced);
        small
    }

    fn end(mut self, result: Result<(), CallError>) {
        if let Some(done) = self.done.take() {
            // The sender may be gone.
            let _ = done.send(result);
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.space.close();
    }
}

pub(crate) struct Writer {
    connection: Connection,
    events: mpsc::UnboundedReceiver<Event>,
    counters: Arc<Counters>,
    scheduler: Scheduler,
    outgoing: BTreeMap<MessageId, Outgoing>,
    woken: Arc<Woken>,
    /// The present path, which changes when a host moves.
    path: Option<Arc<Shared>>,
    stamps: Stamps,
    /// Bytes received when something was sent last.
    heard: u64,
    /// The user's limit, whatever the path allows.
    limit: Option<Limit>,
    /// All other traffic on the path goes first.
    is_background: bool,
    /// What is known of the path to the address at the other end.
    known: (IpAddr, Arc<PathKnowledge>),
}

/// When the writer can go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// At once.
    More,
    /// When a message has bytes to send.
    Idle,
    /// When the pace allows it.
    At(Instant),
    /// When an acknowledgement has arrived.
    Freed,
}

impl Writer {
    /// What is learnt of the path goes to `known`.
    pub(crate) fn new(
        outbox: &Outbox,
        events: mpsc::UnboundedReceiver<Event>,
        known: Arc<PathKnowledge>,
    ) -> Writer {
        Writer {
            connection: outbox.connection.clone(),
            events,
            counters: outbox.counters.clone(),
            scheduler: Scheduler::new(outbox.discipline.clone(), MESSAGES_MAX),
            outgoing: BTreeMap::new(),
            woken: Arc::default(),
            path: None,
            stamps: Stamps::new(Instant::now()),
            heard: 0,
            limit: None,
            is_background: false,
            known: (outbox.connection.remote_address().ip(), known),
        }
    }

    /// Sends until the connection is over.
    pub(crate) async fn run(mut self) {
        let connection = self.connection.clone();
        let woken = self.woken.clone();
        let mut closed = pin!(connection.closed());
        loop {
            let next = self.send_some();
            if next == Next::More {
                tokio::task::yield_now().await;
                continue;
            }
            let path = self.path.clone();
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.apply(event),
                    None => return,
                },
                () = woken.any.notified() => {}
                () = wait(path.as_deref(), next) => {}
                Ok(bytes) = connection.read_datagram() => self.take_stamp(&bytes),
                reason = &mut closed => return self.lost(&reason.into()),
            }
        }
    }

    /// Tells all waiting and later callers that the connection is over.
    fn lost(mut self, reason: &CloseReason) {
        self.events.close();
        while let Ok(event) = self.events.try_recv() {
            if let Event::Open(opening) = event {
                let _ = opening.done.send(Err(CallError::Lost(reason.clone())));
            }
        }
        for (_, outgoing) in std::mem::take(&mut self.outgoing) {
            outgoing.end(Err(CallError::Lost(reason.clone())));
        }
        self.counters.set_queued(Default::default());
    }

    /// Hands quanta over while there are any and QUIC can send them.
    fn send_some(&mut self) -> Next {
        self.path = Shared::of(&self.connection);
        if let Some(path) = &self.path {
            let mut flight = path.flight();
            flight.set_background(Instant::now(), self.is_background);
            self.scheduler.handle_rate(flight.rate());
            let (to, known) = &self.known;
            known.note(*to, &flight);
        }
        self.send_stamp();
        for _ in 0..QUANTA_MAX {
            while let Ok(event) = self.events.try_recv() {
                self.apply(event);
            }
            for id in self.woken.take() {
                self.scheduler.resume(id);
            }
            self.counters.set_queued(self.scheduler.queued());
            let next = match self.room() {
                Ok(quantum) => self.scheduler.next(quantum),
                Err(next) => return next,
            };
            if let Some(next) = next {
                self.write(next);
            }
        }
        Next::More
    }

    /// Returns how many bytes of the next message QUIC can send now, or when the writer can go on.
    fn room(&mut self) -> Result<usize, Next> {
        let next = self.scheduler.next(0);
        let Some(path) = &self.path else {
            return next.map(|_| QUANTUM_BYTES).ok_or(Next::Idle);
        };
        // Read before the flight is locked: QUIC must not be asked under that lock.
        let sent = self.limit.as_ref().map(|_| sent(&self.connection)).unwrap_or_default();
        let mut flight = path.flight();
        let Some(next) = next else {
            flight.handle_idle();
            return Err(Next::Idle);
        };
        let (now, is_awaited) = (Instant::now(), is_awaited(self.scheduler.class(next.id)));
        let mut room = flight.room(now, is_awaited);
        if let Some(limit) = &mut self.limit {
            let sizes = (flight.packet(), flight.payload());
            let allowed = limit.room(now, (sent, flight.unsent()), sizes, is_awaited);
            if matches!((room, allowed), (Room::Now(_), Room::At(_))) {
                // The path could carry more.
                flight.handle_idle();
            }
            room = limit::lesser(room, allowed);
        }
        match room {
            Room::Now(bytes) => {
                let quantum = bytes.min((flight.rate() / QUANTA_PER_SECOND).max(flight.payload()));
                Ok(usize::try_from(quantum).unwrap_or(usize::MAX).min(QUANTUM_BYTES))
            }
            Room::At(at) => Err(Next::At(at)),
            Room::Later => Err(Next::Freed),
        }
    }

    fn send_stamp(&mut self) {
        let Some(path) = &self.path else { return };
        let mut flight = path.flight();
        let Some(bytes) = self.stamps.next(Instant::now(), flight.stamp_period()) else { return };
        flight.handle_stamp(&bytes);
        drop(flight);
        // Without stamps the window follows round trips alone.
        let _ = self.connection.send_datagram(bytes.into());
    }

    fn take_stamp(&mut self, bytes: &[u8]) {
        let received = self.connection.stats().udp_rx.bytes;
        let now = Instant::now();
        let echo = self.stamps.take(now, received, bytes);
        if let (Some(echo), Some(path)) = (echo, &self.path) {
            path.flight().handle_echo(now, echo);
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Open(opening) => self.open(opening),
            Event::Offer(id, bytes) => {
                if let Some(outgoing) = self.outgoing.get_mut(&id) {
                    self.scheduler.offer(id, bytes.len());
                    outgoing.push(bytes);
                }
            }
            Event::Close(id) => self.scheduler.close(id),
            Event::Raise(id, class) => self.raise(id, class),
            Event::Limit(rate) => self.set_limit(rate),
            Event::Background(is_background) => self.is_background = is_background,
            Event::Abort(id, code) => {
                if let Some(mut outgoing) = self.outgoing.remove(&id) {
                    self.scheduler.cancel(id);
                    // A stream that has ended by itself needs no reset.
                    let _ = outgoing.stream.reset(code.to_wire());
                    outgoing.end(Err(CallError::Cancelled));
                }
            }
        }
    }

    fn raise(&mut self, id: MessageId, class: Class) {
        self.scheduler.raise(id, class);
        if let (Some(class), Some(outgoing)) = (self.scheduler.class(id), self.outgoing.get(&id)) {
            // It fails on a stream that the other side has stopped: the first write tells.
            let _ = outgoing.stream.set_priority(priority(class));
        }
    }

    fn set_limit(&mut self, rate: Option<u64>) {
        match (&mut self.limit, rate) {
            (Some(limit), Some(rate)) => limit.set_rate(rate),
            (limit, None) => *limit = None,
            (limit, Some(rate)) => {
                let header = limit::header(self.connection.remote_address().ip());
                *limit = Some(Limit::new(rate, header, Instant::now(), sent(&self.connection)));
            }
        }
    }

    fn open(&mut self, opening: Opening) {
        let Opening { id, class, mut stream, bytes, end, space, done, times } = opening;
        if self.scheduler.open(id, class).is_err() {
            let _ = stream.reset(StreamCode::NoAnswer.to_wire());
            let _ = done.send(Err(CallError::Busy));
            return;
        }
        // It fails on a stream that the other side has stopped: the first write tells.
        let _ = stream.set_priority(priority(class));
        let unspaced = bytes.iter().map(Bytes::len).sum();
        let waker = Waker::from(Arc::new(StreamWaker { id, woken: self.woken.clone() }));
        let bytes = bytes.into_iter().filter(|bytes| !bytes.is_empty()).collect();
        let done = Some(done);
        let outgoing = Outgoing { stream, waker, bytes, unspaced, space, done, times, end };
        self.outgoing.insert(id, outgoing);
        self.scheduler.offer(id, unspaced);
        if end == Ending::Closed {
            self.scheduler.close(id);
        }
    }

    fn write(&mut self, next: Quantum) {
        let Some(outgoing) = self.outgoing.get_mut(&next.id) else {
            return self.scheduler.cancel(next.id);
        };
        let (mut pieces, count) = outgoing.front(next.bytes);
        if count == 0 {
            return self.wrote(next.id, 0);
        }
        let mut context = Context::from_waker(&outgoing.waker);
        let pieces = pieces.get_mut(..count).unwrap_or_default();
        let written = pin!(outgoing.stream.write_chunks(pieces)).poll(&mut context);
        match written {
            Poll::Pending => self.scheduler.hold(next.id),
            Poll::Ready(Ok(written)) => self.wrote(next.id, written.bytes),
            Poll::Ready(Err(error)) => self.end(next.id, Err(write_error(error))),
        }
    }

    fn wrote(&mut self, id: MessageId, bytes: usize) {
        let class = self.scheduler.class(id);
        if let Some(class) = class {
            self.counters.sent(class, bytes);
        }
        let small = self.outgoing.get_mut(&id).map_or(0, |outgoing| outgoing.advance(bytes));
        class.into_iter().for_each(|class| self.counters.sent_whole(class, small));
        if let Some(path) = &self.path {
            let received = self.counters.received_bytes();
            let mut flight = path.flight();
            if received > std::mem::replace(&mut self.heard, received) {
                flight.handle_acks_aside();
            }
            flight.handle_handed(bytes as u64, is_awaited(class));
        }
        let is_last = self.scheduler.sent(id, bytes);
        if let Some(times) = self.outgoing.get(&id).and_then(|outgoing| outgoing.times.as_ref()) {
            times.handed(is_last);
        }
        if is_last {
            class.into_iter().for_each(|class| self.counters.sent_whole(class, 1));
            self.end(id, Ok(()));
        }
    }

    fn end(&mut self, id: MessageId, result: Result<(), CallError>) {
        self.scheduler.cancel(id);
        if let Some(mut outgoing) = self.outgoing.remove(&id) {
            if result.is_ok() {
                // It fails only on a stream that the other side has stopped, which is its right.
                let _ = outgoing.stream.finish();
            }
            outgoing.end(result);
        }
    }
}

fn sent(connection: &Connection) -> Sent {
    let sent = connection.stats().udp_tx;
    Sent { bytes: sent.bytes, packets: sent.datagrams }
}

/// Waits until the writer can go on.
async fn wait(path: Option<&Shared>, next: Next) {
    let Some(path) = path else { return std::future::pending().await };
    match next {
        Next::At(at) => tokio::time::sleep_until(at.into()).await,
        Next::Freed => {
            if tokio::time::timeout(STALL, path.freed()).await.is_err() {
                path.flight().handle_stall();
            }
        }
        Next::More | Next::Idle => std::future::pending().await,
    }
}

/// True if such a message has a waiter for each byte: it is small, and does not keep the pace.
fn is_awaited(class: Option<Class>) -> bool {
    class == Some(Class::Validate)
}

fn priority(class: Class) -> i32 {
    -(class as i32)
}

fn write_error(error: WriteError) -> CallError {
    match error {
        WriteError::ConnectionLost(error) => CallError::Lost(error.into()),
        WriteError::Stopped(_) => CallError::Cancelled,
        other => CallError::Protocol(other.to_string()),
    }
}
