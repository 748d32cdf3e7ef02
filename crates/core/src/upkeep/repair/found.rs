//! Where a repair puts what has no name.

use crate::namespace::create::new_inode;
use crate::namespace::rows::{self, InodeRow, Tally};
use crate::namespace::volume::existing;
use crate::namespace::{Fault, MetaTxn, keys, session, tally};
use crate::nouns::{Attr, Ino, Kind, Name, Timestamp, Version, VolumeId};

/// Directory under the root for what a repair found without a name.
pub const FOUND: &str = ".segue-found";
/// Names that are tried for the directory, and for what stands in it.
const TRIES: u32 = 1000;

/// A new version of the volume.
pub(super) fn next_version<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
) -> Result<Version, Fault<T::Error>> {
    let epoch = existing(txn, id)?.epoch;
    let mut tally = tally(txn, id)?;
    tally.commits += 1;
    rows::put_row(txn, &keys::volume_tally(id), &tally)?;
    Ok(Version { epoch, counter: tally.commits })
}

/// Writes an inode, changed now.
pub(super) fn put_inode<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    mut row: InodeRow,
) -> Result<(), Fault<T::Error>> {
    row.attr.change = next_version(txn, id)?;
    row.attr.data_version = row.attr.data_version.min(row.attr.change);
    rows::put_row(txn, &keys::inode(id, row.attr.ino), &row)
}

/// A directory or file that only its names or bytes are left of.
pub(super) fn blank<E>(ino: Ino, kind: Kind, time: Timestamp) -> Result<InodeRow, Fault<E>> {
    let name = Name::new("unnamed").map_err(|_| Fault::Damaged("a name"))?;
    let mut row = new_inode(ino, kind, (Ino::ROOT, &name), time);
    row.attr = Attr { mode: if kind == Kind::Directory { 0o700 } else { 0o600 }, ..row.attr };
    Ok(row)
}

/// Gives `row` a name in [`FOUND`]: its number. The name that it records goes if it is its own.
pub(super) fn put<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    mut row: InodeRow,
) -> Result<(), Fault<T::Error>> {
    let ino = row.attr.ino;
    let recorded = keys::dentry(id, row.parent, &row.name);
    let own: Option<Ino> = rows::get_row(txn, &recorded, "a directory entry").unwrap_or(None);
    if own == Some(ino) {
        txn.remove(&recorded).map_err(Fault::Store)?;
    }
    let found = directory(txn, id, row.attr.ctime)?;
    for number in 1..TRIES {
        let name = match number {
            1 => format!("{ino}"),
            _ => format!("{ino}-{number}"),
        };
        let key = keys::dentry(id, found, name.as_bytes());
        if txn.get(&key).map_err(Fault::Store)?.is_some() {
            continue;
        }
        rows::put_row(txn, &key, &ino)?;
        (row.parent, row.name) = (found, name.into_bytes());
        if row.attr.kind != Kind::Directory {
            row.attr.nlink = 1;
        }
        return put_inode(txn, id, row);
    }
    Err(Fault::Damaged("no name is free for what was found"))
}

/// The directory, made if it is not there.
fn directory<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    time: Timestamp,
) -> Result<Ino, Fault<T::Error>> {
    for number in 1..TRIES {
        let name = match number {
            1 => FOUND.to_owned(),
            _ => format!("{FOUND}-{number}"),
        };
        let key = keys::dentry(id, Ino::ROOT, name.as_bytes());
        let bytes = txn.get(&key).map_err(Fault::Store)?;
        let Some(bytes) = bytes else {
            let ino = own_ino(txn, id)?;
            let mut row = blank(ino, Kind::Directory, time)?;
            row.name = name.into_bytes();
            rows::put_row(txn, &key, &ino)?;
            put_inode(txn, id, row)?;
            return Ok(ino);
        };
        let ino: Option<Ino> = postcard::from_bytes(&bytes).ok();
        let row = ino.and_then(|ino| rows::inode(txn, id, ino).ok().flatten());
        if let Some(row) = row
            && row.attr.kind == Kind::Directory
            && (row.parent, row.name) == (Ino::ROOT, name.into_bytes())
        {
            return Ok(row.attr.ino);
        }
    }
    Err(Fault::Damaged("no name is free for the directory of what was found"))
}

/// A number that no inode has and nobody was granted.
fn own_ino<T: MetaTxn>(txn: &mut T, id: VolumeId) -> Result<Ino, Fault<T::Error>> {
    let block = session::reserve(txn, id)?;
    let tally = tally(txn, id)?;
    let tally = Tally { own_next: block.first + 1, own_end: block.first + block.count, ..tally };
    rows::put_row(txn, &keys::volume_tally(id), &tally)?;
    Ok(Ino(block.first))
}
