//! Results of an experiment that compares systems test by test: JSON lines as they come, then
//! tables and a plot of the medians.

use std::path::Path;

use serde::Serialize;

use crate::plot::{Bar, Panel};
use crate::record::Context;
use crate::report::middle;
use crate::results::Results;
use segue_bed::Result;

/// What the figure of a test means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Files made, or names looked at, in a second.
    #[serde(rename = "files/s")]
    Files,
    /// Operations in a second.
    #[serde(rename = "ops/s")]
    Operations,
    /// 2^20 bytes in a second.
    #[serde(rename = "MB/s")]
    Megabytes,
    /// Millionths of a second for one request.
    #[serde(rename = "microseconds")]
    Microseconds,
    /// Thousandths of a second.
    #[serde(rename = "milliseconds")]
    Milliseconds,
    /// 2^20 bytes, of memory or sent.
    #[serde(rename = "MB")]
    MegabytesHeld,
    /// 2^10 bytes on a link.
    #[serde(rename = "KB")]
    Kilobytes,
}

impl Unit {
    fn word(self) -> &'static str {
        match self {
            Unit::Files => "files/s",
            Unit::Operations => "ops/s",
            Unit::Megabytes => "MB/s",
            Unit::Microseconds => "microseconds",
            Unit::Milliseconds => "milliseconds",
            Unit::MegabytesHeld => "MB",
            Unit::Kilobytes => "KB",
        }
    }

    fn less_is_better(self) -> bool {
        matches!(
            self,
            Unit::Microseconds | Unit::Milliseconds | Unit::MegabytesHeld | Unit::Kilobytes
        )
    }
}

/// One figure, or why there is none.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// The system's name.
    pub system: &'static str,
    /// The test's name.
    pub test: &'static str,
    /// What the figure means.
    pub unit: Unit,
    /// Which repeat of the run, from 1.
    pub repeat: u32,
    /// Share of the standard size.
    pub scale: f64,
    /// The figure.
    pub figure: Option<f64>,
    /// Why there is none.
    pub error: Option<String>,
}

/// What a report says beside its figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Part of the files' names.
    pub(crate) title: &'static str,
    /// The system that the others' ratios are to.
    pub(crate) base: &'static str,
    /// What a reader must know about all figures.
    pub(crate) preface: &'static str,
    /// The tables, in order.
    pub(crate) sections: &'static [Section],
}

/// One table of a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    /// What stands before the table; may be empty.
    pub(crate) text: &'static str,
    /// Tests of these units are in it.
    pub(crate) units: &'static [Unit],
}

/// The files of one run.
#[derive(Debug)]
pub(crate) struct Report {
    results: Results,
    style: Style,
    samples: Vec<Sample>,
}

impl Report {
    pub(crate) fn create(out: &Path, style: Style, context: Context) -> Result<Report> {
        let results = Results::create(out, style.title, context)?;
        Ok(Report { results, style, samples: Vec::new() })
    }

    /// Takes a sample, which is on disk when this returns.
    pub(crate) fn add(&mut self, sample: Sample) -> Result<()> {
        self.results.add(&sample)?;
        self.samples.push(sample);
        Ok(())
    }

    /// Writes the tables and the plot, and returns the tables.
    pub(crate) fn finish(self) -> Result<String> {
        let medians = Medians::of(&self.samples, self.style.base);
        let text = markdown(self.results.context(), &self.style, &self.samples, &medians);
        self.results.finish(&text, &medians.panels())?;
        Ok(text)
    }
}

/// The medians, by test and system, both in the order of first appearance.
struct Medians {
    base: &'static str,
    systems: Vec<&'static str>,
    tests: Vec<(&'static str, Unit)>,
    /// For each test, by system.
    figures: Vec<Vec<Option<f64>>>,
}

impl Medians {
    fn of(samples: &[Sample], base: &'static str) -> Medians {
        let systems = distinct(samples.iter().map(|sample| sample.system));
        let tests = distinct(samples.iter().map(|sample| (sample.test, sample.unit)));
        let median = |test: (&str, Unit), system: &str| {
            let of = samples.iter().filter(|s| (s.test, s.unit) == test && s.system == system);
            middle(of.filter_map(|sample| sample.figure))
        };
        let row =
            |&test: &(&str, Unit)| systems.iter().map(|system| median(test, system)).collect();
        let figures = tests.iter().map(row).collect();
        Medians { base, systems, tests, figures }
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, Unit, &[Option<f64>])> {
        let rows = self.tests.iter().zip(&self.figures);
        rows.map(|(&(test, unit), figures)| (test, unit, figures.as_slice()))
    }

