//! What can go wrong with a test bed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Why a bed, a host or a program on it did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot carry a bed: not root, no /dev/fuse, a tool is missing.
    #[error("no test bed here: {0}")]
    Unavailable(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// How it failed.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{command}: {output}")]
    Program {
        /// The command line.
        command: String,
        /// Its exit status and what it printed.
        output: String,
    },
    /// Something that was waited for did not come.
    #[error("timed out: {0}")]
    TimedOut(String),
    /// A file system gave a wrong answer.
    #[error("wrong answer: {0}")]
    Wrong(String),
}

/// A bed's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Names the action that an IO error belongs to.
pub trait Doing<T> {
    /// The same result, its error with `what` was being done.
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { what: what.into(), source })
    }
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(io::Error::from).doing(what)
    }
}

/// Runs `command` to its end and returns its standard output; a failure carries what it said.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().doing(shown(command))?;
    check(command, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Turns an unsuccessful `output` of `command` into an error.
pub(crate) fn check(command: &Command, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Err(Error::Program { command: shown(command), output: said.trim_end().to_owned() })
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a `command` that leaves a daemon behind and returns once it has detached.
///
/// What it prints goes to the file `log`: a daemon that kept a pipe of ours would let us wait
/// for ever.
pub fn run_detaching(command: &mut Command, log: &Path) -> Result<()> {
    let before = fs::metadata(log).map_or(0, |meta| meta.len());
    let file = fs::File::options().create(true).append(true).open(log).doing("open a log")?;
    let copy = file.try_clone().doing("open a log")?;
    let status = command.stdin(Stdio::null()).stdout(file).stderr(copy).status();
    let status = status.doing(shown(command))?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read(log).doing("read a log")?;
    let said = said.get(usize::try_from(before).unwrap_or(0)..).unwrap_or_default();
    let output = format!("{status}: {}", String::from_utf8_lossy(said).trim_end());
    Err(Error::Program { command: shown(command), output })
}
