//! Check: whether the rows of a volume fit together, on one snapshot.
//!
//! ```text
//!   names     each dentry, by directory: what it names is there, where it stands is a directory
//!   orphans   each is an inode of the volume that a client of the volume has open
//!   inodes    each, its extents and attributes beside it: links, ranges, chunks, sums
//!   contents  chunks and leaves: as many refer to each as it counts, what is idle is listed
//!   shared    names of volumes, packs, rows of clients that are not there (for all volumes)
//!   clients   their numbers are granted, their floors and outcomes decode
//! ```
//!
//! Rows are read once, in the order of their keys and some hundred at a time; no table is held
//! in memory. An inode records one of its names, so only the others have to be counted, and
//! orphans. They are counted for at most [`LINKS_MAX`] inodes at a time: where a volume has
//! more of those, the upper half of them is left to another round over the names.
//!
//! The bytes of chunks are not seen here: [`chunk_uses`] says to whoever reads them which
//! files they belong to.

mod clients;
mod contents;
mod finding;
mod inodes;
mod links;
mod names;
mod path;
mod quotas;
mod remnants;
mod scan;
mod shared;
mod uses;

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use crate::namespace::rows::{InodeRow, Tally, VolumeRow};
use crate::namespace::{MetaSnapshot, Usage, keys};
use crate::nouns::{Ino, VolumeId};

pub use finding::{Damage, Finding};
pub use path::path;
pub use shared::shared;
pub use uses::{ChunkUse, UsePage, chunk_uses, chunk_uses_of};

use links::Links;
pub(super) use remnants::sound as sound_remnant;
pub(super) use scan::Scan;

/// Most inodes whose further names are counted in one round: some 64 MiB.
pub const LINKS_MAX: usize = 1 << 20;
/// Rows between two words of progress.
const PROGRESS_ROWS: u64 = 1024;

/// Who is told what a check finds.
pub trait Visitor {
    /// Something is wrong.
    fn finding(&mut self, finding: Finding);
    /// So much has been looked at; false ends the check.
    fn progress(&mut self, counts: &Counts) -> bool;
}

/// What a check has looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Inodes.
    pub inodes: u64,
    /// Names.
    pub names: u64,
    /// Bytes of all files that are not holes.
    pub allocated: u64,
    /// Those of them that are in chunks.
    pub in_chunks: u64,
}

/// Why a check did not come to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halt<E> {
    /// The store could not be read.
    Store(E),
    /// The visitor wanted no more.
    Stopped,
}

impl<E> From<E> for Halt<E> {
    fn from(error: E) -> Halt<E> {
        Halt::Store(error)
    }
}

/// Checks everything of `volume` but the bytes of its chunks.
pub fn check<S: MetaSnapshot, V: Visitor>(
    snapshot: &mut S,
    volume: VolumeId,
    visitor: &mut V,
) -> Result<Counts, Halt<S::Error>> {
    check_within(snapshot, volume, visitor, LINKS_MAX)
}

/// [`check`], with further names counted for at most `links_max` inodes at a time.
pub(super) fn check_within<S: MetaSnapshot, V: Visitor>(
    snapshot: &mut S,
    volume: VolumeId,
    visitor: &mut V,
    links_max: usize,
) -> Result<Counts, Halt<S::Error>> {
    let mut checker = Checker {
        snapshot,
        volume,
        visitor,
        row: None,
        tally: None,
        counts: Counts::default(),
        links: Links::new(links_max),
        quotas: BTreeMap::new(),
        arrived: 0,
        reachable: BTreeSet::new(),
        again: false,
        rows: 0,
    };
    checker.volume()?;
    checker.names()?;
    checker.orphans()?;
    checker.inodes()?;
    checker.sums()?;
    checker.quotas()?;
    checker.contents(links_max)?;
    checker.clients()?;
    checker.again = true;
    while checker.links.next_round() {
        checker.names()?;
        checker.orphans()?;
        checker.inodes_again()?;
    }
    Ok(checker.counts)
}

/// The row under a key.
enum FoundRow<R> {
    Nothing,
    /// A row that does not decode; where its table is scanned it is reported.
    Broken,
    Row(R),
}

