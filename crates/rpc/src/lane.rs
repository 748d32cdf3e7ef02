//! Small calls: many of them over one stream that stays open.
//!
//! A stream for each call costs several times the work of a small call. So small requests with
//! small answers share a stream, which the caller opens at the first of them. A
//! [RAISE](crate::Rpc::raise) goes there as well.
//!
//! ```text
//!   caller  ──lane head, CALL 0, CALL 1, RAISE ..──▶  callee
//!           ◀──────────── ANSWER 1, ANSWER 0 ..─────
//! ```
//!
//! Each frame: its length u32 LE, kind u8, then
//!
//! * CALL: number u32 LE, message
//! * ANSWER: number u32 LE, message; without a message no answer will come
//! * RAISE: stream u64 LE, class u8
//!
//! To the scheduler a lane is one message of the top class without an end. Both sides are bounded:
//! the caller has at most [`CALLS_MAX`] calls under way, and the callee reads no more. An answer
//! waits until there is room for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use quinn::{Connection, ReadError, RecvStream};
use segue_core::nouns::Class;
use segue_core::sched::{Discipline, MessageId};
use segue_core::wire::Reply;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::close::{CallError, CloseCode, CloseReason};
use crate::frame;
use crate::outbox::{Event, Outbox, Sending};

/// Calls under way over one lane.
pub(crate) const CALLS_MAX: usize = 256;
/// The longest frame without its length: it enters the queue in one piece.
pub(crate) const FRAME_MAX: usize = 60 << 10;
/// The class of everything on a lane.
pub(crate) const CLASS: Class = Class::Validate;

const LENGTH_BYTES: usize = 4;
const CALL: u8 = 0;
const ANSWER: u8 = 1;
const RAISE: u8 = 2;

/// A frame of a lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Call(u32, Bytes),
    /// Without a message no answer will come.
    Answer(u32, Option<Bytes>),
    Raise(u64, Class),
}

impl Frame {
    fn encode(&self) -> Result<Bytes, CallError> {
        let mut frame = BytesMut::new();
        frame.put_u32_le(0);
        match self {
            Frame::Call(number, message) => {
                frame.put_u8(CALL);
                frame.put_u32_le(*number);
                frame.put_slice(message);
            }
            Frame::Answer(number, message) => {
                frame.put_u8(ANSWER);
                frame.put_u32_le(*number);
                frame.put_slice(message.as_deref().unwrap_or_default());
            }
            Frame::Raise(stream, class) => {
                frame.put_u8(RAISE);
                frame.put_u64_le(*stream);
                frame.put_u8(*class as u8);
            }
        }
        let length = frame.len() - LENGTH_BYTES;
        let announced = u32::try_from(length).ok().filter(|_| length <= FRAME_MAX);
        let announced = announced.ok_or(CallError::TooLarge)?;
        frame[..LENGTH_BYTES].copy_from_slice(&announced.to_le_bytes());
        Ok(frame.freeze())
    }

    /// Decodes a frame from `bytes`, which stood behind a length.
    fn decode(mut bytes: Bytes) -> Result<Frame, CallError> {
        let cut = |_| malformed("a frame of a lane is cut short");
        match bytes.try_get_u8().map_err(cut)? {
            CALL => Ok(Frame::Call(bytes.try_get_u32_le().map_err(cut)?, bytes)),
            ANSWER => {
                let number = bytes.try_get_u32_le().map_err(cut)?;
                Ok(Frame::Answer(number, Some(bytes).filter(|bytes| !bytes.is_empty())))
            }
            RAISE => {
                let stream = bytes.try_get_u64_le().map_err(cut)?;
                let class = usize::from(bytes.try_get_u8().map_err(cut)?);
                let class = Class::ALL.get(class).copied();
                Ok(Frame::Raise(stream, class.ok_or_else(|| malformed("unknown class"))?))
            }
            _ => Err(malformed("a lane has frames of an unknown kind")),
        }
    }
}

