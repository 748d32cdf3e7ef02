//! Putting a file's extents in order, in the background and without changing a byte of it.
//!
//! A file that is written here and there, or grows line by line, comes to consist of many small
//! extents: each a row to read, and none a chunk that another file could share. Once it has been
//! left alone for a while its fragments are cut anew as if they had been written at once, and
//! long runs of chunks are put together in leaves.
//!
//! ```text
//!   store ─▶ ragged ─▶ a run of fragments: read, cut, its chunks arrive ─▶ replaced
//!                      a thousand whole chunks ───────────────────────────▶ one leaf
//! ```
//!
//! Invariant: what is replaced is of the data version that was read; the file's attributes and
//! versions stay as they are.

use std::ops::Range;

use crate::chunk::Cutter;
use crate::namespace::extents::{self, Contents};
use crate::namespace::refs::{self, LEAF_EXTENTS_MAX};
use crate::namespace::rows::{self, Extent, InodeRow, Source};
use crate::namespace::tree::Tree;
use crate::namespace::{Fault, MetaSnapshot, MetaTxn, keys, readable};
use crate::nouns::{Ino, Version, VolumeId};

/// Longest run that is cut at once, in bytes: it is held in memory.
const RUN_MAX: u64 = 16 << 20;
/// So many fragments are worth the work, however short they are.
const ROWS_MIN: usize = 64;
/// A part of a leaf that is shorter is a fragment, in bytes: the leaf is kept for it as a whole.
const LEAF_PART_MIN: u64 = 1 << 20;

/// What is to be done next with a ragged file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Untidy {
    /// Fragments that are to be cut anew.
    Fragments(Range<u64>),
    /// Chunks that are to be put together in a leaf.
    Chunks(Range<u64>),
}

/// A file that may be ragged, with its data version if it is still there.
pub type Ragged = (VolumeId, Ino, Option<Version>);

/// Files that may be ragged, after `after`.
pub fn ragged<S: MetaSnapshot>(
    snapshot: &mut S,
    after: Option<(VolumeId, Ino)>,
    limit: usize,
) -> Result<Vec<Ragged>, Fault<S::Error>> {
    let prefix = keys::all_ragged();
    let mut from = after.map_or(prefix.clone(), |(volume, ino)| keys::ragged(volume, ino));
    from.extend(after.map(|_| 0));
    let rows = snapshot.range_past_damage(&from, &keys::after(&prefix), limit);
    let rows = rows.map_err(Fault::Store)?;
    let mut files = Vec::with_capacity(rows.len());
    for (key, _) in rows {
        let (volume, ino) = keys::ragged_part(&key).ok_or(Fault::Damaged("a ragged file's key"))?;
        let row = readable::<S, _>(rows::inode(snapshot, volume, ino))?;
        files.push((volume, ino, row.map(|row| row.attr.data_version)));
    }
    Ok(files)
}

/// The first thing to be done with a file from the byte `from` on.
pub fn untidy<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, ino): (VolumeId, Ino),
    from: u64,
) -> Result<Option<Untidy>, Fault<S::Error>> {
    let Some(row) = rows::inode(snapshot, volume, ino)? else { return Ok(None) };
    let average = Cutter::for_file(row.attr.size).longest() as u64 / 4;
    let is_fragment = |extent: &Extent| match extent.source {
        Source::Inline(_) => true,
        Source::Chunk { .. } => extent.len < average / 4,
        Source::Leaf { .. } => extent.len < LEAF_PART_MIN,
    };
    let (mut fragments, mut chunks) = (Run::default(), Run::default());
    let (contents, mut at) = (Contents::of(volume, &row), from);
    loop {
        let rows = extents::rows_from(snapshot, contents, at)?;
        let Some((start, extent)) = rows.last() else { break };
        at = start + extent.len;
        for (start, extent) in rows.into_iter().filter(|(start, _)| *start >= from) {
            if !is_fragment(&extent) {
                if fragments.is_worth(average) {
                    return Ok(Some(Untidy::Fragments(fragments.range())));
                }
                fragments = Run::default();
            } else if !fragments.take_bounded(start, extent.len) {
                if fragments.is_worth(average) {
                    return Ok(Some(Untidy::Fragments(fragments.range())));
                }
                fragments = Run::new(start, extent.len);
            }
            match extent.source {
                Source::Chunk { .. } if chunks.take_row(start, extent.len) => {}
                Source::Chunk { .. } => chunks = Run::new(start, extent.len),
                _ => chunks = Run::default(),
            }
            if chunks.rows == LEAF_EXTENTS_MAX {
                return Ok(Some(Untidy::Chunks(chunks.range())));
            }
        }
    }
    let last = fragments.is_worth(average);
    Ok(last.then(|| Untidy::Fragments(fragments.range())))
}

