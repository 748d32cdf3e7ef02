//! Backups of a volume: into a directory, consistent, only what is new, while it is served.
//!
//! ```text
//!   rows    on one snapshot ─▶ snapshots/unfinished, synced
//!   packs   some of those that are there are read again: what rotted is lacking too
//!   chunks  those that the rows name and the directory lacks: packs ─▶ checked ─▶ its packs
//!   name    everything is on the disk: the snapshot gets its name
//!   prune   if that was asked for, the oldest go
//! ```
//!
//! A snapshot keeps the store's log from being written back, so it ends before the first chunk is
//! read. From before it until the end no chunk is collected.
//!
//! Invariant: a snapshot that has its name is whole, and so is every chunk in the directory that
//! was there to be read. Whatever kills a backup leaves the earlier ones as they are; what it had
//! copied is there for the next one.

mod chunks;
mod directory;
mod index;
mod prune;
mod rows;
mod snapshots;
mod verify;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use segue_core::namespace::{find_volume, keys, tally, utc, volume};
use segue_core::nouns::VolumeId;
use segue_core::upkeep::check::Damage;
use segue_core::upkeep::dump;
use serde::{Deserialize, Serialize};

use crate::admin::{FailReason, no_volume_words};
use crate::clock::now;
use crate::collect::Hold;
use crate::data_dir::{Data, DataDir};
use crate::error::ServeError;
use crate::meta::StoreError;
use crate::serve::Server;
use crate::task::{Failed, LIVE_RATE_BYTES, RateLimit, Reporter, times};

use directory::is_same_disk;
pub(crate) use directory::{BackupDir, Restored};
pub(crate) use index::Index;
pub use prune::Pruned;
use rows::Writer;
pub(crate) use rows::{Head, Reader, Row};
pub use snapshots::{DamagedSnapshot, SnapshotInfo, Snapshots, snapshots};

/// What is to be backed up, and where to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// Name of the volume.
    pub volume: String,
    /// The directory of its backups, absolute; made if it is not there.
    pub directory: PathBuf,
    /// Most bytes of chunks to copy in a second, 0 for no limit; by default a gentle rate
    /// while the server serves, and no limit while it is down.
    pub rate_bytes: Option<u64>,
    /// Everything in the directory is read again, not only the share whose turn it is.
    pub verify: bool,
    /// How many snapshots stay, this one among them; by default all.
    pub keep: Option<NonZeroU32>,
}

/// One line of the answer. The last one is `Saved` or `Failed`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum BackupLine {
    /// How far it has come.
    Progress {
        /// Rows written.
        rows: u64,
        /// Bytes of chunks that are in the directory.
        bytes: u64,
        /// Bytes of all chunks; 0 as long as that is not known.
        total_bytes: u64,
    },
    /// Something that cannot be read on the server, and is not in the backup.
    Finding {
        /// Where, if a name leads there.
        path: Option<String>,
        /// The file, if it is about one.
        ino: Option<u64>,
        /// What is wrong.
        what: String,
    },
    /// The snapshot is there.
    Saved {
        /// What to restore it by.
        snapshot: SnapshotInfo,
        /// Rows in it.
        rows: u64,
        /// Chunks that were copied, the others being there already.
        chunks_copied: u64,
        /// Their bytes.
        bytes_copied: u64,
        /// All chunks of the volume.
        chunks: u64,
        /// Their bytes.
        bytes: u64,
        /// Chunks that could not be read, so that the backup lacks them.
        chunks_lost: u64,
        /// Rows that are not what was written: what needs them cannot be read in the backup.
        rows_lost: u64,
        /// Chunks in the directory that were not what was written any more.
        chunks_damaged: u64,
        /// Those of them that were copied again. Snapshots that need the others lack them.
        chunks_mended: u64,
        /// What became of older snapshots, if they were not all to stay.
        pruned: Option<Pruned>,
        /// The directory is on the file system of the server's data: one broken disk loses both.
        is_on_same_disk: bool,
    },
    /// There is no new snapshot.
    Failed {
        /// Why, for programs.
        reason: FailReason,
        /// Why, for people.
        words: String,
    },
}

/// Backs up a volume of a data directory whose server is down; `tell` says whether to go on.
pub fn backup_offline(
    data: &Path,
    request: &BackupRequest,
    tell: &mut dyn FnMut(BackupLine) -> bool,
) -> Result<(), ServeError> {
    let data = Data::open(DataDir::open(data)?)?;
    run(&data, request, request.rate_bytes.unwrap_or(0), &AtomicBool::new(false), tell);
    Ok(())
}

/// Backs up a volume while `server` serves; may take long.
pub(crate) fn backup_live(
    server: &Arc<Server>,
    request: &BackupRequest,
    tell: &mut dyn FnMut(BackupLine) -> bool,
) {
    let mut tell = |line| {
        if let BackupLine::Finding { path, ino, what } = &line {
            tracing::error!(volume = request.volume, path, ino, "backup: {what}");
        }
        tell(line)
    };
    let rate = request.rate_bytes.unwrap_or(LIVE_RATE_BYTES);
    run(&server.data, request, rate, &server.stopping, &mut tell);
}

fn run(
    data: &Data,
    request: &BackupRequest,
    rate_bytes: u64,
    stopping: &AtomicBool,
    tell: &mut dyn FnMut(BackupLine) -> bool,
) {
    let mut reporter = Reporter::new(tell, stopping);
    let done = begin(data, request, &mut reporter)
        .and_then(|mut backup| backup.run(&mut RateLimit::new(rate_bytes)));
    let line = done.unwrap_or_else(|Failed { reason, words }| BackupLine::Failed { reason, words });
    reporter.say(line);
}

