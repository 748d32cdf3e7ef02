//! Bodies: the bytes beside a message, streamed, of any length.
//!
//! Neither side holds a body in memory. The sender of a [`Body::channel`] waits once
//! [`BUFFER_BYTES`] are queued. The reader is ahead of its consumer by at most the stream's window.
//! A body is complete only if its sender said so. One that an error or a crash cuts ends as
//! [`BodyError::Cut`], and never passes for a short one.
//!
//! The consumer of a body must not call on the same connection meanwhile. The unread rest of the
//! body may fill the window that the reply needs.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use quinn::{ReadError, RecvStream};
use tokio::sync::mpsc;

use crate::close::{CloseReason, StreamCode};
use crate::outbox::Outbox;
use crate::peer::Call;
use crate::record::End;

/// Most bytes of one body that wait in the queue: a quarter of a second at 1 MB/s, and more
/// than a quantum of a fast link.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Most pieces between a body's producer and the queue.
const CHANNEL_PIECES: usize = 4;
/// Pieces taken from the connection under one lock.
const READ_PIECES: usize = 32;

/// The bytes that go with a message.
#[derive(Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Bytes that are in memory already.
    Bytes(Bytes),
    /// Bytes as they come.
    Stream(BodySource),
}

impl Body {
    /// A body that is produced while it is sent.
    pub fn channel() -> (BodySender, Body) {
        let (sender, pieces) = mpsc::channel(CHANNEL_PIECES);
        (BodySender { sender }, Body::Stream(BodySource { pieces }))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        if bytes.is_empty() { Body::Empty } else { Body::Bytes(bytes) }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Bytes::from(bytes).into()
    }
}

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    End,
}

/// The queue's end of [`Body::channel`].
#[derive(Debug)]
pub struct BodySource {
    pub(crate) pieces: mpsc::Receiver<Piece>,
}

/// The producer's end of [`Body::channel`].
#[derive(Debug)]
pub struct BodySender {
    sender: mpsc::Sender<Piece>,
}

/// The reader wants no more of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nobody reads this body any more")]
pub struct Stopped;

impl BodySender {
    /// Adds bytes, once there is space for them.
    pub async fn send(&self, bytes: Bytes) -> Result<(), Stopped> {
        self.sender.send(Piece::Bytes(bytes)).await.map_err(|_| Stopped)
    }

    /// The body is complete. Dropping the sender instead cuts it.
    pub async fn finish(self) -> Result<(), Stopped> {
        self.sender.send(Piece::End).await.map_err(|_| Stopped)
    }
}

/// Why a body has no further bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection is over.
    #[error("connection lost: {0}")]
    Lost(CloseReason),
    /// The sender could not go on.
    #[error("the body was cut by its sender")]
    Cut,
    /// There is more than the reader takes.
    #[error("the body is longer than {limit} bytes")]
    TooLong {
        /// The limit of the reader, in bytes.
        limit: usize,
    },
}

/// A body being received. Dropping it tells the sender to stop, and cancels the call.
#[derive(Debug)]
pub struct BodyReader {
    /// `None` for a small call, which has no body.
    stream: Option<RecvStream>,
    pieces: VecDeque<Bytes>,
    ended: bool,
    /// Keeps the connection open while the body is read.
    outbox: Arc<Outbox>,
    /// The call whose reply this is, so that both end together.
    call: Option<Call>,
}

impl BodyReader {
    pub(crate) fn new(
        stream: Option<RecvStream>,
        outbox: Arc<Outbox>,
        call: Option<Call>,
    ) -> BodyReader {
        let pieces = VecDeque::new();
        let ended = stream.is_none();
        BodyReader { stream, pieces, ended, outbox, call }
    }

    /// Returns the next bytes, at least one; `None` after the last.
    ///
    /// Cancel safe: bytes are not lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            let Some(stream) = self.stream.as_mut().filter(|_| !self.ended) else {
                return Ok(None);
            };
            let mut read: [Bytes; READ_PIECES] = Default::default();
            let chunks = stream.read_chunks(&mut read).await;
            match chunks.inspect_err(|_| over(&mut self.call, End::Error)).map_err(body_error)? {
                None => {
                    self.ended = true;
                    over(&mut self.call, End::Ok);
                }
                Some(count) => self.pieces.extend(read.into_iter().take(count)),
            }
            let received: usize = self.pieces.iter().map(Bytes::len).sum();
            self.outbox.counters.received(received);
        }
    }

    /// Returns all remaining bytes, at most `limit` of them.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, BodyError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if all.len() + piece.len() > limit {
                return Err(BodyError::TooLong { limit });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}

fn over(call: &mut Option<Call>, end: End) {
    call.iter_mut().for_each(|call| call.ended(end));
}

fn body_error(error: ReadError) -> BodyError {
    match error {
        ReadError::ConnectionLost(error) => BodyError::Lost(error.into()),
        ReadError::Reset(_) => BodyError::Cut,
        other => BodyError::Lost(CloseReason::Broken(other.to_string())),
    }
}

/// True if no byte is left, as far as has arrived.
fn is_over(stream: &mut RecvStream) -> bool {
    let mut read: [Bytes; 1] = Default::default();
    let read = pin!(stream.read_chunks(&mut read));
    matches!(read.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(None)))
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.ended) else { return };
        // Most messages have no body, and their stream ends with their head. A stop would cost one
        // packet, and another to acknowledge it.
        if is_over(stream) {
            return over(&mut self.call, End::Ok);
        }
        // The stream may be over by itself; then no reader is left.
        let _ = stream.stop(StreamCode::Cancelled.to_wire());
    }
}
