//! POSIX conformance: what every file system call of Linux does, and every errno it gives, as
//! functions of a mounted directory.
//!
//! A *case* is one promise: it makes what it needs in a fresh directory, calls, and compares. It
//! runs in a process of its own, whose working directory is that fresh directory, so it may
//! change its user, its umask and its limits, lock files, and die. Nothing but the place is
//! used, except that a few cases read `/proc`.
//!
//! ```text
//! run(dir) ── for each case: fork ─┬─ child: mkdir, chdir, the case, remove ── verdict ──╮
//!                                  ╰─ parent: waits for the verdict, or ends the child ◀─╯
//! ```
//!
//! Every case passes on tmpfs and on ext4; that is what makes it a promise of Linux and not an
//! opinion. Where Linux leaves a choice to the file system, a case accepts the listed answers
//! and says so. What a file system does not offer is given to [`run`] by name.

mod call;
mod cases;
mod expect;
mod place;
mod process;
mod report;
mod run;
mod sys;

pub use cases::cases;
pub use expect::{Failure, Outcome};
pub use place::Place;
pub use report::{Report, Verdict};
pub use run::{run, run_cases};

/// What a case can only do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any user will do.
    Nothing,
    /// The superuser: the case changes its user, or makes devices.
    Root,
}

/// One promise, and the check of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its group and what it promises: `rename::over_a_nonempty_directory`.
    pub name: &'static str,
    /// What it can only do with.
    pub needs: Needs,
    /// The check, to be run in a fresh working directory.
    pub run: fn(&Place) -> Outcome,
}
