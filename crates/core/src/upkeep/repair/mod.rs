//! Repair: what a check finds is put right, as far as it can be rebuilt from what is there.
//!
//! ```text
//!   check ─▶ findings ─▶ a fix for each ─▶ check again ─▶ ..  until no fix is left
//! ```
//!
//! A fix may show what stood behind it (a name that goes leaves an inode without one), so the
//! check is run again until it finds nothing that can be put right. What is left then is lost:
//! bytes whose chunk is nowhere, and rows that cannot be read, which stay as they are, so that
//! reading them goes on to fail and never gives anything else. (An extent that cannot be read
//! becomes one in a chunk that is nowhere: it fails as before, and can be overwritten.)
//!
//! Counts and places are rebuilt. What a name leads to is made anew if its bytes or names are
//! there; a name goes if nothing at all is left of what it was of, and stays if that is there and
//! cannot be read. What has no name, or stands in no directory, gets one: its number, in
//! [`FOUND`] under the root. No file's bytes go.

mod fix;
mod found;
mod held;
mod names;
mod quotas;
mod remnants;

use std::collections::{BTreeMap, BTreeSet};

use super::check::{self, Counts, Damage, Finding, Halt, Visitor};
use crate::namespace::{ChunkPlace, Fault, MetaTxn, Overlay, keys};
use crate::nouns::{Fingerprint, VolumeId};

pub use found::FOUND;

/// Most findings of one round: the rest is found again in the next one.
const ROUND_MAX: usize = 1 << 16;
/// Most rounds: a path of as many directories that each are found by the one before is none.
const ROUNDS_MAX: u32 = 1024;

/// Keys of rows that are not what was written, each with the key that it was written under where
/// that is another, because it is the key that is damaged.
pub type Unreadable = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Who is told what a repair does, and knows where chunks are.
pub trait Repairer {
    /// `finding` is put right; how.
    fn repaired(&mut self, finding: &Finding, how: &'static str);
    /// `finding` cannot be.
    fn lost(&mut self, finding: &Finding);
    /// Rows that were passed over since the last call.
    fn damaged(&mut self) -> Unreadable;
    /// So much has been looked at in a round.
    fn progress(&mut self, counts: &Counts);
    /// Where a whole copy of the chunk is, other than its row says.
    fn find_chunk(&mut self, fingerprint: &Fingerprint) -> Option<ChunkPlace>;
}

/// Why a repair changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unrepaired<E> {
    /// The store failed.
    Fault(Fault<E>),
    /// The volume's own row is gone: nobody knows its identity.
    NoVolume,
}

impl<E> From<Fault<E>> for Unrepaired<E> {
    fn from(fault: Fault<E>) -> Unrepaired<E> {
        Unrepaired::Fault(fault)
    }
}

/// Repairs `volume`. Whoever calls throws the transaction away if it fails.
pub fn repair<T: MetaTxn, R: Repairer>(
    txn: &mut T,
    volume: VolumeId,
    repairer: &mut R,
) -> Result<(), Unrepaired<T::Error>> {
    let (mut left, mut removed) = (Vec::new(), BTreeSet::new());
    for _ in 0..ROUNDS_MAX {
        let mut round = Round { findings: Vec::new(), repairer };
        match check::check(txn, volume, &mut round) {
            Ok(_) | Err(Halt::Stopped) => {}
            Err(Halt::Store(error)) => return Err(Fault::Store(error).into()),
        }
        if let Err(error) = check::shared(txn, &mut round) {
            return Err(Fault::Store(error).into());
        }
        let Round { mut findings, .. } = round;
        let damaged = repairer.damaged();
        for key in damaged.keys().cloned() {
            // A rehearsal leaves it where it is, also when it was put right.
            let is_left = txn.get(&key).map_err(Fault::Store)?.is_none() && !removed.contains(&key);
            if is_left && keys::is_of(&key, volume) {
                let damage = Damage::Row { key, what: "as it was written" };
                findings.push(Finding { ino: None, path: None, entry: None, damage });
            }
        }
        findings.sort_by_key(|finding| turn(volume, finding));
        // One fix is for all of them.
        findings.dedup_by(|a, b| a.damage == b.damage && a.damage == Damage::IdleOfNothing);
        if findings.iter().any(|finding| finding.damage == Damage::NoVolume) {
            return Err(Unrepaired::NoVolume);
        }
        left.clear();
        let mut is_over = true;
        for finding in findings {
            match fix::fix(txn, volume, &finding, &damaged, repairer)? {
                Some(how) => {
                    is_over = false;
                    if let Damage::Row { key, .. } = &finding.damage {
                        removed.insert(key.clone());
                    }
                    repairer.repaired(&finding, how);
                }
                None => left.push(finding),
            }
        }
        if is_over {
            break;
        }
    }
    left.iter().for_each(|finding| repairer.lost(finding));
    Ok(())
}

/// Whose turn a finding is: counters give versions to what is made anew, and what a name leads to
/// is made anew there, before it would be put where what was found is.
fn turn(volume: VolumeId, finding: &Finding) -> u8 {
    match &finding.damage {
        Damage::NoTally => 0,
        Damage::Row { key, .. } if *key == keys::volume_tally(volume) => 0,
        Damage::NameOfNothing => 1,
        _ => 2,
    }
}

/// What [`repair`] would do: nothing is changed.
pub fn rehearse<T: MetaTxn, R: Repairer>(
    txn: &mut T,
    volume: VolumeId,
    repairer: &mut R,
) -> Result<(), Unrepaired<T::Error>> {
    repair(&mut Overlay::new(txn), volume, repairer)
}

/// Findings of one check.
struct Round<'a, R> {
    findings: Vec<Finding>,
    repairer: &'a mut R,
}

impl<R: Repairer> Visitor for Round<'_, R> {
    fn finding(&mut self, finding: Finding) {
        if self.findings.len() < ROUND_MAX {
            self.findings.push(finding);
        }
    }

    fn progress(&mut self, counts: &Counts) -> bool {
        self.repairer.progress(counts);
        true
    }
}
