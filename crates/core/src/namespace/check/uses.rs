//! Which files the chunks of a volume are used in, for whoever reads their bytes.

use super::super::rows::{ChunkRow, Extent, Source};
use super::super::{MetaSnapshot, keys};
use super::scan::Scan;
use super::{Found, decode, find};
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
    pub row: ChunkRow,
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
        let (Some((ino, end)), Some(extent)) = (keys::inode_part(&key), decode::<Extent>(&value))
        else {
            continue;
        };
        let end = end.try_into().map(u64::from_be_bytes).unwrap_or_default();
        let Source::Chunk { fingerprint, .. } = extent.source else { continue };
        let Some(offset) = end.checked_sub(extent.len) else { continue };
        if let Found::Row(row) = find::<_, ChunkRow>(snapshot, &keys::chunk(&fingerprint))? {
            uses.push(ChunkUse { ino, offset, len: extent.len, fingerprint, row });
        }
    }
    let next = scan.peek(snapshot)?.map(|(key, _)| key.clone());
    Ok((uses, next))
}
