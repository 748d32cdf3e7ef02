//! Which files the chunks of a volume are used in, for whoever reads their bytes.

use super::scan::Scan;
use super::{FoundRow, decode, find};
use crate::namespace::extents::{Contents, within};
use crate::namespace::rows::{self, ChunkPlace, ChunkRow, Extent, LeafRow, Source};
use crate::namespace::{Fault, MetaSnapshot, keys};
use crate::nouns::{Fingerprint, Ino, Version, VolumeId};

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
    let scan = match from {
        [] => Scan::new(prefix),
        from => Scan::starting(&prefix, from.to_vec()),
    };
    page(snapshot, volume, scan)
}

/// The same, of one data version of a file: all uses in the rows that reach beyond byte `from`. The
/// second part is the byte to go on from. `None` if the file has other data.
#[allow(clippy::type_complexity, reason = "a page and its end")]
pub fn chunk_uses_of<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    (ino, version): (Ino, Version),
    from: u64,
) -> Result<Option<(Vec<ChunkUse>, Option<u64>)>, Fault<S::Error>> {
    let row = rows::inode(snapshot, volume, ino)?;
    let Some(row) = row.filter(|row| row.attr.data_version == version) else { return Ok(None) };
    let contents = Contents::of(volume, &row);
    let first = keys::extent(contents, from.saturating_add(1));
    let scan = Scan::starting(&keys::extents(contents), first);
    let (uses, next) = page(snapshot, volume, scan).map_err(Fault::Store)?;
    // The row of this key ends there, and is the first that reaches beyond the byte before.
    let end = |key: &Vec<u8>| keys::extent_part(keys::inode_part(key)?.1)?.1.checked_sub(1);
    Ok(Some((uses, next.as_ref().and_then(end))))
}

/// The uses in the first rows of `scan`.
fn page<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    mut scan: Scan,
) -> Result<UsePage, S::Error> {
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
