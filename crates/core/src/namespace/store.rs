//! New data of a file.
//!
//! A store says which state of the data it was made from. If the file is in that state the
//! pieces are spliced in; if not, somebody else wrote meanwhile, and the store becomes a file
//! beside the original, which needs its whole content. A store whose base is an own record
//! follows that record's result, so that writes after a conflict go on in the copy.

use super::outcome::{self, Effect};
use super::permission::{Change, WRITE, mode_after_write};
use super::rows::{self, Extent, InodeRow, Source};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, Stop, conflict, extents, keys};
use crate::chunk::CHUNK_MAX;
use crate::modlog::{Base, INLINE_MAX, Outcome, PieceBytes, Store};
use crate::refusal::Refusal;
use crate::types::{Ino, Kind, OpId, Version};

/// Largest file: offsets are signed to applications.
const SIZE_MAX: u64 = i64::MAX as u64;

/// A [`crate::modlog::Record::Store`].
pub(super) fn store<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
) -> Result<Effect, Stop<T::Error>> {
    check_shape(store)?;
    let (ino, expected) = base(tree, change, store)?;
    let row = tree.find(ino)?;
    if let Some(row) = &row {
        check_target(change, row)?;
    }
    let alive = match &row {
        Some(row) => row.attr.nlink > 0 || is_orphan(tree, change, ino)?,
        None => false,
    };
    let current = row.as_ref().filter(|row| alive && Some(row.attr.data_version) == expected);
    if current.is_none() && !store.whole {
        return Ok(Effect::NotYet(Outcome::NeedsWhole));
    }
    let missing = missing(tree, change, store)?;
    if !missing.is_empty() {
        return Ok(Effect::NotYet(Outcome::Missing { chunks: missing }));
    }
    if let Some(row) = current {
        write(tree, change, row.clone(), store)?;
        return Ok(Effect::Done { data_of: Some(ino) });
    }
    if let Some(kept) = &row {
        tree.mention(kept.attr.ino);
    }
    let (copy, name) = conflict::copy_of(tree, change, row.as_ref(), store.ino)?;
    let (parent, number) = (copy.parent, copy.attr.ino);
    write(tree, change, copy, store)?;
    Ok(Effect::Conflict { parent, name, copy: number, data: true })
}

fn check_shape(store: &Store) -> Result<(), Refusal> {
    if store.size > SIZE_MAX {
        return Err(Refusal::TooLarge);
    }
    let mut end = 0;
    for piece in &store.pieces {
        let fits = match &piece.bytes {
            PieceBytes::Inline(bytes) => bytes.len() <= INLINE_MAX,
            PieceBytes::Chunk { len, .. } => *len as usize <= CHUNK_MAX,
            PieceBytes::Hole { .. } => true,
        };
        if !fits || piece.is_empty() || piece.offset < end {
            return Err(Refusal::Protocol);
        }
        end = piece.offset.checked_add(piece.len()).ok_or(Refusal::TooLarge)?;
    }
    let bad_time = store.mtime.is_some_and(|time| time.nanos >= 1_000_000_000);
    if end > store.size || bad_time { Err(Refusal::Protocol) } else { Ok(()) }
}

/// The inode that the store goes to, and the data version it has to have.
fn base<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
) -> Result<(Ino, Option<Version>), Fault<T::Error>> {
    match store.base {
        Base::Version(version) => Ok((store.ino, Some(version))),
        Base::Result(seq) => {
            let result = outcome::result(&mut tree.txn, OpId { seq, ..change.op })?;
            Ok(result.map_or((store.ino, None), |(ino, version)| (ino, Some(version))))
        }
    }
}

fn check_target(change: &Change<'_>, row: &InodeRow) -> Result<(), Refusal> {
    match row.attr.kind {
        Kind::File => {}
        Kind::Directory => return Err(Refusal::IsDirectory),
        _ => return Err(Refusal::Invalid),
    }
    // An owner may write what he opened before he took the permission away from himself.
    let may = change.actor.owns(&row.attr) || change.actor.may(&row.attr, WRITE);
    if may { Ok(()) } else { Err(Refusal::Access) }
}

fn is_orphan<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
) -> Result<bool, Fault<T::Error>> {
    let key = keys::orphan(tree.volume, change.context.client, ino);
    Ok(tree.txn.get(&key).map_err(Fault::Store)?.is_some())
}

/// Chunks that the store names and the server lacks, or the session has not shown to have.
fn missing<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
) -> Result<Vec<crate::types::Fingerprint>, Stop<T::Error>> {
    let mut missing = Vec::new();
    for piece in &store.pieces {
        let PieceBytes::Chunk { fingerprint, len } = &piece.bytes else { continue };
        match rows::chunk(&mut tree.txn, fingerprint)? {
            Some(row) if (change.context.proven)(fingerprint) => {
                if row.raw_len != *len {
                    return Err(Refusal::Protocol.into());
                }
            }
            _ if missing.contains(fingerprint) => {}
            _ => missing.push(*fingerprint),
        }
    }
    Ok(missing)
}

/// Splices the store's pieces into the file.
fn write<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    mut row: InodeRow,
    store: &Store,
) -> Result<(), Fault<T::Error>> {
    let ino = row.attr.ino;
    let cut = if store.whole { 0 } else { store.cut.unwrap_or(u64::MAX).min(store.size) };
    let mut gone = extents::clear(tree, ino, cut, u64::MAX)?;
    let mut came = 0;
    for piece in &store.pieces {
        let end = piece.offset + piece.len();
        gone += extents::clear(tree, ino, piece.offset, end)?;
        let source = match &piece.bytes {
            PieceBytes::Hole { .. } => continue,
            PieceBytes::Inline(bytes) => Source::Inline(bytes.clone().into()),
            PieceBytes::Chunk { fingerprint, .. } => {
                Source::Chunk { fingerprint: *fingerprint, start: 0 }
            }
        };
        came += piece.len();
        extents::fill(tree, ino, piece.offset, Extent { len: piece.len(), source })?;
    }
    let attr = &mut row.attr;
    attr.allocated = (attr.allocated + came).saturating_sub(gone);
    tree.tally.allocated = (tree.tally.allocated + came).saturating_sub(gone);
    attr.size = store.size;
    attr.mtime = store.mtime.unwrap_or(attr.mtime);
    attr.ctime = change.time;
    attr.data_version = tree.version;
    if !change.actor.keeps_set_id() {
        attr.mode = mode_after_write(attr.mode);
    }
    tree.put_inode(row)
}
