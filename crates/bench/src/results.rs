//! The files of one run: JSON lines as they come, then a Markdown text and a plot.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bed::{Doing, Error, Result};
use crate::plot::lines::{self, Chart};
use crate::plot::{self, Panel};
use crate::record::Context;

/// One set of files, named alike.
#[derive(Debug)]
pub(crate) struct Results {
    context: Context,
    stem: PathBuf,
    lines: File,
}

/// A line tells by itself where it belongs.
#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    context: &'a Context,
    #[serde(flatten)]
    what: &'a T,
}

impl Results {
    /// Opens a new set of files in `out`, named by date and `title`.
    pub(crate) fn create(out: &Path, title: &str, context: Context) -> Result<Results> {
        fs::create_dir_all(out).doing(format!("make {}", out.display()))?;
        let date: String = context.date.chars().filter(|c| *c != ':' && *c != '-').collect();
        let stem = out.join(format!("{date}-{title}"));
        let path = stem.with_extension("jsonl");
        let lines = File::create_new(&path).doing(format!("make {}", path.display()))?;
        Ok(Results { context, stem, lines })
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

    /// Writes the text and the plot.
    pub(crate) fn finish(self, text: &str, panels: &[Panel]) -> Result<()> {
        self.write(text, |path| plot::write(path, panels))
    }

    /// Writes the text and a plot of curves.
    pub(crate) fn finish_with_curves(self, text: &str, charts: &[Chart]) -> Result<()> {
        self.write(text, |path| lines::write(path, charts))
    }

    fn write(self, text: &str, plot: impl FnOnce(&Path) -> plot::Result<()>) -> Result<()> {
        let path = self.stem.with_extension("md");
        fs::write(&path, text).doing(format!("write {}", path.display()))?;
        let path = self.stem.with_extension("svg");
        plot(&path).map_err(|error| Error::Wrong(format!("plot {}: {error}", path.display())))
    }
}

/// `what` as a line of JSON that stands alone.
pub(crate) fn line(context: &Context, what: &impl Serialize) -> Result<String> {
    serde_json::to_string(&Line { context, what }).map_err(|error| Error::Wrong(error.to_string()))
}
