//! Repairing a volume while its server is down: rows first, in one transaction, then the places
//! of chunks whose bytes cannot be read where they should be.
//!
//! What is decided about rows is decided in `segue_core::upkeep::repair`. Here is where chunks
//! are looked for: in all packs, once the first one is missed.

mod bytes;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use segue_core::namespace::{ChunkPlace, VolumeRow, volumes};
use segue_core::nouns::{Fingerprint, VolumeId};
use segue_core::upkeep::check::{Counts, Finding};
use segue_core::upkeep::repair::{Repairer, Unreadable, Unrepaired, rehearse, repair};
use serde::{Deserialize, Serialize};

use crate::admin::{FailReason, no_volume_words};
use crate::backup::Index;
use crate::data_dir::{Data, DataDir};
use crate::error::ServeError;
use crate::meta::{Kv, MetaFault, Noted, StoreError};
use crate::task::Failed;

/// What is to be repaired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// Name of the volume.
    pub volume: String,
    /// Say what would be done, and change nothing.
    pub dry_run: bool,
    /// Leave out the bytes of chunks.
    pub quick: bool,
}

/// One line of the answer. The last one is `Finished` or `Failed`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum RepairLine {
    /// How far it has come.
    Progress {
        /// Inodes looked at in this round.
        inodes: u64,
        /// Chunks read.
        chunks: u64,
    },
    /// Something was wrong, and is put right or would be.
    Repaired {
        /// Where, if a name leads there.
        path: Option<String>,
        /// The inode, if it is about one.
        ino: Option<u64>,
        /// What was wrong.
        what: String,
        /// What was done.
        how: String,
    },
    /// Something is wrong, and stays so.
    Lost {
        /// Where, if a name leads there.
        path: Option<String>,
        /// The inode, if it is about one.
        ino: Option<u64>,
        /// What is wrong.
        what: String,
        /// What can be done.
        remedy: String,
    },
    /// The repair is at its end.
    Finished {
        /// Name of the volume.
        volume: String,
        /// Nothing was changed.
        dry_run: bool,
        /// How much was put right.
        repaired: u64,
        /// How much was not.
        lost: u64,
    },
    /// Nothing was changed.
    Failed {
        /// Why, for programs.
        reason: FailReason,
        /// Why, for people.
        words: String,
    },
}

/// Repairs a volume of a data directory whose server is down.
pub fn repair_offline(
    data: &Path,
    request: &RepairRequest,
    tell: &mut dyn FnMut(RepairLine) -> bool,
) -> Result<(), ServeError> {
    let data = Arc::new(Data::open(DataDir::open(data)?)?);
    if !request.dry_run {
        data.begin_life()?;
    }
    let mut work = Work { data, request, tell, repaired: 0, lost: 0, index: None };
    if let Err(Failed { reason, words }) = work.run() {
        (work.tell)(RepairLine::Failed { reason, words });
    }
    Ok(())
}

struct Work<'a> {
    data: Arc<Data>,
    request: &'a RepairRequest,
    tell: &'a mut dyn FnMut(RepairLine) -> bool,
    repaired: u64,
    lost: u64,
    /// Of all packs, once a chunk was missed.
    index: Option<Index>,
}

