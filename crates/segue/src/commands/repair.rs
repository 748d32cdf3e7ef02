//! `segue volume repair`: rebuilds damaged metadata of a volume, and lists the losses.

use segue_client::quantity;
use segue_server::repair::{RepairLine, RepairRequest, repair_offline};

use super::work::{Line, Report};
use super::{Context, ServerData};
use crate::exit::{Exit, Outcome};
use crate::output::Share;
use crate::{admin, output};

/// Repair a damaged volume as far as possible
///
/// The server must be stopped. The command rebuilds counts and the places of chunks, and searches
/// all packs for missing chunks. It removes names that lead to no inode. It moves files without a
/// name to /.segue-found, each under its inode number. It lists the losses that it cannot repair: a
/// read of lost bytes fails and never returns wrong bytes or zeros.
///
/// Copy the data directory before a repair, or try --dry-run first. If there is a backup, a restore
/// is better than a repair.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the volume
    name: String,
    /// Show the repairs, change nothing
    #[arg(long)]
    dry_run: bool,
    /// Repair names, references and counts only; read no chunks
    #[arg(long)]
    quick: bool,
    /// Print JSON: one line for each fault
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue serve --stop
  segue volume repair home --dry-run   list the faults and their repairs
  segue volume repair home
  segue volume check home              list the remaining faults, with remedies

Exit codes: 0 nothing is lost, 1 the server runs, 3 no such volume, 7 something cannot be repaired";

/// Repairs, and prints each fault as it is found.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context)?;
    let request = RepairRequest {
        volume: arguments.name.clone(),
        dry_run: arguments.dry_run,
        quick: arguments.quick,
    };
    let mut report = Report::new(arguments.json);
    admin::offline(&data, repair_offline, &request, |line| report.line(line))?;
    report.end(|| format!("the repair of {} ended early: run it again", arguments.name))
}

impl Line for RepairLine {
    fn progress(&self) -> Option<(String, Share)> {
        let RepairLine::Progress { inodes, chunks } = self else { return None };
        let words = match chunks {
            0 => format!("{} examined", quantity::count(*inodes, "inode")),
            chunks => format!("{} examined", quantity::count(*chunks, "chunk")),
        };
        Some((words, Share::default()))
    }

    fn words(&self) -> Option<String> {
        describe(self)
    }

    fn outcome(self) -> Option<Outcome> {
        match self {
            RepairLine::Finished { lost: 0, .. } => Some(Ok(Exit::Done)),
            RepairLine::Finished { .. } => Some(Ok(Exit::DataAtRisk)),
            RepairLine::Failed { reason, words } => Some(Err(admin::failed(reason, words))),
            _ => None,
        }
    }
}

/// The text of a line for the user.
fn describe(line: &RepairLine) -> Option<String> {
    Some(match line {
        RepairLine::Repaired { path, ino, what, how } => {
            let what = output::printable(what, &[]);
            format!("{}{what}: {how}\n", output::place(path.as_deref(), *ino))
        }
        RepairLine::Lost { path, ino, what, remedy } => {
            let what = output::printable(what, &[]);
            format!("LOST: {}{what}; {remedy}\n", output::place(path.as_deref(), *ino))
        }
        RepairLine::Finished { volume, dry_run, repaired, lost } => {
            let faults = quantity::count(*repaired, "fault");
            let done = match dry_run {
                true => format!("nothing was changed; {faults} can be repaired"),
                false => format!("{faults} repaired"),
            };
            match (repaired, lost) {
                (0, 0) => format!("{volume}: no faults\n"),
                (_, 0) => format!("{volume}: {done}\n"),
                (_, lost) => format!("{volume}: {done}, {lost} cannot be repaired\n"),
            }
        }
        RepairLine::Progress { .. } | RepairLine::Failed { .. } => return None,
    })
}
