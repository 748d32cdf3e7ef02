//! Names that go: unlink, rmdir, and the last close of what has no name.

use super::outcome::Effect;
use super::permission::Change;
use super::rows::{self, InodeRow};
use super::store::is_as_known;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, Stop, hard_links, keys};
use crate::nouns::{Ino, Kind, Name};
use crate::refusal::Refusal;

/// A [`crate::nouns::Record::Unlink`].
pub(super) fn unlink<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    at: (Ino, &Name),
    ino: Ino,
    open: bool,
) -> Result<Effect, Stop<T::Error>> {
    let Some(row) = meant(tree, change, at, ino)? else { return Ok(Effect::Done) };
    if row.attr.kind == Kind::Directory {
        return Err(Refusal::IsDirectory.into());
    }
    if !is_as_known(change, &row) {
        return Err(Refusal::Changed.into());
    }
    tree.remove_dentry(at.0, at.1)?;
    tree.entries_changed(at.0, 0, change.time)?;
    drop_link(tree, change, (at.0, at.1.as_bytes()), row, open)?;
    Ok(Effect::Done)
}

/// A [`crate::nouns::Record::Rmdir`].
pub(super) fn rmdir<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    at: (Ino, &Name),
    ino: Ino,
) -> Result<Effect, Stop<T::Error>> {
    let Some(row) = meant(tree, change, at, ino)? else { return Ok(Effect::Done) };
    if row.attr.kind != Kind::Directory {
        return Err(Refusal::NotDirectory.into());
    }
    if !tree.check_empty(ino)? {
        return Err(Refusal::NotEmpty.into());
    }
    tree.remove_dentry(at.0, at.1)?;
    tree.entries_changed(at.0, -1, change.time)?;
    tree.remove_inode(&row)?;
    Ok(Effect::Done)
}

/// The inode under the name, if that is still the one the user removed and it may go.
///
/// A name that is gone already is what the user wanted. One that means something else now was
/// given by somebody else, and stays.
fn meant<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (parent, name): (Ino, &Name),
    ino: Ino,
) -> Result<Option<InodeRow>, Stop<T::Error>> {
    let directory = tree.directory(parent)?;
    match tree.dentry(parent, name)? {
        None => {
            tree.mention(parent);
            Ok(None)
        }
        Some(found) if found != ino => Err(Refusal::Changed.into()),
        Some(_) => {
            let row = tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?;
            change.actor.check_remove(&directory.attr, &row.attr)?;
            Ok(Some(row))
        }
    }
}

/// One name fewer, `at`; with the last one the inode goes, or waits for its last close.
pub(super) fn drop_link<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    at: (Ino, &[u8]),
    mut row: InodeRow,
    open: bool,
) -> Result<(), Fault<T::Error>> {
    row.attr.nlink = row.attr.nlink.saturating_sub(1);
    row.attr.ctime = change.time;
    if row.attr.nlink > 0 {
        hard_links::drop_name(tree, &mut row, at)?;
        return tree.put_inode(row);
    }
    if !open {
        return tree.remove_inode(&row);
    }
    let key = keys::orphan(tree.volume, change.context.client, row.attr.ino);
    rows::put_row(&mut tree.txn, &key, &())?;
    tree.count_against(&mut row, None)?;
    tree.put_inode(row)
}

/// A [`crate::nouns::Record::Release`].
pub(super) fn release<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
) -> Result<Effect, Stop<T::Error>> {
    let key = keys::orphan(tree.volume, change.context.client, ino);
    if tree.txn.get(&key).map_err(Fault::Store)?.is_some() {
        tree.txn.remove(&key).map_err(Fault::Store)?;
        let row = tree.find(ino)?.ok_or(Fault::Damaged("an orphan without an inode"))?;
        tree.remove_inode(&row)?;
    }
    Ok(Effect::Done)
}
