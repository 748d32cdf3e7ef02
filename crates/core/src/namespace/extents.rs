//! Extents: which bytes a file has, from one range of it to a place.
//!
//! Extents of one inode never overlap and are never empty; where none stands is a hole. Each
//! has the key of its end, so those that overlap a range start with the first key beyond the
//! range's start. Small neighbours that stand in the rows themselves are joined, or a log that
//! grows line by line would be read line by line.
//!
//! A row may stand for a part of a leaf: a run of up to a thousand extents that are kept
//! together, so that a file of 100 GB is committed, copied and removed by some hundred rows.

use super::overlay::Overlay;
use super::refs;
use super::rows::{self, Extent, InodeRow, LeafRow, Source};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, is_damage, keys, readable};
use crate::nouns::{Fingerprint, INLINE_MAX, Ino, VolumeId};

/// Rows read at a time.
const SLICE: usize = 64;
/// Rows of contents that go in the commit which takes them from a file.
const BURIED_MAX: usize = 256;
/// Places of bytes from which on a range is answered in part: those of 4 MiB in pieces of 512
/// bytes.
pub(super) const PARTS_MAX: usize = 8192;

/// Whose extents: those of one generation of a file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The volume.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// Which of its contents; the inode's row says which one is the present.
    pub generation: u32,
}

impl Contents {
    pub(crate) fn of(volume: VolumeId, row: &InodeRow) -> Contents {
        Contents { volume, ino: row.attr.ino, generation: row.generation }
    }
}

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
            Source::Leaf { leaf, start } => {
                Source::Leaf { leaf: *leaf, start: start.saturating_add(skip) }
            }
        };
        Extent { len, source }
    }
}

/// Extents, ascending, each with its first byte's place.
type Placed = Vec<(u64, Extent)>;

/// The first rows that end beyond `from`.
pub(crate) fn rows_from<S: MetaSnapshot>(
    snapshot: &mut S,
    contents: Contents,
    from: u64,
) -> Result<Placed, Fault<S::Error>> {
    first_rows(snapshot, contents, from, SLICE)
}

/// The first `limit` of them.
fn first_rows<S: MetaSnapshot>(
    snapshot: &mut S,
    contents: Contents,
    from: u64,
    limit: usize,
) -> Result<Placed, Fault<S::Error>> {
    let Some(next) = from.checked_add(1) else { return Ok(Vec::new()) };
    let last = keys::after(&keys::extents(contents));
    let rows = snapshot.range(&keys::extent(contents, next), &last, limit).map_err(Fault::Store)?;
    let place = |(key, value): (Vec<u8>, Vec<u8>)| {
        let extent: Extent = rows::decode(&value, "an extent")?;
        let end = key.last_chunk().map(|end| u64::from_be_bytes(*end));
        let end = end.ok_or(Fault::Damaged("an extent's key"))?;
        let start = end.checked_sub(extent.len).ok_or(Fault::Damaged("an extent's length"))?;
        Ok((start, extent))
    };
    rows.into_iter().map(place).collect()
}

/// Rows that overlap `from..to`.
pub(crate) fn overlapping<S: MetaSnapshot>(
    snapshot: &mut S,
    contents: Contents,
    from: u64,
    to: u64,
) -> Result<Placed, Fault<S::Error>> {
    let (mut found, mut at, mut limit) = (Vec::new(), from, SLICE);
    loop {
        let (page, more) = page(snapshot, contents, (at, to), &mut limit)?;
        at = page.last().map_or(to, |(start, extent)| start + extent.len);
        found.extend(page);
        if !more {
            return Ok(found);
        }
    }
}

/// The first of them, and whether there may be more. `limit` is how many at most; where that
/// many cannot be read it becomes one, since what is damaged may be one that is not asked for.
fn page<S: MetaSnapshot>(
    snapshot: &mut S,
    contents: Contents,
    (from, to): (u64, u64),
    limit: &mut usize,
) -> Result<(Placed, bool), Fault<S::Error>> {
    if from >= to {
        return Ok((Vec::new(), false));
    }
    let mut rows = first_rows(snapshot, contents, from, *limit);
    if *limit > 1 && rows.as_ref().is_err_and(is_damage::<S>) {
        *limit = 1;
        rows = first_rows(snapshot, contents, from, *limit);
    }
    let mut rows = rows?;
    let more = rows.len() == *limit && rows.last().is_some_and(|(start, _)| *start < to);
    rows.retain(|(start, _)| *start < to);
    Ok((rows, more))
}

/// What `from..to` holds, ascending and clipped to it: places of bytes, none of them a leaf. Up to
/// where that is told: it is the end of the range, unless there are very many.
pub(super) fn resolved<S: MetaSnapshot>(
    snapshot: &mut S,
    contents: Contents,
    from: u64,
    to: u64,
) -> Result<(Placed, u64), Fault<S::Error>> {
    let (mut found, mut at, mut limit) = (Vec::new(), from, SLICE);
    // Many rows may be parts of one leaf.
    let mut last: Option<(Fingerprint, LeafRow)> = None;
    loop {
        let (page, more) = page(snapshot, contents, (at, to), &mut limit)?;
        for (start, extent) in page {
            if found.len() >= PARTS_MAX {
                return Ok((found, at));
            }
            let (first, end) = (start.max(from), start.saturating_add(extent.len).min(to));
            let part = extent.part(first - start, end - first);
            at = end;
            let Source::Leaf { leaf, start } = part.source else {
                found.push((first, part));
                continue;
            };
            let row = match last.take().filter(|(name, _)| *name == leaf) {
                Some((_, row)) => row,
                None => rows::leaf(snapshot, contents.volume, &leaf)?
                    .ok_or(Fault::Damaged("a leaf is missing"))?,
            };
            let parts = within(&row.extents, start, part.len);
            found.extend(parts.into_iter().map(|(at, extent)| (first + at, extent)));
            last = Some((leaf, row));
        }
        if !more {
            return Ok((found, to));
        }
    }
}

