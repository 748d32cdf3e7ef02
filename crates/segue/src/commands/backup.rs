//! `segue volume backup`: a volume as it is now, in another directory.

use std::num::NonZeroU32;
use std::path::PathBuf;

use segue_server::backup::{
    BackupLine, BackupRequest, Pruned, SnapshotInfo, backup_offline, snapshots,
};

use super::work::{self, Line, Rate};
use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::{admin, output, quantity};

/// Back a volume up into a directory, only what is new there
///
/// Works on a server that serves, beside its work, and on one that is down. The backup is the volume at one moment. Every chunk is checked against its fingerprint when it is copied; a file that cannot be read on the server is named, and all the rest is saved. Each backup also reads an eighth of what earlier ones copied, and copies again what rotted there. A backup that is broken off leaves the earlier ones whole: run it again. Each volume has a directory of its own, best on another disk.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The volume
    name: String,
    /// The directory of its backups; made if it is not there
    directory: PathBuf,
    /// List the snapshots in the directory, and make none
    #[arg(long, conflicts_with = "rate")]
    list: bool,
    /// Read all that earlier backups copied, not only the eighth whose turn it is
    #[arg(long, conflicts_with = "list")]
    verify: bool,
    /// Then remove snapshots that are older than the newest N, and what only they need
    ///
    /// Those that are damaged or lack something do not count: the N newest that are complete stay, and all that are newer than the oldest of these.
    #[arg(long, value_name = "N", conflicts_with = "list")]
    keep: Option<NonZeroU32>,
    #[command(flatten)]
    rate: Rate,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue volume backup home /mnt/usb/home         now, and every night from cron: copies what is new
  segue volume backup home /mnt/usb/home --keep 30  and keep a month of them
  segue volume backup home /mnt/usb/home --list  what can be restored
  segue volume restore home /mnt/usb/home        on this server, or on a new one

Exit codes: 0 all is saved, 7 all is saved but what is damaged on the server, or older snapshots
lack what rotted in the directory, or --list finds a damaged one, 3 no such volume";

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
    let data = arguments.server.resolve(context);
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
    fn progress(&self) -> Option<String> {
        let BackupLine::Progress { rows, bytes, total_bytes } = self else { return None };
        Some(match total_bytes {
            0 => format!("{rows} rows"),
            total => {
                let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                format!("{done} of {all} saved")
            }
        })
    }

    fn words(&self) -> Option<String> {
        describe(self)
    }

    fn outcome(self) -> Option<Outcome> {
        match self {
            BackupLine::Progress { .. } | BackupLine::Finding { .. } => None,
            BackupLine::Saved { pruned: Some(Pruned { failed: Some(words), .. }), .. } => {
                let words = format!("older snapshots could not be removed: {words}");
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

/// A line for a person to read.
fn describe(line: &BackupLine) -> Option<String> {
    Some(match line {
        BackupLine::Finding { path, ino, what } => {
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
        }
        BackupLine::Progress { .. } | BackupLine::Failed { .. } => return None,
    })
}

/// What is said of chunks that rotted in the directory.
fn rotten(damaged: u64, mended: u64) -> String {
    let chunks = quantity::count(damaged, "chunk");
    match damaged - mended.min(damaged) {
        _ if damaged == 0 => String::new(),
        0 => {
            format!("{chunks} of the backup had rotted and were copied again: is its disk well?\n")
        }
        lost => format!(
            "{chunks} of the backup had rotted, and older snapshots that need {lost} of them lack \
             them: is its disk well?\n"
        ),
    }
}

/// What is said of snapshots that went.
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
