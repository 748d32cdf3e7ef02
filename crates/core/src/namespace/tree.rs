//! A volume's rows as a rule sees them, in one pending version.
//!
//! Whatever a rule writes gets the same new version, and is remembered as touched, so that
//! the outcome can carry the attributes that resulted.

use std::collections::BTreeSet;

use super::extents::{self, Contents};
use super::overlay::Overlay;
use super::quota::{Change, Charged, Limits, Usage};
use super::rows::{self, InodeRow};
use super::{Fault, MetaSnapshot, MetaTxn, Stop, Tally, VolumeRow, awaited, keys, remnant};
use crate::nouns::{Attr, Ino, Kind, Name, Timestamp, Version, VolumeId};
use crate::refusal::Refusal;

/// A directory in a deeper one is moved by nobody: looking at what it stands in takes time of the
/// one thread that changes volumes. No path of PATH_MAX bytes has so many parts.
const DEPTH_MAX: u64 = 4096;
/// Rows deleted at a time.
const SLICE: usize = 256;

/// One volume inside one transaction.
pub(crate) struct Tree<'a, T> {
    pub(crate) txn: Overlay<'a, T>,
    pub(super) volume: VolumeId,
    /// What everything written here gets.
    pub(super) version: Version,
    pub(super) tally: Tally,
    /// What the volume may hold, and what it held before.
    pub(super) limits: Limits,
    pub(super) before: Usage,
    pub(super) charged: Charged,
    /// Files that go leave remnants: other hosts may have looked them up.
    pub(super) leaves_remnants: bool,
    /// An inode that went, with its last name or its last close.
    pub(super) removed: Option<Ino>,
    touched: BTreeSet<Ino>,
    wrote: bool,
}

impl<'a, T: MetaTxn> Tree<'a, T> {
    pub(crate) fn open(txn: &'a mut T, volume: VolumeId) -> Result<Self, Fault<T::Error>> {
        let row: VolumeRow = rows::get_row(txn, &keys::volume(volume), "a volume")?
            .ok_or(Fault::Damaged("a volume is missing"))?;
        let tally: Tally = rows::get_row(txn, &keys::volume_tally(volume), "a volume's tally")?
            .ok_or(Fault::Damaged("a volume's tally is missing"))?;
        let version = Version { epoch: row.epoch, counter: tally.commits + 1 };
        Ok(Tree {
            txn: Overlay::new(txn),
            volume,
            version,
            tally,
            limits: row.limits,
            before: Usage::of(&tally),
            charged: Charged::new(),
            leaves_remnants: false,
            removed: None,
            touched: BTreeSet::new(),
            wrote: false,
        })
    }

    pub(crate) fn find(&mut self, ino: Ino) -> Result<Option<InodeRow>, Fault<T::Error>> {
        rows::inode(&mut self.txn, self.volume, ino)
    }

    /// An inode that the record is about.
    pub(super) fn inode(&mut self, ino: Ino) -> Result<InodeRow, Stop<T::Error>> {
        Ok(self.find(ino)?.ok_or(Refusal::Stale)?)
    }

    /// A directory that a name is looked up in.
    pub(super) fn directory(&mut self, ino: Ino) -> Result<InodeRow, Stop<T::Error>> {
        let row = self.find(ino)?.ok_or(Refusal::NotFound)?;
        if row.attr.kind != Kind::Directory {
            return Err(Refusal::NotDirectory.into());
        }
        Ok(row)
    }

    pub(super) fn dentry(
        &mut self,
        parent: Ino,
        name: &Name,
    ) -> Result<Option<Ino>, Fault<T::Error>> {
        rows::dentry(&mut self.txn, self.volume, parent, name.as_bytes())
    }

    pub(super) fn put_inode(&mut self, mut row: InodeRow) -> Result<(), Fault<T::Error>> {
        row.attr.change = self.version;
        self.wrote = true;
        self.touched.insert(row.attr.ino);
        let key = keys::inode(self.volume, row.attr.ino);
        rows::put_row(&mut self.txn, &key, &row)
    }

    pub(super) fn put_dentry(
        &mut self,
        parent: Ino,
        name: &Name,
        ino: Ino,
    ) -> Result<(), Fault<T::Error>> {
        rows::put_row(&mut self.txn, &keys::dentry(self.volume, parent, name.as_bytes()), &ino)
    }

    pub(super) fn remove_dentry(
        &mut self,
        parent: Ino,
        name: &Name,
    ) -> Result<(), Fault<T::Error>> {
        let key = keys::dentry(self.volume, parent, name.as_bytes());
        self.txn.remove(&key).map_err(Fault::Store)
    }