fn begin<'a, 'b>(
    data: &'a Data,
    request: &BackupRequest,
    reporter: &'a mut Reporter<'b, BackupLine>,
) -> Result<Backup<'a, 'b>, Failed> {
    let found = data.store.read_blocking(|kv| find_volume(kv, &request.volume))??;
    let Some((id, volume)) = found else {
        return Err(Failed::new(FailReason::NotFound, no_volume_words(&request.volume)));
    };
    directory::refuse_inside(data.directory.path(), &request.directory)?;
    let directory = BackupDir::create(&request.directory, &volume.uuid, &volume.name)?;
    let _hold = data.holds.hold();
    Ok(Backup {
        data,
        id,
        directory,
        verify: request.verify,
        keep: request.keep,
        reporter,
        _hold,
        rows: 0,
        rows_lost: 0,
        chunks: 0,
        bytes: 0,
    })
}

/// One backup.
struct Backup<'a, 'b> {
    data: &'a Data,
    id: VolumeId,
    directory: BackupDir,
    /// All packs are read again.
    verify: bool,
    /// How many snapshots stay.
    keep: Option<NonZeroU32>,
    reporter: &'a mut Reporter<'b, BackupLine>,
    /// So that every chunk of the snapshot is there until it was copied.
    _hold: Hold<'a>,
    /// Rows of the snapshot.
    rows: u64,
    /// Rows that are not what was written.
    rows_lost: u64,
    /// Chunks among all.
    chunks: u64,
    /// Bytes of these in packs.
    bytes: u64,
}

impl Backup<'_, '_> {
    fn run(&mut self, rate: &mut RateLimit) -> Result<BackupLine, Failed> {
        let head = self.write_rows()?;
        let copied = chunks::copy(self, rate)?;
        let name = name(&head);
        self.directory.finish(&name)?;
        times::note(self.data, self.id, |row, now| row.backed_up = Some(now));
        chunks::report(self, &copied.lost)?;
        let pruned = self.prune(&name);
        Ok(BackupLine::Saved {
            snapshot: SnapshotInfo::new(name, &head),
            rows: self.rows,
            chunks_copied: copied.chunks,
            bytes_copied: copied.bytes,
            chunks: self.chunks,
            bytes: self.bytes,
            chunks_lost: copied.lost.len() as u64,
            rows_lost: self.rows_lost,
            chunks_damaged: copied.damaged,
            chunks_mended: copied.mended,
            pruned,
            is_on_same_disk: is_same_disk(self.data.directory.path(), self.directory.path()),
        })
    }

    /// Removes older snapshots than were asked for, now that `last` has its name.
    fn prune(&mut self, last: &str) -> Option<Pruned> {
        let Backup { directory, reporter, rows, bytes, .. } = self;
        let (rows, bytes) = (*rows, *bytes);
        let mut goes_on = || {
            let line = || BackupLine::Progress { rows, bytes, total_bytes: bytes };
            reporter.progress(line).then_some(()).ok_or_else(Failed::stopped)
        };
        Some(prune::prune(directory, (self.keep?, last), &mut goes_on))
    }

    /// Writes all rows of one snapshot, and returns when they are on the disk.
    fn write_rows(&mut self) -> Result<Head, Failed> {
        let (data, id, path) = (self.data, self.id, self.directory.unfinished());
        let snapshot = data.store.read_noting(|kv| -> Result<_, Failed> {
            let volume = volume(kv, id)?.ok_or(StoreError::Damaged("a volume is gone".into()))?;
            let head = Head { volume, tally: tally(kv, id)?, taken: now().secs };
            let mut writer = Writer::create(&path, &head)?;
            dump::dump(kv, id, &mut |key, value| {
                writer.row(key, value)?;
                self.count(key, value)
            })?;
            Ok((head, writer))
        })?;
        let (written, damaged) = snapshot;
        let (head, mut writer) = written?;
        for key in &damaged {
            if keys::is_own(key, id) {
                // It stands in the backup as one that cannot be read: what needs it fails after a
                // restore too, and is no hole.
                writer.row(key, &[])?;
                self.damaged(key, "");
            } else if dump::is_of_client(key) {
                let words = ", and is missing from the backup: it belongs to a host of this or of \
                             another volume; after a restore, unsent changes of that host may be \
                             refused";
                self.damaged(key, words);
            }
        }
        writer.finish()?;
        Ok(head)
    }

    /// Tells of a row that is not what was written, and what becomes of it.
    fn damaged(&mut self, key: &[u8], becomes: &str) {
        self.rows_lost += 1;
        let damage = Damage::Row { key: key.to_vec(), what: "as it was written" };
        let what = format!("{damage}{becomes}");
        self.reporter.say(BackupLine::Finding { path: None, ino: None, what });
    }

    fn count(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        self.rows += 1;
        if let Some((_, row)) = dump::chunk(key, value) {
            self.chunks += 1;
            self.bytes += u64::from(row.place.stored_len);
        }
        self.told()
    }

    /// Tells how far it has come, as long as no chunk is copied.
    fn told(&mut self) -> Result<(), Failed> {
        let rows = self.rows;
        let line = || BackupLine::Progress { rows, bytes: 0, total_bytes: 0 };
        match self.reporter.progress(line) {
            true => Ok(()),
            false => Err(Failed::stopped()),
        }
    }
}

/// TIME-EPOCH-COUNTER: in the order of the time, and never that of another state.
fn name(head: &Head) -> String {
    let Head { volume, tally, taken } = head;
    format!("{}-{}-{}", utc(*taken), volume.epoch, tally.commits)
}
