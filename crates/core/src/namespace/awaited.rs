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

/// What `client` says of files that may change notes: with true those of which it has contents, and
/// the server none. Such a file may be about to be created.
pub fn awaited_news<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, client): (VolumeId, ClientId),
    dirty: &Dirty,
) -> Result<Vec<(Ino, bool)>, Fault<S::Error>> {
    let mut news = Vec::new();
    for ino in contents_of(dirty) {
        let row = rows::inode(snapshot, volume, ino)?;
        if row.as_ref().is_none_or(is_empty) && noted(snapshot, (volume, ino))?.is_none() {
            news.push((ino, true));
        }
    }
    for ino in dirty.clean.iter() {
        if noted(snapshot, (volume, ino))? == Some(client) {
            news.push((ino, false));
        }
    }
    Ok(news)
}

/// Takes in what `client` says of files.
pub fn take_in_awaited<T: MetaTxn>(
    txn: &mut T,
    (volume, client): (VolumeId, ClientId),
    dirty: &Dirty,
) -> Result<(), Fault<T::Error>> {
    for (ino, is_awaited) in awaited_news(txn, (volume, client), dirty)? {
        let key = keys::awaited(volume, ino);
        if !is_awaited {
            txn.remove(&key).map_err(Fault::Store)?;
        } else if rows::inode(txn, volume, ino)?.is_some() {
            rows::put_row(txn, &key, &client)?;
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
