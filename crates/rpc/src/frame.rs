//! The head of a message on its stream: length u32 LE, class u8, then the encoded message.
//!
//! The class is the one at which the message travels. A reply travels at its request's, so
//! that a prefetch stays a prefetch on its way back.
//!
//! A stream that begins with [`LANE`] instead is one for many small calls.

use bytes::Bytes;
use quinn::{ReadExactError, RecvStream};
use segue_core::types::Class;
use segue_core::wire::MESSAGE_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use std::sync::Arc;

use crate::close::{CallError, CloseReason, StreamCode};

const HEAD_BYTES: usize = 5;
/// The head of a stream for [many small calls](crate::lane).
pub(crate) const LANE: [u8; HEAD_BYTES] = [0, 0, 0, 0, 0xff];
/// A message up to this long is read at once; a longer one needs a share of the budget.
const SMALL_BYTES: usize = 64 << 10;
/// Memory for long messages of one connection: two of the longest.
const BUDGET_BYTES: usize = 2 * MESSAGE_MAX;

/// Bounds what the heads of one connection hold in memory, whatever the other side sends.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    long: Arc<Semaphore>,
    message_max: usize,
}

impl Budget {
    /// For a connection whose other side has shown who it is, or has not: that one asks to be
    /// let in, which is short.
    pub(crate) fn new(is_known: bool) -> Budget {
        let message_max = if is_known { MESSAGE_MAX } else { SMALL_BYTES };
        Budget { long: Arc::new(Semaphore::new(BUDGET_BYTES)), message_max }
    }
}

/// A message without its body, as received.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) class: Class,
    pub(crate) message: Vec<u8>,
    /// Its share of the budget; held for as long as the message is.
    pub(crate) share: Option<OwnedSemaphorePermit>,
}

/// What a stream begins with.
#[derive(Debug)]
pub(crate) enum Opened {
    Call(Head),
    Lane,
}

/// Why there is no head.
#[derive(Debug)]
pub(crate) enum HeadError {
    Lost(CloseReason),
    /// The other side ended the stream on purpose.
    Reset(StreamCode),
    /// The bytes are not a head.
    Malformed(String),
}

impl From<HeadError> for CallError {
    fn from(error: HeadError) -> CallError {
        match error {
            HeadError::Lost(reason) => CallError::Lost(reason),
            HeadError::Reset(StreamCode::Protocol) => {
                CallError::Protocol("the other side did not understand".into())
            }
            HeadError::Reset(StreamCode::Cancelled) => CallError::Cancelled,
            HeadError::Reset(_) => CallError::NoAnswer,
            HeadError::Malformed(words) => CallError::Protocol(words),
        }
    }
}

/// Head and message, ready to send.
pub(crate) fn encode(class: Class, message: &[u8]) -> Result<Bytes, CallError> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MESSAGE_MAX);
    let length = length.ok_or(CallError::TooLarge)?;
    let mut frame = Vec::with_capacity(HEAD_BYTES + message.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.push(class as u8);
    frame.extend_from_slice(message);
    Ok(frame.into())
}

/// Length and class that five bytes announce.
fn decode_head([a, b, c, d, class]: [u8; HEAD_BYTES]) -> Result<(usize, Class), HeadError> {
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MESSAGE_MAX {
        return Err(HeadError::Malformed(format!("message of {length} bytes is too long")));
    }
    let class = Class::ALL.get(usize::from(class)).copied();
    let class = class.ok_or_else(|| HeadError::Malformed("unknown class".into()))?;
    Ok((length, class))
}

/// Reads what the other side opens a stream with.
pub(crate) async fn read(stream: &mut RecvStream, budget: &Budget) -> Result<Opened, HeadError> {
    match read_head(stream).await? {
        LANE => Ok(Opened::Lane),
        head => read_message(head, stream, budget).await.map(Opened::Call),
    }
}

/// Reads a reply's head and message; what is left on `stream` is the body.
pub(crate) async fn read_reply(
    stream: &mut RecvStream,
    budget: &Budget,
) -> Result<Head, HeadError> {
    let head = read_head(stream).await?;
    read_message(head, stream, budget).await
}

async fn read_head(stream: &mut RecvStream) -> Result<[u8; HEAD_BYTES], HeadError> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(head_error)?;
    Ok(head)
}

async fn read_message(
    head: [u8; HEAD_BYTES],
    stream: &mut RecvStream,
    budget: &Budget,
) -> Result<Head, HeadError> {
    let (length, class) = decode_head(head)?;
    if length > budget.message_max {
        return Err(HeadError::Malformed(format!("message of {length} bytes is too long")));
    }
    let mut share = None;
    if length > SMALL_BYTES {
        let permits = u32::try_from(length).unwrap_or(u32::MAX);
        // The budget is never closed.
        share = budget.long.clone().acquire_many_owned(permits).await.ok();
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await.map_err(head_error)?;
    Ok(Head { class, message, share })
}

fn head_error(error: ReadExactError) -> HeadError {
    match error {
        ReadExactError::FinishedEarly(_) => HeadError::Malformed("message is cut short".into()),
        ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => {
            HeadError::Lost(error.into())
        }
        ReadExactError::ReadError(quinn::ReadError::Reset(code)) => {
            HeadError::Reset(StreamCode::from_wire(code))
        }
        ReadExactError::ReadError(other) => HeadError::Malformed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_roundtrip() {
        let frame = encode(Class::StoreFast, b"abc").unwrap();
        assert_eq!(&frame[..], b"\x03\0\0\0\x03abc");
        let (length, class) = decode_head(frame[..5].try_into().unwrap()).unwrap();
        assert_eq!((length, class), (3, Class::StoreFast));
    }

    #[test]
    fn heads_over_a_limit_are_refused() {
        assert!(decode_head([0xff, 0xff, 0xff, 0xff, 0]).is_err());
        assert!(decode_head([1, 0, 0, 0, 6]).is_err());
        let long = vec![0; MESSAGE_MAX + 1];
        assert_eq!(encode(Class::Fetch, &long).unwrap_err(), CallError::TooLarge);
    }
}
