//! New data of a file.
//!
//! A store says which state of the data it was made from. If the file is in that state the
//! pieces are spliced in; if not, somebody else wrote meanwhile, and the store becomes a file
//! beside the original, which needs its whole content, unless that is what the file is by now. A
//! store whose base is an own record follows that record's result, so that writes after a
//! conflict go on in the copy.

use std::collections::BTreeSet;

use super::equal::is_same;
use super::extents::Contents;
use super::outcome::Effect;
use super::permission::{Change, WRITE, mode_after_write};
use super::rows::{self, Extent, InodeRow, Source};
use super::tree::Tree;
use super::{
    Admits, Fault, MetaSnapshot, MetaTxn, Stop, awaited, conflict, extents, keys, lost_tail, quota,
};
use crate::chunk::CHUNK_MAX;
use crate::nouns::{Base, INLINE_MAX, Ino, Kind, OpId, Outcome, PieceBytes, SIZE_MAX, Store};
use crate::refusal::Refusal;

/// Most pieces of one store: each may be a row or two, and all of them are one commit. A host
/// sends fewer, and a file of that many is one of many stores.
const PIECES_MAX: usize = 1 << 16;
/// Most rows that one store takes the place of: a gibibyte in pages of 4 KiB, which are what a host
/// stores at once. Of a file of which it would be more the host stores all, and then nothing of it
/// need be looked at in one commit.
const CLEARED_MAX: usize = 1 << 18;
/// Most records that are known to have made the same data. Who made them before, and has a change
/// under way that follows, gets a conflict copy.
const MADE_BY_MAX: usize = 8;

/// A [`crate::nouns::Record::Store`].
pub(super) fn store<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
) -> Result<Effect, Stop<T::Error>> {
    check_shape(store)?;
    let original = tree.find(store.ino)?;
    let current = match &original {
        Some(row) => {
            check_target(change, row)?;
            let alive = row.attr.nlink > 0 || is_orphan(tree, change, store.ino)?;
            (alive && is_base(change, store.base, row)).then(|| row.clone())
        }
        None => None,
    };
    let current = match current {
        Some(row) => Some(row),
        None => copy_of_base(tree, change, store)?,
    };
    if original.is_none() && current.is_none() && was_dropped(tree, change, store.ino)? {
        return Ok(Effect::Done);
    }
    if current.is_none() && lost_tail::is_outdated(tree, change, store, original.as_ref())? {
        return Ok(Effect::Done);
    }
    if current.is_none() && !store.whole {
        return Ok(Effect::NotYet(Outcome::NeedsWhole));
    }
    let missing = missing(tree, change, store)?;
    let effect = match current {
        Some(row) => match write(tree, change, row, store) {
            Err(Stop::Refused(Refusal::Limit)) if !store.whole => {
                return Ok(Effect::NotYet(Outcome::NeedsWhole));
            }
            written => {
                written?;
                Effect::Done
            }
        },
        None => match original {
            Some(row) if row.attr.nlink > 0 && is_same(tree, &row, store)? => {
                agree(tree, change, row)?;
                Effect::Done
            }
            original => copy(tree, change, original, store)?,
        },
    };
    if missing.is_empty() {
        return Ok(effect);
    }
    // What would be too much need not come.
    tree.check_arrivals()??;
    if change.context.admits != Admits::All {
        return Err(Refusal::NoSpace.into());
    }
    Ok(Effect::NotYet(Outcome::Missing { chunks: missing }))
}

/// The store says what the file is already: it stays, and what follows the store follows it.
fn agree<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    mut row: InodeRow,
) -> Result<(), Fault<T::Error>> {
    if row.made_by.len() >= MADE_BY_MAX {
        row.made_by.remove(0);
    }
    row.made_by.push(change.op);
    tree.put_inode(row)
}

/// The store becomes a file beside the original.
fn copy<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    original: Option<InodeRow>,
    store: &Store,
) -> Result<Effect, Stop<T::Error>> {
    if original.is_some() {
        tree.mention(store.ino);
    }
    let (copy, name) = conflict::copy_of(tree, change, original.as_ref(), store.ino)?;
    let (parent, number) = (copy.parent, copy.attr.ino);
    let key = keys::copy(change.context.client, store.ino);
    rows::put_row(&mut tree.txn, &key, &number)?;
    write(tree, change, copy, store)?;
    Ok(Effect::Conflict { parent, name, copy: number })
}

/// True if the data of `row` are in the state that a change was made from.
pub(super) fn is_base(change: &Change<'_>, base: Base, row: &InodeRow) -> bool {
    match base {
        Base::Version(version) => row.attr.data_version == version,
        Base::Result(seq) => row.made_by.contains(&OpId { seq, ..change.op }),
    }
}

/// True unless the data of a file that a change would remove are others than its host knew.
pub(super) fn is_as_known(change: &Change<'_>, row: &InodeRow) -> bool {
    row.attr.nlink > 1 || change.known.is_none_or(|known| is_base(change, known, row))
}

/// The conflict copy that the client's stores to `ino` go on in.
pub(super) fn own_copy<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
) -> Result<Option<InodeRow>, Fault<T::Error>> {
    let key = keys::copy(change.context.client, ino);
    let copy = rows::get_row(&mut tree.txn, &key, "a conflict copy's number")?;
    copy.map_or(Ok(None), |copy| tree.find(copy))
}

