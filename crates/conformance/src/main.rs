//! `segue-conformance DIR`: runs the cases in a directory of the file system to be tried.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use segue_conformance::{Case, Report, Verdict, cases, run_cases};
use serde_json::json;

/// POSIX conformance of the file system that a directory is on.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// A directory in which cases may make what they need
    #[arg(required_unless_present = "list")]
    dir: Option<PathBuf>,
    /// Run only cases whose name contains this
    #[arg(long, value_name = "PART")]
    filter: Option<String>,
    /// Leave out the case of this name
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// Print the names of the cases instead
    #[arg(long)]
    list: bool,
    /// Print every verdict as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen = chosen(arguments.filter.as_deref());
    let Some(dir) = arguments.dir.filter(|_| !arguments.list) else {
        for case in chosen {
            println!("{}", case.name);
        }
        return ExitCode::SUCCESS;
    };
    let skip: Vec<&str> = arguments.skip.iter().map(String::as_str).collect();
    let report = run_cases(&chosen, &dir, &skip);
    if arguments.json {
        println!("{:#}", as_json(&report));
    } else {
        println!("{report}");
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn chosen(filter: Option<&str>) -> Vec<Case> {
    let mut chosen = cases();
    chosen.retain(|case| filter.is_none_or(|part| case.name.contains(part)));
    chosen
}

fn as_json(report: &Report) -> serde_json::Value {
    let (passed, failed, skipped) = report.counts();
    let cases: Vec<_> = report
        .verdicts
        .iter()
        .map(|(name, verdict)| match verdict {
            Verdict::Passed => json!({ "name": name, "verdict": "passed" }),
            Verdict::Failed(why) => json!({ "name": name, "verdict": "failed", "why": why }),
            Verdict::Skipped(why) => json!({ "name": name, "verdict": "skipped", "why": why }),
        })
        .collect();
    json!({ "passed": passed, "failed": failed, "skipped": skipped, "cases": cases })
}
