//! Copies of disks: what the server answers is of the record that was sent, no version is given to
//! two contents, and nobody believes a version that the server has forgotten.
//!
//! Proves S12.10, S18.6.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::namespace::{keys, read};
use segue_core::nouns::{ClientId, Ino, OpId, Outcome, Record, Stamped, Version};
use segue_core::refusal::Refusal;

use super::ledger::{FileState, Ledger};
use crate::Violation;
use crate::client::Mount;
use crate::store::{Txn, Written};

/// What the ledger knows of copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    /// Digests of the records that were applied.
    records: BTreeMap<OpId, [u8; 32]>,
    /// Inodes that records of these clients mean by other numbers, if their seqs are lower.
    aliases: BTreeMap<(ClientId, Ino), (Ino, u64)>,
    /// The versions of the volume, where disks are copied.
    versions: Option<BTreeSet<Version>>,
    /// Records that were applied in any history.
    ever: BTreeSet<OpId>,
    /// Digests of contents by their versions, in any history.
    given: BTreeMap<(Ino, Version), [u8; 32]>,
    /// Inodes that had no name at the end of a history that is lost.
    pub(super) nameless: BTreeSet<Ino>,
}

impl Lives {
    /// True if two hosts may be one client.
    pub(super) fn may_be_two(&self) -> bool {
        self.versions.is_some()
    }

    /// A record was applied.
    pub(super) fn applied(
        &mut self,
        op: OpId,
        digest: &[u8; 32],
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        self.records.insert(op, *digest);
        self.ever.insert(op);
        match (self.versions.is_some(), outcome) {
            (true, Outcome::Refused { refusal: Refusal::Protocol }) => {
                Err(Violation("an honest host is refused as a broken one".into()))
            }
            _ => Ok(()),
        }
    }

    /// A file was given a version.
    pub(super) fn given(&mut self, ino: Ino, state: &FileState) -> Result<(), Violation> {
        if self.versions.is_none() {
            return Ok(());
        }
        let digest = *blake3::hash(&state.content).as_bytes();
        let earlier = self.given.insert((ino, state.version), digest);
        match earlier.is_none_or(|earlier| earlier == digest) {
            true => Ok(()),
            false => Err(Violation(format!("{} of #{ino} is given twice", state.version))),
        }
    }
}

impl Ledger {
    /// Disks are copied: versions may be forgotten.
    pub(crate) fn note_versions(&mut self, txn: &mut Txn<'_>) {
        self.lives.versions = Some(BTreeSet::from([Version::default()]));
        let root = keys::inode(self.volume, Ino::ROOT);
        self.learn_versions(txn, &Written::from([(root, None)]));
    }

    /// An administrator set limits: no name or content changed.
    pub(crate) fn limited(&mut self, txn: &mut Txn<'_>, written: &Written) {
        self.learn_versions(txn, written);
    }

    pub(super) fn learn_versions(&mut self, txn: &mut Txn<'_>, written: &Written) {
        let Some(versions) = &mut self.lives.versions else { return };
        for (volume, ino) in written.keys().filter_map(|key| keys::inode_of(key)) {
            let Ok((node, _)) = read::getattr_or_remnant(txn, volume, ino) else { continue };
            versions.extend([node.attr.change, node.attr.data_version]);
        }
    }

    /// A client, whose next seq is `next`, goes on for the one that it `was`.
    pub(crate) fn inherits(&mut self, (client, next): (ClientId, u64), was: Option<ClientId>) {
        let Some(was) = was else { return };
        let aliases = &mut self.lives.aliases;
        let of = aliases.range((was, Ino(0))..=(was, Ino(u64::MAX)));
        let inherit = |((_, ino), (meant, below)): (&(ClientId, Ino), &(Ino, u64))| {
            ((client, *ino), (*meant, next.min(*below)))
        };
        let inherited: Vec<_> = of.map(inherit).collect();
        aliases.extend(inherited);
    }

    /// A record of `client` was applied, which may say that its number is over.
    pub(super) fn end_number(&mut self, client: ClientId, record: &Record) {
        if let Record::Release { ino } = record {
            self.lives.aliases.remove(&(client, *ino));
        }
    }

