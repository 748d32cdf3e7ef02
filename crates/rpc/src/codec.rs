//! The body codec: blocks that are compressed where that helps.
//!
//! ```text
//! block = raw_len u32 LE, wire_len u32 LE, wire_len bytes
//! ```
//!
//! `wire_len == raw_len` means that the bytes are uncompressed. Otherwise they are one zstd frame
//! of exactly `raw_len` bytes. Chunks in packs follow the same rule, so a server sends stored
//! chunks unchanged.
//!
//! A decoder allocates at most `raw_len` for a block, and never more than [`BLOCK_MAX`], whatever
//! the compressed bytes claim.

mod delta;

use bytes::{Bytes, BytesMut};

pub use delta::{difference, undifference};

use crate::body::{BodyError, BodyReader};

/// Longest block, in bytes: the largest chunk.
pub const BLOCK_MAX: usize = 4 << 20;
/// Length of a block's header, in bytes.
pub const HEADER_BYTES: usize = 8;
/// zstd's own default: 300 MB/s, and text at a third.
const LEVEL: i32 = 3;
/// Compression must save this part of a block to be worth undoing: a twentieth.
const SAVING: usize = 20;
/// Blocks shorter than this are not tried: a zstd frame alone takes a dozen bytes.
const TRY_MIN_BYTES: usize = 64;

/// Why bytes are not blocks.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The body broke off.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A length is over the limit, or the stored one over the raw one.
    #[error("block lengths {wire_len} of {raw_len} are not possible")]
    Lengths {
        /// Length before compression.
        raw_len: usize,
        /// Length as sent.
        wire_len: usize,
    },
    /// The body ends inside a block.
    #[error("the body ends inside a block")]
    Short,
    /// The bytes do not decompress to the announced length.
    #[error("a block does not decompress")]
    Damaged,
}

/// The compressed form of a block, if it is enough shorter.
pub fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() < TRY_MIN_BYTES {
        return None;
    }
    // An error (no memory) only costs the saving.
    let stored = zstd::bulk::compress(raw, LEVEL).ok()?;
    (stored.len() <= raw.len() - raw.len() / SAVING).then_some(stored)
}

/// Returns the block in `stored`: unchanged if it has `raw_len` bytes, else decompressed.
pub fn decompress(raw_len: usize, stored: Bytes) -> Result<Bytes, CodecError> {
    check(raw_len, stored.len())?;
    if stored.len() == raw_len {
        return Ok(stored);
    }
    let raw = zstd::bulk::decompress(&stored, raw_len).map_err(|_| CodecError::Damaged)?;
    if raw.len() == raw_len { Ok(raw.into()) } else { Err(CodecError::Damaged) }
}

fn check(raw_len: usize, wire_len: usize) -> Result<(), CodecError> {
    let possible = raw_len <= BLOCK_MAX && wire_len <= raw_len && (wire_len > 0 || raw_len == 0);
    if possible { Ok(()) } else { Err(CodecError::Lengths { raw_len, wire_len }) }
}

/// The header of a block.
///
/// # Panics
///
/// If the lengths are not possible.
pub fn block_header(raw_len: usize, wire_len: usize) -> [u8; HEADER_BYTES] {
    assert!(check(raw_len, wire_len).is_ok(), "block of {wire_len} for {raw_len} bytes");
    let (raw_len, wire_len) = (raw_len as u64, wire_len as u64);
    (raw_len | wire_len << 32).to_le_bytes()
}

/// A block, compressed where that helps.
///
/// # Panics
///
/// If `raw` is longer than [`BLOCK_MAX`].
pub fn encode_block(raw: &[u8]) -> Vec<u8> {
    match compress(raw) {
        Some(stored) => block_from_stored(raw.len(), &stored),
        None => block_from_stored(raw.len(), raw),
    }
}

/// A block of bytes that are in their final form already.
///
/// # Panics
///
/// If the lengths are not possible.
pub fn block_from_stored(raw_len: usize, stored: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(HEADER_BYTES + stored.len());
    block.extend_from_slice(&block_header(raw_len, stored.len()));
    block.extend_from_slice(stored);
    block
}

/// A block as received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Length before compression.
    pub raw_len: usize,
    /// Its bytes as they came.
    pub stored: Bytes,
}

/// Cuts blocks out of bytes that come in pieces of any length.
#[derive(Debug, Default)]
struct Cutter {
    bytes: BytesMut,
}

impl Cutter {
    /// The next block, if all of it is here.
    fn cut(&mut self) -> Result<Option<Block>, CodecError> {
        let Some(header) = self.bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *header;
        let raw_len = u32::from_le_bytes([a, b, c, d]) as usize;
        let wire_len = u32::from_le_bytes([e, f, g, h]) as usize;
        check(raw_len, wire_len)?;
        if self.bytes.len() < HEADER_BYTES + wire_len {
            self.bytes.reserve(HEADER_BYTES + wire_len - self.bytes.len());
            return Ok(None);
        }
        let mut block = self.bytes.split_to(HEADER_BYTES + wire_len);
        let stored = block.split_off(HEADER_BYTES).freeze();
        Ok(Some(Block { raw_len, stored }))
    }
}

/// The blocks of a body, one after the other.
#[derive(Debug)]
pub struct BlockReader {
    body: BodyReader,
    cutter: Cutter,
}

impl BlockReader {
    /// Reads blocks from the start of `body`.
    pub fn new(body: BodyReader) -> BlockReader {
        BlockReader { body, cutter: Cutter::default() }
    }

    /// The next block, decompressed; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CodecError> {
        let Some(block) = self.next_stored().await? else { return Ok(None) };
        decompress(block.raw_len, block.stored).map(Some)
    }

    /// Returns the next block as it came, to be decompressed elsewhere; `None` after the last.
    pub async fn next_stored(&mut self) -> Result<Option<Block>, CodecError> {
        loop {
            if let Some(block) = self.cutter.cut()? {
                return Ok(Some(block));
            }
            match self.body.next().await? {
                Some(piece) => self.cutter.bytes.extend_from_slice(&piece),
                None if self.cutter.bytes.is_empty() => return Ok(None),
                None => return Err(CodecError::Short),
            }
        }
    }
}

#[cfg(test)]
mod tests;
