//! The bytes of a pack.
//!
//! ```text
//! pack   = header entry*
//! header = "SEGUEPAK" version u32 zero u32                                   (16 bytes)
//! entry  = "CHNK" fingerprint[32] volume u32 raw_len u32 stored_len u32 crc32c u32
//!                                                                            (52 bytes)
//!          stored bytes: as they are if stored_len == raw_len, else one zstd frame
//! ```
//!
//! Numbers are little-endian. The checksum covers the entry's header before it and the stored
//! bytes, so that an index can be made again from packs alone.

use segue_core::chunk::CHUNK_MAX;
use segue_core::namespace::ChunkPlace;
use segue_core::nouns::{Fingerprint, VolumeId};

use super::StoredChunk;

/// Length of a pack's header, in bytes.
pub(super) const PACK_HEADER: usize = 16;
/// Length of an entry's header, in bytes.
pub(super) const ENTRY_HEADER: usize = 52;
const PACK_MAGIC: &[u8; 8] = b"SEGUEPAK";
pub(super) const ENTRY_MAGIC: &[u8; 4] = b"CHNK";
const VERSION: u32 = 2;

/// What stands before a chunk's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) fingerprint: Fingerprint,
    /// Whose chunk it is.
    pub(crate) volume: VolumeId,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    crc: u32,
}

/// A pack's header.
pub(super) fn pack_header() -> [u8; PACK_HEADER] {
    let mut header = [0; PACK_HEADER];
    header[..8].copy_from_slice(PACK_MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

impl Entry {
    /// The entry of `stored`.
    pub(super) fn new(volume: VolumeId, chunk: &StoredChunk, stored_len: u32) -> Entry {
        let (fingerprint, raw_len) = (chunk.fingerprint, chunk.raw_len);
        let mut entry = Entry { fingerprint, volume, raw_len, stored_len, crc: 0 };
        entry.crc = entry.checksum(&chunk.stored);
        entry
    }

    pub(super) fn encode(&self) -> [u8; ENTRY_HEADER] {
        let mut bytes = [0; ENTRY_HEADER];
        bytes[..4].copy_from_slice(ENTRY_MAGIC);
        bytes[4..36].copy_from_slice(&self.fingerprint.0);
        bytes[36..40].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[48..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// The entry that `bytes` are, if they can be one.
    pub(super) fn decode(bytes: &[u8; ENTRY_HEADER]) -> Option<Entry> {
        let number = |at: usize| {
            bytes.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
        };
        let (raw_len, stored_len, crc) = (number(40)?, number(44)?, number(48)?);
        let possible = raw_len as usize <= CHUNK_MAX && stored_len <= raw_len;
        let fingerprint = Fingerprint(*bytes.get(4..36)?.first_chunk()?);
        let volume = VolumeId(number(36)?);
        let known = bytes.starts_with(ENTRY_MAGIC) && possible;
        known.then_some(Entry { fingerprint, volume, raw_len, stored_len, crc })
    }

    /// Where its bytes are if they stand at `offset` of the pack `pack`.
    pub(crate) fn place(&self, pack: u64, offset: u64) -> ChunkPlace {
        let Entry { raw_len, stored_len, .. } = *self;
        ChunkPlace { pack, offset, stored_len, raw_len, compressed: stored_len < raw_len }
    }

    /// True if `stored` are the bytes that the entry was made for.
    pub(super) fn holds(&self, stored: &[u8]) -> bool {
        self.checksum(stored) == self.crc
    }

    fn checksum(&self, stored: &[u8]) -> u32 {
        let header = Entry { crc: 0, ..*self }.encode();
        crc32c::crc32c_append(crc32c::crc32c(&header), stored)
    }
}
