//! Running cases: each in a process of its own, under a guard.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, chdir, geteuid, setrlimit, umask};

use crate::expect::{Failure, Outcome};
use crate::place::Place;
use crate::process::Process;
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
    for case in cases {
        let verdict = if skip.contains(&case.name) {
            Verdict::Skipped("named by the caller".to_owned())
        } else if case.needs == Needs::Root && !is_root {
            Verdict::Skipped("needs the superuser".to_owned())
        } else {
            match run_guarded(case, dir) {
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
    let outcome = (case.run)(&Place::new(&place));
    chdir("/")?;
    let removed = std::fs::remove_dir_all(&place);
    outcome?;
    removed.map_err(|error| Failure(format!("its directory cannot be removed: {error}")))
}