impl Work<'_> {
    fn run(&mut self) -> Result<(), Failed> {
        let id = self.volume()?;
        self.rows(id)?;
        if !self.request.quick {
            bytes::repair(self, id)?;
        }
        let RepairRequest { volume, dry_run, .. } = self.request.clone();
        let (repaired, lost) = (self.repaired, self.lost);
        (self.tell)(RepairLine::Finished { volume, dry_run, repaired, lost });
        Ok(())
    }

    /// The volume, also where its name does not lead to it any more.
    fn volume(&self) -> Result<VolumeId, Failed> {
        let name = &self.request.volume;
        let all = self.data.store.read_blocking(|kv| volumes(kv))??;
        let is_named = |row: &VolumeRow| row.name == *name;
        let found = all.into_iter().find(|(_, row)| row.as_ref().is_ok_and(is_named));
        let found = found.map(|(id, _)| id);
        found.ok_or_else(|| Failed::new(FailReason::NotFound, no_volume_words(name)))
    }

    fn say(&mut self, line: RepairLine) {
        match &line {
            RepairLine::Repaired { .. } => self.repaired += 1,
            RepairLine::Lost { .. } => self.lost += 1,
            _ => {}
        }
        // Who breaks off a repair ends its process.
        (self.tell)(line);
    }

    fn rows(&mut self, id: VolumeId) -> Result<(), Failed> {
        let (lines, heard) = channel();
        let (data, dry_run) = (self.data.clone(), self.request.dry_run);
        let thread = std::thread::spawn(move || {
            let shared = data.clone();
            data.store.write_blocking(move |txn| {
                let damaged = txn.note();
                let mut hand = Hand { data: shared, id, lines, damaged, index: None };
                in_transaction(txn, id, dry_run, &mut hand)
            })
        });
        heard.into_iter().for_each(|line| self.say(line));
        let done = thread.join().map_err(|_| StoreError::Poisoned)?;
        done?.map_err(|()| {
            let words = "the row of the volume itself is lost: restore the volume from a backup";
            Failed::new(FailReason::Damaged, words)
        })
    }
}

fn in_transaction(
    txn: &mut Kv<'_>,
    id: VolumeId,
    dry_run: bool,
    hand: &mut Hand,
) -> Result<Result<(), ()>, MetaFault> {
    let done = match dry_run {
        true => rehearse(txn, id, hand),
        false => repair(txn, id, hand),
    };
    match done {
        Ok(()) => Ok(Ok(())),
        Err(Unrepaired::NoVolume) => Ok(Err(())),
        Err(Unrepaired::Fault(fault)) => Err(fault),
    }
}

/// What repairs rows, on the store's thread.
struct Hand {
    data: Arc<Data>,
    id: VolumeId,
    lines: Sender<RepairLine>,
    /// Keys of rows that were passed over.
    damaged: Noted,
    index: Option<Index>,
}

impl Hand {
    fn say(&self, line: RepairLine) {
        // Who listens does so to the end.
        let _ = self.lines.send(line);
    }
}

impl Repairer for Hand {
    fn repaired(&mut self, finding: &Finding, how: &'static str) {
        self.say(RepairLine::Repaired {
            path: finding.path.clone(),
            ino: finding.ino.map(|ino| ino.0),
            what: finding.damage.to_string(),
            how: how.to_owned(),
        });
    }

    fn lost(&mut self, finding: &Finding) {
        self.say(RepairLine::Lost {
            path: finding.path.clone(),
            ino: finding.ino.map(|ino| ino.0),
            what: finding.damage.to_string(),
            remedy: finding.damage.remedy().to_owned(),
        });
    }

    fn damaged(&mut self) -> Unreadable {
        self.damaged.take()
    }

    fn progress(&mut self, counts: &Counts) {
        self.say(RepairLine::Progress { inodes: counts.inodes, chunks: 0 });
    }

    fn find_chunk(&mut self, fingerprint: &Fingerprint) -> Option<ChunkPlace> {
        find(&self.data, self.id, &mut self.index, fingerprint)
    }
}

/// Where a whole copy of a chunk is, as its bytes themselves say.
fn find(
    data: &Data,
    id: VolumeId,
    index: &mut Option<Index>,
    fingerprint: &Fingerprint,
) -> Option<ChunkPlace> {
    if index.is_none() {
        let packs = data.path().join("packs");
        match Index::beside(&packs, Some(id)) {
            Ok(made) => *index = Some(made),
            Err(failed) => {
                tracing::error!("cannot search the packs: {}", failed.words);
                return None;
            }
        }
    }
    let place = index.as_ref()?.find(fingerprint).ok().flatten()?;
    data.packs.read(fingerprint, &place).is_ok().then_some(place)
}
