//! The head of a message on its stream: length u32 LE, class u8, then the encoded message.
//!
//! If [`PACKED`] is added to the class, the message is compressed: its raw length, u32 LE, and one
//! zstd frame. Records, listings and outlines are messages. A batch of changes with small files, or
//! a long directory, shrinks to less than half.
//!
//! The message travels at this class. A reply travels at the class of its request, so a prefetch
//! stays a prefetch on its way back. A reply without a body may go at a higher one (`incoming`).
//!
//! A stream that begins with [`LANE`] carries many small calls instead.

use bytes::Bytes;
use quinn::{ReadExactError, RecvStream};
use segue_core::nouns::Class;
use segue_core::wire::MESSAGE_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use std::sync::Arc;

use crate::close::{CallError, CloseReason, StreamCode};
use crate::codec::{self, BLOCK_MAX};

const HEAD_BYTES: usize = 5;
/// Added to the class: the message is compressed.
const PACKED: u8 = 0x80;
/// Shorter messages fit into a packet as they are.
const PACK_FROM: usize = 1024;
/// Bytes of the raw length of a compressed message.
const RAW_LEN_BYTES: usize = 4;
/// The head of a stream for [many small calls](crate::lane).
pub(crate) const LANE: [u8; HEAD_BYTES] = [0, 0, 0, 0, 0xff];
/// A message up to this long is read at once; a longer one needs a share of the budget.
const SMALL_BYTES: usize = 64 << 10;
/// Memory for long messages of one connection: two of the longest.
const BUDGET_BYTES: usize = 2 * MESSAGE_MAX;

/// Bounds the memory for the heads of one connection, whatever the other side sends.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    long: Arc<Semaphore>,
    message_max: usize,
}

impl Budget {
    /// For a connection whose other side has shown its identity, or not. A stranger only asks to be
    /// let in, which is short.
    pub(crate) fn new(is_known: bool) -> Budget {
        let message_max = if is_known { MESSAGE_MAX } else { SMALL_BYTES };
        Budget { long: Arc::new(Semaphore::new(BUDGET_BYTES)), message_max }
    }

    /// Waits until memory may hold so many bytes. A short message needs no share.
    async fn share(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes).ok().filter(|_| bytes > SMALL_BYTES)?;
        // The budget is never closed, and has room for two of the longest messages.
        self.long.clone().acquire_many_owned(permits).await.ok()
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

/// The beginning of a stream.
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
    let raw_len = u32::try_from(message.len()).ok().filter(|_| message.len() <= MESSAGE_MAX);
    let raw_len = raw_len.ok_or(CallError::TooLarge)?.to_le_bytes();
    Ok(match packed(message) {
        Some(packed) => {
            head(RAW_LEN_BYTES + packed.len(), class as u8 | PACKED, [&raw_len, &packed])
        }
        None => head(message.len(), class as u8, [message, &[]]),
    })
}

/// Returns the compressed message, if it is enough shorter.
fn packed(message: &[u8]) -> Option<Vec<u8>> {
    let is_tried = (PACK_FROM..=BLOCK_MAX).contains(&message.len());
    is_tried.then(|| codec::compress(message)).flatten()
}

fn head(length: usize, class: u8, parts: [&[u8]; 2]) -> Bytes {
    let announced = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    [&announced, &[class][..], parts[0], parts[1]].concat().into()
}

/// The announcement in the first five bytes.
#[derive(PartialEq, Eq, Debug)]
struct Announced {
    length: usize,
    class: Class,
    is_packed: bool,
}

fn decode_head([a, b, c, d, class]: [u8; HEAD_BYTES]) -> Result<Announced, HeadError> {
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MESSAGE_MAX {
        return Err(too_long(length));
    }
    let is_packed = class & PACKED != 0;
    let class = Class::ALL.get(usize::from(class & !PACKED)).copied();
    let class = class.ok_or_else(|| HeadError::Malformed("unknown class".into()))?;
    Ok(Announced { length, class, is_packed })
}

