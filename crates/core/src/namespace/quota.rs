//! Quotas: the most that a volume, or the tree below a directory, may hold.
//!
//! Each inode says in its attributes which directory's quota it counts against, as with project
//! quotas of XFS. It gets that from the directory it is made in. So all names of an inode stand
//! in one quota's tree: what would break that (a link, a directory or a file of several names
//! that moves across the border) is refused as a move to another file system is, and mv copies.
//! A file of one name takes its charge along; one without a name, that is still open, counts
//! against the volume only. Quotas do not nest.
//!
//! Invariant: a quota's usage is the sum over the inodes that name it; a name leads to an inode
//! that counts against the same quota as the directory it stands in, or to that of a quota.

use serde::{Deserialize, Serialize};

use super::rows::{self, InodeRow};
use super::tree::Tree;
use super::volume::existing;
use super::{Fault, MetaSnapshot, MetaTxn, Tally, XATTR_COUNT_MAX, keys};
use crate::nouns::{Attr, Ino, Kind, VolumeId};
use crate::refusal::Refusal;
use crate::wire::Space;

/// What hosts accepted before they knew is taken up to a hundredth over a quota of bytes.
const OVERRUN_PART: u64 = 100;
/// Most bytes over a quota.
const OVERRUN_MAX: u64 = 64 << 20;

/// The most that something may hold; `None` is without limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes that are not holes.
    pub bytes: Option<u64>,
    /// Inodes.
    pub inodes: Option<u64>,
}

/// What something holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes that are not holes, of link targets and of extended attributes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// The quota of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QuotaRow {
    /// What its tree may hold.
    pub limits: Limits,
    /// What it holds, the directory itself included.
    pub usage: Usage,
}

impl Limits {
    /// True if there is no limit.
    pub fn is_none(&self) -> bool {
        self.bytes.is_none() && self.inodes.is_none()
    }

    /// The most bytes that are taken; 2^64 - 1 without a limit.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes
            .map_or(u64::MAX, |bytes| bytes.saturating_add((bytes / OVERRUN_PART).min(OVERRUN_MAX)))
    }

    /// Whether something may grow so: what shrinks always may.
    pub(super) fn admit(&self, before: Usage, after: Usage) -> Result<(), Refusal> {
        let bytes = self.bytes_max();
        let inodes = self.inodes.unwrap_or(u64::MAX);
        let is_over = (after.bytes > before.bytes && after.bytes > bytes)
            || (after.inodes > before.inodes && after.inodes > inodes);
        if is_over { Err(Refusal::Quota) } else { Ok(()) }
    }
}

impl Usage {
    pub(super) fn of(tally: &Tally) -> Usage {
        Usage { bytes: tally.allocated, inodes: tally.inodes }
    }

    /// With what `change` adds and takes away.
    pub(super) fn changed(self, change: Change) -> Usage {
        let Change { inodes, came, gone } = change;
        Usage {
            bytes: self.bytes.saturating_add(came).saturating_sub(gone),
            inodes: self.inodes.saturating_add_signed(inodes),
        }
    }
}

/// What a rule adds to a quota and takes from it.
#[derive(Clone, Copy, Default)]
pub(super) struct Change {
    pub(super) inodes: i64,
    /// Bytes.
    pub(super) came: u64,
    /// Bytes.
    pub(super) gone: u64,
}

/// The quota in whose tree the inode stands: that of a quota stands in none.
pub(crate) fn outside(attr: &Attr) -> Option<Ino> {
    attr.quota.filter(|quota| *quota != attr.ino)
}

/// Whether `attr` may get a name, or with `moves` all its names, in `directory`. Asked by hosts,
/// which tell the caller, and by the server, which trusts no host.
pub fn check_border(attr: &Attr, directory: &Attr, moves: bool) -> Result<(), Refusal> {
    let takes_charge_along = moves && attr.kind != Kind::Directory && attr.nlink == 1;
    if outside(attr) == directory.quota || takes_charge_along {
        return Ok(());
    }
    Err(Refusal::OtherQuota)
}

/// What statfs says of an inode on a disk of `total` bytes with `free` ones: the numbers of the
/// volume, or of the directory whose quota it counts against as far as they are less.
pub fn space<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
    (total, free): (u64, u64),
) -> Result<Space, Fault<S::Error>> {
    let row = existing(snapshot, volume)?;
    let held = Usage::of(&super::tally(snapshot, volume)?);
    let all = Space {
        total_bytes: total,
        free_bytes: free,
        inodes: held.inodes,
        free_inodes: u64::MAX,
        room_bytes: u64::MAX,
    };
    let all = all.within(&row.limits, held);
    let directory = rows::inode(snapshot, volume, ino)?.and_then(|row| row.attr.quota);
    let Some(directory) = directory else { return Ok(all) };
    let row = quota(snapshot, volume, directory)?;
    Ok(row.map_or(all, |row| all.within(&row.limits, row.usage)))
}

