//! Results of an experiment that compares systems test by test: JSON lines as they come, then
//! tables and a plot.

use std::path::Path;

use serde::Serialize;

use crate::plot::dots::{Panel, Row};
use crate::record::Context;
use crate::results::Results;
use crate::spread::{Spread, caption, times};
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
    /// A hundredth of what there is.
    #[serde(rename = "percent")]
    Percent,
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
            Unit::Percent => "percent",
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
    /// Figures that the base is to reach, by test.
    pub(crate) targets: &'static [(&'static str, f64)],
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
        let figures = Figures::of(&self.samples, self.style.base);
        let text = markdown(self.results.context(), &self.style, &self.samples, &figures);
        self.results.finish(&text, &Panel::parts(figures.panels(self.style.targets)))?;
        Ok(text)
    }
}

/// The figures, by test and system, both in the order of first appearance.
struct Figures {
    base: &'static str,
    systems: Vec<&'static str>,
    tests: Vec<(&'static str, Unit)>,
    /// For each test, by system.
    spreads: Vec<Vec<Option<Spread>>>,
}

impl Figures {
    fn of(samples: &[Sample], base: &'static str) -> Figures {
        let systems = distinct(samples.iter().map(|sample| sample.system));
        let tests = distinct(samples.iter().map(|sample| (sample.test, sample.unit)));
        let spread = |test: (&str, Unit), system: &str| {
            let of = samples.iter().filter(|s| (s.test, s.unit) == test && s.system == system);
            Spread::over(of.filter_map(|sample| sample.figure))
        };
        let row =
            |&test: &(&str, Unit)| systems.iter().map(|system| spread(test, system)).collect();
        let spreads = tests.iter().map(row).collect();
        Figures { base, systems, tests, spreads }
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, Unit, &[Option<Spread>])> {
        let rows = self.tests.iter().zip(&self.spreads);
        rows.map(|(&(test, unit), spreads)| (test, unit, spreads.as_slice()))
    }

    /// The most runs of a test on a system.
    fn runs(&self) -> usize {
        self.spreads.iter().flatten().flatten().map(Spread::runs).max().unwrap_or(0)
    }

    /// The base's figures among a test's.
    fn base<'a>(&self, spreads: &'a [Option<Spread>]) -> Option<&'a Spread> {
        let at = self.systems.iter().position(|name| *name == self.base)?;
        spreads.get(at)?.as_ref()
    }

    fn table(&self, units: &[Unit]) -> String {
        let names = self.systems.join(" | ");
        let mut table =
            format!("| | | {names} |\n|---|---|{}\n", "--:|".repeat(self.systems.len()));
        for (test, unit, spreads) in self.rows().filter(|(_, unit, _)| units.contains(unit)) {
            let base = self.base(spreads);
            let cells: Vec<String> = self
                .systems
                .iter()
                .zip(spreads)
                .map(|(name, spread)| {
                    cell(spread.as_ref(), base.filter(|_| *name != self.base), unit)
                })
                .collect();
            table.push_str(&format!("| {test} | {} | {} |\n", unit.word(), cells.join(" | ")));
        }
        table
    }

    fn panels(&self, targets: &[(&str, f64)]) -> Vec<Panel> {
        let panel = |(test, unit, spreads): (&'static str, Unit, &[Option<Spread>])| {
            let target = targets.iter().find(|(name, _)| *name == test).map(|(_, target)| *target);
            let row = |(name, spread): (&&str, &Option<Spread>)| Row {
                value: spread.clone(),
                target: target.filter(|_| *name == self.base),
                ..Row::named(*name)
            };
            Panel::new(test, unit.word(), self.systems.iter().zip(spreads).map(row).collect())
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

/// The figures, and behind them how many times as fast as the base that is.
fn cell(spread: Option<&Spread>, base: Option<&Spread>, unit: Unit) -> String {
    let Some(own) = spread else { return "-".into() };
    let times = if unit.less_is_better() { times(base, spread) } else { times(spread, base) };
    let times = times.map_or(String::new(), |times| format!(" ×{times:.2}"));
    format!("{}{times}", own.cell(if own.median() < 100.0 { 1 } else { 0 }))
}

fn markdown(context: &Context, style: &Style, samples: &[Sample], figures: &Figures) -> String {
    let scale = samples.first().map_or(1.0, |sample| sample.scale);
    let ratios = match figures.systems.len() {
        0 | 1 => String::new(),
        _ => format!("Behind ×: how many times as fast as {}. ", style.base),
    };
    let mut text = format!(
        "{}{} At {scale} of the standard size. {ratios}{} 1 MB = 2^20 bytes.\n",
        context.heading(),
        caption(figures.runs()),
        style.preface
    );
    for Section { heading, text: words, units } in style.sections {
        text.push_str(&format!("\n## {heading}\n\n"));
        if !words.is_empty() {
            text.push_str(&format!("{words}\n\n"));
        }
        text.push_str(&figures.table(units));
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
        targets: &[("OPEN", 25.0)],
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
        let figures = Figures::of(&samples, "fuser");
        let rates = figures.table(RATES);
        let row = "| 1,000 (500-90,000) | 2,500 (1,250-225,000) ×2.50 |\n";
        assert!(rates.ends_with(row), "{rates}");
        let costs = figures.table(COSTS);
        assert!(costs.ends_with("| 30.0 (30.0-30.0) | 20.0 (20.0-20.0) ×1.50 |\n"), "{costs}");
        let panels = figures.panels(STYLE.targets);
        let targets = panels.iter().flat_map(|panel| &panel.rows).map(|row| row.target);
        assert_eq!(targets.collect::<Vec<_>>(), [None, None, Some(25.0), None]);
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
        let text = markdown(&context, &STYLE, &samples, &Figures::of(&samples, "fuser"));
        assert_eq!(text.matches("* stat, libfuse: gone").count(), 1, "{text}");
        assert!(text.contains("| stat | files/s | - |"), "{text}");
        assert!(text.contains("## Costs\n\nOf each.\n\n| |"), "{text}");
    }
}
