//! The snapshots in a directory of backups.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{BackupDir, Head, Reader};
use crate::admin::FailReason;
use crate::random::hex;
use crate::task::Failed;

/// What is in a directory of backups, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshots {
    /// Those that can be restored, as far as their beginning says.
    pub snapshots: Vec<SnapshotInfo>,
    /// Those that cannot.
    pub damaged: Vec<DamagedSnapshot>,
}

/// A snapshot that cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DamagedSnapshot {
    /// Its name.
    pub name: String,
    /// Why, for people.
    pub words: String,
}

/// A snapshot in a directory of backups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Its name: TIME-EPOCH-COUNTER.
    pub name: String,
    /// Name of the volume.
    pub volume: String,
    /// Identity of the volume, hex.
    pub uuid: String,
    /// When it was taken, in seconds since 1970.
    pub taken: i64,
    /// Inodes in it.
    pub inodes: u64,
    /// Bytes of all its files that are not holes.
    pub allocated_bytes: u64,
}

impl SnapshotInfo {
    pub(super) fn new(name: String, head: &Head) -> SnapshotInfo {
        SnapshotInfo {
            name,
            volume: head.volume.name.clone(),
            uuid: hex(&head.volume.uuid),
            taken: head.taken,
            inodes: head.tally.inodes,
            allocated_bytes: head.tally.allocated,
        }
    }
}

/// The snapshots in `directory`, or why there are none, for programs and for people.
pub fn snapshots(directory: &Path) -> Result<Snapshots, (FailReason, String)> {
    let read = || -> Result<Snapshots, Failed> {
        let directory = BackupDir::open(directory)?;
        let mut found = Snapshots { snapshots: Vec::new(), damaged: Vec::new() };
        for name in directory.snapshots()? {
            match Reader::open(&directory.snapshot(&name)) {
                Ok(reader) => found.snapshots.push(SnapshotInfo::new(name, &reader.head)),
                Err(Failed { words, .. }) => found.damaged.push(DamagedSnapshot { name, words }),
            }
        }
        Ok(found)
    };
    read().map_err(|Failed { reason, words }| (reason, words))
}
