//! Remnants: what is left of a file for a while after its last name went.
//!
//! A host looks a name up, and opens the inode that it found a round trip later. Meanwhile another
//! host may have replaced or removed the file. Or the file is open on one host when another host
//! removes it. In both cases the host reads the remnant: attributes, contents and extended
//! attributes as they were. No rule sees a remnant: to all changes the inode is gone.
//!
//! ```text
//!               last name or last close              a minute after that, and after the last
//!   (a file) ──────────────────────────▶ remnant ────────────────────────────────▶ collection
//!                                           │  question; or more was removed since
//!                                           └─ Getattr ─▶ another minute
//! ```
//!
//! `upkeep::RemnantAges` ends the minute. A remnant counts against no quota, since its owner
//! removed it. Number and bytes of each volume are bounded instead, and the oldest remnants go
//! first.
//!
//! Invariant: a remnant's extents are there until its row is gone. An inode has a row or a
//! remnant, never both.

use serde::{Deserialize, Serialize};

use super::extents::{self, Contents};
use super::rows::{self, InodeRow};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys, readable};
use crate::nouns::{Ino, Kind, VolumeId};

/// Most remnants of a volume: a few MB of rows.
pub const REMNANTS_MAX: u64 = 4096;
/// Most bytes of all remnants of a volume but the last: disk space beyond all quotas.
pub const REMNANT_BYTES_MAX: u64 = 8 << 30;
/// Rows read at a time.
const SLICE: usize = 256;

/// A remnant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemnantRow {
    /// The commit that left it, as the volume counts.
    pub(crate) commit: u64,
    /// Bytes that the inode counted.
    bytes: u64,
    /// The inode, as it was.
    pub(crate) row: InodeRow,
}

/// How much all remnants of a volume are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RemnantTally {
    /// How many.
    pub files: u64,
    /// Bytes of all.
    pub bytes: u64,
}

impl RemnantTally {
    /// With one more.
    pub(crate) fn and(self, remnant: &RemnantRow) -> RemnantTally {
        RemnantTally {
            files: self.files.saturating_add(1),
            bytes: self.bytes.saturating_add(remnant.bytes),
        }
    }
}

/// The remnants of a volume.
pub fn remnant_tally<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<RemnantTally, Fault<S::Error>> {
    // One that is lost or damaged counts anew.
    let row = rows::get_row(snapshot, &keys::remnant_tally(volume), "a tally of remnants");
    Ok(readable::<S, _>(row)?.unwrap_or_default())
}

/// What is left of `ino`.
pub(super) fn remnant<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Option<InodeRow>, Fault<S::Error>> {
    Ok(find(snapshot, volume, ino)?.map(|remnant| remnant.row))
}

fn find<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Option<RemnantRow>, Fault<S::Error>> {
    rows::get_row(snapshot, &keys::remnant(volume, ino), "a remnant")
}

/// Replaces the tally of a volume's remnants; one of nothing has no row.
pub(crate) fn put_tally<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    tally: RemnantTally,
) -> Result<(), Fault<T::Error>> {
    let key = keys::remnant_tally(volume);
    match tally.files {
        0 => txn.remove(&key).map_err(Fault::Store),
        _ => rows::put_row(txn, &key, &tally),
    }
}

/// True if something can be left of such an inode: hosts open and read it.
pub(super) fn is_left(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Symlink)
}

/// Leaves a remnant of `row`, whose inode goes and counted `bytes`. The oldest remnants make room.
pub(super) fn leave<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    row: &InodeRow,
    bytes: u64,
) -> Result<(), Fault<T::Error>> {
    let (volume, ino, commit) = (tree.volume, row.attr.ino, tree.version.counter);
    let mut row = row.clone();
    (row.attr.nlink, row.attr.change, row.attr.quota) = (0, tree.version, None);
    let remnant = RemnantRow { commit, bytes, row };
    rows::put_row(&mut tree.txn, &keys::remnant(volume, ino), &remnant)?;
    rows::put_row(&mut tree.txn, &keys::remnant_order(volume, commit, ino), &())?;
    let mut tally = remnant_tally(&mut tree.txn, volume)?.and(&remnant);
    put_tally(&mut tree.txn, volume, tally)?;
    // Of a volume with too many, the first goes for each one that comes.
    while tally.files > 1 && (tally.files > REMNANTS_MAX || tally.bytes > REMNANT_BYTES_MAX) {
        let first = keys::remnant_orders(volume);
        let oldest = tree.txn.range_past_damage(&first, &keys::after(&first), 1);
        let Some((key, _)) = oldest.map_err(Fault::Store)?.pop() else { break };
        let_go(&mut tree.txn, volume, &key)?;
        tally = remnant_tally(&mut tree.txn, volume)?;
    }
    Ok(())
}

/// Makes room for a new inode that has the number of a remnant. Returns the first generation of
/// contents that is free.
pub(super) fn displace<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    ino: Ino,
) -> Result<u32, Fault<T::Error>> {
    let Some(found) = find(&mut tree.txn, tree.volume, ino)? else { return Ok(0) };
    let key = keys::remnant_order(tree.volume, found.commit, ino);
    let_go(&mut tree.txn, tree.volume, &key)?;
    Ok(found.row.generation.saturating_add(1))
}

/// Leaves to collection what the key of a place names.
pub(crate) fn let_go<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    place: &[u8],
) -> Result<(), Fault<T::Error>> {
    txn.remove(place).map_err(Fault::Store)?;
    let Some((commit, ino)) = keys::remnant_order_part(place) else { return Ok(()) };
    let found = readable::<T, _>(find(txn, volume, ino))?;
    if found.as_ref().is_some_and(|found| found.commit != commit) {
        return Ok(());
    }
    txn.remove(&keys::remnant(volume, ino)).map_err(Fault::Store)?;
    let mut tally = remnant_tally(txn, volume)?;
    tally.files = tally.files.saturating_sub(1);
    tally.bytes = tally.bytes.saturating_sub(found.as_ref().map_or(0, |found| found.bytes));
    put_tally(txn, volume, tally)?;
    match found {
        Some(found) => {
            extents::bury(txn, Contents::of(volume, &found.row))?;
            remove_xattrs(txn, volume, ino)
        }
        None => bury_lost(txn, volume, ino),
    }
}

/// Leaves to collection what stands under the number of a remnant whose row cannot be read.
pub(crate) fn bury_lost<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    ino: Ino,
) -> Result<(), Fault<T::Error>> {
    if txn.get(&keys::inode(volume, ino)).map_err(Fault::Store)?.is_some() {
        return Ok(());
    }
    let prefix = keys::extents_of(volume, ino);
    let (mut from, end) = (prefix.clone(), keys::after(&prefix));
    while let Some((key, _)) = txn.range_past_damage(&from, &end, 1).map_err(Fault::Store)?.pop() {
        let part = keys::inode_part(&key).and_then(|(_, rest)| keys::extent_part(rest));
        let Some((generation, _)) = part else { break };
        let contents = Contents { volume, ino, generation };
        rows::put_row(txn, &keys::grave(contents), &())?;
        from = keys::after(&keys::extents(contents));
    }
    remove_xattrs(txn, volume, ino)
}

fn remove_xattrs<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    ino: Ino,
) -> Result<(), Fault<T::Error>> {
    let prefix = keys::xattr(volume, ino, &[]);
    rows::remove_all(txn, &prefix, SLICE)
}
