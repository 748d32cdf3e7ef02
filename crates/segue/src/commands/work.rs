//! What the commands for long work share: its lines as they come, and how it ended.

use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::output::Progress;
use crate::{output, quantity};

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
    /// How the work ended, if it says that.
    fn outcome(self) -> Option<Outcome>;
}

/// Prints lines as they come.
pub(crate) struct Report {
    json: bool,
    progress: Option<Progress>,
    outcome: Option<Outcome>,
}

impl Report {
    /// Of work that has not said anything yet.
    pub(crate) fn new(json: bool) -> Report {
        Report { json, progress: None, outcome: None }
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
        if let Some(outcome) = line.outcome() {
            self.outcome = Some(outcome);
        }
        if let Err(failure) = printed {
            self.outcome = Some(Err(failure));
        }
    }

    /// How the work ended; `broke_off` are the words for work that did not say.
    pub(crate) fn end(self, broke_off: impl FnOnce() -> String) -> Outcome {
        self.outcome.unwrap_or_else(|| Err(Failure::failed(broke_off())))
    }
}
