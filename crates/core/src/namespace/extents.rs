//! Extents: which bytes a file has, from one range of it to a place.
//!
//! Extents of one inode never overlap and are never empty; where none stands is a hole. Each
//! has the key of its end, so those that overlap a range start with the first key beyond the
//! range's start. Small neighbours that stand in the rows themselves are joined, or a log that
//! grows line by line would be read line by line.

use super::rows::{self, Extent, Source};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys};
use crate::modlog::INLINE_MAX;
use crate::types::{Ino, VolumeId};

/// Rows read at a time.
const SLICE: usize = 64;

impl Extent {
    /// `len` bytes from `skip` on.
    pub(super) fn part(&self, skip: u64, len: u64) -> Extent {
        let source = match &self.source {
            Source::Inline(bytes) => {
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Source::Inline(bytes.slice(index(skip)..index(skip.saturating_add(len))))
            }
            Source::Chunk { fingerprint, start } => Source::Chunk {
                fingerprint: *fingerprint,
                start: u32::try_from(u64::from(*start) + skip).unwrap_or(u32::MAX),
            },
        };
        Extent { len, source }
    }
}

/// Extents that overlap `from..to`, ascending, each with its first byte's place.
pub(super) fn overlapping<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, ino): (VolumeId, Ino),
    from: u64,
    to: u64,
) -> Result<Vec<(u64, Extent)>, Fault<S::Error>> {
    let mut found = Vec::new();
    let last = keys::after(&keys::extents(volume, ino));
    let mut at = from;
    while let Some(next) = at.checked_add(1) {
        let first = keys::extent(volume, ino, next);
        let rows = snapshot.range(&first, &last, SLICE).map_err(Fault::Store)?;
        let more = rows.len() == SLICE;
        for (key, value) in rows {
            let extent: Extent = rows::decode(&value, "an extent")?;
            let end = key.last_chunk().map(|end| u64::from_be_bytes(*end));
            let end = end.ok_or(Fault::Damaged("an extent's key"))?;
            let start = end.checked_sub(extent.len).ok_or(Fault::Damaged("an extent's length"))?;
            if start >= to {
                return Ok(found);
            }
            at = end;
            found.push((start, extent));
        }
        if !more {
            break;
        }
    }
    Ok(found)
}

/// Makes `from..to` a hole; returns how many bytes went.
pub(super) fn clear<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
    from: u64,
    to: u64,
) -> Result<u64, Fault<T::Error>> {
    let mut gone = 0;
    for (start, extent) in overlapping(&mut tree.txn, (tree.volume, ino), from, to)? {
        let end = start + extent.len;
        gone += end.min(to) - start.max(from);
        if end > to {
            put(tree, ino, end, &extent.part(to - start, end - to))?;
        } else {
            remove(tree, ino, end)?;
        }
        if start < from {
            put(tree, ino, from, &extent.part(0, from - start))?;
        }
    }
    Ok(gone)
}

/// Puts `extent` at `start`, where a hole is, joining it with small neighbours.
pub(super) fn fill<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
    start: u64,
    extent: Extent,
) -> Result<(), Fault<T::Error>> {
    let end = start + extent.len;
    let Source::Inline(bytes) = &extent.source else { return put(tree, ino, end, &extent) };
    let mut joined = bytes.to_vec();
    let before: Option<Extent> =
        rows::get_row(&mut tree.txn, &keys::extent(tree.volume, ino, start), "an extent")?;
    if let Some(Extent { source: Source::Inline(before), .. }) = before
        && before.len() + joined.len() <= INLINE_MAX
    {
        remove(tree, ino, start)?;
        joined.splice(0..0, before);
    }
    let mut end = end;
    let key = (tree.volume, ino);
    let next = overlapping(&mut tree.txn, key, end, end.saturating_add(1))?.into_iter().next();
    if let Some((_, Extent { source: Source::Inline(after), .. })) = next
        && after.len() + joined.len() <= INLINE_MAX
    {
        end += after.len() as u64;
        joined.extend_from_slice(&after);
    }
    put(tree, ino, end, &Extent { len: joined.len() as u64, source: Source::Inline(joined.into()) })
}

fn put<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
    end: u64,
    extent: &Extent,
) -> Result<(), Fault<T::Error>> {
    rows::put_row(&mut tree.txn, &keys::extent(tree.volume, ino, end), extent)
}

fn remove<T: MetaTxn>(tree: &mut Tree<'_, T>, ino: Ino, end: u64) -> Result<(), Fault<T::Error>> {
    tree.txn.remove(&keys::extent(tree.volume, ino, end)).map_err(Fault::Store)
}
