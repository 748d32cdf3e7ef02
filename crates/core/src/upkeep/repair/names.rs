//! Names, and inodes of which only names or bytes are left.

use super::fix::Fixed;
use super::found::{self, blank, put_inode};
use super::held;
use crate::namespace::rows::InodeRow;
use crate::namespace::{Fault, MetaTxn, keys};
use crate::nouns::{Ino, Kind, Timestamp, VolumeId};

/// Removes a name.
pub(super) fn remove<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    (directory, name): (Ino, &[u8]),
) -> Fixed<T::Error> {
    txn.remove(&keys::dentry(id, directory, name)).map_err(Fault::Store)?;
    Ok(Some("the name was removed"))
}

/// A name that leads to no inode. It goes if nothing is left of that; if its row `is_there`, and
/// cannot be read, the name stays as it is.
pub(super) fn of_nothing<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
    name: (Ino, &[u8]),
    is_there: bool,
) -> Fixed<T::Error> {
    if txn.get(&keys::inode(id, ino)).map_err(Fault::Store)?.is_some() {
        // It was made anew under another of its names.
        return Ok(None);
    }
    match make_again(txn, id, ino, name)? {
        Some(how) => Ok(Some(how)),
        None if is_there => Ok(None),
        None => remove(txn, id, name),
    }
}

/// An inode whose row is gone, and whose names or bytes are there.
pub(super) fn find_again<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
    kind: Kind,
) -> Fixed<T::Error> {
    let exists = txn.get(&keys::inode(id, ino)).map_err(Fault::Store)?.is_some();
    if exists || ino == Ino::ROOT {
        return Ok(None);
    }
    let row = remade(txn, id, ino, kind)?;
    found::put(txn, id, row)?;
    Ok(Some("it was created anew in /.segue-found"))
}

/// What is left of an inode without its row. Who may use it is for root to say.
fn remade<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
    kind: Kind,
) -> Result<InodeRow, Fault<T::Error>> {
    let mut row = blank(ino, kind, Timestamp::default())?;
    if let Some((generation, end)) = held::generations(txn, id, ino)?.last_key_value() {
        (row.generation, row.attr.size) = (*generation, *end);
    }
    Ok(row)
}

/// Makes an inode anew under a name that leads to it, if its own names or bytes are there and
/// say what it was.
fn make_again<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
    (directory, name): (Ino, &[u8]),
) -> Fixed<T::Error> {
    let has = |txn: &mut T, prefix: &[u8]| txn.range(prefix, &keys::after(prefix), 1);
    let has_names = !has(txn, &keys::dentry(id, ino, &[])).map_err(Fault::Store)?.is_empty();
    let kind = match held::generations(txn, id, ino)?.is_empty() {
        _ if has_names => Kind::Directory,
        false => Kind::File,
        true => return Ok(None),
    };
    let mut row = remade(txn, id, ino, kind)?;
    (row.parent, row.name) = (directory, name.to_vec());
    put_inode(txn, id, row)?;
    Ok(Some("it was created anew under this name, accessible for root only"))
}
