//! What is said of the jobs: each as it ends, then what failed, what was skipped and what took
//! longest, and the line with which cargo's own runner closes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::job::{Done, Ended};

/// As many of the slowest are listed.
const SLOWEST: usize = 30;
/// Of what a failed job printed at most so many bytes, from its end.
const SHOWN_MAX: usize = 40_000;

/// Counts of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Which tests may be skipped.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    /// Tests, modules or binaries that may not run here, or that the kernel may leave waiting.
    pub(crate) named: BTreeSet<String>,
    /// Whether a skipped test that is not named has failed.
    pub(crate) are_strict: bool,
}

impl Skips {
    /// Whether test `name` is named, by itself or with its module or binary.
    fn are_for(&self, name: &str) -> bool {
        let is_in = |named: &String| {
            let rest = name.strip_prefix(named.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        self.named.iter().any(is_in)
    }
}

/// What has ended so far.
#[derive(Debug)]
pub(crate) struct Report {
    start: Instant,
    skips: Skips,
    /// Whether all tests run, so that the list of slow ones says something.
    is_whole: bool,
    counts: Counts,
    /// Seconds and name.
    times: Vec<(f64, String)>,
    /// Name and reason.
    skipped: Vec<(String, String)>,
    failed: Vec<String>,
}

impl Report {
    pub(crate) fn new(skips: Skips, is_whole: bool) -> Report {
        Report {
            start: Instant::now(),
            skips,
            is_whole,
            counts: Counts::default(),
            times: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Says how a job ended, and counts it.
    pub(crate) fn add(&mut self, done: Done) {
        let mut counts = counts(&done.output);
        let is_named = self.skips.are_for(&done.name);
        let mut reasons: Vec<String> = skips(&done.output).map(str::to_owned).collect();
        let failure = match &done.ended {
            Ended::Exited(status) if status.success() => match reasons.first() {
                Some(reason) if self.skips.are_strict && !is_named => {
                    Some(format!("skipped: {reason}"))
                }
                _ => None,
            },
            Ended::Exited(status) => Some(status.to_string()),
            Ended::Killed => Some("it hung and was killed".into()),
            Ended::LeftWaiting if is_named => {
                reasons.push("the kernel left its process waiting".into());
                counts.passed = 1;
                None
            }
            Ended::LeftWaiting => Some("it hung, and the kernel does not end it".into()),
            Ended::NotStarted(error) => Some(format!("not started: {error}")),
        };
        let words = match failure {
            Some(why) => {
                counts.failed = counts.failed.max(1);
                self.failed.push(done.name.clone());
                println!("--- {} printed:\n{}---", done.name, indented(&done.output));
                format!("FAILED ({why})")
            }
            None if reasons.is_empty() => format!("ok{}", seeds(&done.output)),
            None => {
                // Nobody has seen what they check.
                let skipped = counts.passed.min(reasons.len() as u64);
                counts.passed -= skipped;
                counts.ignored += skipped;
                self.skipped.extend(reasons.into_iter().map(|reason| (done.name.clone(), reason)));
                "skipped".into()
            }
        };
        println!("{:>7.1} s  {}: {words}", done.seconds, done.name);
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
        self.counts.ignored += counts.ignored;
        self.times.push((done.seconds, done.name));
    }

    /// Notes the seconds of each job, the longest first.
    pub(crate) fn write_times(&mut self, file: &Path) -> Result<(), String> {
        self.times.sort_by(|one, other| other.0.total_cmp(&one.0));
        // A part of the tests leaves the times of the others as they were.
        let mut all = read_times(file);
        all.extend(self.times.iter().map(|(seconds, name)| (name.clone(), *seconds)));
        let mut lines: Vec<_> = all.into_iter().collect();
        lines.sort_by(|one, other| other.1.total_cmp(&one.1));
        let text: String = lines.iter().fold(String::new(), |mut text, (name, seconds)| {
            let _ = writeln!(text, "{seconds:.1}\t{name}");
            text
        });
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Says all that is left to say; true if every test passed.
    pub(crate) fn finish(mut self) -> bool {
        self.times.sort_by(|one, other| other.0.total_cmp(&one.0));
        if self.is_whole {
            println!("\nThe slowest {SLOWEST} of {} jobs, in seconds:", self.times.len());
            for (seconds, name) in self.times.iter().take(SLOWEST) {
                println!("{seconds:>7.1}  {name}");
            }
        }
        println!("\nSkipped tests: {}", self.skipped.len());
        for (name, reason) in &self.skipped {
            println!("    {name}: {reason}");
        }
        if !self.failed.is_empty() {
            println!("\nFailed:");
            self.failed.iter().for_each(|name| println!("    {name}"));
        }
        println!("\n{}", closing(self.counts, self.start.elapsed().as_secs_f64()));
        self.failed.is_empty()
    }
}

/// The line with which cargo's own runner closes.
fn closing(counts: Counts, seconds: f64) -> String {
    let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
    let Counts { passed, failed, ignored } = counts;
    format!(
        "test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; \
         0 measured; 0 filtered out; finished in {seconds:.2}s"
    )
}

/// The counts of the last closing line in `output`. A test of a runner may print others before it.
fn counts(output: &str) -> Counts {
    let line = output.lines().rfind(|line| line.starts_with("test result: ")).unwrap_or_default();
    let count = |what: &str| {
        let before = line.split("; ").find_map(|part| part.strip_suffix(what));
        let digits = before.and_then(|before| before.rsplit(' ').next());
        digits.and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0)
    };
    Counts { passed: count(" passed"), failed: count(" failed"), ignored: count(" ignored") }
}

/// The seeds from which a test drew, so that it can draw them again.
fn seeds(output: &str) -> String {
    let lines = output.lines().filter(|line| line.starts_with("SEED="));
    lines.map(|line| format!(", {line}")).collect()
}

/// The reasons of tests that could not run.
fn skips(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| line.strip_prefix("SKIPPED: "))
}

/// The end of `output`, apart from this program's own lines: whoever reads those of a runner
/// inside a runner, as CI does, counts the closing line of the outer one only.
fn indented(output: &str) -> String {
    let mut from = output.len().saturating_sub(SHOWN_MAX);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    let end = output.get(from..).unwrap_or_default();
    end.lines().map(|line| format!("    {line}\n")).collect()
}

/// The seconds of the last run by name; empty if there was none.
pub(crate) fn read_times(file: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let entry = |line: &str| {
        let (seconds, name) = line.split_once('\t')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// The tests that may be skipped, one a line; `#` begins a comment.
pub(crate) fn read_skips(file: &Path) -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn done(name: &str, output: &str, code: i32) -> Done {
        let ended = Ended::Exited(ExitStatus::from_raw(code << 8));
        Done { name: name.into(), seconds: 1.0, output: output.into(), ended }
    }

    const PASSED: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 7 filtered";

    #[test]
    fn counts_are_those_of_the_closing_line() {
        let two = "x\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n\
                   test result: ok. 13 passed; 2 failed; 3 ignored; 0 measured\n";
        assert_eq!(counts(two), Counts { passed: 13, failed: 2, ignored: 3 });
        let line = closing(Counts { passed: 13, failed: 2, ignored: 3 }, 1.0);
        assert_eq!(counts(&line), Counts { passed: 13, failed: 2, ignored: 3 });
    }

    #[test]
    fn a_skipped_test_has_not_passed() {
        let mut report = Report::new(Skips::default(), false);
        report.add(done("a", &format!("SKIPPED: no vim\n{PASSED}\n"), 0));
        assert_eq!(report.counts, Counts { passed: 0, failed: 0, ignored: 1 });
        assert_eq!(report.skipped, [("a".into(), "no vim".into())]);
        assert!(report.finish());
    }

    #[test]
    fn a_skip_that_is_not_allowed_fails() {
        let named = BTreeSet::from(["a".to_owned()]);
        let mut report = Report::new(Skips { named, are_strict: true }, false);
        report.add(done("a", &format!("SKIPPED: no vim\n{PASSED}\n"), 0));
        assert!(report.failed.is_empty());
        report.add(done("b", &format!("SKIPPED: no vim\n{PASSED}\n"), 0));
        assert_eq!(report.failed, ["b"]);
        assert!(!report.finish());
    }

    #[test]
    fn a_process_that_the_kernel_does_not_end_is_told_of() {
        let named = BTreeSet::from(["a".to_owned()]);
        let mut report = Report::new(Skips { named, are_strict: true }, false);
        for name in ["a", "b"] {
            report.add(Done { ended: Ended::LeftWaiting, ..done(name, "", 0) });
        }
        assert_eq!(report.counts, Counts { passed: 0, failed: 1, ignored: 1 });
        assert_eq!(report.failed, ["b"]);
    }

    #[test]
    fn a_process_that_dies_without_a_word_has_failed() {
        let mut report = Report::new(Skips::default(), false);
        report.add(done("a", "", 101));
        assert_eq!(report.counts, Counts { passed: 0, failed: 1, ignored: 0 });
        assert!(!report.finish());
    }

    #[test]
    fn a_part_of_the_tests_keeps_the_times_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("times");
        fs::write(&file, "9.0\tother\n3.0\ta\n").unwrap();
        let mut report = Report::new(Skips::default(), false);
        report.add(done("a", PASSED, 0));
        report.write_times(&file).unwrap();
        assert_eq!(read_times(&file), BTreeMap::from([("a".into(), 1.0), ("other".into(), 9.0)]));
    }
}
