//! `segue volume check`: is everything there, and is it what it was?

use segue_server::check::{CheckLine, CheckRequest, check_offline};

use super::work::{self, Line, Rate};
use super::{Context, ServerData};
use crate::exit::{Exit, Outcome};
use crate::{admin, output, quantity};

/// Check a volume: every name, every reference, every count, every byte
///
/// Works on a server that serves, beside its work, and on one that is down. Changes nothing. First the metadata are checked on one snapshot, then every chunk is read from its pack and compared with its fingerprint. What is wrong is named by path, with what can be done about it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The volume [default: all volumes of the server]
    name: Option<String>,
    /// Leave out the bytes: names, references and counts only
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rate: Rate,
    /// Answer in JSON, one line for each finding and one for each volume
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue volume check                 all volumes, gently
  segue volume check home --quick    seconds instead of hours: no bytes are read
  segue volume check home --rate 200 && echo whole

Exit codes: 0 all is well, 7 something is damaged, 3 no such volume";

/// Checks, and prints findings as they come.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context);
    let request = CheckRequest {
        volume: arguments.name.clone(),
        quick: arguments.quick,
        rate_bytes: arguments.rate.bytes(),
    };
    work::run(&data, ("check", check_offline), &request, arguments.json)
}

impl Line for CheckLine {
    fn progress(&self) -> Option<String> {
        let CheckLine::Progress { volume, inodes, bytes, total_bytes } = self else { return None };
        Some(match total_bytes {
            0 => format!("{volume}: {inodes} files and directories"),
            total => {
                let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                format!("{volume}: {done} of {all} checked")
            }
        })
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

/// A line for a person to read.
fn describe(line: &CheckLine) -> Option<String> {
    match line {
        CheckLine::Finding { volume, path, ino, what, .. } => {
            let place = output::place(path.as_deref(), *ino);
            Some(format!("{volume}: {place}{what}\n"))
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

    /// A server that died between two volumes had said nothing wrong so far.
    #[test]
    fn only_an_end_that_was_said_is_an_end() {
        assert!(end([checked()]).is_err());
        assert!(matches!(end([checked(), CheckLine::Finished]), Ok(Exit::Done)));
    }

    /// The volumes that come after it may be clean.
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