    /// A record with the inodes that it means.
    pub(super) fn meant(&self, op: OpId, stamped: &Stamped) -> Stamped {
        let mut meant = stamped.clone();
        if self.lives.aliases.is_empty() {
            return meant;
        }
        let new = match &stamped.record {
            Record::Create { ino, .. } => Some(*ino),
            _ => None,
        };
        for ino in meant.record.inodes_mut().into_iter().filter(|ino| Some(**ino) != new) {
            let alias = self.lives.aliases.get(&(op.client, *ino));
            *ino = alias.filter(|(_, below)| op.seq < *below).map_or(*ino, |(meant, _)| *meant);
        }
        meant
    }

    /// Takes in the number of a new inode. False if the inode was there: another copy made it.
    pub(super) fn take_number(
        &mut self,
        op: OpId,
        stamped: &Stamped,
        outcome: &Outcome,
        made: &BTreeSet<Ino>,
    ) -> Result<bool, Violation> {
        let Record::Create { ino, parent, name, .. } = &stamped.record else { return Ok(true) };
        let number = match outcome {
            Outcome::Refused { .. } => return Ok(true),
            Outcome::Conflict { copy, .. } => *copy,
            _ => *ino,
        };
        if number != *ino {
            self.lives.aliases.insert((op.client, *ino), (number, u64::MAX));
        }
        if made.contains(&number) {
            return Ok(true);
        }
        let place = (*parent, name.as_bytes().to_vec());
        match self.names.get(&place) == Some(&number) && self.lives.versions.is_some() {
            true => Ok(false),
            false => Err(Violation(format!("#{number} was not made"))),
        }
    }

    /// A client is answered with `outcome` what became of a record.
    pub(crate) fn answered(
        &self,
        op: OpId,
        digest: &[u8; 32],
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        let is_it = self.lives.records.get(&op).is_some_and(|known| known == digest);
        match is_it || !outcome.is_final() {
            true => Ok(()),
            false => Err(Violation(format!("{op:?} is answered with what became of another one"))),
        }
    }

    /// True if change `seq` of a cache arrived, or is known there to have arrived in a history that
    /// the server has forgotten.
    pub(super) fn arrived(&self, mount: &Mount, seq: u64) -> bool {
        let is_it = |op: &OpId| op.seq == seq && mount.disk.kept.was(op.client);
        self.outcomes.keys().any(is_it)
            || mount.disk.acknowledged.is_settled(seq) && self.lives.ever.iter().any(is_it)
    }

    /// The server's disk is put back to what it was at `image`. What is known of records that were
    /// ever applied stays.
    pub(crate) fn put_back(&mut self, image: Ledger) {
        let lost = std::mem::replace(self, image);
        let named: BTreeSet<Ino> = lost.names.values().copied().collect();
        self.lives.nameless.extend(lost.seen.difference(&named));
        self.lives.nameless.extend(lost.lives.nameless);
        self.left.extend(lost.left);
        self.seen.extend(lost.seen);
        self.chunks.extend(lost.chunks);
        self.lives.ever.extend(lost.lives.ever);
        self.lives.given.extend(lost.lives.given);
    }
}

/// Versions that are believed, of which inode and where.
fn believed(mount: &Mount) -> Vec<(Ino, Version, &'static str)> {
    let Mount { core, disk, .. } = mount;
    let mut believed = disk.kept.index.versions();
    for attr in core.tree().known_inodes().filter_map(|ino| core.tree().peek(ino)) {
        believed.push((attr.ino, attr.change, "attributes"));
        believed.push((attr.ino, attr.data_version, "data's version"));
    }
    let files = core.files().filter(|(_, file)| !file.is_ahead());
    believed.extend(files.map(|(ino, file)| (ino, file.version(), "data")));
    believed
}

/// Checks that `mount`, which was welcomed, believes no version that the server has forgotten.
pub(crate) fn check_believed(mount: &Mount, ledger: &Ledger) -> Result<(), Violation> {
    let Some(versions) = &ledger.lives.versions else { return Ok(()) };
    match believed(mount).into_iter().find(|(_, version, _)| !versions.contains(version)) {
        None => Ok(()),
        Some((ino, version, what)) => {
            Err(Violation(format!("{what} of #{ino} are believed as of forgotten {version}")))
        }
    }
}
