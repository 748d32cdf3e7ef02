//! `segue volume check`: verifies the metadata and the chunks of volumes.

use segue_client::quantity;
use segue_server::check::{CheckLine, CheckRequest, check_offline};

use super::work::{self, Line, Rate};
use super::{Context, ServerData};
use crate::exit::{Exit, Outcome};
use crate::output::Share;
use crate::{admin, output};

/// Check a volume: every name, reference, count and byte
///
/// The server may be running or stopped. The command changes nothing. It first checks the metadata
/// on one snapshot, then reads every chunk from its pack and compares it with its fingerprint. Each
/// finding names a path, and the end of the report has the remedies.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the volume [default: all volumes of the server]
    name: Option<String>,
    /// Check names, references and counts only; read no chunks
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rate: Rate,
    /// Print JSON: one line for each finding and one for each volume
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue volume check                 all volumes, at the default rate
  segue volume check home --quick    metadata only: seconds instead of hours
  segue volume check home --rate 200M && echo clean

Exit codes: 0 no findings, 3 no such volume, 7 damage found";

/// Checks, and prints each finding as it arrives.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context)?;
    let request = CheckRequest {
        volume: arguments.name.clone(),
        quick: arguments.quick,
        rate_bytes: arguments.rate.bytes(),
    };
    work::run(&data, ("check", check_offline), &request, arguments.json)
}

impl Line for CheckLine {
    fn progress(&self) -> Option<(String, Share)> {
        let CheckLine::Progress { volume, inodes, bytes, total_bytes } = self else { return None };
        let words = match total_bytes {
            0 => format!("{volume}: {inodes} files and directories checked"),
            total => {
                let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                format!("{volume}: {done} of {all} checked")
            }
        };
        Some((words, Share { done: *bytes, whole: *total_bytes }))
    }

    fn words(&self) -> Option<String> {
        describe(self)
    }

    fn remedy(&self) -> Option<&str> {
        let CheckLine::Finding { remedy, .. } = self else { return None };
        Some(remedy)
    }

    fn outcome(self) -> Option<Outcome> {
        match self {
            CheckLine::Finished => Some(Ok(Exit::Done)),
            CheckLine::Failed { reason, words } => Some(Err(admin::failed(reason, words))),
            _ => None,
        }
    }
}

/// The text of a line for the user.
fn describe(line: &CheckLine) -> Option<String> {
    match line {
        CheckLine::Finding { volume, path, ino, what, .. } => {
            let place = output::place(path.as_deref(), *ino);
            Some(format!("{volume}: {place}{}\n", output::printable(what, &[])))
        }
        CheckLine::Checked { volume, ok, findings, inodes, names, chunks, bytes_read } => {
            let words = match ok {
                true => "clean".to_owned(),
                false => format!("DAMAGED, {}", quantity::count(*findings, "finding")),
            };
            Some(format!(
                "{volume}: {words}; {} with {}, {} ({}) read\n",
                quantity::count(*inodes, "inode"),
                quantity::count(*names, "name"),
                quantity::count(*chunks, "chunk"),
                quantity::bytes(*bytes_read),
            ))
        }
        CheckLine::Progress { .. } | CheckLine::Finished | CheckLine::Failed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::Report;
    use super::*;

    fn end(lines: impl IntoIterator<Item = CheckLine>) -> Outcome {
        let mut report = Report::new(true);
        lines.into_iter().for_each(|line| report.line(line));
        report.end(|| "broken off".to_owned())
    }

    fn checked() -> CheckLine {
        CheckLine::Checked {
            volume: "home".into(),
            ok: true,
            findings: 0,
            inodes: 1,
            names: 0,
            chunks: 0,
            bytes_read: 0,
        }
    }

    /// A server that dies between two volumes has reported no finding.
    #[test]
    fn only_an_end_that_was_said_is_an_end() {
        assert!(end([checked()]).is_err());
        assert!(matches!(end([checked(), CheckLine::Finished]), Ok(Exit::Done)));
    }

    /// Later volumes without findings do not hide an earlier finding.
    #[test]
    fn what_was_found_counts_at_the_end() {
        let finding = CheckLine::Finding {
            volume: "work".into(),
            path: None,
            ino: None,
            what: "gone".into(),
            remedy: "restore it".into(),
        };
        assert!(matches!(end([finding, checked(), CheckLine::Finished]), Ok(Exit::DataAtRisk)));
    }
}
