//! The files of one run: JSON lines as they come, then a Markdown text and a plot. Or of several
//! runs, whose lines are joined.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plot::{self, Part};
use crate::record::Context;
use segue_bed::{Doing, Error, Result};

/// One set of files, named alike.
#[derive(Debug)]
pub(crate) struct Results {
    context: Context,
    stem: PathBuf,
    lines: File,
    /// Other runs whose lines are here.
    joined: Vec<Context>,
}

/// A line tells by itself where it belongs.
#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    context: &'a Context,
    #[serde(flatten)]
    what: &'a T,
}

/// The same as it is read.
#[derive(Deserialize)]
struct Parsed<T> {
    #[serde(flatten)]
    context: Context,
    #[serde(flatten)]
    what: T,
}

impl Results {
    /// Opens a new set of files in `out`, named by date and `title`.
    pub(crate) fn create(out: &Path, title: &str, context: Context) -> Result<Results> {
        fs::create_dir_all(out).doing(format!("make {}", out.display()))?;
        let date: String = context.date.chars().filter(|c| *c != ':' && *c != '-').collect();
        let stem = out.join(format!("{date}-{title}"));
        let path = stem.with_extension("jsonl");
        let lines = File::create_new(&path).doing(format!("make {}", path.display()))?;
        Ok(Results { context, stem, lines, joined: Vec::new() })
    }

    /// Where and when the run is.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Adds a line, which is on disk when this returns.
    pub(crate) fn add(&mut self, what: &impl Serialize) -> Result<()> {
        let line = line(&self.context, what)?;
        writeln!(self.lines, "{line}").doing("write results")
    }

    /// Adds a line of another run.
    pub(crate) fn add_of(&mut self, context: Context, what: &impl Serialize) -> Result<()> {
        writeln!(self.lines, "{}", line(&context, what)?).doing("write results")?;
        if !self.joined.contains(&context) {
            self.joined.push(context);
        }
        Ok(())
    }

    /// For Markdown, the other runs whose lines are here; nothing if there are none.
    pub(crate) fn joined(&self) -> String {
        let run =
            |one: &Context| format!("* {}, commit {}: `{}`\n", one.date, one.commit, one.command);
        let runs: String = self.joined.iter().map(run).collect();
        if runs.is_empty() { runs } else { format!("\n## Joined\n\n{runs}") }
    }

    /// Writes the text and the plot.
    pub(crate) fn finish(self, text: &str, parts: &[Part]) -> Result<()> {
        let path = self.stem.with_extension("md");
        fs::write(&path, text).doing(format!("write {}", path.display()))?;
        plot::write(&self.stem, parts)
            .map_err(|error| Error::Wrong(format!("plot {}: {error}", self.stem.display())))
    }
}

/// What stands in a file of lines, with the run that each belongs to.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<(Context, T)>> {
    let text = fs::read_to_string(path).doing(format!("read {}", path.display()))?;
    let parse = |(number, line): (usize, &str)| {
        let parsed: Parsed<T> = serde_json::from_str(line).map_err(|error| {
            Error::Wrong(format!("{}, line {}: {error}", path.display(), number + 1))
        })?;
        Ok((parsed.context, parsed.what))
    };
    text.lines().enumerate().map(parse).collect()
}

/// `what` as a line of JSON that stands alone.
pub(crate) fn line(context: &Context, what: &impl Serialize) -> Result<String> {
    serde_json::to_string(&Line { context, what }).map_err(|error| Error::Wrong(error.to_string()))
}
