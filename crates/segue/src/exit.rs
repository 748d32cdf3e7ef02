//! The end of a command: an exit code and, after a failure, a message for the user.

use std::fmt;
use std::process::ExitCode;

/// Every exit code of the program. Scripts rely on the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done = 0,
    /// A failure without a code of its own.
    Failed = 1,
    /// The command line, an option, or the configuration is wrong.
    Usage = 2,
    /// A path named on the command line does not exist.
    NotFound = 3,
    /// The server cannot be reached; a retry helps.
    Offline = 4,
    /// Two hosts changed the same object.
    Conflict = 5,
    /// The wait for changes to become safe timed out.
    NotYetSafe = 6,
    /// The server refused changes, or a server's data are damaged.
    DataAtRisk = 7,
    /// This user or this identity lacks the permission.
    NotPermitted = 8,
}

impl Exit {
    /// The exit code with number `code`; [`Exit::Failed`] for an unknown number.
    pub(crate) fn from_code(code: u8) -> Exit {
        match code {
            0 => Exit::Done,
            2 => Exit::Usage,
            3 => Exit::NotFound,
            4 => Exit::Offline,
            5 => Exit::Conflict,
            6 => Exit::NotYetSafe,
            7 => Exit::DataAtRisk,
            8 => Exit::NotPermitted,
            _ => Exit::Failed,
        }
    }

    /// The number.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The failure of a command. Its message names the action, the path or host, the reason and the
/// remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code of the process.
    pub(crate) exit: Exit,
    words: String,
}

impl Failure {
    /// A failure with `words`, which start in lower case and name the path or host.
    pub(crate) fn new(exit: Exit, words: impl Into<String>) -> Failure {
        Failure { exit, words: words.into() }
    }

    /// A failure without a code of its own.
    pub(crate) fn failed(words: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, words)
    }

    /// A mistake in the command line or the configuration.
    pub(crate) fn usage(words: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, words)
    }

    /// The failure of a system call; `what` names the action and the path.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            std::io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}

/// The result of every command.
pub(crate) type Outcome = Result<Exit, Failure>;
