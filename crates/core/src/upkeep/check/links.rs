//! Links: an inode has as many names as it says, and its directories lead to the root.

use std::collections::BTreeMap;

use super::{Checker, Damage, FoundRow, Halt, Visitor, find};
use crate::namespace::rows::InodeRow;
use crate::namespace::{MetaSnapshot, keys};
use crate::nouns::{Ino, Kind};

/// Most directories remembered as reachable, so that few ways to the root are walked twice.
const REACHABLE_MAX: usize = 1 << 16;

/// Counts for the inodes of one round.
pub(super) struct Links {
    first: Ino,
    /// The first inode that is left to the next round.
    end: Option<Ino>,
    counts: BTreeMap<Ino, LinkCounts>,
    max: usize,
}

/// The links counted of one inode.
#[derive(Clone, Copy, Default)]
pub(super) struct LinkCounts {
    /// Names that it does not record.
    pub(super) names: u32,
    /// Clients that have it open without a name.
    pub(super) orphans: u32,
}

impl Links {
    /// The first round, with at most `max` inodes.
    pub(super) fn new(max: usize) -> Links {
        Links { first: Ino(0), end: None, counts: BTreeMap::new(), max: max.max(2) }
    }

    /// Goes on with what was left out; false if nothing was.
    pub(super) fn next_round(&mut self) -> bool {
        let Some(first) = self.end.take() else { return false };
        self.first = first;
        self.counts.clear();
        true
    }

    /// The first inode of this round.
    pub(super) fn first(&self) -> Ino {
        self.first
    }

    /// True if the inode is one of this round.
    pub(super) fn covers(&self, ino: Ino) -> bool {
        ino >= self.first && self.end.is_none_or(|end| ino < end)
    }

    /// What was counted of the inode.
    pub(super) fn of(&self, ino: Ino) -> LinkCounts {
        self.counts.get(&ino).copied().unwrap_or_default()
    }

    /// A name of `ino` that it does not record.
    pub(super) fn add_name(&mut self, ino: Ino) {
        self.add(ino, |link| link.names = link.names.saturating_add(1));
    }

    /// A client that has `ino` open without a name.
    pub(super) fn add_orphan(&mut self, ino: Ino) {
        self.add(ino, |link| link.orphans = link.orphans.saturating_add(1));
    }

    fn add(&mut self, ino: Ino, count: impl FnOnce(&mut LinkCounts)) {
        if !self.covers(ino) {
            return;
        }
        count(self.counts.entry(ino).or_default());
        if self.counts.len() > self.max
            && let Some(middle) = self.counts.keys().nth(self.max / 2).copied()
        {
            self.counts.split_off(&middle);
            self.end = Some(middle);
        }
    }
}

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    /// The links of a directory or file, in the round that covers it.
    pub(super) fn links(&mut self, row: &InodeRow) -> Result<(), Halt<S::Error>> {
        let (ino, nlink) = (row.attr.ino, row.attr.nlink);
        if !self.links.covers(ino) {
            return Ok(());
        }
        let link = self.links.of(ino);
        let recorded =
            find::<_, Ino>(self.snapshot, &keys::dentry(self.volume, row.parent, &row.name))?;
        let is_there = matches!(recorded, FoundRow::Row(named) if named == ino);
        if link.orphans > 0 && nlink > 0 {
            self.report(ino, Damage::OrphanWithName)?;
        }
        if row.attr.kind == Kind::Directory {
            return self.directory(row, is_there);
        }
        let found = link.names.saturating_add(u32::from(is_there));
        match (nlink, found) {
            (0, 0) if link.orphans == 1 => Ok(()),
            (0, 0) => self.report(ino, Damage::NotOpen { clients: link.orphans }),
            (_, 0) => self.report(ino, Damage::NoName),
            (nlink, found) if nlink != found => self.report(ino, Damage::Links { nlink, found }),
            _ => Ok(()),
        }
    }

    fn directory(&mut self, row: &InodeRow, is_there: bool) -> Result<(), Halt<S::Error>> {
        let (ino, nlink) = (row.attr.ino, row.attr.nlink);
        if ino == Ino::ROOT {
            if row.parent != Ino::ROOT {
                self.report(ino, Damage::NoRoot)?;
            }
        } else {
            if !is_there {
                self.report(ino, Damage::NoName)?;
            }
            self.way_up(row)?;
        }
        // One that has names was counted with them.
        let names = keys::dentry(self.volume, ino, &[]);
        if nlink != 2 && self.snapshot.range(&names, &keys::after(&names), 1)?.is_empty() {
            self.report(ino, Damage::Subdirectories { nlink, found: 2 })?;
        }
        Ok(())
    }

    /// Parents lead to the root. A ring is reported once, at the least of its directories.
    fn way_up(&mut self, row: &InodeRow) -> Result<(), Halt<S::Error>> {
        let (mut at, mut mark, mut steps, mut power) = (row.parent, row.attr.ino, 0_u64, 1_u64);
        while at != Ino::ROOT && !self.reachable.contains(&at) {
            // Brent: the mark is put where we are after 1, 2, 4.. steps.
            if at == mark {
                return self.ring(at, row.attr.ino);
            }
            steps += 1;
            if steps == power {
                (mark, steps, power) = (at, 0, power * 2);
            }
            // One that is missing is reported with the names in it.
            let FoundRow::Row(above) = self.inode(at)? else { return Ok(()) };
            at = above.parent;
        }
        if self.reachable.len() >= REACHABLE_MAX {
            self.reachable.clear();
        }
        self.reachable.insert(row.attr.ino);
        Ok(())
    }

    fn ring(&mut self, start: Ino, from: Ino) -> Result<(), Halt<S::Error>> {
        let (mut at, mut least) = (start, start);
        while let FoundRow::Row(row) = self.inode(at)? {
            at = row.parent;
            least = least.min(at);
            if at == start {
                break;
            }
        }
        if least == from {
            self.report(from, Damage::Ring)?;
        }
        Ok(())
    }
}
