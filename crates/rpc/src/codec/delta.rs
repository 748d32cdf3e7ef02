//! Blocks that go as their difference from bytes that both sides have.
//!
//! The frame is zstd's, with these bytes as its prefix: matches in them count as matches in the
//! block. The encoder looks for long matches in all of the prefix, because the usual tables are too
//! short.

use std::io::{Read, Write};

use bytes::Bytes;

use super::{BLOCK_MAX, CodecError, LEVEL};

/// A block and its dictionary have at most 2^23 bytes together: so far back a match may lie.
const WINDOW_LOG: u32 = 23;
/// A difference is sent if it has at most this part of the block: half.
const SHARE: usize = 2;

/// Returns the difference of `raw` from `dictionary`, if it is much shorter.
pub fn difference(raw: &[u8], dictionary: &[u8]) -> Option<Vec<u8>> {
    // An error (no memory) only costs the saving.
    let mut encoder = zstd::Encoder::with_ref_prefix(Vec::new(), LEVEL, dictionary).ok()?;
    encoder.window_log(WINDOW_LOG).ok()?;
    encoder.long_distance_matching(true).ok()?;
    encoder.set_pledged_src_size(Some(raw.len() as u64)).ok()?;
    encoder.write_all(raw).ok()?;
    let stored = encoder.finish().ok()?;
    (stored.len() <= raw.len() / SHARE).then_some(stored)
}

/// Returns the block of `raw_len` bytes that `stored` and `dictionary` make. Memory holds no more
/// than these bytes, whatever the frame claims.
pub fn undifference(raw_len: usize, stored: &[u8], dictionary: &[u8]) -> Result<Bytes, CodecError> {
    if raw_len > BLOCK_MAX {
        return Err(CodecError::Lengths { raw_len, wire_len: stored.len() });
    }
    let damaged = |_| CodecError::Damaged;
    let mut decoder = zstd::Decoder::with_ref_prefix(stored, dictionary).map_err(damaged)?;
    decoder.window_log_max(WINDOW_LOG).map_err(damaged)?;
    let mut raw = Vec::with_capacity(raw_len);
    // A second frame would have no dictionary.
    decoder.single_frame().take(raw_len as u64 + 1).read_to_end(&mut raw).map_err(damaged)?;
    if raw.len() == raw_len { Ok(raw.into()) } else { Err(CodecError::Damaged) }
}
