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
//! The time is the server's own: [`RemnantAges`] counts from the first look after a removal, so a
//! restart and a step of the clock make it longer, never shorter. A remnant counts against no
//! quota, since its owner removed it. Number and bytes of each volume are bounded instead, and the
//! oldest remnants go first.
//!
//! Invariant: a remnant's extents are there until its row is gone. An inode has a row or a
//! remnant, never both.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::extents::{self, Contents};
use super::rows::{self, InodeRow};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, Tally, keys, readable, volumes};
use crate::nouns::{Ino, Kind, VolumeId};

/// A remnant can be read for so many seconds after the removal, and after each question for its
/// attributes: longer than a host takes from a lookup to the open, and than a short loss of the
/// network lasts.
pub const KEPT_SECONDS: u64 = 60;
/// Most remnants of a volume: a few MB of rows.
pub const REMNANTS_MAX: u64 = 4096;
/// Most bytes of all remnants of a volume but the last: disk space beyond all quotas.
pub const REMNANT_BYTES_MAX: u64 = 8 << 30;
/// Most remnants whose last question is remembered, of all volumes.
const ASKED_MAX: usize = 1 << 16;
/// Rows read at a time.
const SLICE: usize = 256;

/// A remnant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RemnantRow {
    /// The commit that left it, as the volume counts.
    commit: u64,
    /// Bytes that the inode counted.
    bytes: u64,
    row: InodeRow,
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
    pub(super) fn and(self, remnant: &RemnantRow) -> RemnantTally {
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

/// Looks whether what is left of `ino` has its attributes and, if that is given, this generation
/// of contents. A row that cannot be read has all until it is repaired.
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
pub(super) fn sound<S: MetaSnapshot>(
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

/// Repairs a row of remnants that cannot be read or does not fit the others. Returns how.
pub(super) fn repair<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    key: &[u8],
) -> Result<Option<&'static str>, Fault<T::Error>> {
    if let Some((_, ino)) = keys::remnant_order_part(key)
        && key.starts_with(&keys::remnant_orders(volume))
    {
        // The remnant is collected with the next ones.
        rows::put_row(txn, key, &())?;
        let is_there = txn.get(&keys::remnant(volume, ino)).map_err(Fault::Store)?.is_some();
        return Ok(Some(if is_there { "it was written anew" } else { "its remnant is gone" }));
    }
    if let Some((ino, [])) = keys::inode_part(key)
        && key.starts_with(&keys::remnants(volume))
    {
        bury_lost(txn, volume, ino)?;
    }
    txn.remove(key).map_err(Fault::Store)?;
    recount(txn, volume)?;
    Ok(Some("it was removed, and the others were counted"))
}

fn recount<T: MetaTxn>(txn: &mut T, volume: VolumeId) -> Result<(), Fault<T::Error>> {
    let (mut from, mut found) = (keys::remnants(volume), RemnantTally::default());
    let end = keys::after(&from);
    loop {
        let page = txn.range_past_damage(&from, &end, SLICE).map_err(Fault::Store)?;
        let Some((last, _)) = page.last() else { break };
        from = [last.as_slice(), &[0]].concat();
        for (key, _) in page {
            if let Some(remnant) = sound(txn, volume, &key).map_err(Fault::Store)? {
                found = found.and(&remnant);
            }
        }
    }
    put_tally(txn, volume, found)
}

fn put_tally<T: MetaTxn>(
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
fn let_go<T: MetaTxn>(txn: &mut T, volume: VolumeId, place: &[u8]) -> Result<(), Fault<T::Error>> {
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
fn bury_lost<T: MetaTxn>(txn: &mut T, volume: VolumeId, ino: Ino) -> Result<(), Fault<T::Error>> {
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

/// How long remnants were there, for one life of a server. `now` is in seconds, from any moment.
#[derive(Debug, Default)]
pub struct RemnantAges {
    /// At that time, all remnants of the volume were from before that commit.
    looks: BTreeMap<VolumeId, VecDeque<Look>>,
    /// When a host last asked for a remnant.
    asked: BTreeMap<(VolumeId, Ino), u64>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: u64,
    commit: u64,
}

impl RemnantAges {
    /// A host asked for what is left of an inode, and got it.
    pub fn asked(&mut self, volume: VolumeId, ino: Ino, now: u64) {
        if self.asked.len() < ASKED_MAX || self.asked.contains_key(&(volume, ino)) {
            self.asked.insert((volume, ino), now);
        }
    }

    /// Leaves to collection about `budget` remnants of which the time is over, or without regard
    /// to their age if the disk `is_full`. Returns how many.
    pub fn expire<T: MetaTxn>(
        &mut self,
        txn: &mut T,
        now: u64,
        budget: usize,
        is_full: bool,
    ) -> Result<usize, Fault<T::Error>> {
        self.asked.retain(|_, at| now.saturating_sub(*at) < KEPT_SECONDS);
        let volumes: Vec<VolumeId> = volumes(txn)?.into_iter().map(|(volume, _)| volume).collect();
        self.looks.retain(|volume, _| volumes.contains(volume));
        let mut gone = 0;
        for volume in volumes {
            let due = self.look(txn, volume, now)?;
            let due = if is_full { Some(u64::MAX) } else { due };
            let Some(due) = due else { continue };
            let mut from = keys::remnant_orders(volume);
            let end = keys::remnant_order(volume, due, Ino(0));
            while gone < budget {
                let page = txn.range_past_damage(&from, &end, SLICE).map_err(Fault::Store)?;
                let Some((last, _)) = page.last() else { break };
                from = [last.as_slice(), &[0]].concat();
                for (key, _) in page {
                    let ino = keys::remnant_order_part(&key).map(|(_, ino)| ino);
                    let is_asked = ino.is_some_and(|ino| self.asked.contains_key(&(volume, ino)));
                    if gone < budget && (is_full || !is_asked) {
                        let_go(txn, volume, &key)?;
                        gone += 1;
                    }
                }
            }
        }
        Ok(gone)
    }

    /// Notes a look at `volume`. Its remnants from before the commit returned are old enough.
    fn look<T: MetaTxn>(
        &mut self,
        txn: &mut T,
        volume: VolumeId,
        now: u64,
    ) -> Result<Option<u64>, Fault<T::Error>> {
        let tally = rows::get_row(txn, &keys::volume_tally(volume), "a volume's tally");
        let tally: Option<Tally> = readable::<T, _>(tally)?;
        let Some(commit) = tally.map(|tally| tally.commits.saturating_add(1)) else {
            return Ok(None);
        };
        let looks = self.looks.entry(volume).or_default();
        if looks.back().is_none_or(|last| last.commit != commit && last.at != now) {
            looks.push_back(Look { at: now, commit });
        }
        let is_due = |look: &Look| now.saturating_sub(look.at) >= KEPT_SECONDS;
        while looks.get(1).is_some_and(is_due) {
            looks.pop_front();
        }
        Ok(looks.front().filter(|look| is_due(look)).map(|look| look.commit))
    }
}
