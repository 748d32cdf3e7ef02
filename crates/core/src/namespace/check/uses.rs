//! Which files the chunks of a volume are used in, for whoever reads their bytes.

use super::super::extents::within;
use super::super::rows::{ChunkPlace, ChunkRow, Extent, LeafRow, Source};
use super::super::{MetaSnapshot, keys};
use super::scan::Scan;
use super::{FoundRow, decode, find};
use crate::types::{Fingerprint, Ino, VolumeId};

/// Extents on one page: so few that no snapshot is held for long.
const PAGE: usize = 256;

/// A run of a file's bytes that is in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkUse {
    /// The file.
    pub ino: Ino,
    /// First byte in the file.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// The chunk.
    pub fingerprint: Fingerprint,
    /// Where it is.
    pub place: ChunkPlace,
}

/// Uses of chunks, and the key to go on from if there are more.
pub type UsePage = (Vec<ChunkUse>, Option<Vec<u8>>);

/// Uses from the key `from` on (empty: the first), by file and offset. Those whose chunk has
/// no row are left out: [`super::check`] reports them.
pub fn chunk_uses<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    from: &[u8],
) -> Result<UsePage, S::Error> {
    let prefix = keys::all_extents(volume);
    let mut scan = match from {
        [] => Scan::new(prefix),
        from => Scan::starting(&prefix, from.to_vec()),
    };
    let mut uses = Vec::new();
    for _ in 0..PAGE {
        let Some((key, value)) = scan.next(snapshot)? else { return Ok((uses, None)) };
        let place = keys::inode_part(&key)
            .and_then(|(ino, rest)| keys::extent_part(rest).map(|(_, end)| (ino, end)));
        let (Some((ino, end)), Some(extent)) = (place, decode::<Extent>(&value)) else { continue };
        let Some(start) = end.checked_sub(extent.len) else { continue };
        let is_leaf = matches!(extent.source, Source::Leaf { .. });
        for (at, part) in parts(snapshot, volume, extent)? {
            let Source::Chunk { fingerprint, .. } = part.source else { continue };
            let found = find::<_, ChunkRow>(snapshot, &keys::chunk(volume, &fingerprint))?;
            if let FoundRow::Row(ChunkRow { place, .. }) = found {
                let offset = start + at;
                uses.push(ChunkUse { ino, offset, len: part.len, fingerprint, place });
            }
        }
        if is_leaf && uses.len() >= PAGE {
            break;
        }
    }
    let next = scan.peek(snapshot)?.map(|(key, _)| key.clone());
    Ok((uses, next))
}

/// What an extent's bytes are, each run with its place in it.
fn parts<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    extent: Extent,
) -> Result<Vec<(u64, Extent)>, S::Error> {
    let Source::Leaf { leaf, start } = &extent.source else { return Ok(vec![(0, extent)]) };
    Ok(match find::<_, LeafRow>(snapshot, &keys::leaf(volume, leaf))? {
        FoundRow::Row(row) => within(&row.extents, *start, extent.len),
        FoundRow::Nothing | FoundRow::Broken => Vec::new(),
    })
}
