//! `segue volume restore`: a volume as it was, from a directory of backups.

use std::path::PathBuf;

use segue_server::restore::{RestoreLine, RestoreRequest, restore_offline};

use super::work::{self, Line, Rate};
use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::{admin, quantity};

/// Restore a volume from a directory of backups
///
/// On the server it came from, or on another, while it serves or while it is down. The backup is verified first, every chunk is checked when it is copied, and nothing changes for anybody before all of it is there. Hosts that had the volume mounted know it again. What they changed after the backup is not in it: what they still have of that becomes conflict copies, and no file is overwritten with an older one in silence.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name that the volume gets
    name: String,
    /// The directory of its backups
    directory: PathBuf,
    /// Which snapshot [default: the last one]
    #[arg(long)]
    snapshot: Option<String>,
    /// Remove the volume of that name, with everything in it; its hosts keep their access
    #[arg(long)]
    replace: bool,
    /// Restore although the backup lacks some bytes: reading these fails
    #[arg(long)]
    partial: bool,
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
  segue volume backup home /mnt/usb/home --list     what can be restored
  segue volume restore home /mnt/usb/home           on a new server: its empty 'home' makes room
  segue volume restore home /mnt/usb/home --replace back to the last backup
  segue volume restore old /mnt/usb/home --snapshot 20261121-083959-1-345
  segue invite                                      on a new server: let the hosts in again

Exit codes: 0 restored, 7 the backup is damaged, or --partial left something out, 3 no such
snapshot";

/// Restores.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let directory = std::path::absolute(&arguments.directory)
        .map_err(|error| Failure::io(arguments.directory.display(), &error))?;
    let data = arguments.server.resolve(context);
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
    fn progress(&self) -> Option<String> {
        let RestoreLine::Progress { bytes, total_bytes } = self else { return None };
        Some(match total_bytes {
            0 => "the backup is verified".to_owned(),
            total => {
                let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                format!("{done} of {all} restored")
            }
        })
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

/// What a person reads.
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
            "{volume}: WITHOUT {lost} that the backup lacks; which files: segue volume check \
             {volume}\n"
        );
    }
    if *is_copy {
        text += &format!("{volume}: the volume itself is here too, so this one is a copy of it\n");
    }
    if *identities == 0 {
        text += &format!("{volume}: no host may use it yet: segue invite --volume {volume}\n");
    }
    if !is_noted {
        text += &format!(
            "{volume}: the backup's directory cannot be written; make the next backup before you \
             restore from there again\n"
        );
    }
    Some(text)
}
