//! `segue volume backup`: copies the present state of a volume to another directory.

use std::num::NonZeroU32;
use std::path::PathBuf;

use segue_client::quantity;
use segue_server::backup::{
    BackupLine, BackupRequest, Pruned, SnapshotInfo, backup_offline, snapshots,
};

use super::work::{self, Line, Rate};
use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Share;
use crate::{admin, output};

/// Back up a volume to a directory; copy only new data
///
/// The server may be running or stopped. The backup is the state of the volume at one moment. The
/// command compares every chunk with its fingerprint while it copies the chunk. It names each file
/// that cannot be read on the server, and saves all others.
///
/// Each backup also verifies at least an eighth of the data of earlier backups, and copies damaged
/// chunks again. An interrupted backup leaves the earlier ones intact: run it again. Each volume
/// needs a backup directory of its own, best on another disk.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the volume
    name: String,
    /// Directory of its backups; created if it does not exist
    directory: PathBuf,
    /// List the snapshots in the directory; make no backup
    #[arg(long, conflicts_with = "rate")]
    list: bool,
    /// Verify all data of earlier backups, not only an eighth
    #[arg(long, conflicts_with = "list")]
    verify: bool,
    /// Afterwards remove the snapshots older than the newest N, and the data that only they need
    ///
    /// Damaged and incomplete snapshots do not count. The newest N complete snapshots stay, and
    /// every snapshot newer than the oldest of them.
    #[arg(long, value_name = "N", conflicts_with = "list")]
    keep: Option<NonZeroU32>,
    #[command(flatten)]
    rate: Rate,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue volume backup home /mnt/usb/home            now, and each night from cron
  segue volume backup home /mnt/usb/home --keep 30  the same, and keep the newest 30 snapshots
  segue volume backup home /mnt/usb/home --list     list the snapshots
  segue volume restore home /mnt/usb/home           on this server, or on a new one

Exit codes:
  0 everything is saved
  3 no such volume
  7 data damaged on the server are missing from the backup, or chunks of older snapshots are
    damaged and could not be copied again, or --list found a damaged snapshot";

const SAME_DISK: &str = "\
warning: the backups are on the disk of the server's data; if it breaks, both are lost. Keep a \
copy on another disk.\n";

/// Backs up, or lists.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let directory = std::path::absolute(&arguments.directory)
        .map_err(|error| Failure::io(arguments.directory.display(), &error))?;
    if arguments.list {
        let found =
            snapshots(&directory).map_err(|(reason, words)| admin::failed(reason, words))?;
        match arguments.json {
            true => output::print_json(&found)?,
            false => output::print(&table(&found.snapshots))?,
        }
        found.damaged.iter().for_each(|damaged| output::note(&damaged.words));
        return Ok(if found.damaged.is_empty() { Exit::Done } else { Exit::DataAtRisk });
    }
    let data = arguments.server.resolve(context)?;
    let request = BackupRequest {
        volume: arguments.name.clone(),
        directory,
        rate_bytes: arguments.rate.bytes(),
        verify: arguments.verify,
        keep: arguments.keep,
    };
    work::run(&data, ("backup", backup_offline), &request, arguments.json)
}

impl Line for BackupLine {
    fn progress(&self) -> Option<(String, Share)> {
        let BackupLine::Progress { rows, bytes, total_bytes } = self else { return None };
        let words = match total_bytes {
            0 => format!("{rows} rows of metadata saved"),
            total => {
                let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                format!("{done} of {all} saved")
            }
        };
        Some((words, Share { done: *bytes, whole: *total_bytes }))
    }

    fn words(&self) -> Option<String> {
        describe(self)
    }

    fn outcome(self) -> Option<Outcome> {
        match self {
            BackupLine::Progress { .. } | BackupLine::Finding { .. } => None,
            BackupLine::Saved { pruned: Some(Pruned { failed: Some(words), .. }), .. } => {
                let words = format!(
                    "the snapshot is saved, but older snapshots could not be removed: {words}"
                );
                Some(Err(Failure::failed(words)))
            }
            BackupLine::Saved {
                chunks_lost: 0,
                rows_lost: 0,
                chunks_damaged,
                chunks_mended,
                ..
            } if chunks_damaged == chunks_mended => Some(Ok(Exit::Done)),
            BackupLine::Saved { .. } => Some(Ok(Exit::DataAtRisk)),
            BackupLine::Failed { reason, words } => Some(Err(admin::failed(reason, words))),
        }
    }
}

/// The text of a line for the user.
fn describe(line: &BackupLine) -> Option<String> {
    Some(match line {
        BackupLine::Finding { path, ino, what } => {
            let what = output::printable(what, &[]);
            format!("{}{what}\n", output::place(path.as_deref(), *ino))
        }
        BackupLine::Saved {
            snapshot,
            chunks_copied,
            bytes_copied,
            chunks_lost,
            rows_lost,
            chunks_damaged,
            chunks_mended,
            pruned,
            is_on_same_disk,
            ..
        } => {
            let chunks = quantity::count(*chunks_lost, "chunk");
            let rows = quantity::count(*rows_lost, "row");
            let lost = match (chunks_lost, rows_lost) {
                (0, 0) => String::new(),
                _ => format!(", WITHOUT {chunks} and {rows} that cannot be read"),
            };
            format!(
                "{}: snapshot {} with {} of {}; {} ({}) copied{lost}\n",
                snapshot.volume,
                snapshot.name,
                quantity::count(snapshot.inodes, "inode"),
                quantity::bytes(snapshot.allocated_bytes),
                quantity::count(*chunks_copied, "chunk"),
                quantity::bytes(*bytes_copied),
            ) + &rotten(*chunks_damaged, *chunks_mended)
                + &removed(pruned.as_ref())
                + if *is_on_same_disk { SAME_DISK } else { "" }
        }
        BackupLine::Progress { .. } | BackupLine::Failed { .. } => return None,
    })
}

/// The text about damaged chunks in the backup directory.
fn rotten(damaged: u64, mended: u64) -> String {
    let chunks = quantity::count(damaged, "chunk");
    match damaged - mended.min(damaged) {
        _ if damaged == 0 => String::new(),
        0 => {
            format!("{chunks} of the backup were damaged and copied again; check its disk\n")
        }
        lost => format!(
            "{chunks} of the backup were damaged, and {lost} could not be copied again: older \
             snapshots lack them; check its disk\n"
        ),
    }
}

/// The text about removed snapshots.
fn removed(pruned: Option<&Pruned>) -> String {
    match pruned {
        Some(Pruned { snapshots: gone @ 1.., bytes, .. }) => format!(
            "{} removed, {} freed\n",
            quantity::count(*gone, "older snapshot"),
            quantity::bytes(*bytes)
        ),
        _ => String::new(),
    }
}

fn table(snapshots: &[SnapshotInfo]) -> String {
    let row = |snapshot: &SnapshotInfo| {
        let size = quantity::bytes(snapshot.allocated_bytes);
        let (name, volume) = (snapshot.name.clone(), snapshot.volume.clone());
        vec![name, volume, snapshot.inodes.to_string(), size]
    };
    let rows: Vec<Vec<String>> = snapshots.iter().map(row).collect();
    output::table(&["SNAPSHOT", "VOLUME", "FILES", "SIZE"], &rows)
}
