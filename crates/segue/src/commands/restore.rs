//! `segue volume restore`: restores a volume from a directory of backups.

use std::path::PathBuf;

use segue_client::quantity;
use segue_server::restore::{RestoreLine, RestoreRequest, restore_offline};

use super::work::{self, Line, Rate};
use super::{Context, ServerData};
use crate::admin;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Share;

/// Restore a volume from a directory of backups
///
/// The target is the server that made the backup or another one, running or stopped. The command
/// verifies the backup first, and checks every chunk while it copies the chunk. Hosts see no change
/// before the restore is complete.
///
/// Hosts that had the volume mounted can use it again. The backup lacks their later changes: those
/// that a host still has become conflict copies. No host silently overwrites its file with an older
/// one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the restored volume
    name: String,
    /// Directory of the backups
    directory: PathBuf,
    /// Name of the snapshot, as listed by 'segue volume backup --list' [default: the last one]
    #[arg(long)]
    snapshot: Option<String>,
    /// Replace the existing volume of that name with all its data; its hosts keep their access
    #[arg(long)]
    replace: bool,
    /// Restore also if the backup lacks some bytes; reads of these bytes fail
    #[arg(long)]
    partial: bool,
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
  segue volume backup home /mnt/usb/home --list      list the snapshots
  segue volume restore home /mnt/usb/home            on a new server: replaces its empty 'home'
  segue volume restore home /mnt/usb/home --replace  go back to the last backup
  segue volume restore old /mnt/usb/home --snapshot 20261121-083959-1-345
  segue invite                                       on a new server: enrol the hosts again

Exit codes:
  0 restored
  3 no such snapshot
  7 the backup is damaged, or --partial restored the volume without some bytes";

/// Restores the volume.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let directory = std::path::absolute(&arguments.directory)
        .map_err(|error| Failure::io(arguments.directory.display(), &error))?;
    let data = arguments.server.resolve(context)?;
    let request = RestoreRequest {
        volume: arguments.name.clone(),
        directory,
        snapshot: arguments.snapshot.clone(),
        replace: arguments.replace,
        partial: arguments.partial,
        rate_bytes: arguments.rate.bytes(),
    };
    work::run(&data, ("restore", restore_offline), &request, arguments.json)
}

impl Line for RestoreLine {
    fn progress(&self) -> Option<(String, Share)> {
        let RestoreLine::Progress { bytes, total_bytes } = self else { return None };
        let words = match total_bytes {
            0 => "the backup is verified".to_owned(),
            total => {
                let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                format!("{done} of {all} restored")
            }
        };
        Some((words, Share { done: *bytes, whole: *total_bytes }))
    }

    fn words(&self) -> Option<String> {
        describe(self)
    }

    fn outcome(self) -> Option<Outcome> {
        match self {
            RestoreLine::Progress { .. } => None,
            RestoreLine::Done { chunks_lost: 0, .. } => Some(Ok(Exit::Done)),
            RestoreLine::Done { .. } => Some(Ok(Exit::DataAtRisk)),
            RestoreLine::Failed { reason, words } => Some(Err(admin::failed(reason, words))),
        }
    }
}

/// The text of a line for the user.
fn describe(line: &RestoreLine) -> Option<String> {
    let RestoreLine::Done {
        volume,
        is_copy,
        snapshot,
        inodes,
        allocated_bytes,
        identities,
        chunks_lost,
        is_noted,
        ..
    } = line
    else {
        return None;
    };
    let (inodes, bytes) = (quantity::count(*inodes, "inode"), quantity::bytes(*allocated_bytes));
    let mut text = format!("{volume}: restored from snapshot {snapshot}, {inodes} with {bytes}\n");
    if *chunks_lost > 0 {
        let lost = quantity::count(*chunks_lost, "chunk");
        text += &format!(
            "{volume}: WITHOUT {lost} that the backup lacks; to list the files: segue volume check \
             {volume}\n"
        );
    }
    if *is_copy {
        text += &format!("{volume}: a copy, because the original volume is on this server too\n");
    }
    if *identities == 0 {
        text += &format!(
            "{volume}: no host has access yet; invite one: segue invite --volume {volume}\n"
        );
    }
    if !is_noted {
        text += &format!(
            "{volume}: the restore could not be noted in the backup directory, which cannot be \
             written; make a backup before the next restore from there\n"
        );
    }
    Some(text)
}
