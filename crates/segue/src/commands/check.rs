//! `segue volume check`: is everything there, and is it what it was?

use std::collections::BTreeSet;

use segue_server::check::{CheckLine, CheckRequest, check_offline};

use super::work::Rate;
use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Progress;
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
    let mut report = Report::new(arguments.json);
    admin::work(&data, ("/v1/check", check_offline), &request, |line| report.line(line))?;
    report.progress = None;
    if !report.is_over {
        let words = format!("the server on {} broke the check off", data.display());
        return Err(Failure::failed(words));
    }
    for remedy in &report.remedies {
        output::note(&format!("what can be done: {remedy}"));
    }
    report.outcome
}

struct Report {
    json: bool,
    progress: Option<Progress>,
    remedies: BTreeSet<String>,
    outcome: Outcome,
    /// The check said that it was at its end.
    is_over: bool,
}

impl Report {
    fn new(json: bool) -> Report {
        let (remedies, outcome) = (BTreeSet::new(), Ok(Exit::Done));
        Report { json, progress: None, remedies, outcome, is_over: false }
    }

    fn line(&mut self, line: CheckLine) {
        if let CheckLine::Progress { volume, inodes, bytes, total_bytes } = &line {
            let words = match total_bytes {
                0 => format!("{volume}: {inodes} files and directories"),
                total => {
                    let (done, all) = (quantity::bytes(*bytes), quantity::bytes(*total));
                    format!("{volume}: {done} of {all} checked")
                }
            };
            self.progress.get_or_insert_with(Progress::new).show(&words);
            return;
        }
        // The line on the terminal goes before others come.
        self.progress = None;
        let printed = match self.json {
            true if !line_is_an_end(&line) => output::print_json(&line),
            _ => describe(&line).map_or(Ok(()), |words| output::print(&words)),
        };
        match line {
            CheckLine::Progress { .. } | CheckLine::Checked { .. } => {}
            CheckLine::Finding { remedy, .. } => {
                self.outcome = Ok(Exit::DataAtRisk);
                if !self.json {
                    self.remedies.insert(remedy);
                }
            }
            CheckLine::Finished => self.is_over = true,
            CheckLine::Failed { reason, words } => {
                self.is_over = true;
                self.outcome = Err(Failure::new(admin::exit_for(reason), words));
            }
        }
        if let Err(failure) = printed {
            self.outcome = Err(failure);
        }
    }
}

/// True for what the exit code says, and for a failure the words on stderr.
fn line_is_an_end(line: &CheckLine) -> bool {
    matches!(line, CheckLine::Finished | CheckLine::Failed { .. })
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
    use super::*;

    /// A server that died between two volumes had said nothing wrong so far.
    #[test]
    fn only_an_end_that_was_said_is_an_end() {
        let mut report = Report::new(true);
        report.line(CheckLine::Checked {
            volume: "home".into(),
            ok: true,
            findings: 0,
            inodes: 1,
            names: 0,
            chunks: 0,
            bytes_read: 0,
        });
        assert!(!report.is_over);
        report.line(CheckLine::Finished);
        assert!(report.is_over);
    }
}