/// Extents one after the other.
#[derive(Default)]
struct Run {
    start: u64,
    end: u64,
    rows: usize,
}

impl Run {
    fn new(start: u64, len: u64) -> Run {
        Run { start, end: start.saturating_add(len), rows: 1 }
    }

    /// Adds an extent that begins where the run ends; false for any other.
    fn take_row(&mut self, start: u64, len: u64) -> bool {
        let fits = self.rows > 0 && start == self.end;
        if fits {
            self.end = self.end.saturating_add(len);
            self.rows += 1;
        }
        fits
    }

    /// The same, up to the longest run that is cut at once.
    fn take_bounded(&mut self, start: u64, len: u64) -> bool {
        start.saturating_add(len).saturating_sub(self.start) <= RUN_MAX && self.take_row(start, len)
    }

    fn is_worth(&self, average: u64) -> bool {
        self.rows > 1 && (self.rows >= ROWS_MIN || self.end - self.start >= average)
    }

    fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// Puts `extents`, which are the same bytes, in the place of a range of a file, if its data are
/// still of `version`; false if they are not.
pub fn replace<T: MetaTxn>(
    txn: &mut T,
    (volume, ino): (VolumeId, Ino),
    version: Version,
    range: Range<u64>,
    extents: Vec<Extent>,
) -> Result<bool, Fault<T::Error>> {
    let mut tree = Tree::open(txn, volume)?;
    let Some(row) = current(&mut tree, ino, version)? else { return Ok(false) };
    let contents = Contents::of(volume, &row);
    let mut at = range.start;
    extents::clear(&mut tree, contents, (range.start, range.end), usize::MAX)?;
    for extent in extents {
        let next = at.saturating_add(extent.len);
        extents::fill(&mut tree, contents, at, extent)?;
        at = next;
    }
    if at != range.end {
        return Err(Fault::Damaged("what replaces extents has another length"));
    }
    tree.commit()?;
    Ok(true)
}

/// Puts the chunks of a range together in a leaf, if the file's data are still of `version`.
pub fn gather<T: MetaTxn>(
    txn: &mut T,
    (volume, ino): (VolumeId, Ino),
    version: Version,
    range: Range<u64>,
) -> Result<bool, Fault<T::Error>> {
    let mut tree = Tree::open(txn, volume)?;
    let Some(row) = current(&mut tree, ino, version)? else { return Ok(false) };
    let contents = Contents::of(volume, &row);
    let chunks = extents::overlapping(&mut tree.txn, contents, range.start, range.end)?;
    let chunks: Vec<Extent> = chunks.into_iter().map(|(_, extent)| extent).collect();
    let len = range.end - range.start;
    let is_run = chunks.iter().all(|extent| matches!(extent.source, Source::Chunk { .. }));
    if !is_run || chunks.iter().map(|extent| extent.len).sum::<u64>() != len {
        return Ok(false);
    }
    let leaf = refs::make_leaf(&mut tree.txn, volume, chunks, 0)?;
    extents::clear(&mut tree, contents, (range.start, range.end), usize::MAX)?;
    let source = Source::Leaf { leaf, start: 0 };
    extents::fill(&mut tree, contents, range.start, Extent { len, source })?;
    tree.commit()?;
    Ok(true)
}

/// Removes the note that the file is ragged, if its data are still of `version`.
pub fn clear_ragged<T: MetaTxn>(
    txn: &mut T,
    (volume, ino): (VolumeId, Ino),
    version: Option<Version>,
) -> Result<(), Fault<T::Error>> {
    let row = rows::inode(txn, volume, ino)?;
    if row.map(|row| row.attr.data_version) == version {
        txn.remove(&keys::ragged(volume, ino)).map_err(Fault::Store)?;
    }
    Ok(())
}

fn current<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
    version: Version,
) -> Result<Option<InodeRow>, Fault<T::Error>> {
    Ok(tree.find(ino)?.filter(|row| row.attr.data_version == version))
}
