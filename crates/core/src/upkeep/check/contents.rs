//! Chunks and leaves: whether as many refer to each as it counts, and whether those that nothing
//! refers to will be collected.
//!
//! References are counted for a bounded number of chunks and leaves at a time, in the order of
//! their fingerprints: a volume with more of them is gone through in several rounds.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::remnants;
use super::scan::Scan;
use super::{Checker, Damage, FoundRow, Halt, Visitor, decode, find};
use crate::namespace::arrivals::waiting;
use crate::namespace::refs::{Held, leaf_name};
use crate::namespace::rows::{ChunkRow, Extent, LeafRow, Source};
use crate::namespace::{MetaSnapshot, RemnantTally, keys};
use crate::nouns::{ClientId, Fingerprint, VolumeId};

/// What a chunk or a leaf says, and how many were found to refer to it.
struct Counted {
    refs: u64,
    due: u64,
    found: u64,
}

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    /// Checks `at_once` chunks or leaves in a round.
    pub(super) fn contents(&mut self, at_once: usize) -> Result<(), Halt<S::Error>> {
        self.leaf_names()?;
        self.idle()?;
        self.notes::<()>(
            keys::graves(self.volume),
            |key| keys::grave_part(key).is_some(),
            "a grave",
        )?;
        self.remnants()?;
        let is_ragged = |key: &[u8]| keys::ragged_part(key).is_some();
        self.notes::<()>(keys::ragged_of(self.volume), is_ragged, "a ragged file")?;
        let is_hard_link = |key: &[u8]| keys::hard_link_part(key).is_some();
        self.notes::<()>(keys::all_hard_links(self.volume), is_hard_link, "a further name")?;
        let is_awaited = |key: &[u8]| keys::awaited_parts(key).is_some();
        let what = "a file whose contents are awaited";
        self.notes::<ClientId>(keys::all_awaited(self.volume), is_awaited, what)?;
        self.rounds(keys::chunks(self.volume), at_once, &Table::chunks())?;
        self.rounds(keys::leaves(self.volume), at_once, &Table::leaves())?;
        self.arrivals()
    }

    /// Remnants: each of an inode that is not there, with its place, and all of them counted.
    fn remnants(&mut self) -> Result<(), Halt<S::Error>> {
        let is_place = |key: &[u8]| keys::remnant_order_part(key).is_some();
        self.notes::<()>(keys::remnant_orders(self.volume), is_place, "the place of a remnant")?;
        let (mut scan, mut found) =
            (Scan::new(keys::remnants(self.volume)), RemnantTally::default());
        while let Some((key, _)) = scan.next(self.snapshot)? {
            self.step()?;
            match remnants::sound(self.snapshot, self.volume, &key)? {
                Some(remnant) => found = found.and(&remnant),
                None => self.report_row(&key, "a remnant"),
            }
        }
        let key = keys::remnant_tally(self.volume);
        let told = match find(self.snapshot, &key)? {
            FoundRow::Nothing => Some(RemnantTally::default()),
            FoundRow::Row(told) => Some(told),
            FoundRow::Broken => None,
        };
        if told != Some(found) {
            self.report_row(&key, "a tally of remnants");
        }
        Ok(())
    }

    /// What came and is in no file, against what the volume counts of it.
    fn arrivals(&mut self) -> Result<(), Halt<S::Error>> {
        let key = keys::arrived(self.volume);
        let told = match find(self.snapshot, &key)? {
            FoundRow::Nothing => 0,
            FoundRow::Row(told) => told,
            FoundRow::Broken => {
                self.report_row(&key, "a volume's arrivals");
                return Ok(());
            }
        };
        if told != self.arrived {
            let found = self.arrived;
            self.report_volume(Damage::Arrived { told, found });
        }
        Ok(())
    }

    fn rounds(
        &mut self,
        prefix: Vec<u8>,
        at_once: usize,
        table: &Table,
    ) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(prefix);
        loop {
            let mut round = BTreeMap::new();
            while round.len() < at_once
                && let Some((key, value)) = scan.next(self.snapshot)?
            {
                self.step()?;
                match (keys::fingerprint_part(&key), (table.counts)(&value)) {
                    (Some(fingerprint), Some((refs, due, len))) => {
                        self.arrived = self.arrived.saturating_add(waiting(refs, due, len));
                        round.insert(fingerprint, Counted { refs, due, found: 0 });
                    }
                    _ => self.report_row(&key, table.what),
                }
            }
            let Some((first, last)) =
                round.keys().next().copied().zip(round.keys().last().copied())
            else {
                return Ok(());
            };
            self.count(&mut round, (first, last), table)?;
            for (fingerprint, counted) in round {
                self.counted(fingerprint, &counted, table)?;
            }
        }
    }

    /// Counts what refers to those of the round.
    fn count(
        &mut self,
        round: &mut BTreeMap<Fingerprint, Counted>,
        (first, last): (Fingerprint, Fingerprint),
        table: &Table,
    ) -> Result<(), Halt<S::Error>> {
        let mut note = |source: &Source| {
            if let Some(fingerprint) = (table.refers)(source)
                && (first..=last).contains(&fingerprint)
                && let Some(counted) = round.get_mut(&fingerprint)
            {
                counted.found += 1;
            }
        };
        let mut extents = Scan::new(keys::all_extents(self.volume));
        while let Some((_, value)) = extents.next(self.snapshot)? {
            self.step()?;
            if let Some(extent) = decode::<Extent>(&value) {
                note(&extent.source);
            }
        }
        let mut leaves = Scan::new(keys::leaves(self.volume));
        while let Some((_, value)) = leaves.next(self.snapshot)? {
            self.step()?;
            if let Some(row) = decode::<LeafRow>(&value) {
                row.extents.iter().for_each(|extent| note(&extent.source));
            }
        }
        Ok(())
    }

    fn counted(
        &mut self,
        fingerprint: Fingerprint,
        counted: &Counted,
        table: &Table,
    ) -> Result<(), Halt<S::Error>> {
        let Counted { refs, due, found } = *counted;
        if refs != found {
            self.report_volume((table.miscounted)(fingerprint, refs, found));
        }
        if refs == 0 {
            let key = keys::idle(due, (table.held)(self.volume, fingerprint));
            if self.snapshot.get(&key)?.is_none() {
                self.report_volume(Damage::NotIdle { fingerprint });
            }
        }
        Ok(())
    }

    /// Each leaf is named after its extents, and is as long as they are.
    fn leaf_names(&mut self) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(keys::leaves(self.volume));
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            let (Some(leaf), Some(row)) = (keys::fingerprint_part(&key), decode::<LeafRow>(&value))
            else {
                continue;
            };
            let len = row.extents.iter().map(|extent| extent.len).sum::<u64>();
            if leaf_name(&row.extents) != Some(leaf) || len != row.len {
                self.report_volume(Damage::LeafName { leaf });
            }
        }
        Ok(())
    }

    /// Rows that say all by their keys.
    fn notes<R: DeserializeOwned>(
        &mut self,
        prefix: Vec<u8>,
        is_key: impl Fn(&[u8]) -> bool,
        what: &'static str,
    ) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(prefix);
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            if !is_key(&key) || decode::<R>(&value).is_none() {
                self.report_row(&key, what);
            }
        }
        Ok(())
    }

    /// What is called idle is, at the time that it says.
    fn idle(&mut self) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(keys::all_idle());
        while let Some((key, _)) = scan.next(self.snapshot)? {
            self.step()?;
            let Some((due, held)) = keys::idle_part(&key) else {
                self.report_row(&key, "something idle");
                continue;
            };
            let (Held::Chunk(volume, _) | Held::Leaf(volume, _)) = held;
            if volume != self.volume {
                continue;
            }
            let (refs, said) = match held {
                Held::Chunk(_, fingerprint) => {
                    match find::<_, ChunkRow>(self.snapshot, &keys::chunk(volume, &fingerprint))? {
                        FoundRow::Row(row) => (row.refs, row.due),
                        FoundRow::Nothing | FoundRow::Broken => (1, 0),
                    }
                }
                Held::Leaf(_, leaf) => {
                    match find::<_, LeafRow>(self.snapshot, &keys::leaf(volume, &leaf))? {
                        FoundRow::Row(row) => (row.refs, row.due),
                        FoundRow::Nothing | FoundRow::Broken => (1, 0),
                    }
                }
            };
            if refs > 0 || said != due {
                self.report_volume(Damage::IdleOfNothing);
            }
        }
        Ok(())
    }
}

