//! The index of the results: for each experiment its latest run, and one line of outcome.
//!
//! A run is a set of files `DATE-NAME.{jsonl,md,svg,png}`; NAME is the experiment's. All that the
//! index says comes from these files, so that it can be made again and compared.

mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use segue_bed::{Doing, Error, Result};

/// The index's name among the results.
pub const FILE: &str = "INDEX.md";

/// Runs of an experiment that stay; git keeps the others.
const RUNS_MAX: usize = 2;

const HEADING: &str = "\
# Results

`segue-bench index` makes this file from the runs beside it: the latest run of each experiment, and
the one before if it is still here. Each links to its table and its plot. Runs: how often each was
measured, and at which share of the standard size if that is not 1. Figures are medians of these.
`segue-bench list` describes the experiments; git's history has the older runs.

| experiment | latest run | commit | machine | runs | outcome | before |
|---|---|---|---|---|---|---|
";

/// The files of one run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    /// As in the names of files: `20261124T215950Z`.
    date: String,
    experiment: String,
    extensions: BTreeSet<String>,
}

impl Run {
    fn file(&self, extension: &str) -> String {
        format!("{}-{}.{extension}", self.date, self.experiment)
    }

    /// A link to the table, and one to the plot.
    fn links(&self) -> String {
        let day = [0..4, 4..6, 6..8].map(|range| self.date.get(range).unwrap_or_default());
        let mut links = format!("[{}]({})", day.join("-"), self.file("md"));
        let plot = ["png", "svg"].into_iter().find(|plot| self.extensions.contains(*plot));
        if let Some(plot) = plot {
            links += &format!(" ([plot]({}))", self.file(plot));
        }
        links
    }
}

/// The index of the results in `dir`, as Markdown.
pub fn index(dir: &Path) -> Result<String> {
    let mut text = HEADING.to_owned();
    for (experiment, runs) in runs(dir)? {
        let Some((latest, before)) = runs.split_last() else { continue };
        let Summary { commit, machine, runs, outcome } = summary(dir, latest)?;
        let before: Vec<String> = before.iter().rev().map(Run::links).collect();
        let (links, before) = (latest.links(), before.join(", "));
        text += &format!(
            "| {experiment} | {links} | {commit} | {machine} | {runs} | {outcome} | {before} |\n"
        );
    }
    Ok(text)
}

/// Experiments of which more runs are in `dir` than stay.
pub fn overfull(dir: &Path) -> Result<Vec<String>> {
    let full = runs(dir)?.into_iter().filter(|(_, runs)| runs.len() > RUNS_MAX);
    Ok(full.map(|(experiment, runs)| format!("{experiment}: {} runs", runs.len())).collect())
}

/// The runs of each experiment, the latest last.
fn runs(dir: &Path) -> Result<BTreeMap<String, Vec<Run>>> {
    let mut extensions: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(dir).doing(format!("list {}", dir.display()))? {
        let name = entry.doing(format!("list {}", dir.display()))?.file_name();
        let Some((stem, extension)) = name.to_str().and_then(|name| name.rsplit_once('.')) else {
            continue;
        };
        // Only a run has a date before its name.
        let Some((date, experiment)) = stem.split_once('-') else { continue };
        let of = extensions.entry((experiment.to_owned(), date.to_owned())).or_default();
        of.insert(extension.to_owned());
    }
    let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for ((experiment, date), extensions) in extensions {
        let run = Run { date, experiment: experiment.clone(), extensions };
        runs.entry(experiment).or_default().push(run);
    }
    Ok(runs)
}

/// The cells of a run.
struct Summary {
    commit: String,
    machine: String,
    runs: String,
    outcome: String,
}

fn summary(dir: &Path, run: &Run) -> Result<Summary> {
    let read = |extension: &str| {
        let path = dir.join(run.file(extension));
        fs::read_to_string(&path).doing(format!("read {}", path.display()))
    };
    if !run.extensions.contains("jsonl") {
        let text = read("md")?;
        let commit = text.split_once("commit ").map_or("", |(_, after)| after);
        let commit: String = commit.chars().take_while(char::is_ascii_alphanumeric).collect();
        let outcome = "made by hand: see the text".into();
        return Ok(Summary { commit, machine: "-".into(), runs: "-".into(), outcome });
    }
    let parse = |line: &str| {
        serde_json::from_str(line)
            .map_err(|error| Error::Wrong(format!("{}: {error}", run.file("jsonl"))))
    };
    let lines = read("jsonl")?.lines().map(parse).collect::<Result<Vec<Value>>>()?;
    let commits = outcome::distinct(&lines, "commit").join(", ");
    let machines = outcome::distinct(&lines, "machine");
    let machines: Vec<String> = machines.iter().map(|machine| short(machine)).collect();
    Ok(Summary {
        commit: commits,
        machine: machines.join("; "),
        runs: outcome::runs(&lines),
        outcome: outcome::outcome(&run.experiment, &lines).replace('|', "/"),
    })
}

/// A machine without its memory.
fn short(machine: &str) -> String {
    machine.split(", ").filter(|part| !part.ends_with("memory")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, lines: &[&str]) {
        let context = r#""date":"d","commit":"abc","machine":"2 x P, 8 kB memory, Linux 6""#;
        let lines: String = lines.iter().map(|line| format!("{{{context},{line}}}\n")).collect();
        fs::write(dir.join(name), lines).unwrap();
    }

    #[test]
    fn the_latest_run_of_each_experiment_has_a_row() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let line = |repeat: u32, seconds: f64| {
            let figures = format!(r#""repeat":{repeat},"seconds":{seconds}"#);
            format!(r#""workload":"untar","file_system":"segue","rate_kb_per_s":null,{figures}"#)
        };
        write(dir, "20260101T000000Z-untar.jsonl", &[&line(1, 9.0)]);
        fs::write(dir.join("20260101T000000Z-untar.svg"), "").unwrap();
        let lines = [line(1, 1.0), line(2, 2.0), line(3, 4.0)];
        write(dir, "20260202T000000Z-untar.jsonl", &lines.each_ref().map(String::as_str));
        fs::write(dir.join("20260202T000000Z-untar.png"), "").unwrap();
        fs::write(dir.join("20260203T000000Z-by-hand.md"), "x, commit 12ab, y").unwrap();
        fs::write(dir.join(FILE), "old").unwrap();
        let text = index(dir).unwrap();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("2026")).collect();
        assert_eq!(
            rows,
            [
                "| by-hand | [2026-02-03](20260203T000000Z-by-hand.md) | 12ab | - | - \
                 | made by hand: see the text |  |",
                "| untar | [2026-02-02](20260202T000000Z-untar.md) \
                 ([plot](20260202T000000Z-untar.png)) | abc | 2 x P, Linux 6 | 3 | `untar` 2.00 s \
                 | [2026-01-01](20260101T000000Z-untar.md) ([plot](20260101T000000Z-untar.svg)) |",
            ]
        );
    }

    #[test]
    fn a_third_run_is_too_many() {
        let dir = tempfile::tempdir().unwrap();
        for (day, fits) in [("01", true), ("02", true), ("03", false)] {
            write(dir.path(), &format!("202601{day}T000000Z-train.jsonl"), &[]);
            let overfull = overfull(dir.path()).unwrap();
            assert_eq!(overfull.is_empty(), fits, "{overfull:?}");
        }
    }
}
