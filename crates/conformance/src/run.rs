//! Running cases: each in a process of its own, under a guard.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, chdir, geteuid, setrlimit, umask};

use crate::expect::{Failure, Outcome};
use crate::place::Place;
use crate::process::{Process, without_panic};
use crate::report::{Report, Verdict};
use crate::{Case, Needs};

/// After how long a case counts as hanging. A file system behind a slow network may take seconds
/// for a case; none has that much to do.
const GUARD_SECONDS: i64 = 120;

/// Runs all cases in `dir`, except those named in `skip`.
pub fn run(dir: &Path, skip: &[&str]) -> Report {
    run_cases(&crate::cases(), dir, skip)
}

/// Runs these cases in `dir`, except those named in `skip`.
///
/// A name in `skip` that no case of the suite has counts as a failure: a list of what is missing
/// must not outlive what it lists.
pub fn run_cases(cases: &[Case], dir: &Path, skip: &[&str]) -> Report {
    let mut report = Report::default();
    let known = crate::cases();
    for &name in skip.iter().filter(|&&name| known.iter().all(|case| case.name != name)) {
        let reason = "is to be skipped, but no case has this name".to_owned();
        report.verdicts.push((name.to_owned(), Verdict::Failed(reason)));
    }
    let is_root = geteuid().is_root();
    // Cases move; only the path is made, nothing is asked of the place.
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    for case in cases {
        let verdict = if skip.contains(&case.name) {
            Verdict::Skipped("named by the caller".to_owned())
        } else if case.needs == Needs::Root && !is_root {
            Verdict::Skipped("needs the superuser".to_owned())
        } else {
            match run_guarded(case, &dir) {
                Ok(()) => Verdict::Passed,
                Err(failure) => Verdict::Failed(failure.0),
            }
        };
        report.verdicts.push((case.name.to_owned(), verdict));
    }
    report
}

/// Nothing of the place is touched here: if it hangs, only the child does.
fn run_guarded(case: &Case, dir: &Path) -> Outcome {
    let place = dir.join(case.name.replace("::", "."));
    Process::start_alone(|| run_inside(case, place))?.join_within(GUARD_SECONDS)
}

fn run_inside(case: &Case, place: PathBuf) -> Outcome {
    // A case may die on purpose; its memory is of no interest.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    umask(rustix::fs::Mode::from_raw_mode(0o022));
    std::fs::create_dir(&place)?;
    chdir(&place)?;
    let outcome = without_panic(|| (case.run)(&Place::new(&place)));
    chdir("/")?;
    let removed = std::fs::remove_dir_all(&place);
    outcome?;
    removed.map_err(|error| Failure(format!("its directory cannot be removed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::{fails, same};

    fn verdict(run: fn(&Place) -> Outcome) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let case = Case { name: "group::case", needs: Needs::Nothing, run };
        let mut report = run_cases(&[case], dir.path(), &[]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something is left");
        report.verdicts.pop().unwrap().1
    }

    #[test]
    fn a_case_that_holds_passes() {
        let made = verdict(|p| p.file("f", "text").and_then(|()| p.holds("f", "text")));
        assert_eq!(made, Verdict::Passed);
    }

    #[test]
    fn a_failure_says_which_call_gave_what_instead_of_what_and_where() {
        let line = line!() + 1;
        let made = verdict(|_| fails!(rustix::fs::stat("."), NOENT | NOTDIR));
        let call = r#"rustix::fs::stat(".") gave success instead of ENOENT or ENOTDIR"#;
        assert_eq!(made, Verdict::Failed(format!("{call} (run.rs:{line})")));
    }

    #[test]
    fn a_panic_is_a_failure() {
        let panicked = verdict(|_| panic!("on purpose"));
        assert_eq!(panicked, Verdict::Failed("panicked".to_owned()));
    }

    #[test]
    fn a_case_that_dies_says_by_what() {
        let dir = tempfile::tempdir().unwrap();
        let run = |_: &Place| {
            let me = rustix::process::getpid();
            Ok(rustix::process::kill_process(me, rustix::process::Signal::KILL)?)
        };
        let case = Case { name: "group::case", needs: Needs::Nothing, run };
        let report = run_cases(&[case], dir.path(), &[]);
        let died = "ended without a verdict, by signal 9";
        assert_eq!(report.failures().collect::<Vec<_>>(), [("group::case", died)]);
    }

    #[test]
    fn a_case_that_hangs_is_ended_with_all_that_it_started() {
        let hanging = Process::start_alone(|| {
            let _other = Process::start(|| {
                loop {
                    std::thread::park();
                }
            })?;
            loop {
                std::thread::park();
            }
        });
        let outcome = hanging.unwrap().join_within(0);
        assert_eq!(outcome, Err(Failure("did not end within 0 s".to_owned())));
    }

    #[test]
    fn what_is_named_is_skipped_and_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let known = crate::cases()[0];
        let report = run_cases(&[known], dir.path(), &[known.name, "group::gone"]);
        assert_eq!(report.counts(), (0, 1, 1));
        assert_eq!(report.failures().next().unwrap().0, "group::gone");
    }

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<&str> = crate::cases().iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_case_has_a_directory_of_its_own() {
        let before = std::env::current_dir().unwrap();
        let moved = verdict(|p| same!(std::env::current_dir()?.as_path(), p.path()));
        assert_eq!(moved, Verdict::Passed);
        assert_eq!(std::env::current_dir().unwrap(), before);
    }
}
