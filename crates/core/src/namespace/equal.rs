//! Whether a store of all of a file's data says what the file's data are already, or two files have
//! the same data: then two hosts did the same, and there is no conflict.

use bytes::Bytes;

use super::extents::{self, Contents};
use super::outline::{LEAVES_MAX, walk};
use super::read::file;
use super::rows::{self, InodeRow, Source};
use super::tree::Tree;
use super::{Fault, LEAF_EXTENTS_MAX, MetaSnapshot, MetaTxn, Stop};
use crate::chunk::fingerprint;
use crate::nouns::{Fingerprint, PieceBytes, Store, VolumeId};
use crate::wire::Compare;

/// Bytes in rows that are hashed as one, whatever rows they are in: more are not, which costs no
/// more than a conflict copy.
const INLINE_MAX: usize = 1 << 20;

/// Most runs of a file that is compared with another one: what as many leaves have as are read.
const RUNS_MAX: usize = LEAVES_MAX * LEAF_EXTENTS_MAX;

/// A run of bytes, by what they are.
#[derive(PartialEq, Eq)]
struct Run {
    at: u64,
    len: u64,
    bytes: Fingerprint,
    /// First byte in what is called so.
    start: u32,
}

/// What a file or a store is, run by run; holes are where there is none.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    /// Bytes that end where the next ones in a row may begin.
    inline: Vec<u8>,
    inline_at: u64,
}

/// True if `store`, which is whole, makes of `row`'s file what it is. False also where that cannot
/// be told: of data that are not here, are cut differently, or are in more than 256 leaves.
pub(super) fn is_same<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    row: &InodeRow,
    store: &Store,
) -> Result<bool, Fault<T::Error>> {
    let is_data = |bytes: &PieceBytes| !matches!(bytes, PieceBytes::Hole { .. });
    let data = store.pieces.iter().filter(|piece| is_data(&piece.bytes));
    let len: u64 = data.map(|piece| piece.len()).sum();
    if row.attr.size != store.size || row.attr.allocated != len {
        return Ok(false);
    }
    let Some(ours) = of_store(tree, store)? else { return Ok(false) };
    Ok(of_file(&mut tree.txn, tree.volume, row, ours.len())? == Some(ours))
}

/// Whether two files have the same bytes, each in the version meant. False also where that cannot
/// be told, as with a store.
pub fn compare<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ask: &Compare,
) -> Result<bool, Stop<S::Error>> {
    let one = file(snapshot, volume, ask.one.0, ask.one.1)?;
    let other = file(snapshot, volume, ask.other.0, ask.other.1)?;
    let len = |row: &InodeRow| (row.attr.size, row.attr.allocated);
    if len(&one) != len(&other) {
        return Ok(false);
    }
    let Some(runs) = of_file(snapshot, volume, &one, RUNS_MAX)? else { return Ok(false) };
    Ok(of_file(snapshot, volume, &other, runs.len())? == Some(runs))
}

/// What a file is; `None` if that cannot be told, or takes more runs than this.
fn of_file<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    row: &InodeRow,
    most: usize,
) -> Result<Option<Vec<Run>>, Fault<S::Error>> {
    let (mut runs, mut fits) = (Runs::default(), true);
    walk(snapshot, Contents::of(volume, row), 0, |at, extent| {
        fits = runs.add(at, extent.len, &extent.source) && runs.runs.len() <= most;
        fits
    })?;
    let runs = runs.end();
    // A walk ends early at what has very many leaves.
    let is_all = runs.iter().map(|run| run.len).sum::<u64>() == row.attr.allocated;
    Ok((fits && is_all).then_some(runs))
}

/// What a store would make of an empty file; `None` if that cannot be told.
fn of_store<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    store: &Store,
) -> Result<Option<Vec<Run>>, Fault<T::Error>> {
    let (mut runs, mut leaves) = (Runs::default(), 0);
    for piece in &store.pieces {
        let fits = match &piece.bytes {
            PieceBytes::Hole { .. } => true,
            PieceBytes::Inline(bytes) => {
                let source = Source::Inline(Bytes::copy_from_slice(bytes));
                runs.add(piece.offset, piece.len(), &source)
            }
            PieceBytes::Chunk { fingerprint, len } => {
                let source = Source::Chunk { fingerprint: *fingerprint, start: 0 };
                runs.add(piece.offset, u64::from(*len), &source)
            }
            PieceBytes::Leaf { leaf, len } => {
                leaves += 1;
                match rows::leaf(&mut tree.txn, tree.volume, leaf)? {
                    Some(row) if leaves <= LEAVES_MAX => {
                        extents::within(&row.extents, 0, *len).into_iter().all(|(at, extent)| {
                            runs.add(piece.offset.saturating_add(at), extent.len, &extent.source)
                        })
                    }
                    _ => false,
                }
            }
        };
        if !fits {
            return Ok(None);
        }
    }
    Ok(Some(runs.end()))
}

impl Runs {
    /// Takes in what comes next; false if it cannot.
    fn add(&mut self, at: u64, len: u64, source: &Source) -> bool {
        if let Source::Inline(bytes) = source {
            if at != self.inline_at.saturating_add(self.inline.len() as u64) {
                self.end_inline();
                self.inline_at = at;
            }
            self.inline.extend_from_slice(bytes);
            return self.inline.len() <= INLINE_MAX;
        }
        self.end_inline();
        if let Source::Chunk { fingerprint, start } = source {
            self.runs.push(Run { at, len, bytes: *fingerprint, start: *start });
        }
        // A leaf is in no leaf.
        matches!(source, Source::Chunk { .. })
    }

    fn end_inline(&mut self) {
        let bytes = std::mem::take(&mut self.inline);
        if !bytes.is_empty() {
            let (at, len) = (self.inline_at, bytes.len() as u64);
            self.runs.push(Run { at, len, bytes: fingerprint(&bytes), start: 0 });
        }
    }

    fn end(mut self) -> Vec<Run> {
        self.end_inline();
        self.runs
    }
}
