//! The chunks that the parts of a leaf lead to.

use std::collections::BTreeSet;

use super::outline::{Chunks, run};
use super::refs::{leaf_name, leaf_of};
use super::rows::{self, ChunkPlace};
use super::{Fault, LEAF_EXTENTS_MAX, MetaSnapshot, Stop, is_damage};
use crate::nouns::{Fingerprint, VolumeId};
use crate::wire::{Leaf, LeafPart};

/// A leaf whose parts lead to its name.
#[derive(Clone, Debug)]
pub struct Led {
    /// Its chunks.
    pub chunks: Chunks,
    /// The places of those that were told by where they stand.
    pub places: Vec<(Fingerprint, ChunkPlace)>,
    /// How many bytes these have together.
    pub bytes: u64,
    /// Its chunks that are shown to be possessed, or stand in a file that may be read.
    pub proven: BTreeSet<Fingerprint>,
}

/// The chunks of a leaf; `None` unless they lead to its name. Its host has `shown` to possess some.
///
/// A part may be told by where it stands in a version of a file. Whoever is served the volume may
/// fetch that, so these chunks need no other proof.
pub fn lead<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    leaf: &Leaf,
    shown: impl Fn(&Fingerprint) -> bool,
) -> Result<Option<Led>, Fault<S::Error>> {
    let (mut chunks, mut proven, mut stand) = (Chunks::new(), BTreeSet::new(), Vec::new());
    let mut bytes = 0;
    for part in &leaf.parts {
        match part {
            LeafPart::Chunk(name, len) => {
                if shown(name) {
                    proven.insert(*name);
                }
                chunks.push((*name, *len));
            }
            LeafPart::Run { ino, version, range } => {
                let found = readable::<S, _>(run(snapshot, volume, (*ino, *version), range))?;
                let Some(found) = found.flatten() else { return Ok(None) };
                stand.extend(found.iter().map(|(name, _)| *name));
                bytes += found.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
                chunks.extend(found);
            }
        }
        if chunks.len() > LEAF_EXTENTS_MAX {
            return Ok(None);
        }
    }
    if leaf_name(&leaf_of(&chunks)) != Some(leaf.name) {
        return Ok(None);
    }
    let mut places = Vec::with_capacity(stand.len());
    for name in stand {
        let row = readable::<S, _>(rows::chunk(snapshot, volume, &name).map_err(Stop::Fault))?;
        let Some(row) = row.flatten() else { return Ok(None) };
        proven.insert(name);
        places.push((name, row.place));
    }
    Ok(Some(Led { chunks, places, bytes, proven }))
}

/// What was read; `None` if it may not be or is damaged: the chunks then come by their names.
fn readable<S: MetaSnapshot, T>(
    read: Result<T, Stop<S::Error>>,
) -> Result<Option<T>, Fault<S::Error>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Stop::Refused(_)) => Ok(None),
        Err(Stop::Fault(fault)) if is_damage::<S>(&fault) => Ok(None),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}
