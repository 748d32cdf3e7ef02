//! Volumes: made once, found by name.

use super::create::new_inode;
use super::rows::{self, InodeRow, Tally, VolumeRow};
use super::session::GRANT_COUNT;
use super::{Fault, Limits, MetaSnapshot, MetaTxn, keys, lives};
use crate::nouns::{Ino, Kind, Name, Timestamp, Version, VolumeId};

/// Longest name of a volume, in bytes.
const NAME_MAX: usize = 64;
/// The version of a new volume's root.
const FIRST: Version = Version { epoch: 1, counter: 1 };

/// Why a volume is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is one of that name.
    #[error("a volume of this name exists already")]
    Exists,
    /// The name would not stand in a URL.
    #[error(
        "the name of a volume has 1 to 64 letters, digits, '.', '_' or '-', and does not begin \
         with '.' or '-'"
    )]
    BadName,
}

/// Makes an empty volume, whose root belongs to its owner.
pub fn create_volume<T: MetaTxn>(
    txn: &mut T,
    name: &str,
    uuid: [u8; 16],
    now: Timestamp,
) -> Result<Result<VolumeId, VolumeError>, Fault<T::Error>> {
    if !is_name(name) {
        return Ok(Err(VolumeError::BadName));
    }
    if find_volume(txn, name)?.is_some() {
        return Ok(Err(VolumeError::Exists));
    }
    let volume = next_id(txn)?;
    let version = FIRST;
    let row = VolumeRow {
        name: name.to_owned(),
        uuid,
        epoch: version.epoch,
        created: now,
        next_ino: GRANT_COUNT,
        limits: Limits::default(),
        lost: Vec::new(),
    };
    rows::put_row(txn, &keys::volume(volume), &row)?;
    rows::put_row(txn, &keys::volume_name(name), &volume)?;
    let own_next = Ino::ROOT.0 + 1;
    let tally =
        Tally { commits: version.counter, inodes: 1, allocated: 0, own_next, own_end: GRANT_COUNT };
    rows::put_row(txn, &keys::volume_tally(volume), &tally)?;
    rows::put_row(txn, &keys::inode(volume, Ino::ROOT), &root(version, now)?)?;
    Ok(Ok(volume))
}

/// True if a volume can have that name: it stands in URLs.
pub(crate) fn is_name(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with(['.', '-']) && letters
}

/// A number that no volume had.
pub(crate) fn next_id<T: MetaTxn>(txn: &mut T) -> Result<VolumeId, Fault<T::Error>> {
    let next: Option<u32> = rows::get_row(txn, &keys::next_volume(), "the number of volumes")?;
    let volume = VolumeId(next.unwrap_or(1));
    rows::put_row(txn, &keys::next_volume(), &(volume.0 + 1))?;
    Ok(volume)
}

/// Takes a volume out of the store: nobody finds it any more, and its rows are removed in time.
pub fn delete_volume<T: MetaTxn>(txn: &mut T, id: VolumeId) -> Result<(), Fault<T::Error>> {
    let row = existing(txn, id)?;
    txn.remove(&keys::volume(id)).map_err(Fault::Store)?;
    txn.remove(&keys::volume_name(&row.name)).map_err(Fault::Store)?;
    txn.remove(&keys::volume_tally(id)).map_err(Fault::Store)?;
    txn.remove(&keys::arrived(id)).map_err(Fault::Store)?;
    rows::put_row(txn, &keys::removed_volume(id), &())
}

fn root<E>(version: Version, now: Timestamp) -> Result<InodeRow, Fault<E>> {
    let name = Name::new("root").map_err(|_| Fault::Damaged("the root's name"))?;
    let mut root = new_inode(Ino::ROOT, Kind::Directory, (Ino::ROOT, &name), now);
    root.attr.mode = 0o755;
    (root.attr.change, root.attr.data_version) = (version, version);
    Ok(root)
}

/// The volume of that name.
pub fn find_volume<S: MetaSnapshot>(
    snapshot: &mut S,
    name: &str,
) -> Result<Option<(VolumeId, VolumeRow)>, Fault<S::Error>> {
    let Some(volume) = rows::get_row(snapshot, &keys::volume_name(name), "a volume's name")? else {
        return Ok(None);
    };
    let row = rows::get_row(snapshot, &keys::volume(volume), "a volume")?;
    Ok(row.map(|row| (volume, row)))
}

/// The volume with that number.
pub fn volume<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<Option<VolumeRow>, Fault<S::Error>> {
    rows::get_row(snapshot, &keys::volume(volume), "a volume")
}

/// The volume with that number, which is there.
pub(crate) fn existing<S: MetaSnapshot>(
    snapshot: &mut S,
    id: VolumeId,
) -> Result<VolumeRow, Fault<S::Error>> {
    volume(snapshot, id)?.ok_or(Fault::Damaged("a volume is missing"))
}

/// True if a volume is as it was made: nobody has changed anything in it.
pub fn is_unused<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<bool, Fault<S::Error>> {
    lives::is_unused(snapshot, volume, FIRST)
}

/// A volume, or why it cannot be read.
pub type Readable<E> = (VolumeId, Result<VolumeRow, Fault<E>>);

/// All volumes, in the order of their making. One that cannot be read hides no other.
pub fn volumes<S: MetaSnapshot>(
    snapshot: &mut S,
) -> Result<Vec<Readable<S::Error>>, Fault<S::Error>> {
    let next: Option<u32> = rows::get_row(snapshot, &keys::next_volume(), "the number of volumes")?;
    let row = |id| Some((id, volume(snapshot, id).transpose()?));
    Ok((1..next.unwrap_or(1)).map(VolumeId).filter_map(row).collect())
}

/// How much a volume holds.
pub fn tally<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<Tally, Fault<S::Error>> {
    rows::get_row(snapshot, &keys::volume_tally(volume), "a volume's tally")?
        .ok_or(Fault::Damaged("a volume's tally is missing"))
}
