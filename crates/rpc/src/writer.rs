//! The one task of a connection that sends: it hands bytes to QUIC in the scheduler's order.
//!
//! QUIC is given no more than it can send now: its send window is kept at the congestion
//! window plus two quanta, so what waits there is small, and everything else waits here, where
//! a more urgent message still overtakes it. What does wait there goes by stream priority.
//!
//! The task never waits for one stream. A stream that takes nothing now is held back and the
//! next message tried; QUIC wakes the stream's own waker, and the message is eligible again.
//! All streams that a newly open window wakes are resumed before the next choice, so the most
//! urgent of them goes first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Buf, Bytes};
use quinn::{Connection, SendStream, WriteError};
use segue_core::sched::{MessageId, Quantum, Scheduler};
use segue_core::types::Class;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use crate::close::{CallError, CloseReason, StreamCode};
use crate::outbox::{Event, Opening};
use crate::stats::Counters;
use crate::transport::STREAMS_MAX;

/// Most bytes handed to QUIC at once: what a more urgent message may have to wait for. 16 KiB
/// are a dozen packets, enough to keep the cost of a choice small against that of sending.
const QUANTUM_BYTES: usize = 16 << 10;
/// Least bytes handed over at once: two packets.
const QUANTUM_MIN_BYTES: usize = 2400;
/// On a slow link the quantum is this part of the congestion window, so that the bytes which
/// nobody can overtake any more stay few against those in flight.
const QUANTUM_OF_WINDOW: u64 = 8;
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
    /// Bytes at the front that came with the opening and took no space.
    unspaced: usize,
    space: Arc<Semaphore>,
    done: Option<oneshot::Sender<Result<(), CallError>>>,
}

impl Outgoing {
    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes.push_back(bytes);
        }
    }

    /// `count` bytes at the front are sent.
    fn advance(&mut self, count: usize) {
        if let Some(front) = self.bytes.front_mut() {
            front.advance(count);
            if front.is_empty() {
                self.bytes.pop_front();
            }
        }
        let unspaced = self.unspaced.min(count);
        self.unspaced -= unspaced;
        self.space.add_permits(count - unspaced);
    }

    fn end(mut self, result: Result<(), CallError>) {
        if let Some(done) = self.done.take() {
            // Nobody may be waiting.
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
    /// Messages whose streams took nothing when last tried.
    held: BTreeSet<MessageId>,
    quantum: usize,
    window: u64,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        events: mpsc::UnboundedReceiver<Event>,
        counters: Arc<Counters>,
    ) -> Writer {
        Writer {
            connection,
            events,
            counters,
            scheduler: Scheduler::new(MESSAGES_MAX),
            outgoing: BTreeMap::new(),
            woken: Arc::default(),
            held: BTreeSet::new(),
            quantum: QUANTUM_MIN_BYTES,
            window: 0,
        }
    }

    /// Sends until the connection is over.
    pub(crate) async fn run(mut self) {
        let connection = self.connection.clone();
        let woken = self.woken.clone();
        let mut closed = pin!(connection.closed());
        loop {
            if self.send_some() {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.apply(event),
                    None => return,
                },
                () = woken.any.notified() => {}
                reason = &mut closed => return self.lost(&reason.into()),
            }
        }
    }

    /// Tells everybody who waits that the connection is over, and those who still come.
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

    /// Hands quanta over until nothing is eligible. True if it stopped before that.
    fn send_some(&mut self) -> bool {
        for _ in 0..QUANTA_MAX {
            while let Ok(event) = self.events.try_recv() {
                self.apply(event);
            }
            for id in self.woken.take() {
                self.held.remove(&id);
                self.scheduler.resume(id);
            }
            self.follow_window();
            self.counters.set_queued(self.scheduler.queued());
            match self.scheduler.next(self.quantum) {
                Some(next) => self.write(next),
                None => return false,
            }
        }
        true
    }

    /// Keeps QUIC's queue as short as the congestion window is now.
    fn follow_window(&mut self) {
        let congestion = self.connection.stats().path.cwnd;
        let part = usize::try_from(congestion / QUANTUM_OF_WINDOW).unwrap_or(QUANTUM_BYTES);
        self.quantum = part.clamp(QUANTUM_MIN_BYTES, QUANTUM_BYTES);
        // Two: one that QUIC counts until its last byte is acknowledged, one to send next.
        let window = congestion + 2 * self.quantum as u64;
        if window == self.window {
            return;
        }
        if window > self.window {
            // Those who found the window full are first to have what is new of it, before any
            // message that is less urgent and was not tried yet.
            for id in std::mem::take(&mut self.held) {
                self.scheduler.resume(id);
            }
        }
        self.window = window;
        self.connection.set_send_window(window);
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
            Event::Abort(id, code) => {
                if let Some(mut outgoing) = self.outgoing.remove(&id) {
                    self.held.remove(&id);
                    self.scheduler.cancel(id);
                    // A stream that has ended by itself needs no reset.
                    let _ = outgoing.stream.reset(code.to_wire());
                    outgoing.end(Err(CallError::Cancelled));
                }
            }
        }
    }

    fn open(&mut self, opening: Opening) {
        let Opening { id, class, mut stream, bytes, closed, space, done } = opening;
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
        let outgoing = Outgoing { stream, waker, bytes, unspaced, space, done: Some(done) };
        self.outgoing.insert(id, outgoing);
        self.scheduler.offer(id, unspaced);
        if closed {
            self.scheduler.close(id);
        }
    }

    fn write(&mut self, next: Quantum) {
        let Some(outgoing) = self.outgoing.get_mut(&next.id) else {
            return self.scheduler.cancel(next.id);
        };
        let Some(front) = outgoing.bytes.front() else {
            return self.wrote(next.id, 0);
        };
        let mut piece = [front.slice(..front.len().min(next.bytes))];
        let mut context = Context::from_waker(&outgoing.waker);
        let written = pin!(outgoing.stream.write_chunks(&mut piece)).poll(&mut context);
        match written {
            Poll::Pending => {
                self.held.insert(next.id);
                self.scheduler.hold(next.id);
            }
            Poll::Ready(Ok(written)) => self.wrote(next.id, written.bytes),
            Poll::Ready(Err(error)) => self.end(next.id, Err(write_error(error))),
        }
    }

    fn wrote(&mut self, id: MessageId, bytes: usize) {
        if let Some(class) = self.scheduler.class(id) {
            self.counters.sent(class, bytes);
        }
        if let Some(outgoing) = self.outgoing.get_mut(&id) {
            outgoing.advance(bytes);
        }
        if self.scheduler.sent(id, bytes) {
            self.end(id, Ok(()));
        }
    }

    fn end(&mut self, id: MessageId, result: Result<(), CallError>) {
        self.held.remove(&id);
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