fn malformed(words: &str) -> CallError {
    CallError::Protocol(words.into())
}

/// Cuts a stream into frames.
pub(crate) struct Frames {
    stream: RecvStream,
    read: BytesMut,
}

impl Frames {
    pub(crate) fn new(stream: RecvStream) -> Frames {
        Frames { stream, read: BytesMut::new() }
    }

    /// The next frame; `None` at the stream's end.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, CallError> {
        loop {
            if let Some(frame) = self.cut()? {
                return Frame::decode(frame).map(Some);
            }
            match self.stream.read_chunk(FRAME_MAX, true).await.map_err(lost)? {
                Some(chunk) => self.read.extend_from_slice(&chunk.bytes),
                None if self.read.is_empty() => return Ok(None),
                None => return Err(malformed("a lane ends within a frame")),
            }
        }
    }

    /// The frame at the front, if all of it is here.
    fn cut(&mut self) -> Result<Option<Bytes>, CallError> {
        let Some(length) = self.read.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_MAX {
            return Err(malformed("a frame of a lane is too long"));
        }
        if self.read.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.read.advance(LENGTH_BYTES);
        Ok(Some(self.read.split_to(length).freeze()))
    }
}

fn lost(error: ReadError) -> CallError {
    match error {
        ReadError::ConnectionLost(error) => CallError::Lost(error.into()),
        ReadError::Reset(_) => malformed("the other side resets a lane"),
        other => CallError::Lost(CloseReason::Broken(other.to_string())),
    }
}

/// The caller's end of a lane for small calls.
#[derive(Debug)]
pub(crate) struct SmallCallLane {
    connection: Connection,
    events: mpsc::UnboundedSender<Event>,
    discipline: Discipline,
    /// Any thread may raise a call.
    runtime: Handle,
    id: MessageId,
    opened: OnceCell<Sending>,
    slots: Semaphore,
    calls: Arc<Mutex<Calls>>,
}

/// The callers that wait for an answer.
#[derive(Debug)]
struct Calls {
    waiting: HashMap<u32, oneshot::Sender<Option<Bytes>>>,
    next: u32,
    /// Why no more answers will come.
    over: Option<CallError>,
}

/// One caller's wait; it ends when this is dropped.
struct Awaited<'a>(&'a Mutex<Calls>, u32);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        lock(self.0).waiting.remove(&self.1);
    }
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SmallCallLane {
    pub(crate) fn new(outbox: &Outbox) -> SmallCallLane {
        let calls = Calls { waiting: HashMap::new(), next: 0, over: None };
        SmallCallLane {
            connection: outbox.connection.clone(),
            events: outbox.events.clone(),
            discipline: outbox.discipline.clone(),
            runtime: Handle::current(),
            id: outbox.next_id(),
            opened: OnceCell::new(),
            slots: Semaphore::new(CALLS_MAX),
            calls: Arc::new(Mutex::new(calls)),
        }
    }

    /// Calls, and returns the answer's message.
    pub(crate) async fn call(&self, message: Vec<u8>) -> Result<Bytes, CallError> {
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await;
        let sending = self.open().await?;
        let (tell, answer) = oneshot::channel();
        let number = {
            let mut calls = lock(&self.calls);
            if let Some(error) = &calls.over {
                return Err(error.clone());
            }
            let number = calls.next;
            calls.next = number.wrapping_add(1);
            calls.waiting.insert(number, tell);
            number
        };
        let _awaited = Awaited(&self.calls, number);
        let frame = Frame::Call(number, message.into()).encode()?;
        sending.offer(frame).await.map_err(|_| self.over())?;
        match answer.await {
            Ok(message) => message.ok_or(CallError::NoAnswer),
            Err(_) => Err(self.over()),
        }
    }

    fn over(&self) -> CallError {
        lock(&self.calls).over.clone().unwrap_or(CallError::NoAnswer)
    }

    async fn open(&self) -> Result<&Sending, CallError> {
        self.opened
            .get_or_try_init(|| async {
                let (send, receive) = self.connection.open_bi().await?;
                let head = frame::LANE.to_vec().into();
                let sending = Sending::endless(self.id, CLASS, send, head, &self.events);
                let (connection, calls) = (self.connection.clone(), self.calls.clone());
                tokio::spawn(async move {
                    // No call on this connection would get an answer any more.
                    if let CallError::Protocol(words) = hear(Frames::new(receive), &calls).await {
                        connection.close(CloseCode::Protocol.to_wire(), words.as_bytes());
                    }
                });
                Ok(sending)
            })
            .await
    }

    /// Tells the other side that a call of ours became more urgent.
    pub(crate) fn raise(self: Arc<Self>, stream: u64, class: Class) {
        let class = self.discipline.class(class);
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            if let Ok(frame) = Frame::Raise(stream, class).encode()
                && let Ok(sending) = self.open().await
            {
                // It fails when the connection is over.
                let _ = sending.offer(frame).await;
            }
        });
    }
}