impl Space {
    /// What is left of it for something that holds `held`.
    fn within(self, limits: &Limits, held: Usage) -> Space {
        let left =
            |limit: Option<u64>, held| limit.map_or(u64::MAX, |limit| limit.saturating_sub(held));
        Space {
            total_bytes: self.total_bytes.min(limits.bytes.unwrap_or(u64::MAX)),
            free_bytes: self.free_bytes.min(left(limits.bytes, held.bytes)),
            inodes: held.inodes,
            free_inodes: self.free_inodes.min(left(limits.inodes, held.inodes)),
            room_bytes: self
                .room_bytes
                .min(left(limits.bytes.map(|_| limits.bytes_max()), held.bytes)),
        }
    }
}

/// The quota of a directory.
pub(super) fn quota<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    directory: Ino,
) -> Result<Option<QuotaRow>, Fault<S::Error>> {
    rows::get_row(snapshot, &keys::quota(volume, directory), "a directory's quota")
}

/// The quotas that a rule has changed, as they were and as they are.
pub(super) type Charged = std::collections::BTreeMap<Ino, (Usage, QuotaRow)>;

impl<T: MetaTxn> Tree<'_, T> {
    /// Counts a change of an inode that counts against `quota`, and against the volume.
    pub(super) fn charge(
        &mut self,
        quota: Option<Ino>,
        change: Change,
    ) -> Result<(), Fault<T::Error>> {
        let Usage { bytes, inodes } = Usage::of(&self.tally).changed(change);
        (self.tally.allocated, self.tally.inodes) = (bytes, inodes);
        self.charge_quota(quota, change)
    }

    fn charge_quota(
        &mut self,
        directory: Option<Ino>,
        change: Change,
    ) -> Result<(), Fault<T::Error>> {
        let Some(directory) = directory else { return Ok(()) };
        if !self.charged.contains_key(&directory) {
            // One that is missing is damage that is reported elsewhere: files must not stay for it.
            let Some(row) = quota(&mut self.txn, self.volume, directory)? else { return Ok(()) };
            self.charged.insert(directory, (row.usage, row));
        }
        if let Some((_, row)) = self.charged.get_mut(&directory) {
            row.usage = row.usage.changed(change);
        }
        Ok(())
    }

    /// The charge of an inode goes along into the directory `to`.
    pub(super) fn move_charge(
        &mut self,
        row: &mut InodeRow,
        to: Ino,
    ) -> Result<(), Fault<T::Error>> {
        let directory = self.find(to)?.ok_or(Fault::Damaged("a directory is missing"))?;
        if outside(&row.attr) == directory.attr.quota {
            return Ok(());
        }
        self.count_against(row, directory.attr.quota)
    }

    /// The bytes that an inode counts: those of its contents that are not holes, the target of a
    /// symbolic link, and extended attributes.
    pub(super) fn charged_bytes(&mut self, row: &InodeRow) -> Result<u64, Fault<T::Error>> {
        let prefix = keys::xattr(self.volume, row.attr.ino, &[]);
        let end = keys::after(&prefix);
        let rows = self.txn.range_past_damage(&prefix, &end, XATTR_COUNT_MAX);
        let xattrs = rows.map_err(Fault::Store)?;
        let bytes = xattrs.iter().map(|(key, value)| {
            let name = key.len().saturating_sub(prefix.len());
            (name + value.as_ref().map_or(0, Vec::len)) as u64
        });
        let target = row.target.as_ref().map_or(0, Vec::len) as u64;
        Ok(row.attr.allocated + target + bytes.sum::<u64>())
    }

    /// An inode counts against `quota` from now on.
    pub(super) fn count_against(
        &mut self,
        row: &mut InodeRow,
        quota: Option<Ino>,
    ) -> Result<(), Fault<T::Error>> {
        let bytes = self.charged_bytes(row)?;
        self.charge_quota(row.attr.quota, Change { inodes: -1, came: 0, gone: bytes })?;
        row.attr.quota = quota;
        self.charge_quota(quota, Change { inodes: 1, came: bytes, gone: 0 })
    }

    /// The quota of a directory goes with it.
    pub(super) fn drop_quota(&mut self, directory: Ino) -> Result<(), Fault<T::Error>> {
        self.charged.remove(&directory);
        self.txn.remove(&keys::quota(self.volume, directory)).map_err(Fault::Store)
    }

    /// Whether everything that grew may be as large as it is now.
    pub(super) fn check_limits(&self) -> Result<(), Refusal> {
        self.limits.admit(self.before, Usage::of(&self.tally))?;
        self.charged.values().try_for_each(|(before, row)| row.limits.admit(*before, row.usage))
    }

    /// Hands changed quotas to the transaction.
    pub(super) fn put_quotas(&mut self) -> Result<(), Fault<T::Error>> {
        for (directory, (_, row)) in std::mem::take(&mut self.charged) {
            rows::put_row(&mut self.txn, &keys::quota(self.volume, directory), &row)?;
        }
        Ok(())
    }

    /// An inode counts against `quota` from now on, whose usage the caller knows.
    pub(super) fn assign(
        &mut self,
        mut row: InodeRow,
        quota: Option<Ino>,
        usage: &mut Usage,
    ) -> Result<(), Fault<T::Error>> {
        let came = self.charged_bytes(&row)?;
        *usage = usage.changed(Change { inodes: 1, came, gone: 0 });
        row.attr.quota = quota;
        self.put_inode(row)
    }
}