/// The row that `bytes` are, all of them.
fn decode<R: DeserializeOwned>(bytes: &[u8]) -> Option<R> {
    postcard::take_from_bytes(bytes).ok().and_then(|(row, rest)| rest.is_empty().then_some(row))
}

fn find<S: MetaSnapshot, R: DeserializeOwned>(
    snapshot: &mut S,
    key: &[u8],
) -> Result<FoundRow<R>, S::Error> {
    Ok(match snapshot.get(key)? {
        None => FoundRow::Nothing,
        Some(bytes) => decode(&bytes).map_or(FoundRow::Broken, FoundRow::Row),
    })
}

struct Checker<'a, S, V> {
    snapshot: &'a mut S,
    volume: VolumeId,
    visitor: &'a mut V,
    row: Option<VolumeRow>,
    tally: Option<Tally>,
    counts: Counts,
    links: Links,
    /// What counts against each quota.
    quotas: BTreeMap<Ino, Usage>,
    /// Bytes that are in no file yet.
    arrived: u64,
    /// Directories from which the root was reached.
    reachable: BTreeSet<Ino>,
    /// Everything was seen once, and only links are counted now.
    again: bool,
    rows: u64,
}

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    /// One row more was looked at.
    fn step(&mut self) -> Result<(), Halt<S::Error>> {
        self.rows += 1;
        if self.rows.is_multiple_of(PROGRESS_ROWS) && !self.visitor.progress(&self.counts) {
            return Err(Halt::Stopped);
        }
        Ok(())
    }

    /// Something is wrong with `ino`.
    fn report(&mut self, ino: Ino, damage: Damage) -> Result<(), Halt<S::Error>> {
        let path = path(self.snapshot, self.volume, ino)?;
        self.visitor.finding(Finding { ino: Some(ino), path, entry: None, damage });
        Ok(())
    }

    /// Something is wrong with the volume.
    fn report_volume(&mut self, damage: Damage) {
        self.visitor.finding(Finding { ino: None, path: None, entry: None, damage });
    }

    fn report_row(&mut self, key: &[u8], what: &'static str) {
        if !self.again {
            self.report_volume(Damage::Row { key: key.to_vec(), what });
        }
    }

    fn inode(&mut self, ino: Ino) -> Result<FoundRow<InodeRow>, Halt<S::Error>> {
        Ok(find(self.snapshot, &keys::inode(self.volume, ino))?)
    }

    fn volume(&mut self) -> Result<(), Halt<S::Error>> {
        let key = keys::volume(self.volume);
        match find::<_, VolumeRow>(self.snapshot, &key)? {
            FoundRow::Nothing => self.report_volume(Damage::NoVolume),
            FoundRow::Broken => self.report_row(&key, "a volume"),
            FoundRow::Row(row) => {
                let named = find::<_, VolumeId>(self.snapshot, &keys::volume_name(&row.name))?;
                if !matches!(named, FoundRow::Row(volume) if volume == self.volume) {
                    self.report_volume(Damage::VolumeName);
                }
                self.row = Some(row);
            }
        }
        let key = keys::volume_tally(self.volume);
        match find::<_, Tally>(self.snapshot, &key)? {
            FoundRow::Nothing => self.report_volume(Damage::NoTally),
            FoundRow::Broken => self.report_row(&key, "a volume's tally"),
            FoundRow::Row(tally) => self.tally = Some(tally),
        }
        Ok(())
    }

    /// The tally against what was found.
    fn sums(&mut self) -> Result<(), Halt<S::Error>> {
        let Some(tally) = self.tally else { return Ok(()) };
        let counts = self.counts;
        if tally.inodes != counts.inodes {
            let (told, found) = (tally.inodes, counts.inodes);
            self.report_volume(Damage::TallyInodes { told, found });
        }
        if tally.allocated != counts.allocated {
            let (told, found) = (tally.allocated, counts.allocated);
            self.report_volume(Damage::TallyBytes { told, found });
        }
        let next = self.row.as_ref().map_or(u64::MAX, |row| row.next_ino);
        if tally.own_next > tally.own_end || tally.own_end > next {
            self.report_volume(Damage::OwnNumbers);
        }
        Ok(())
    }
}
