//! Restoring a volume from a directory of backups, also while the server serves.
//!
//! ```text
//!   verify  the snapshot is whole to its end, and every chunk that it names is there
//!   put     rows and chunks, each chunk checked, under a number that nobody knows
//!   swap    one transaction: the volume has its name, the one it replaces is removed
//! ```
//!
//! Until the swap nothing has changed for anybody. Whatever ends a restore before it leaves
//! rows and chunks of a volume that counts as removed, for collection.

mod put;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use segue_core::namespace::{VolumeError, VolumeRow, find_volume, is_unused};
use segue_core::nouns::VolumeId;
use segue_core::upkeep::dump;
use segue_core::upkeep::restore::{self, Entry, Restore};
use segue_rpc::CloseCode;
use serde::{Deserialize, Serialize};

use crate::admin::FailReason;
use crate::backup::{BackupDir, Head, Index, Reader, Restored, Row};
use crate::data_dir::{Data, DataDir};
use crate::error::ServeError;
use crate::meta::StoreError;
use crate::principals;
use crate::random::{hex, random};
use crate::serve::Server;
use crate::task::{Failed, LIVE_RATE_BYTES, RateLimit, Reporter};

/// What is to be restored, and as what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// Name that the volume gets.
    pub volume: String,
    /// The directory of its backups, absolute.
    pub directory: PathBuf,
    /// Name of the snapshot; by default the last one.
    pub snapshot: Option<String>,
    /// A volume of that name that is in use goes.
    pub replace: bool,
    /// Bytes that the backup lacks may be lost.
    pub partial: bool,
    /// Most bytes of chunks to copy in a second, 0 for no limit; by default a gentle rate
    /// while the server serves, and no limit while it is down.
    pub rate_bytes: Option<u64>,
}

/// One line of the answer. The last one is `Done` or `Failed`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum RestoreLine {
    /// How far it has come.
    Progress {
        /// Bytes of chunks that are here.
        bytes: u64,
        /// Bytes of all chunks; 0 while the backup is verified.
        total_bytes: u64,
    },
    /// The volume is there.
    Done {
        /// Its name.
        volume: String,
        /// Its identity, hex.
        uuid: String,
        /// The volume has another identity than the one that was backed up, which is here too.
        is_copy: bool,
        /// Its epoch.
        epoch: u32,
        /// The snapshot.
        snapshot: String,
        /// Inodes in it.
        inodes: u64,
        /// Bytes of all its files that are not holes.
        allocated_bytes: u64,
        /// Hosts that may use it.
        identities: u64,
        /// Chunks that the backup lacks, or that cannot be read there.
        chunks_lost: u64,
        /// The next restore from there would not know of this one.
        is_noted: bool,
    },
    /// Nothing has changed.
    Failed {
        /// Why, for programs.
        reason: FailReason,
        /// Why, for people.
        words: String,
    },
}

/// Restores into a data directory whose server is down; `tell` says whether to go on.
pub fn restore_offline(
    data: &Path,
    request: &RestoreRequest,
    tell: &mut dyn FnMut(RestoreLine) -> bool,
) -> Result<(), ServeError> {
    let data = Data::open(DataDir::create(data)?)?;
    let stopping = AtomicBool::new(false);
    let work = Work { data: &data, request, reporter: Reporter::new(tell, &stopping) };
    work.run(request.rate_bytes.unwrap_or(0));
    Ok(())
}

/// What a host hears whose volume is another one now.
const RESTORED: &str = "the volume was restored from a backup on the server";

/// Restores while `server` serves; may take long.
pub(crate) fn restore_live(
    server: &Arc<Server>,
    request: &RestoreRequest,
    tell: &mut dyn FnMut(RestoreLine) -> bool,
) {
    let reporter = Reporter::new(tell, &server.stopping);
    let work = Work { data: &server.data, request, reporter };
    for fingerprint in work.run(request.rate_bytes.unwrap_or(LIVE_RATE_BYTES)) {
        // They are back at once, and ask for what they know anew.
        server.sessions.expel(&fingerprint, CloseCode::Stopping, RESTORED);
    }
}

/// A restore under way.
struct Work<'a> {
    data: &'a Data,
    request: &'a RestoreRequest,
    reporter: Reporter<'a, RestoreLine>,
}

/// A snapshot that was verified.
struct Source {
    directory: BackupDir,
    snapshot: String,
    index: Index,
    head: Head,
    /// Bytes of all chunks, in packs.
    bytes: u64,
    /// Chunks that the backup lacks.
    lost: u64,
}

