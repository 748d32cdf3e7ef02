//! `segue-test`: runs the test binaries that cargo has built, many tests side by side.
//!
//! ```text
//!   cargo test --no-run --message-format=json ──▶ binaries ──▶ jobs ──▶ two pools ──▶ report
//! ```
//!
//! Each integration test runs in a process of its own: no test inherits descriptors of another
//! one, and a test that hangs is ended alone. The unit tests of a crate are one job. Most
//! end-to-end tests wait for links, clocks and disks, so many of them run at once. Jobs that
//! keep a processor busy run beside them, one at a time.
//!
//! No test is retried. A test that cannot run prints a line that begins with `SKIPPED:`; the
//! report counts and lists it. With `--strict` it fails, unless the file of `--may-skip` names it.

#![allow(clippy::print_stdout)]

mod binaries;
mod job;
mod pool;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use self::job::Job;
use self::report::{Report, Skips};

/// Waiting tests at a time. On two processors all tests take 341 s so, and both are busy. No other
/// number was measured.
const WAITING: usize = 8;

/// The command line.
#[derive(Debug, Default)]
struct Arguments {
    /// What `cargo test --no-run --message-format=json` printed.
    binaries: PathBuf,
    /// Where the seconds of each job are noted, and where those of the last run are.
    times: Option<PathBuf>,
    /// Names of tests that may be skipped.
    may_skip: Option<PathBuf>,
    /// Any other skipped test fails.
    is_strict: bool,
    /// Only jobs whose name begins with one of these.
    only: Vec<String>,
    /// Waiting tests at a time.
    jobs: Option<usize>,
}

const USAGE: &str = "usage: segue-test BINARIES.json [--times FILE] [--may-skip FILE] \
    [--strict] [--jobs N] [BINARY[::TEST]..]";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(words) => {
            eprintln!("segue-test: {words}");
            ExitCode::from(2)
        }
    }
}

/// Runs what the command line asks for; true if every test passed.
fn run() -> Result<bool, String> {
    let arguments = parse(std::env::args().skip(1))?;
    let binaries = binaries::read(&arguments.binaries)?;
    let last = arguments.times.as_deref().map(report::read_times).unwrap_or_default();
    let mut jobs = Vec::new();
    for binary in binaries {
        jobs.extend(Job::of(&binary)?);
    }
    if !arguments.only.is_empty() {
        jobs.retain(|job| arguments.only.iter().any(|name| job.is_called(name)));
    }
    if jobs.is_empty() {
        return Err(format!("no test is called {}", arguments.only.join(" or ")));
    }
    // The longest first, so that none is left alone at the end.
    let expected = |job: &Job| last.get(&job.name).copied().unwrap_or(f64::INFINITY);
    jobs.sort_by(|one, other| expected(other).total_cmp(&expected(one)));
    let named = arguments.may_skip.as_deref().map(report::read_skips).transpose()?;
    let skips = Skips { named: named.unwrap_or_default(), are_strict: arguments.is_strict };
    let mut report = Report::new(skips, arguments.only.is_empty());
    pool::run(jobs, arguments.jobs.unwrap_or(WAITING), |done| report.add(done));
    if let Some(times) = &arguments.times {
        report.write_times(times)?;
    }
    Ok(report.finish())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"));
        match word.as_str() {
            "--times" => arguments.times = Some(value()?.into()),
            "--may-skip" => arguments.may_skip = Some(value()?.into()),
            "--strict" => arguments.is_strict = true,
            "--jobs" => arguments.jobs = Some(number(&value()?)?),
            _ if word.starts_with('-') => return Err(format!("unknown option {word}; {USAGE}")),
            _ if arguments.binaries.as_os_str().is_empty() => arguments.binaries = word.into(),
            _ => arguments.only.push(word),
        }
    }
    match arguments.binaries.as_os_str().is_empty() {
        true => Err(USAGE.to_owned()),
        false => Ok(arguments),
    }
}

fn number(word: &str) -> Result<usize, String> {
    let number = word.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("--jobs {word}: not a number of tests"))
}
