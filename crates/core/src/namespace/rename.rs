//! Names that move.

use super::conflict;
use super::outcome::Effect;
use super::permission::{Change, WRITE};
use super::quota::check_border;
use super::remove::drop_link;
use super::rows::InodeRow;
use super::store::is_as_known;
use super::tree::Tree;
use super::{Fault, MetaTxn, Stop, hard_links};
use crate::nouns::{Ino, Kind, Name, RenameMode};
use crate::refusal::Refusal;

/// A [`crate::nouns::Record::Rename`].
pub(super) struct Rename<'a> {
    pub(super) from: (Ino, &'a Name),
    pub(super) to: (Ino, &'a Name),
    /// What `from` meant when the user renamed.
    pub(super) ino: Ino,
    pub(super) mode: RenameMode,
    /// The replaced file is open at the client.
    pub(super) open: bool,
}

/// Carries out `rename`.
pub(super) fn rename<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    rename: &Rename<'_>,
) -> Result<Effect, Stop<T::Error>> {
    let from = tree.directory(rename.from.0)?;
    let to = tree.directory(rename.to.0)?;
    if tree.dentry(rename.from.0, rename.from.1)? != Some(rename.ino) {
        return Err(Refusal::NotFound.into());
    }
    let row = named(tree, rename.ino)?;
    change.actor.check_remove(&from.attr, &row.attr)?;
    check_move(tree, change, &row, rename.to.0)?;
    let target = tree.dentry(rename.to.0, rename.to.1)?;
    match (rename.mode, target) {
        (RenameMode::NoReplace, Some(_)) => Err(Refusal::Exists.into()),
        (RenameMode::Exchange(_), None) => Err(Refusal::NotFound.into()),
        (RenameMode::Exchange(expected), Some(target)) if target != expected => {
            Err(Refusal::Changed.into())
        }
        (_, Some(target)) if target == rename.ino => {
            tree.mention(rename.ino);
            Ok(Effect::Done)
        }
        (RenameMode::Exchange(_), Some(target)) => {
            let other = named(tree, target)?;
            change.actor.check_remove(&to.attr, &other.attr)?;
            check_move(tree, change, &other, rename.from.0)?;
            exchange(tree, change, rename, row, other)
        }
        (_, None) => {
            change.actor.check_enter(&to.attr)?;
            move_entry(tree, change, rename, row, rename.to.1, 0)?;
            Ok(Effect::Done)
        }
        (mode, Some(target)) => {
            let replaced = named(tree, target)?;
            let is_meant = !matches!(mode, RenameMode::Replace(meant) if meant != Some(target));
            if is_meant && is_as_known(change, &replaced) {
                change.actor.check_remove(&to.attr, &replaced.attr)?;
                return replace(tree, change, rename, row, replaced);
            }
            change.actor.check_enter(&to.attr)?;
            let name = conflict::free_name(tree, change, rename.to.0, rename.to.1)?;
            move_entry(tree, change, rename, row, &name, 0)?;
            tree.mention(target);
            Ok(Effect::Conflict { parent: rename.to.0, name, copy: rename.ino })
        }
    }
}

fn named<T: MetaTxn>(tree: &mut Tree<'_, T>, ino: Ino) -> Result<InodeRow, Stop<T::Error>> {
    Ok(tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?)
}

/// A directory never enters its own subtree, and moving one rewrites its `..`.
fn check_move<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    row: &InodeRow,
    to: Ino,
) -> Result<(), Stop<T::Error>> {
    let directory = tree.directory(to)?;
    if row.attr.kind != Kind::Directory || row.parent == to {
        return Ok(check_border(&row.attr, &directory.attr, true)?);
    }
    if tree.check_within(to, row.attr.ino)? {
        return Err(Refusal::Invalid.into());
    }
    if !change.actor.may(&row.attr, WRITE) {
        return Err(Refusal::Access.into());
    }
    Ok(check_border(&row.attr, &directory.attr, true)?)
}

fn replace<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    rename: &Rename<'_>,
    row: InodeRow,
    replaced: InodeRow,
) -> Result<Effect, Stop<T::Error>> {
    let directories = (row.attr.kind == Kind::Directory, replaced.attr.kind == Kind::Directory);
    match directories {
        (true, false) => return Err(Refusal::NotDirectory.into()),
        (false, true) => return Err(Refusal::IsDirectory.into()),
        (true, true) if !tree.check_empty(replaced.attr.ino)? => {
            return Err(Refusal::NotEmpty.into());
        }
        (true, true) => {
            tree.remove_inode(&replaced)?;
            move_entry(tree, change, rename, row, rename.to.1, -1)?;
        }
        (false, false) => {
            let at = (rename.to.0, rename.to.1.as_bytes());
            drop_link(tree, change, at, replaced, rename.open)?;
            move_entry(tree, change, rename, row, rename.to.1, 0)?;
        }
    }
    Ok(Effect::Done)
}

/// Moves the entry to `name` in the new directory, which gets `links` more subdirectories
/// besides the moved one.
fn move_entry<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    rename: &Rename<'_>,
    mut row: InodeRow,
    name: &Name,
    links: i32,
) -> Result<(), Stop<T::Error>> {
    let moved = i32::from(row.attr.kind == Kind::Directory);
    tree.remove_dentry(rename.from.0, rename.from.1)?;
    tree.put_dentry(rename.to.0, name, rename.ino)?;
    tree.entries_changed(rename.from.0, -moved, change.time)?;
    tree.entries_changed(rename.to.0, moved + links, change.time)?;
    hard_links::move_name(tree, &row, (rename.from.0, rename.from.1.as_bytes()))?;
    row.attr.ctime = change.time;
    (row.parent, row.name) = (rename.to.0, name.as_bytes().to_vec());
    tree.move_charge(&mut row, rename.to.0)?;
    Ok(tree.put_inode(row)?)
}

fn exchange<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    rename: &Rename<'_>,
    mut row: InodeRow,
    mut other: InodeRow,
) -> Result<Effect, Stop<T::Error>> {
    let links =
        i32::from(row.attr.kind == Kind::Directory) - i32::from(other.attr.kind == Kind::Directory);
    tree.put_dentry(rename.from.0, rename.from.1, other.attr.ino)?;
    tree.put_dentry(rename.to.0, rename.to.1, row.attr.ino)?;
    tree.entries_changed(rename.from.0, -links, change.time)?;
    tree.entries_changed(rename.to.0, links, change.time)?;
    for (moved, from, at) in
        [(&mut row, rename.from, rename.to), (&mut other, rename.to, rename.from)]
    {
        hard_links::move_name(tree, moved, (from.0, from.1.as_bytes()))?;
        moved.attr.ctime = change.time;
        (moved.parent, moved.name) = (at.0, at.1.as_bytes().to_vec());
        tree.move_charge(moved, at.0)?;
    }
    tree.put_inode(row)?;
    tree.put_inode(other)?;
    Ok(Effect::Done)
}
