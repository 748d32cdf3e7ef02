//! How a case says what was wrong: which call gave what instead of what, and where it stands.

use std::fmt::{self, Debug};
use std::panic::Location;

use rustix::io::Errno;

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// Nothing when the promise holds.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure of the line that calls this.
    #[track_caller]
    pub(crate) fn here(message: impl fmt::Display) -> Failure {
        let here = Location::caller();
        let file = here.file().rsplit('/').next().unwrap_or_default();
        Failure(format!("{message} ({file}:{})", here.line()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A call whose success goes without saying: the line says which one it was.
impl From<Errno> for Failure {
    #[track_caller]
    fn from(errno: Errno) -> Failure {
        Failure::here(format_args!("a call gave {} instead of success", errno_name(errno)))
    }
}

impl From<std::io::Error> for Failure {
    #[track_caller]
    fn from(error: std::io::Error) -> Failure {
        Failure::here(format_args!("a call gave '{error}' instead of success"))
    }
}

/// `call` must fail, with one of `wanted`.
#[track_caller]
pub(crate) fn refused<T>(call: Result<T, Errno>, source: &str, wanted: &[Errno]) -> Outcome {
    let gave = match call {
        Err(errno) if wanted.contains(&errno) => return Ok(()),
        Err(errno) => errno_name(errno),
        Ok(_) => "success".to_owned(),
    };
    let wanted: Vec<String> = wanted.iter().map(|&errno| errno_name(errno)).collect();
    Err(Failure::here(format_args!("{source} gave {gave} instead of {}", wanted.join(" or "))))
}

/// `call` must succeed.
#[track_caller]
pub(crate) fn granted<T>(call: Result<T, Errno>, source: &str) -> Result<T, Failure> {
    match call {
        Ok(gave) => Ok(gave),
        // No closure: it would stand in the failure's place for its caller.
        Err(errno) => {
            let gave = errno_name(errno);
            Err(Failure::here(format_args!("{source} gave {gave} instead of success")))
        }
    }
}

/// What `source` says must equal `wanted`.
#[track_caller]
pub(crate) fn equal<T: PartialEq + Debug>(got: T, source: &str, wanted: T) -> Outcome {
    if got == wanted {
        return Ok(());
    }
    Err(Failure::here(format_args!("{source} is {} instead of {}", short(&got), short(&wanted))))
}

/// `condition` must hold.
#[track_caller]
pub(crate) fn truth(condition: bool, source: &str) -> Outcome {
    if condition { Ok(()) } else { Err(Failure::here(format_args!("not so: {source}"))) }
}

/// A value as it is shown in a message: contents of files would fill the screen.
fn short(value: &impl Debug) -> String {
    const SHOWN: usize = 160;
    let text = format!("{value:?}");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// `fails!(call, NOTDIR | NOTEMPTY)?`: the call fails with one of these.
macro_rules! fails {
    ($call:expr, $($errno:ident)|+) => {
        $crate::expect::refused($call, stringify!($call), &[$(rustix::io::Errno::$errno),+])
    };
}

/// `works!(call)?`: the call succeeds, and this is what it gave.
macro_rules! works {
    ($call:expr) => {
        $crate::expect::granted($call, stringify!($call))
    };
}

/// `same!(got, wanted)?`: both are equal.
macro_rules! same {
    ($got:expr, $wanted:expr) => {
        $crate::expect::equal($got, stringify!($got), $wanted)
    };
}

/// `holds!(condition)?`: it is true.
macro_rules! holds {
    ($condition:expr) => {
        $crate::expect::truth($condition, stringify!($condition))
    };
}

pub(crate) use {fails, holds, same, works};

/// The name of an errno as man pages have it.
pub(crate) fn errno_name(errno: Errno) -> String {
    let name = match errno {
        Errno::ACCESS => "EACCES",
        Errno::AGAIN => "EAGAIN",
        Errno::BADF => "EBADF",
        Errno::BUSY => "EBUSY",
        Errno::DEADLK => "EDEADLK",
        Errno::EXIST => "EEXIST",
        Errno::FAULT => "EFAULT",
        Errno::FBIG => "EFBIG",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::INTR => "EINTR",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::ISDIR => "EISDIR",
        Errno::LOOP => "ELOOP",
        Errno::MLINK => "EMLINK",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NODATA => "ENODATA",
        Errno::NODEV => "ENODEV",
        Errno::NOENT => "ENOENT",
        Errno::NOLCK => "ENOLCK",
        Errno::NOSPC => "ENOSPC",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTDIR => "ENOTDIR",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::NOTTY => "ENOTTY",
        Errno::NXIO => "ENXIO",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::PERM => "EPERM",
        Errno::RANGE => "ERANGE",
        Errno::ROFS => "EROFS",
        Errno::SPIPE => "ESPIPE",
        Errno::STALE => "ESTALE",
        Errno::TOOBIG => "E2BIG",
        Errno::TXTBSY => "ETXTBSY",
        Errno::XDEV => "EXDEV",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}
