//! A file that gets all data of another by reference.
//!
//! It happens as a whole or not at all, and what it did is seen by the size in its outcome: the
//! host that asked copies the bytes itself where nothing happened. The new file counts as made
//! by the record either way, so that what is written to it afterwards follows.
//!
//! A file with a chunk that is known to be damaged is not copied by reference: there would be two
//! damaged files. The host then copies the bytes. Those it has in its cache heal the chunk, and a
//! read of the others fails.

use super::extents::{self, Contents};
use super::outcome::Effect;
use super::permission::{Change, READ, mode_after_write};
use super::rows::InodeRow;
use super::store::{check_target, is_base};
use super::tree::Tree;
use super::{Fault, MetaTxn, Stop, awaited, quota, refs};
use crate::nouns::{Base, Ino, Kind, Version};

/// Most rows that are copied in one commit; a large file in order has fewer.
const ROWS_MAX: usize = 4096;

/// A [`crate::nouns::Record::Clone`].
pub(super) fn clone<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (ino, base): (Ino, Base),
    (from, version): (Ino, Version),
) -> Result<Effect, Stop<T::Error>> {
    let Some(mut row) = tree.find(ino)? else { return Ok(Effect::Done) };
    check_target(change, &row)?;
    if row.attr.size > 0 || !is_base(change, base, &row) {
        tree.mention(ino);
        return Ok(Effect::Done);
    }
    let is_meant = |source: &InodeRow| {
        source.attr.kind == Kind::File
            && source.attr.data_version == version
            && change.actor.may(&source.attr, READ)
    };
    if let Some(source) = tree.find(from)?.filter(is_meant)
        && copy(tree, change, &source, &row)?
    {
        let attr = &mut row.attr;
        (attr.size, attr.allocated) = (source.attr.size, source.attr.allocated);
        (attr.mtime, attr.ctime) = (change.time, change.time);
        attr.data_version = tree.version;
        if !change.actor.keeps_set_id() {
            attr.mode = mode_after_write(attr.mode);
        }
        let came = source.attr.allocated;
        tree.charge(row.attr.quota, quota::Change { inodes: 0, came, gone: 0 })?;
    }
    row.made_by = vec![change.op];
    awaited::forget(tree, ino)?;
    tree.put_inode(row)?;
    Ok(Effect::Done)
}

/// Lets `row` refer to all that `source` does; false, and nothing is done, where that is much, or
/// is known to be damaged.
fn copy<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    source: &InodeRow,
    row: &InodeRow,
) -> Result<bool, Fault<T::Error>> {
    let volume = tree.volume;
    let (from, to) = (Contents::of(volume, source), Contents::of(volume, row));
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let rows = extents::rows_from(&mut tree.txn, from, at)?;
        let Some((start, last)) = rows.last() else { break };
        at = start.saturating_add(last.len);
        found.extend(rows);
        if found.len() > ROWS_MAX {
            return Ok(false);
        }
    }
    let damaged = change.context.damaged;
    for (_, extent) in &found {
        if damaged.has_part_of(&mut tree.txn, volume, &extent.source)? {
            return Ok(false);
        }
    }
    for (start, extent) in found {
        refs::shift(&mut tree.txn, volume, &extent.source, 1)?;
        extents::put(&mut tree.txn, to, start.saturating_add(extent.len), &extent)?;
    }
    Ok(true)
}
