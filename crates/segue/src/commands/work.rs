//! What the commands for long work share: its lines as they come, and how it ended.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::Offline;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Progress;
use crate::{admin, output, quantity};

/// How fast it may go.
#[derive(Debug, clap::Args)]
pub(crate) struct Rate {
    /// Most bytes to read in a second, 0 for no limit [default: 50 while the server serves, else 0]
    #[arg(long, value_name = "MB/s")]
    rate: Option<u32>,
}

impl Rate {
    /// In bytes a second, if it was given.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.rate.map(|rate| u64::from(rate) * quantity::MB)
    }
}

/// A line of long work.
pub(crate) trait Line: Serialize {
    /// Its words on the terminal's last line, if it says how far the work is and nothing else.
    fn progress(&self) -> Option<String>;
    /// What a person reads; nothing is printed, for programs neither, where it is `None`.
    fn words(&self) -> Option<String>;
    /// What can be done about what it found wrong, to be said once at the end.
    fn remedy(&self) -> Option<&str> {
        None
    }
    /// How the work ended, if it says that.
    fn outcome(self) -> Option<Outcome>;
}

/// Has the server on `data` do its work `name`, or does it by `offline` while the server is down;
/// prints the lines.
pub(crate) fn run<R: Serialize, L: Line + DeserializeOwned>(
    data: &Path,
    (name, offline): (&str, Offline<R, L>),
    request: &R,
    json: bool,
) -> Outcome {
    let mut report = Report::new(json);
    let path = format!("/v1/{name}");
    admin::work(data, (&path, offline), request, |line| report.line(line))?;
    report.end(|| format!("the server on {} broke the {name} off: run it again", data.display()))
}

/// Prints lines as they come.
pub(crate) struct Report {
    json: bool,
    progress: Option<Progress>,
    /// Of what was found, each once.
    remedies: BTreeSet<String>,
    printed: Result<(), Failure>,
    outcome: Option<Outcome>,
}

impl Report {
    /// Of work that has not said anything yet.
    pub(crate) fn new(json: bool) -> Report {
        let remedies = BTreeSet::new();
        Report { json, progress: None, remedies, printed: Ok(()), outcome: None }
    }

    /// Takes a line in.
    pub(crate) fn line(&mut self, line: impl Line) {
        if let Some(words) = line.progress() {
            self.progress.get_or_insert_with(Progress::new).show(&words);
            return;
        }
        // The line on the terminal goes before others come.
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

    /// How the work ended; `broke_off` are the words for work that did not say.
    pub(crate) fn end(self, broke_off: impl FnOnce() -> String) -> Outcome {
        drop(self.progress);
        for remedy in self.remedies.iter().filter(|_| !self.json) {
            output::note(&format!("what can be done: {remedy}"));
        }
        let exit = self.outcome.unwrap_or_else(|| Err(Failure::failed(broke_off())))?;
        self.printed?;
        let is_wrong = exit == Exit::Done && !self.remedies.is_empty();
        Ok(if is_wrong { Exit::DataAtRisk } else { exit })
    }
}