/// The copy that an earlier store of this client made, if this store was made from its data.
fn copy_of_base<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
) -> Result<Option<InodeRow>, Stop<T::Error>> {
    let Some(row) = own_copy(tree, change, store.ino)? else { return Ok(None) };
    let ours = row.attr.nlink > 0 && is_base(change, store.base, &row);
    if ours {
        check_target(change, &row)?;
    }
    Ok(ours.then_some(row))
}

fn check_shape(store: &Store) -> Result<(), Refusal> {
    if store.size > SIZE_MAX {
        return Err(Refusal::TooLarge);
    }
    if store.pieces.len() > PIECES_MAX {
        return Err(Refusal::Limit);
    }
    let mut end = 0;
    for piece in &store.pieces {
        let fits = match &piece.bytes {
            PieceBytes::Inline(bytes) => bytes.len() <= INLINE_MAX,
            PieceBytes::Chunk { len, .. } => *len as usize <= CHUNK_MAX,
            PieceBytes::Hole { .. } | PieceBytes::Leaf { .. } => true,
        };
        if !fits || piece.is_empty() || piece.offset < end {
            return Err(Refusal::Protocol);
        }
        end = piece.offset.checked_add(piece.len()).ok_or(Refusal::TooLarge)?;
    }
    let bad_time = store.mtime.is_some_and(|time| !time.is_valid());
    if end > store.size || bad_time { Err(Refusal::Protocol) } else { Ok(()) }
}

pub(super) fn check_target(change: &Change<'_>, row: &InodeRow) -> Result<(), Refusal> {
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

/// True for a file that only this client had open, without a name, when it died.
fn was_dropped<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
) -> Result<bool, Fault<T::Error>> {
    let key = keys::dropped(change.context.client, ino);
    Ok(tree.txn.get(&key).map_err(Fault::Store)?.is_some())
}

/// Chunks and leaves that the store names and the server lacks or has damaged, or the session has
/// not shown to have.
fn missing<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
) -> Result<Vec<crate::nouns::Fingerprint>, Stop<T::Error>> {
    let (damaged, volume) = (change.context.damaged, tree.volume);
    let mut missing = BTreeSet::new();
    for piece in &store.pieces {
        let (name, told, len) = match &piece.bytes {
            PieceBytes::Inline(_) | PieceBytes::Hole { .. } => continue,
            PieceBytes::Chunk { fingerprint, len } => {
                let row = rows::chunk(&mut tree.txn, volume, fingerprint)?;
                let row = row.filter(|row| !damaged.has(fingerprint, &row.place));
                (fingerprint, u64::from(*len), row.map(|row| u64::from(row.place.raw_len)))
            }
            PieceBytes::Leaf { leaf, len } => {
                let row = rows::leaf(&mut tree.txn, volume, leaf)?;
                let is_damaged = match &row {
                    Some(row) => damaged.has_part_of_leaf(&mut tree.txn, volume, row)?,
                    None => false,
                };
                (leaf, *len, row.filter(|_| !is_damaged).map(|row| row.len))
            }
        };
        match len {
            Some(len) if (change.context.proven)(name) => {
                if len != told {
                    return Err(Refusal::Protocol.into());
                }
            }
            _ => drop(missing.insert(*name)),
        }
    }
    Ok(missing.into_iter().collect())
}

/// Splices the store's pieces into the file.
fn write<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    mut row: InodeRow,
    store: &Store,
) -> Result<(), Stop<T::Error>> {
    let cut = if store.whole { 0 } else { store.cut.unwrap_or(u64::MAX).min(store.size) };
    let emptied = if cut == 0 { tree.empty_contents(&mut row)? } else { 0 };
    let contents = Contents::of(tree.volume, &row);
    let mut left = CLEARED_MAX;
    let mut clear = |tree: &mut Tree<'_, T>, range| -> Result<u64, Stop<T::Error>> {
        let cleared = extents::clear(tree, contents, range, left)?;
        let (bytes, rows) = cleared.ok_or(Refusal::Limit)?;
        left -= rows;
        Ok(bytes)
    };
    let mut gone = if cut == 0 { emptied } else { clear(tree, (cut, u64::MAX))? };
    let before = row.attr.allocated;
    let mut came = 0;
    for piece in &store.pieces {
        let end = piece.offset + piece.len();
        gone += clear(tree, (piece.offset, end))?;
        let source = match &piece.bytes {
            PieceBytes::Hole { .. } => continue,
            PieceBytes::Inline(bytes) => Source::Inline(bytes.clone().into()),
            PieceBytes::Chunk { fingerprint, .. } => {
                Source::Chunk { fingerprint: *fingerprint, start: 0 }
            }
            PieceBytes::Leaf { leaf, .. } => Source::Leaf { leaf: *leaf, start: 0 },
        };
        came += piece.len();
        extents::fill(tree, contents, piece.offset, Extent { len: piece.len(), source })?;
    }
    tree.charge(row.attr.quota, quota::Change { inodes: 0, came, gone })?;
    let attr = &mut row.attr;
    attr.allocated = (attr.allocated + came).saturating_sub(gone);
    if attr.size == 0 {
        awaited::forget(tree, attr.ino)?;
    }
    attr.size = store.size;
    attr.mtime = store.mtime.unwrap_or(attr.mtime);
    attr.ctime = change.time;
    attr.data_version = tree.version;
    row.made_by = vec![change.op];
    if before > gone {
        // Something old stands beside something new.
        let key = keys::ragged(contents.volume, contents.ino);
        rows::put_row(&mut tree.txn, &key, &())?;
    }
    if !change.actor.keeps_set_id() {
        attr.mode = mode_after_write(attr.mode);
    }
    Ok(tree.put_inode(row)?)
}
