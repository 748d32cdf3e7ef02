//! `segue volume repair`: what can be rebuilt is, and the rest is listed.

use segue_server::repair::{RepairLine, RepairRequest, repair_offline};

use super::work::{Line, Report};
use super::{Context, ServerData};
use crate::exit::{Exit, Outcome};
use crate::{admin, output, quantity};

/// Repair a damaged volume, as far as it can be rebuilt
///
/// The server has to be stopped. Rebuilt are counts, places of chunks (they are looked for in all packs), names that lead nowhere (they go) and files without a name (they are put into /.segue-found, each under its number). What cannot be rebuilt is listed and stays: reading lost bytes fails, never with wrong bytes or zeros. Keep a copy of the data directory before you repair, or look first with --dry-run. Restoring a backup is better where there is one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The volume
    name: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Leave out the bytes of chunks: names, references and counts only
    #[arg(long)]
    quick: bool,
    /// Answer in JSON, one line for each thing that was wrong
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue serve --stop
  segue volume repair home --dry-run   what is wrong, and what can be done
  segue volume repair home
  segue volume check home              what is left, with remedies

Exit codes: 0 nothing is lost, 7 something cannot be rebuilt, 1 the server runs, 3 no such volume";

/// Repairs, and prints what was wrong as it comes.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context);
    let request = RepairRequest {
        volume: arguments.name.clone(),
        dry_run: arguments.dry_run,
        quick: arguments.quick,
    };
    let mut report = Report::new(arguments.json);
    admin::offline(&data, repair_offline, &request, |line| report.line(line))?;
    report.end(|| "the repair broke off".to_owned())
}

impl Line for RepairLine {
    fn progress(&self) -> Option<String> {
        let RepairLine::Progress { inodes, chunks } = self else { return None };
        Some(match chunks {
            0 => quantity::count(*inodes, "inode"),
            chunks => quantity::count(*chunks, "chunk"),
        })
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

/// A line for a person to read.
fn describe(line: &RepairLine) -> Option<String> {
    Some(match line {
        RepairLine::Repaired { path, ino, what, how } => {
            format!("{}{what}: {how}\n", output::place(path.as_deref(), *ino))
        }
        RepairLine::Lost { path, ino, what, remedy } => {
            format!("LOST: {}{what}; {remedy}\n", output::place(path.as_deref(), *ino))
        }
        RepairLine::Finished { volume, dry_run, repaired, lost } => {
            let (can, done) = match dry_run {
                true => ("can be", "nothing was changed"),
                false => ("was", "repaired"),
            };
            match (repaired, lost) {
                (0, 0) => format!("{volume}: nothing is wrong\n"),
                (repaired, 0) => format!("{volume}: {done}; {repaired} {can} put right\n"),
                (repaired, lost) => {
                    format!("{volume}: {done}; {repaired} {can} put right, {lost} cannot be\n")
                }
            }
        }
        RepairLine::Progress { .. } | RepairLine::Failed { .. } => return None,
    })
}
