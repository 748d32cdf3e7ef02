//! Segments of a file with their bytes, for sessions that send them and for `collect::tidy`.

use bytes::Bytes;
use segue_core::namespace::read::{Segment, contents};
use segue_core::namespace::{ChunkPlace, Source, Stop, chunk};
use segue_core::nouns::VolumeId;
use segue_core::wire::Fetch;

use crate::meta::Kv;
use crate::packs::{Packs, StoredChunk};

/// A segment, with the place of its chunk.
pub(crate) struct Placed {
    pub(crate) segment: Segment,
    place: Option<ChunkPlace>,
}

/// What a segment holds.
pub(crate) enum Part {
    /// Zeros.
    Hole,
    /// These bytes.
    Bytes(Bytes),
    /// A whole chunk, as it is stored and as it is.
    Chunk(StoredChunk, Bytes),
}

/// The segments of a range. Whoever reads them holds a pin from before.
pub(crate) fn placed(
    kv: &mut Kv<'_>,
    volume: VolumeId,
    ask: &Fetch,
) -> Result<Vec<Placed>, Stop<rusqlite::Error>> {
    let mut placed = Vec::new();
    for segment in contents(kv, volume, ask)? {
        let place = match &segment.source {
            // A row that is missing is damage, reported with the others.
            Some(Source::Chunk { fingerprint, .. }) => {
                chunk(kv, volume, fingerprint)?.map(|row| row.place)
            }
            _ => None,
        };
        placed.push(Placed { segment, place });
    }
    Ok(placed)
}

impl Placed {
    /// What it holds, or the words for what is damaged.
    pub(crate) fn read(&self, packs: &Packs) -> Result<Part, String> {
        let (fingerprint, start) = match &self.segment.source {
            None => return Ok(Part::Hole),
            Some(Source::Inline(bytes)) => return Ok(Part::Bytes(bytes.clone())),
            Some(Source::Leaf { leaf, .. }) => {
                return Err(format!("leaf {leaf} is inside another leaf"));
            }
            Some(Source::Chunk { fingerprint, start }) => (fingerprint, *start as usize),
        };
        let place =
            self.place.ok_or_else(|| format!("the place of chunk {fingerprint} is unknown"))?;
        let (stored, raw) = packs
            .read(fingerprint, &place)
            .map_err(|error| format!("chunk {fingerprint} cannot be read: {error}"))?;
        let len = usize::try_from(self.segment.len).unwrap_or(usize::MAX);
        match start.checked_add(len).filter(|end| *end <= raw.len()) {
            Some(_) if len == raw.len() => Ok(Part::Chunk(stored, raw)),
            Some(end) => Ok(Part::Bytes(raw.slice(start..end))),
            None => Err(format!("an extent is longer than chunk {fingerprint}")),
        }
    }
}
