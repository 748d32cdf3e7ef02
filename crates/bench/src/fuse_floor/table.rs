//! The experiment's results on disk: JSON lines as they come, then tables and a plot of medians.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Sample, Unit};
use crate::bed::{Doing, Error, Result};
use crate::plot::{self, Bar, Panel};
use crate::record::Context;
use crate::report::middle;

/// What the others' ratios are to.
const BASE: &str = "fuser";

/// The files of one run.
#[derive(Debug)]
pub(super) struct Report {
    context: Context,
    stem: PathBuf,
    lines: File,
    samples: Vec<Sample>,
}

#[derive(serde::Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    context: &'a Context,
    #[serde(flatten)]
    sample: &'a Sample,
}

impl Report {
    pub(super) fn create(out: &Path, context: Context) -> Result<Report> {
        fs::create_dir_all(out).doing(format!("make {}", out.display()))?;
        let date: String = context.date.chars().filter(|c| *c != ':' && *c != '-').collect();
        let stem = out.join(format!("{date}-fuse-floor"));
        let path = stem.with_extension("jsonl");
        let lines = File::create_new(&path).doing(format!("make {}", path.display()))?;
        Ok(Report { context, stem, lines, samples: Vec::new() })
    }

    /// Takes a sample, which is on disk when this returns.
    pub(super) fn add(&mut self, sample: Sample) -> Result<()> {
        let line = Line { context: &self.context, sample: &sample };
        let line = serde_json::to_string(&line).map_err(|error| Error::Wrong(error.to_string()))?;
        writeln!(self.lines, "{line}").doing("write results")?;
        self.samples.push(sample);
        Ok(())
    }

    /// Writes the tables and the plot, and returns the tables.
    pub(super) fn finish(self) -> Result<String> {
        let medians = Medians::of(&self.samples);
        let text = markdown(&self.context, &self.samples, &medians);
        let path = self.stem.with_extension("md");
        fs::write(&path, &text).doing(format!("write {}", path.display()))?;
        let path = self.stem.with_extension("svg");
        plot::write(&path, &medians.panels())
            .map_err(|error| Error::Wrong(format!("plot {}: {error}", path.display())))?;
        Ok(text)
    }
}

/// The medians, by test and file system, both in the order of first appearance.
struct Medians {
    file_systems: Vec<&'static str>,
    tests: Vec<(&'static str, Unit)>,
    /// For each test, by file system.
    figures: Vec<Vec<Option<f64>>>,
}

impl Medians {
    fn of(samples: &[Sample]) -> Medians {
        let file_systems = distinct(samples.iter().map(|sample| sample.file_system));
        let tests = distinct(samples.iter().map(|sample| (sample.test, sample.unit)));
        let median = |test: &str, file_system: &str| {
            let of = samples.iter().filter(|s| s.test == test && s.file_system == file_system);
            middle(of.filter_map(|sample| sample.figure))
        };
        let row = |&(test, _): &(&str, Unit)| {
            file_systems.iter().map(|file_system| median(test, file_system)).collect()
        };
        let figures = tests.iter().map(row).collect();
        Medians { file_systems, tests, figures }
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, Unit, &[Option<f64>])> {
        let rows = self.tests.iter().zip(&self.figures);
        rows.map(|(&(test, unit), figures)| (test, unit, figures.as_slice()))
    }

    /// The base's figure among a test's.
    fn base(&self, figures: &[Option<f64>]) -> Option<f64> {
        let at = self.file_systems.iter().position(|name| *name == BASE)?;
        figures.get(at).copied().flatten()
    }

    fn table(&self, is_here: impl Fn(Unit) -> bool) -> String {
        let names = self.file_systems.join(" | ");
        let mut table =
            format!("| | | {names} |\n|---|---|{}\n", "--:|".repeat(self.file_systems.len()));
        for (test, unit, figures) in self.rows().filter(|(_, unit, _)| is_here(*unit)) {
            let base = self.base(figures);
            let cells: Vec<String> = self
                .file_systems
                .iter()
                .zip(figures)
                .map(|(name, figure)| cell(*figure, base.filter(|_| *name != BASE), unit))
                .collect();
            table.push_str(&format!("| {test} | {} | {} |\n", word(unit), cells.join(" | ")));
        }
        table
    }