fn too_long(length: usize) -> HeadError {
    HeadError::Malformed(format!("message of {length} bytes is too long"))
}

/// Reads the beginning of a stream that the other side opened.
pub(crate) async fn read(stream: &mut RecvStream, budget: &Budget) -> Result<Opened, HeadError> {
    match read_head(stream).await? {
        LANE => Ok(Opened::Lane),
        head => read_message(head, stream, budget).await.map(Opened::Call),
    }
}

/// Reads a reply's head and message. The body remains on `stream`.
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
    let Announced { length, class, is_packed } = decode_head(head)?;
    if length > budget.message_max {
        return Err(too_long(length));
    }
    if !is_packed {
        let share = budget.share(length).await;
        let mut message = vec![0; length];
        stream.read_exact(&mut message).await.map_err(head_error)?;
        return Ok(Head { class, message, share });
    }
    let no_shorter = || HeadError::Malformed("a compressed message is no shorter".into());
    // Only announced bytes are waited for.
    let stored_len = length.checked_sub(RAW_LEN_BYTES).ok_or_else(no_shorter)?;
    let mut raw_len = [0; RAW_LEN_BYTES];
    stream.read_exact(&mut raw_len).await.map_err(head_error)?;
    let raw_len = u32::from_le_bytes(raw_len) as usize;
    if raw_len > budget.message_max {
        return Err(too_long(raw_len));
    }
    if stored_len >= raw_len {
        return Err(no_shorter());
    }
    // One share for both: a call that waits for more holds nothing.
    let share = budget.share(stored_len + raw_len).await;
    let mut stored = vec![0; stored_len];
    stream.read_exact(&mut stored).await.map_err(head_error)?;
    Ok(Head { class, message: unpacked(raw_len, stored)?, share })
}

fn unpacked(raw_len: usize, stored: Vec<u8>) -> Result<Vec<u8>, HeadError> {
    let message = codec::decompress(raw_len, stored.into());
    message.map(Vec::from).map_err(|error| HeadError::Malformed(error.to_string()))
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
        let announced = decode_head(frame[..5].try_into().unwrap()).unwrap();
        let class = Class::StoreFast;
        assert_eq!(announced, Announced { length: 3, class, is_packed: false });
    }

    #[test]
    fn long_messages_that_compress_are_shorter_on_the_wire() {
        let text: Vec<u8> = b"name of a file, ".repeat(1000);
        let noise: Vec<u8> = (0..4000_u32)
            .flat_map(|n| blake3::hash(&n.to_le_bytes()).as_bytes()[..4].to_vec())
            .collect();
        for (message, is_packed) in [(&text, true), (&text[..500].to_vec(), false), (&noise, false)]
        {
            let frame = encode(Class::Fetch, message).unwrap();
            let announced = decode_head(frame[..5].try_into().unwrap()).unwrap();
            assert_eq!((announced.class, announced.is_packed), (Class::Fetch, is_packed));
            assert_eq!(announced.length, frame.len() - 5);
            if !is_packed {
                assert_eq!(&frame[5..], &message[..]);
                continue;
            }
            assert!(frame.len() * 10 < message.len());
            let raw_len = u32::from_le_bytes(frame[5..9].try_into().unwrap()) as usize;
            assert_eq!(&unpacked(raw_len, frame[9..].to_vec()).unwrap(), message);
            for lie in [raw_len - 1, raw_len + 1, BLOCK_MAX + 1] {
                unpacked(lie, frame[9..].to_vec()).unwrap_err();
            }
        }
    }

    #[test]
    fn heads_over_a_limit_are_refused() {
        assert!(decode_head([0xff, 0xff, 0xff, 0xff, 0]).is_err());
        assert!(decode_head([1, 0, 0, 0, 6]).is_err());
        let long = vec![0; MESSAGE_MAX + 1];
        assert_eq!(encode(Class::Fetch, &long).unwrap_err(), CallError::TooLarge);
    }
}