    /// The base's figure among a test's.
    fn base(&self, figures: &[Option<f64>]) -> Option<f64> {
        let at = self.systems.iter().position(|name| *name == self.base)?;
        figures.get(at).copied().flatten()
    }

    fn table(&self, units: &[Unit]) -> String {
        let names = self.systems.join(" | ");
        let mut table =
            format!("| | | {names} |\n|---|---|{}\n", "--:|".repeat(self.systems.len()));
        for (test, unit, figures) in self.rows().filter(|(_, unit, _)| units.contains(unit)) {
            let base = self.base(figures);
            let cells: Vec<String> = self
                .systems
                .iter()
                .zip(figures)
                .map(|(name, figure)| cell(*figure, base.filter(|_| *name != self.base), unit))
                .collect();
            table.push_str(&format!("| {test} | {} | {} |\n", unit.word(), cells.join(" | ")));
        }
        table
    }

    fn panels(&self) -> Vec<Panel> {
        let panel = |(test, unit, figures): (&str, Unit, &[Option<f64>])| Panel {
            title: test.to_owned(),
            axis: unit.word(),
            bars: self
                .systems
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

/// A figure, and behind it how many times as fast that is as the base.
fn cell(figure: Option<f64>, base: Option<f64>, unit: Unit) -> String {
    let Some(figure) = figure else { return "-".into() };
    let times = base.map(|base| if unit.less_is_better() { base / figure } else { figure / base });
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

fn markdown(context: &Context, style: &Style, samples: &[Sample], medians: &Medians) -> String {
    let repeats = samples.iter().map(|sample| sample.repeat).max().unwrap_or(0);
    let scale = samples.first().map_or(1.0, |sample| sample.scale);
    let ratios = match medians.systems.len() {
        0 | 1 => String::new(),
        _ => format!("In brackets: how many times as fast as {}. ", style.base),
    };
    let mut text = format!(
        "{}Medians of {repeats}, at {scale} of the standard size. {ratios}{} 1 MB = 2^20 bytes.\n",
        context.heading(),
        style.preface
    );
    for Section { heading, text: words, units } in style.sections {
        text.push_str(&format!("\n## {heading}\n\n"));
        if !words.is_empty() {
            text.push_str(&format!("{words}\n\n"));
        }
        text.push_str(&medians.table(units));
    }
    let failed = samples.iter().filter_map(|s| Some((s.test, s.system, s.error.as_ref()?)));
    for (test, system, error) in distinct(failed) {
        text.push_str(&format!("\n* {test}, {system}: {}\n", error.replace('\n', " ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: &[Unit] = &[Unit::Files];
    const COSTS: &[Unit] = &[Unit::Microseconds];
    const STYLE: Style = Style {
        title: "t",
        base: "fuser",
        preface: "Cold.",
        sections: &[
            Section { heading: "Rates", text: "", units: RATES },
            Section { heading: "Costs", text: "Of each.", units: COSTS },
        ],
    };

    fn sample(system: &'static str, unit: Unit, repeat: u32, figure: f64) -> Sample {
        let test = if unit == Unit::Microseconds { "OPEN" } else { "stat" };
        Sample { system, test, unit, repeat, scale: 1.0, figure: Some(figure), error: None }
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
        let medians = Medians::of(&samples, "fuser");
        let rates = medians.table(RATES);
        assert!(rates.ends_with("| stat | files/s | 1,000 | 2,500 (2.50) |\n"), "{rates}");
        let costs = medians.table(COSTS);
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
        let text = markdown(&context, &STYLE, &samples, &Medians::of(&samples, "fuser"));
        assert_eq!(text.matches("* stat, libfuse: gone").count(), 1, "{text}");
        assert!(text.contains("| stat | files/s | - |"), "{text}");
        assert!(text.contains("## Costs\n\nOf each.\n\n| |"), "{text}");
    }
}