/// The parts of a leaf's extents that are its bytes from `start` on, `len` of them, each with
/// its place from `start`.
pub(crate) fn within(extents: &[Extent], start: u64, len: u64) -> Vec<(u64, Extent)> {
    let (end, mut at, mut found) = (start.saturating_add(len), 0_u64, Vec::new());
    for extent in extents {
        let (first, last) = (at.max(start), at.saturating_add(extent.len).min(end));
        if first < last {
            found.push((first - start, extent.part(first - at, last - first)));
        }
        at = at.saturating_add(extent.len);
        if at >= end {
            break;
        }
    }
    found
}

/// Makes `from..to` a hole; returns how many bytes went, and of how many rows. `None` if these are
/// more than `most`, and then the hole is not whole.
pub(crate) fn clear<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    contents: Contents,
    (from, to): (u64, u64),
    most: usize,
) -> Result<Option<(u64, usize)>, Fault<T::Error>> {
    let (mut gone, mut count, mut at, mut limit) = (0, 0, from, SLICE);
    loop {
        // Some at a time, because each may bring its bytes along.
        let (page, more) = page(&mut tree.txn, contents, (at, to), &mut limit)?;
        count += page.len();
        if count > most {
            return Ok(None);
        }
        for (start, extent) in page {
            let end = start + extent.len;
            gone += end.min(to) - start.max(from);
            let parts = i64::from(end > to) + i64::from(start < from);
            refs::shift(&mut tree.txn, contents.volume, &extent.source, parts - 1)?;
            if end > to {
                put(&mut tree.txn, contents, end, &extent.part(to - start, end - to))?;
            } else {
                remove(&mut tree.txn, contents, end)?;
            }
            if start < from {
                put(&mut tree.txn, contents, from, &extent.part(0, from - start))?;
            }
            at = end;
        }
        if !more {
            return Ok(Some((gone, count)));
        }
    }
}

/// Puts `extent` at `start`, where a hole is, joining it with small neighbours.
pub(crate) fn fill<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    contents: Contents,
    start: u64,
    extent: Extent,
) -> Result<(), Fault<T::Error>> {
    let txn = &mut tree.txn;
    let end = start + extent.len;
    let Source::Inline(bytes) = &extent.source else {
        refs::shift(txn, contents.volume, &extent.source, 1)?;
        return put(txn, contents, end, &extent);
    };
    let mut joined = bytes.to_vec();
    // A neighbour that cannot be read is not joined.
    let before = rows::get_row::<_, Extent>(txn, &keys::extent(contents, start), "an extent");
    let before = readable::<Overlay<'_, T>, _>(before)?;
    if let Some(Extent { source: Source::Inline(before), .. }) = before
        && before.len() + joined.len() <= INLINE_MAX
    {
        remove(txn, contents, start)?;
        joined.splice(0..0, before);
    }
    let mut end = end;
    let next = first_rows(txn, contents, end, 1).map(|rows| rows.into_iter().next());
    let next = readable::<Overlay<'_, T>, _>(next)?.filter(|(start, _)| *start == end);
    if let Some((_, Extent { source: Source::Inline(after), .. })) = next
        && after.len() + joined.len() <= INLINE_MAX
    {
        end += after.len() as u64;
        joined.extend_from_slice(&after);
    }
    let len = joined.len() as u64;
    put(txn, contents, end, &Extent { len, source: Source::Inline(joined.into()) })
}

/// Removes up to `limit` extents of contents that nobody has any more, and what they refer to
/// loses a reference each. One that cannot be read goes too: a damaged file can be removed and
/// written anew, and what that extent referred to is counted anew by a repair. Returns how many
/// there were, and whether all of them could be read.
pub(crate) fn discard<T: MetaTxn>(
    txn: &mut T,
    contents: Contents,
    limit: usize,
) -> Result<(usize, bool), Fault<T::Error>> {
    let prefix = keys::extents(contents);
    let rows = txn.range_past_damage(&prefix, &keys::after(&prefix), limit);
    let rows = rows.map_err(Fault::Store)?;
    let mut is_whole = true;
    for (key, value) in &rows {
        let extent = value.as_ref().map(|value| rows::decode::<_, T::Error>(value, "an extent"));
        match extent {
            Some(Ok(Extent { source, .. })) => {
                refs::shift(txn, contents.volume, &source, -1)?;
            }
            _ => is_whole = false,
        }
        txn.remove(key).map_err(Fault::Store)?;
    }
    Ok((rows.len(), is_whole))
}

/// Removes contents that nobody has any more. What is more than a few rows is left to collection,
/// so that no commit takes long. False if some of it is still there, or was not what was written:
/// then its place is none for others.
pub(super) fn bury<T: MetaTxn>(txn: &mut T, contents: Contents) -> Result<bool, Fault<T::Error>> {
    let (gone, is_whole) = discard(txn, contents, BURIED_MAX)?;
    if gone < BURIED_MAX {
        return Ok(is_whole);
    }
    rows::put_row(txn, &keys::grave(contents), &())?;
    Ok(false)
}

pub(super) fn put<T: MetaTxn>(
    txn: &mut T,
    contents: Contents,
    end: u64,
    extent: &Extent,
) -> Result<(), Fault<T::Error>> {
    rows::put_row(txn, &keys::extent(contents, end), extent)
}

fn remove<T: MetaTxn>(txn: &mut T, contents: Contents, end: u64) -> Result<(), Fault<T::Error>> {
    txn.remove(&keys::extent(contents, end)).map_err(Fault::Store)
}