/// References, due time and bytes of a row.
type Counts = (u64, u64, u64);

/// How chunks and leaves differ.
struct Table {
    what: &'static str,
    counts: fn(&[u8]) -> Option<Counts>,
    /// What of this table a source refers to.
    refers: fn(&Source) -> Option<Fingerprint>,
    held: fn(VolumeId, Fingerprint) -> Held,
    miscounted: fn(Fingerprint, u64, u64) -> Damage,
}

impl Table {
    fn chunks() -> Table {
        Table {
            what: "a chunk",
            counts: |value| {
                let row = decode::<ChunkRow>(value)?;
                Some((row.refs, row.due, u64::from(row.place.raw_len)))
            },
            refers: |source| match source {
                Source::Chunk { fingerprint, .. } => Some(*fingerprint),
                _ => None,
            },
            held: Held::Chunk,
            miscounted: |fingerprint, told, found| Damage::ChunkRefs { fingerprint, told, found },
        }
    }

    fn leaves() -> Table {
        Table {
            what: "a leaf",
            counts: |value| decode::<LeafRow>(value).map(|row| (row.refs, row.due, row.len)),
            refers: |source| match source {
                Source::Leaf { leaf, .. } => Some(*leaf),
                _ => None,
            },
            held: Held::Leaf,
            miscounted: |leaf, told, found| Damage::LeafRefs { leaf, told, found },
        }
    }
}
