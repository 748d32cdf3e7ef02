//! Hard links: the names of an inode beside the one that its row records.
//!
//! A file is made under one name and linked to another, then the recorded name is removed. One of
//! the hard links takes its place. So watchers hear of the file, and its conflict copies stand
//! beside it.
//!
//! Links that an earlier build made are not among them.

use super::rows::InodeRow;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys, rows};
use crate::nouns::{Ino, Kind};

/// Names that are looked at for one that is there: the first is, unless a repair removed it.
const TRIES: usize = 16;

/// A directory and a name in it.
type DentryKey<'a> = (Ino, &'a [u8]);

/// Adds the name `place` to `ino`.
pub(super) fn add<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
    place: DentryKey<'_>,
) -> Result<(), Fault<T::Error>> {
    rows::put_row(&mut tree.txn, &keys::hard_link(tree.volume, ino, place), &())
}

/// Drops the name `place` of `row`, which has others.
pub(super) fn drop_name<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    row: &mut InodeRow,
    place: DentryKey<'_>,
) -> Result<(), Fault<T::Error>> {
    forget(tree, row.attr.ino, place)?;
    if (row.parent, row.name.as_slice()) != place {
        return Ok(());
    }
    let (volume, ino) = (tree.volume, row.attr.ino);
    let all = keys::hard_links_of(volume, ino);
    // What is damaged of them is in no key.
    let found = tree.txn.range_past_damage(&all, &keys::after(&all), TRIES);
    for (key, _) in found.map_err(Fault::Store)? {
        let Some((parent, name)) = keys::hard_link_part(&key) else { continue };
        if rows::dentry(&mut tree.txn, volume, parent, name)? == Some(ino) {
            (row.parent, row.name) = (parent, name.to_vec());
            return tree.txn.remove(&key).map_err(Fault::Store);
        }
    }
    Ok(())
}

/// Drops the name `from` of `row`, which gets another one that its row will say.
pub(super) fn move_name<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    row: &InodeRow,
    from: DentryKey<'_>,
) -> Result<(), Fault<T::Error>> {
    if row.attr.kind == Kind::Directory || row.attr.nlink < 2 {
        return Ok(());
    }
    let (ino, own) = (row.attr.ino, (row.parent, row.name.as_slice()));
    forget(tree, ino, from)?;
    let is_there = rows::dentry(&mut tree.txn, tree.volume, own.0, own.1)? == Some(ino);
    if own != from && is_there { add(tree, ino, own) } else { Ok(()) }
}

fn forget<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
    place: DentryKey<'_>,
) -> Result<(), Fault<T::Error>> {
    let key = keys::hard_link(tree.volume, ino, place);
    tree.txn.remove(&key).map_err(Fault::Store)
}
