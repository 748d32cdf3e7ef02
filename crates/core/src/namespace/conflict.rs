//! Conflict copies: where the side that came second keeps what it did.
//!
//! A copy stands beside the original, under a name that [says so](super::copy_name). Where there is
//! no such place (the directory is gone, or the caller may not write in it) it stands in
//! `.segue-conflicts/HOST` under the root.

use super::copy_name::{copy_name, host_name};
use super::create::{insert, new_inode};
use super::permission::{Change, SEARCH, WRITE};
use super::rows::InodeRow;
use super::tree::Tree;
use super::{Fault, MetaTxn, Stop};
use crate::nouns::{Ino, Kind, Name};
use crate::refusal::Refusal;

/// Directory under the root for copies that have no other place.
const SHELTER: &str = ".segue-conflicts";
/// Most copies of one name, host and second; a client that makes more is broken.
const COPIES_MAX: u32 = 10_000;

/// A name like `name` that is free in `directory` and says whose copy it is.
pub(super) fn free_name<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    directory: Ino,
    name: &Name,
) -> Result<Name, Stop<T::Error>> {
    let host = host_name(change.context.host);
    let mut look = |number| -> Result<(Name, bool), Stop<T::Error>> {
        let candidate = copy_name(name, &host, change.time, number)?;
        let is_free = tree.dentry(directory, &candidate)?.is_none();
        Ok((candidate, is_free))
    };
    // Any free number will do. Looking at all that are taken would stop the store for as long as
    // thousands of them take.
    let (mut taken, mut number) = (0, 1);
    let (mut free, mut is_free) = look(number)?;
    while !is_free {
        if number == COPIES_MAX {
            return Err(Refusal::Exists.into());
        }
        (taken, number) = (number, (number * 2).min(COPIES_MAX));
        (free, is_free) = look(number)?;
    }
    while number - taken > 1 {
        let between = taken + (number - taken) / 2;
        match look(between)? {
            (name, true) => (number, free) = (between, name),
            (_, false) => taken = between,
        }
    }
    Ok(free)
}

/// Makes an empty file that will hold what the caller wrote to `original`, or to the inode
/// `gone` when nothing is left of it. Returns the copy's row and name.
pub(super) fn copy_of<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    original: Option<&InodeRow>,
    gone: Ino,
) -> Result<(InodeRow, Name), Stop<T::Error>> {
    let beside = match original {
        Some(row) => beside(tree, change, row)?,
        None => None,
    };
    let (parent, name) = match beside {
        Some(place) => place,
        None => {
            let name = match original {
                Some(row) => Name::new(row.name.clone()).map_err(Refusal::from)?,
                None => Name::new(format!("removed-{gone}")).map_err(Refusal::from)?,
            };
            (shelter(tree, change)?, name)
        }
    };
    let name = free_name(tree, change, parent, &name)?;
    let ino = tree.own_ino()?;
    let mut row = new_inode(ino, Kind::File, (parent, &name), change.time);
    match original {
        Some(original) => {
            (row.attr.mode, row.attr.uid, row.attr.gid) =
                (original.attr.mode, original.attr.uid, original.attr.gid);
        }
        None => {
            row.attr.mode = 0o600;
            (row.attr.uid, row.attr.gid) = change.actor.ids();
        }
    }
    insert(tree, row, &name, change.time)?;
    let row = tree.find(ino)?.ok_or(Fault::Damaged("a new inode is missing"))?;
    Ok((row, name))
}

/// The original's directory and name, if a copy can stand there.
fn beside<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    original: &InodeRow,
) -> Result<Option<(Ino, Name)>, Stop<T::Error>> {
    let Some(directory) = tree.find(original.parent)? else { return Ok(None) };
    if !change.actor.may(&directory.attr, WRITE | SEARCH) {
        return Ok(None);
    }
    let name = Name::new(original.name.clone()).map_err(Refusal::from)?;
    Ok(Some((original.parent, name)))
}

/// `.segue-conflicts/HOST`, made if it is not there.
pub(super) fn shelter<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
) -> Result<Ino, Stop<T::Error>> {
    let all = directory(tree, change, Ino::ROOT, SHELTER, 0o755)?;
    // Every user of the host keeps copies here, and removes only his own.
    directory(tree, change, all, &host_name(change.context.host), 0o1777)
}

/// The directory `name`, or the first of `name-2`, `name-3`.. that is one or is free.
fn directory<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    parent: Ino,
    name: &str,
    mode: u32,
) -> Result<Ino, Stop<T::Error>> {
    for number in 1..COPIES_MAX {
        let candidate = match number {
            1 => Name::new(name),
            _ => Name::new(format!("{name}-{number}")),
        };
        let candidate = candidate.map_err(Refusal::from)?;
        let Some(ino) = tree.dentry(parent, &candidate)? else {
            let ino = tree.own_ino()?;
            let mut row = new_inode(ino, Kind::Directory, (parent, &candidate), change.time);
            row.attr.mode = mode;
            insert(tree, row, &candidate, change.time)?;
            return Ok(ino);
        };
        let found = tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?;
        if found.attr.kind == Kind::Directory {
            return Ok(ino);
        }
    }
    Err(Refusal::Exists.into())
}