/// Passes answers on until the last one, and returns why they ended.
async fn hear(mut frames: Frames, calls: &Mutex<Calls>) -> CallError {
    let over = loop {
        match frames.next().await {
            Ok(Some(Frame::Answer(number, message))) => {
                // The caller may be gone.
                if let Some(tell) = lock(calls).waiting.remove(&number) {
                    let _ = tell.send(message);
                }
            }
            Ok(Some(_)) => break malformed("the other side calls where it should answer"),
            Ok(None) => break malformed("the other side ends its answers"),
            Err(error) => break error,
        }
    };
    let mut calls = lock(calls);
    calls.over = Some(over.clone());
    calls.waiting.clear();
    over
}

/// The way to answer one call of a lane. Dropped unused, it reports that no answer will come.
#[derive(Debug)]
pub(crate) struct Answering {
    /// `None` once used.
    answers: Option<Arc<Sending>>,
    number: u32,
    slot: Option<OwnedSemaphorePermit>,
}

impl Answering {
    pub(crate) fn new(answers: Arc<Sending>, number: u32, slot: OwnedSemaphorePermit) -> Answering {
        Answering { answers: Some(answers), number, slot: Some(slot) }
    }

    /// Answers. Returns once there is room for the answer in the queue.
    pub(crate) async fn answer(mut self, reply: &Reply) -> Result<(), CallError> {
        let message = reply.encode().map_err(|error| CallError::Protocol(error.to_string()))?;
        let frame = Frame::Answer(self.number, Some(message.into())).encode()?;
        let Some(answers) = self.answers.take() else { return Err(CallError::NoAnswer) };
        answers.offer(frame).await.map_err(|_| CallError::Cancelled)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Some(answers) = self.answers.take() else { return };
        let (number, slot) = (self.number, self.slot.take());
        // Outside of a runtime everything has ended.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Ok(frame) = Frame::Answer(number, None).encode() {
                // It fails when the connection is over.
                let _ = answers.offer(frame).await;
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_was_sent() {
        let frames = [
            Frame::Call(7, Bytes::from_static(b"abc")),
            Frame::Answer(u32::MAX, Some(Bytes::from_static(b"x"))),
            Frame::Answer(8, None),
            Frame::Raise(u64::MAX, Class::Fetch),
        ];
        for frame in frames {
            let bytes = frame.encode().unwrap().slice(LENGTH_BYTES..);
            assert_eq!(Frame::decode(bytes).unwrap(), frame);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&b""[..], b"\x00\x01", b"\x01abc", b"\x02\0\0\0\0\0\0\0\0\x06", b"\x03"] {
            assert!(Frame::decode(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
        let long = Frame::Call(0, vec![0; FRAME_MAX].into());
        assert_eq!(long.encode().unwrap_err(), CallError::TooLarge);
    }
}