impl Work<'_> {
    /// Returns the identities that the volume has now.
    fn run(mut self, rate_bytes: u64) -> Vec<String> {
        match self.restore(&mut RateLimit::new(rate_bytes)) {
            Ok((line, identities)) => {
                self.reporter.say(line);
                identities
            }
            Err(Failed { reason, words }) => {
                self.reporter.say(RestoreLine::Failed { reason, words });
                Vec::new()
            }
        }
    }

    fn restore(&mut self, rate: &mut RateLimit) -> Result<(RestoreLine, Vec<String>), Failed> {
        let directory = BackupDir::open(&self.request.directory)?;
        let snapshot = self.chosen(&directory)?;
        let replaces = self.replaced()?;
        let source = self.verify(directory, snapshot)?;
        let beyond = self.beyond(&source)?;
        // Until the swap the volume counts as removed: nothing of it may be collected.
        let _hold = self.data.holds.hold();
        let Head { volume, tally, .. } = source.head.clone();
        let start =
            crate::data_dir::start().map_err(|error| StoreError::Read(error.to_string()))?;
        let begin = move |txn: &mut crate::meta::Kv<'_>| {
            restore::begin(txn, &volume, &tally, beyond, start)
        };
        let restoring = self.data.store.write_blocking(begin)?;
        let put::Rest { clients, lost } = put::all(self, rate, &source, &restoring)?;
        let (epoch, next_ino) = (restoring.row.epoch, restoring.row.next_ino);
        let noted = source.directory.note_restored(&Restored { epoch, next_ino });
        let uuid = restoring.row.uuid;
        let (row, identities) = self.swap(restoring, replaces, clients)?;
        let line = RestoreLine::Done {
            is_copy: row.uuid != uuid,
            volume: row.name,
            uuid: hex(&row.uuid),
            epoch,
            snapshot: source.snapshot,
            inodes: source.head.tally.inodes,
            allocated_bytes: source.head.tally.allocated,
            identities: identities.len() as u64,
            chunks_lost: source.lost + lost,
            is_noted: noted.is_ok(),
        };
        Ok((line, identities))
    }

    fn chosen(&self, directory: &BackupDir) -> Result<String, Failed> {
        let snapshots = directory.snapshots()?;
        let path = self.request.directory.display();
        let found = match &self.request.snapshot {
            Some(name) => snapshots.into_iter().find(|snapshot| snapshot == name),
            None => snapshots.into_iter().last(),
        };
        found.ok_or_else(|| {
            let name = &self.request.volume;
            let words = match &self.request.snapshot {
                Some(wanted) => format!(
                    "{path} has no snapshot '{wanted}'; see: \
                     segue volume backup {name} {path} --list"
                ),
                None => format!("{path} has no snapshot: no backup to it was completed"),
            };
            Failed::new(FailReason::NotFound, words)
        })
    }

    /// The volume that has the name, if there is one and it may go.
    fn replaced(&self) -> Result<Option<VolumeId>, Failed> {
        let (name, replace) = (&self.request.volume, self.request.replace);
        self.data.store.read_blocking(|kv| match find_volume(kv, name)? {
            Some((id, _)) if replace || is_unused(kv, id)? => Ok(Some(id)),
            Some(_) => Err(in_use(name)),
            None => Ok(None),
        })?
    }

    /// Reads the snapshot to its end, and looks all its chunks up.
    fn verify(&mut self, directory: BackupDir, snapshot: String) -> Result<Source, Failed> {
        let index = Index::reading(&directory)?;
        let mut reader = Reader::open(&directory.snapshot(&snapshot))?;
        let (mut bytes, mut lost) = (0, 0);
        while let Some((key, value)) = reader.next()? {
            if let Some((fingerprint, row)) = dump::chunk(&key, &value) {
                bytes += u64::from(row.place.stored_len);
                lost += u64::from(index.find(&fingerprint)?.is_none());
            }
            self.progress(0, 0)?;
        }
        if lost > 0 && !self.request.partial {
            let words = format!(
                "snapshot {snapshot} needs {lost} chunks that the backup lacks: the server could \
                 not read them during the backup, or packs of the backup are missing; choose \
                 another snapshot, or restore without these bytes: --partial"
            );
            return Err(Failed::new(FailReason::Damaged, words));
        }
        Ok(Source { directory, snapshot, index, head: reader.head, bytes, lost })
    }

    fn progress(&mut self, bytes: u64, total_bytes: u64) -> Result<(), Failed> {
        match self.reporter.progress(|| RestoreLine::Progress { bytes, total_bytes }) {
            true => Ok(()),
            false => Err(Failed::stopped()),
        }
    }

    /// The epochs and inode numbers of the volume that were given after any of its snapshots, as
    /// far as that is known.
    fn beyond(&self, source: &Source) -> Result<(u32, u64), Failed> {
        let noted = source.directory.restored()?;
        let name = &self.request.volume;
        let here = self.data.store.read_blocking(|kv| find_volume(kv, name))??;
        let here = here.map(|(_, row)| row).filter(|row| row.uuid == source.head.volume.uuid);
        let (epoch, next_ino) = here.map_or((0, 0), |row| (row.epoch, row.next_ino));
        Ok((noted.epoch.max(epoch), noted.next_ino.max(next_ino)))
    }

    fn swap(
        &self,
        restoring: Restore,
        replaces: Option<VolumeId>,
        clients: Vec<Row>,
    ) -> Result<(VolumeRow, Vec<String>), Failed> {
        let other_uuid = random().map_err(|error| Failed::io(Path::new("/dev/urandom"), &error))?;
        let name = self.request.volume.clone();
        let replace = self.request.replace;
        let entry = Entry { name: name.clone(), other_uuid, replaces };
        let done = self.data.store.write_blocking(move |txn| {
            if let Some(old) = replaces
                && !replace
                && !is_unused(txn, old)?
            {
                return Ok(Err(VolumeError::Exists));
            }
            let row = match restore::finish(txn, &restoring, &entry, &clients)? {
                Ok(row) => row,
                Err(error) => return Ok(Err(error)),
            };
            let identities = match replaces {
                Some(old) => principals::hand_over(txn, old, restoring.volume)?,
                None => Vec::new(),
            };
            Ok(Ok((row, identities)))
        })?;
        done.map_err(|error| match error {
            VolumeError::Exists => in_use(&name),
            VolumeError::BadName => Failed::new(FailReason::Invalid, error.to_string()),
        })
    }
}

fn in_use(name: &str) -> Failed {
    let words = format!(
        "volume '{name}' exists and was used; restore under another name, or replace the volume \
         and lose its data: --replace"
    );
    Failed::new(FailReason::Exists, words)
}