    fn panels(&self) -> Vec<Panel> {
        let panel = |(test, unit, figures): (&str, Unit, &[Option<f64>])| Panel {
            title: test.to_owned(),
            axis: word(unit),
            bars: self
                .file_systems
                .iter()
                .zip(figures)
                .map(|(name, figure)| Bar {
                    label: (*name).to_owned(),
                    value: *figure,
                    behind: None,
                })
                .collect(),
        };
        self.rows().map(panel).collect()
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn word(unit: Unit) -> &'static str {
    match unit {
        Unit::Files => "files/s",
        Unit::Operations => "ops/s",
        Unit::Megabytes => "MB/s",
        Unit::Microseconds => "microseconds",
    }
}

/// A figure, and behind it how many times as fast that is as the base.
fn cell(figure: Option<f64>, base: Option<f64>, unit: Unit) -> String {
    let Some(figure) = figure else { return "-".into() };
    let times =
        base.map(|base| if unit == Unit::Microseconds { base / figure } else { figure / base });
    let times = times.map_or(String::new(), |times| format!(" ({times:.2})"));
    format!("{}{times}", if figure < 100.0 { format!("{figure:.1}") } else { grouped(figure) })
}

/// With a comma before each three digits.
fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn markdown(context: &Context, samples: &[Sample], medians: &Medians) -> String {
    let Context { date, commit, command, machine } = context;
    let repeats = samples.iter().map(|sample| sample.repeat).max().unwrap_or(0);
    let scale = samples.first().map_or(1.0, |sample| sample.scale);
    let mut text = format!(
        "# {command}\n\n{date}, commit {commit}\n{machine}\n\n\
         Medians of {repeats}, at {scale} of the standard size. In brackets: how many times as \
         fast as {BASE}. Cold: the mount's own caches; the source's pages are in memory. \
         1 MB = 2^20 bytes.\n\n## Rates\n\n{}\n## The cost of each request\n\nThe caller's \
         time for a system call that sends just this; ext4: for the same call. libfuse's example \
         answers GETXATTR and SETXATTR with ENOSYS, once.\n\n{}",
        medians.table(|unit| unit != Unit::Microseconds),
        medians.table(|unit| unit == Unit::Microseconds),
    );
    let failed = samples.iter().filter_map(|s| Some((s.test, s.file_system, s.error.as_ref()?)));
    for (test, file_system, error) in distinct(failed) {
        text.push_str(&format!("\n* {test}, {file_system}: {}\n", error.replace('\n', " ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(file_system: &'static str, unit: Unit, repeat: u32, figure: f64) -> Sample {
        let test = if unit == Unit::Microseconds { "OPEN" } else { "stat" };
        Sample { file_system, test, unit, repeat, scale: 1.0, figure: Some(figure), error: None }
    }

    #[test]
    fn ratios_are_of_medians_and_above_one_where_it_is_faster() {
        let mut samples = Vec::new();
        for (repeat, figure) in [(1, 500.0), (2, 1000.0), (3, 90_000.0)] {
            samples.push(sample("fuser", Unit::Files, repeat, figure));
            samples.push(sample("binding", Unit::Files, repeat, 2.5 * figure));
            samples.push(sample("fuser", Unit::Microseconds, repeat, 30.0));
            samples.push(sample("binding", Unit::Microseconds, repeat, 20.0));
        }
        let medians = Medians::of(&samples);
        let rates = medians.table(|unit| unit != Unit::Microseconds);
        assert!(rates.ends_with("| stat | files/s | 1,000 | 2,500 (2.50) |\n"), "{rates}");
        let costs = medians.table(|unit| unit == Unit::Microseconds);
        assert!(costs.ends_with("| OPEN | microseconds | 30.0 | 20.0 (1.50) |\n"), "{costs}");
    }

    #[test]
    fn what_failed_has_its_reason_once() {
        let context = Context {
            date: "d".into(),
            commit: "c".into(),
            command: "x".into(),
            machine: "m".into(),
        };
        let failed = |repeat| Sample {
            figure: None,
            error: Some("gone".into()),
            ..sample("libfuse", Unit::Files, repeat, 0.0)
        };
        let samples = [failed(1), failed(2)];
        let text = markdown(&context, &samples, &Medians::of(&samples));
        assert_eq!(text.matches("* stat, libfuse: gone").count(), 1, "{text}");
        assert!(text.contains("| stat | files/s | - |"), "{text}");
    }
}
