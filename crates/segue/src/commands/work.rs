//! The common part of the commands with long tasks: the lines of the answer, and the outcome.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use segue_client::quantity;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::Offline;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Progress, Share};
use crate::pace::{NOTHING, Pace};
use crate::{admin, output};

/// The most data that a task reads per second.
#[derive(Debug, clap::Args)]
pub(crate) struct Rate {
    /// Most bytes to read per second, such as 50M; 0 is no limit [default: 50M while the server
    /// runs, else 0]
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    rate: Option<u64>,
}

impl Rate {
    /// In bytes per second, if given.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.rate
    }
}

/// A line of the answer of a long task.
pub(crate) trait Line: Serialize {
    /// The text for the progress line of the terminal, and how much is done, if the line reports
    /// progress only.
    fn progress(&self) -> Option<(String, Share)>;
    /// The text for the user. With `None` nothing is printed, as JSON neither.
    fn words(&self) -> Option<String>;
    /// The remedy for the line's finding; each is printed once at the end.
    fn remedy(&self) -> Option<&str> {
        None
    }
    /// The outcome of the task, if the line reports its end.
    fn outcome(self) -> Option<Outcome>;
}

/// Runs the task `name` in the server of `data`, or by `offline` if the server is stopped, and
/// prints its lines.
pub(crate) fn run<R: Serialize, L: Line + DeserializeOwned>(
    data: &Path,
    (name, offline): (&str, Offline<R, L>),
    request: &R,
    json: bool,
) -> Outcome {
    let mut report = Report::new(json);
    let path = format!("/v1/{name}");
    admin::work(data, (&path, offline), request, |line| report.line(line))?;
    report.end(|| {
        format!(
            "the server with data directory {} ended the {name} early: run it again",
            data.display()
        )
    })
}

/// Prints the lines of a task as they arrive.
pub(crate) struct Report {
    json: bool,
    progress: Option<Progress>,
    pace: Pace,
    /// The remedies of all findings, each once.
    remedies: BTreeSet<String>,
    printed: Result<(), Failure>,
    outcome: Option<Outcome>,
}

impl Report {
    /// The report of a task without a line so far.
    pub(crate) fn new(json: bool) -> Report {
        let remedies = BTreeSet::new();
        Report {
            json,
            progress: None,
            pace: Pace::default(),
            remedies,
            printed: Ok(()),
            outcome: None,
        }
    }

    /// Takes a line and prints it.
    pub(crate) fn line(&mut self, line: impl Line) {
        if let Some((words, share)) = line.progress() {
            let left = share.whole.saturating_sub(share.done);
            let pace = match share.whole {
                0 => String::new(),
                _ => self.pace.words(Instant::now(), 0, left),
            };
            let words = if pace == NOTHING { words } else { output::joined(&words, &pace) };
            self.progress.get_or_insert_with(Progress::new).show(&words, share);
            return;
        }
        // Removes the progress line from the terminal before other lines.
        self.progress = None;
        let printed = match (line.words(), self.json) {
            (None, _) => Ok(()),
            (Some(_), true) => output::print_json(&line),
            (Some(words), false) => output::print(&words),
        };
        if printed.is_err() {
            self.printed = printed;
        }
        self.remedies.extend(line.remedy().map(str::to_owned));
        if let Some(outcome) = line.outcome() {
            self.outcome = Some(outcome);
        }
    }

    /// The outcome of the task; `broke_off` is the message for a task without one.
    pub(crate) fn end(self, broke_off: impl FnOnce() -> String) -> Outcome {
        drop(self.progress);
        for remedy in self.remedies.iter().filter(|_| !self.json) {
            output::note(&format!("remedy: {remedy}"));
        }
        let exit = self.outcome.unwrap_or_else(|| Err(Failure::failed(broke_off())))?;
        self.printed?;
        let is_wrong = exit == Exit::Done && !self.remedies.is_empty();
        Ok(if is_wrong { Exit::DataAtRisk } else { exit })
    }
}
