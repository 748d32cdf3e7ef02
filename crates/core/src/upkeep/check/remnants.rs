//! Remnants of removed files: whether their rows fit together.

use crate::namespace::remnant::RemnantRow;
use crate::namespace::{MetaSnapshot, keys};
use crate::nouns::{Ino, VolumeId};

/// Looks whether `ino` has a remnant and, if `generation` is given, one with these contents. A row
/// that cannot be read has all contents until it is repaired.
pub(super) fn check_has<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
    generation: Option<u32>,
) -> Result<bool, S::Error> {
    let Some(row) = snapshot.get(&keys::remnant(volume, ino))? else { return Ok(false) };
    let row = postcard::from_bytes::<RemnantRow>(&row);
    Ok(generation.is_none_or(|of| row.map_or(true, |remnant| remnant.row.generation == of)))
}

/// The remnant under a key, if its rows fit together.
pub(in crate::upkeep) fn sound<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    key: &[u8],
) -> Result<Option<RemnantRow>, S::Error> {
    let row = snapshot.get(key)?;
    let row = row.and_then(|row| postcard::from_bytes::<RemnantRow>(&row).ok());
    let Some((ino, [])) = keys::inode_part(key) else { return Ok(None) };
    let Some(found) = row.filter(|found| found.row.attr.ino == ino) else { return Ok(None) };
    let place = keys::remnant_order(volume, found.commit, ino);
    let is_alone = snapshot.get(&keys::inode(volume, ino))?.is_none();
    Ok((is_alone && snapshot.get(&place)?.is_some()).then_some(found))
}
