//! Files whose hosts have created them and have not sent their first contents.
//!
//! A row notes each, for the next server process: hosts tell their marks ([`crate::sharing`]) when
//! they connect, and one that is away then would have left an empty file. The row comes with the
//! file, or with its mark. It goes with the first contents, with the mark, or with the file.

use super::permission::Change;
use super::rows::InodeRow;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys, rows};
use crate::nouns::{ClientId, Ino, Kind, VolumeId};
use crate::sharing::{Awaited, Dirty, MARKS_MAX};

/// `ino`, which the client calls `called`, is created: notes it if its contents come later.
pub(super) fn note<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (called, ino): (Ino, Ino),
) -> Result<(), Fault<T::Error>> {
    if !change.context.awaited.contains_key(&called) {
        return Ok(());
    }
    let key = keys::awaited(tree.volume, ino);
    rows::put_row(&mut tree.txn, &key, &change.context.client)
}

/// Contents of `ino` have come, or it goes.
pub(super) fn forget<T: MetaTxn>(tree: &mut Tree<'_, T>, ino: Ino) -> Result<(), Fault<T::Error>> {
    tree.txn.remove(&keys::awaited(tree.volume, ino)).map_err(Fault::Store)
}

/// True if what `client` says may change a note. The marked file may be about to be created.
pub fn may_change_awaited<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, client): (VolumeId, ClientId),
    dirty: &Dirty,
) -> Result<bool, Fault<S::Error>> {
    for ino in contents_of(dirty) {
        let row = rows::inode(snapshot, volume, ino)?;
        if row.as_ref().is_none_or(is_empty) && noted(snapshot, (volume, ino))?.is_none() {
            return Ok(true);
        }
    }
    for ino in dirty.clean.iter() {
        if noted(snapshot, (volume, ino))? == Some(client) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `client` has marked files: notes those of which it has contents, and the server none. Of those
/// that are clean nothing is awaited any more.
pub fn take_in_awaited<T: MetaTxn>(
    txn: &mut T,
    (volume, client): (VolumeId, ClientId),
    dirty: &Dirty,
) -> Result<(), Fault<T::Error>> {
    for ino in contents_of(dirty) {
        let row = rows::inode(txn, volume, ino)?;
        if row.as_ref().is_some_and(is_empty) && noted(txn, (volume, ino))?.is_none() {
            rows::put_row(txn, &keys::awaited(volume, ino), &client)?;
        }
    }
    for ino in dirty.clean.iter() {
        if noted(txn, (volume, ino))? == Some(client) {
            txn.remove(&keys::awaited(volume, ino)).map_err(Fault::Store)?;
        }
    }
    Ok(())
}

/// The files of which a client says to have contents.
fn contents_of(dirty: &Dirty) -> impl Iterator<Item = Ino> + '_ {
    let changed = dirty.changed.iter().filter(|(_, mark)| mark.has_contents());
    changed.map(|(ino, _)| *ino)
}

fn is_empty(row: &InodeRow) -> bool {
    row.attr.kind == Kind::File && row.attr.size == 0
}

fn noted<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, ino): (VolumeId, Ino),
) -> Result<Option<ClientId>, Fault<S::Error>> {
    rows::get_row(snapshot, &keys::awaited(volume, ino), "a file whose contents are awaited")
}

/// All of them, of all volumes, but not more than there may be marks.
pub fn all_awaited<S: MetaSnapshot>(snapshot: &mut S) -> Result<Vec<Awaited>, Fault<S::Error>> {
    let from = keys::awaited_everywhere();
    let rows = snapshot.range_past_damage(&from, &keys::after(&from), MARKS_MAX);
    let awaited = |(key, value): (Vec<u8>, Option<Vec<u8>>)| {
        let (volume, ino) = keys::awaited_parts(&key)?;
        Some(Awaited { volume, ino, client: postcard::from_bytes(&value?).ok()? })
    };
    Ok(rows.map_err(Fault::Store)?.into_iter().filter_map(awaited).collect())
}