    /// Marks a directory's entries as changed at `time`, with `links` more subdirectories.
    pub(super) fn entries_changed(
        &mut self,
        directory: Ino,
        links: i32,
        time: Timestamp,
    ) -> Result<(), Stop<T::Error>> {
        let mut row = self.directory(directory)?;
        row.attr.nlink = row.attr.nlink.saturating_add_signed(links);
        row.attr.mtime = time;
        row.attr.ctime = time;
        Ok(self.put_inode(row)?)
    }

    /// Looks whether `directory` has no names.
    pub(super) fn check_empty(&mut self, directory: Ino) -> Result<bool, Fault<T::Error>> {
        let prefix = keys::dentry(self.volume, directory, &[]);
        let first = self.txn.range(&prefix, &keys::after(&prefix), 1).map_err(Fault::Store)?;
        Ok(first.is_empty())
    }

    /// Looks whether `directory` is `ancestor` or stands below it.
    pub(super) fn check_within(
        &mut self,
        directory: Ino,
        ancestor: Ino,
    ) -> Result<bool, Stop<T::Error>> {
        let mut at = directory;
        for _ in 0..=self.tally.inodes.min(DEPTH_MAX) {
            if at == ancestor || at == Ino::ROOT {
                return Ok(at == ancestor);
            }
            at = self.directory(at)?.parent;
        }
        match self.tally.inodes > DEPTH_MAX {
            true => Err(Refusal::NameTooLong.into()),
            false => Err(Fault::Damaged("directories form a ring").into()),
        }
    }

    /// The inode goes with all that belongs to it, at once or after a while as a remnant.
    pub(crate) fn remove_inode(&mut self, row: &InodeRow) -> Result<(), Fault<T::Error>> {
        let ino = row.attr.ino;
        let gone = self.charged_bytes(row)?;
        if self.leaves_remnants && remnant::is_left(row.attr.kind) {
            remnant::leave(self, row, gone)?;
        } else {
            extents::bury(&mut self.txn, Contents::of(self.volume, row))?;
            rows::remove_all(&mut self.txn, &keys::xattr(self.volume, ino, &[]), SLICE)?;
        }
        self.txn.remove(&keys::inode(self.volume, ino)).map_err(Fault::Store)?;
        awaited::forget(self, ino)?;
        self.charge(row.attr.quota, Change { inodes: -1, came: 0, gone })?;
        if row.attr.quota == Some(ino) {
            self.drop_quota(ino)?;
        }
        self.wrote = true;
        self.removed = Some(ino);
        self.touched.remove(&ino);
        Ok(())
    }

    /// Makes all of a file a hole; returns how many bytes went.
    pub(super) fn empty_contents(&mut self, row: &mut InodeRow) -> Result<u64, Fault<T::Error>> {
        if !extents::bury(&mut self.txn, Contents::of(self.volume, row))? {
            row.generation += 1;
        }
        Ok(row.attr.allocated)
    }

    /// A number for an inode that the server itself makes.
    pub(super) fn own_ino(&mut self) -> Result<Ino, Fault<T::Error>> {
        if self.tally.own_next == self.tally.own_end {
            let block = super::session::reserve(&mut self.txn, self.volume)?;
            (self.tally.own_next, self.tally.own_end) = (block.first, block.first + block.count);
        }
        self.tally.own_next += 1;
        Ok(Ino(self.tally.own_next - 1))
    }

    /// Lets the outcome carry the attributes of an inode that was only looked at.
    pub(super) fn mention(&mut self, ino: Ino) {
        self.touched.insert(ino);
    }

    /// Attributes of everything touched that is still there.
    pub(super) fn touched(&mut self) -> Result<Vec<Attr>, Fault<T::Error>> {
        let mut attrs = Vec::with_capacity(self.touched.len());
        for ino in std::mem::take(&mut self.touched) {
            attrs.extend(self.find(ino)?.map(|row| row.attr));
        }
        Ok(attrs)
    }

    /// Hands all writes to the transaction.
    pub(crate) fn commit(mut self) -> Result<&'a mut T, Fault<T::Error>> {
        self.put_quotas()?;
        if self.wrote {
            self.tally.commits = self.version.counter;
            let key = keys::volume_tally(self.volume);
            rows::put_row(&mut self.txn, &key, &self.tally)?;
        }
        self.txn.flush().map_err(Fault::Store)
    }
}
