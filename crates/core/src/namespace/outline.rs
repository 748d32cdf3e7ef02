//! How a version of a file is cut, and which chunks stand in a range of it.
//!
//! Both are for whoever may read the file: a session learns nothing of a chunk here that it could
//! not have by a fetch, so what a range leads to needs no other proof. Both read as much as their
//! answer may be long, whatever the file is like.

use super::extents::{self, Contents};
use super::read::file;
use super::rows::{self, Extent, Source};
use super::{Fault, LEAF_EXTENTS_MAX, MetaSnapshot, Stop};
use crate::nouns::{Fingerprint, Ino, Version, VolumeId};
use crate::wire::{Brief, OUTLINE_MAX, Outline, Outlined};

use std::ops::Range;

/// Chunks, one after the other: what each is called and how long it is.
pub type Chunks = Vec<(Fingerprint, u32)>;

/// Rows of leaves that are read for one answer. Each may be 64 KiB, and stand for one byte.
pub(super) const LEAVES_MAX: usize = 256;

/// How one data version of a file is cut from `ask.offset` on, as far as one answer goes.
pub fn outline<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ask: &Outline,
) -> Result<Outlined, Stop<S::Error>> {
    let row = file(snapshot, volume, ask.ino, ask.version)?;
    let (mut start, mut at, mut parts) = (ask.offset, ask.offset, Vec::new());
    walk(snapshot, Contents::of(volume, &row), ask.offset, |place, extent| {
        match parts.is_empty() {
            true if place < at => (start, at) = (place, place),
            _ if place > at => parts.push((place - at, None)),
            _ => {}
        }
        let brief = match &extent.source {
            Source::Chunk { fingerprint, start: 0 } => Some(Brief::from(fingerprint)),
            _ => None,
        };
        parts.push((extent.len, brief));
        at = place.saturating_add(extent.len);
        parts.len() < OUTLINE_MAX
    })?;
    Ok(Outlined { size: row.attr.size, start, parts })
}

/// The chunks that stand in a range of one data version of a file; `None` if that is anything but
/// some whole chunks without gaps, as far as the extents say, or are more than a leaf has.
pub fn run<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    (ino, version): (Ino, Version),
    range: &Range<u64>,
) -> Result<Option<Chunks>, Stop<S::Error>> {
    let row = file(snapshot, volume, ino, version)?;
    let (mut at, mut chunks, mut fits) = (range.start, Vec::new(), true);
    walk(snapshot, Contents::of(volume, &row), range.start, |place, extent| {
        let end = place.saturating_add(extent.len);
        fits = place == at && end <= range.end && chunks.len() < LEAF_EXTENTS_MAX;
        match (&extent.source, u32::try_from(extent.len)) {
            (Source::Chunk { fingerprint, start: 0 }, Ok(len)) => chunks.push((*fingerprint, len)),
            _ => fits = false,
        }
        at = end;
        fits && at < range.end
    })?;
    Ok((fits && at == range.end && !chunks.is_empty()).then_some(chunks))
}

/// Tells of the extents that end beyond `from`, each with its place and none of them in a leaf,
/// until `tell` has enough or as many leaves were read as one answer takes.
pub(super) fn walk<S: MetaSnapshot>(
    snapshot: &mut S,
    contents: Contents,
    from: u64,
    mut tell: impl FnMut(u64, &Extent) -> bool,
) -> Result<(), Fault<S::Error>> {
    let (mut at, mut leaves) = (from, 0);
    loop {
        let rows = extents::rows_from(snapshot, contents, at)?;
        let Some((start, last)) = rows.last() else { return Ok(()) };
        at = start.saturating_add(last.len);
        for (start, extent) in rows {
            let Source::Leaf { leaf, start: skip } = extent.source else {
                if !tell(start, &extent) {
                    return Ok(());
                }
                continue;
            };
            leaves += 1;
            if leaves > LEAVES_MAX {
                return Ok(());
            }
            let row = rows::leaf(snapshot, contents.volume, &leaf)?;
            let row = row.ok_or(Fault::Damaged("a leaf is missing"))?;
            for (place, part) in extents::within(&row.extents, skip, extent.len) {
                let place = start.saturating_add(place);
                if place.saturating_add(part.len) > from && !tell(place, &part) {
                    return Ok(());
                }
            }
        }
    }
}
