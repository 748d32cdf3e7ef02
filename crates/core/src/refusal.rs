//! Why something is refused, and the one table from reasons to errno.

use serde::{Deserialize, Serialize};

use crate::nouns::NameError;

/// Why an operation was refused: nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("file exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// ENAMETOOLONG.
    #[error("name too long")]
    NameTooLong,
    /// EACCES.
    #[error("permission denied")]
    Access,
    /// EPERM.
    #[error("operation not permitted")]
    NotPermitted,
    /// EROFS.
    #[error("this identity has read permission only")]
    ReadOnly,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// EFBIG.
    #[error("file too large")]
    TooLarge,
    /// ENOSPC.
    #[error("no space left")]
    NoSpace,
    /// ENODATA.
    #[error("no such extended attribute")]
    NoAttribute,
    /// ERANGE.
    #[error("extended attribute too large")]
    AttributeTooLarge,
    /// EOPNOTSUPP.
    #[error("not supported")]
    NotSupported,
    /// ESTALE: the inode is gone from the server.
    #[error("the file was removed on the server")]
    Stale,
    /// EHOSTUNREACH: what was asked needs the server, and it cannot be reached.
    #[error("the server cannot be reached")]
    Unreachable,
    /// EIO: a disk failed, or stored bytes are damaged.
    #[error("input/output error")]
    Io,
    /// EAGAIN: what was read changed meanwhile; ask again.
    #[error("changed meanwhile, try again")]
    Changed,
    /// EPROTO: a message that makes no sense.
    #[error("protocol error")]
    Protocol,
    /// EFBIG's twin for requests: over a stated limit.
    #[error("a limit of the server is exceeded")]
    Limit,
    /// EDQUOT.
    #[error("the quota of the volume or directory is exceeded")]
    Quota,
    /// EXDEV: between directories that count against different quotas, only a file of one name
    /// moves.
    #[error("the source and the target directory have different quotas")]
    OtherQuota,
    /// ESTALE's twin for hosts: their cache directory was copied, and the other copy is in use.
    #[error("this cache directory was copied, or put back from a copy")]
    Copied,
    /// EIO: the cache directory of this host lacks data that nobody else has.
    #[error("its data are missing in this host's cache directory")]
    Lost,
    /// EHOSTUNREACH: another host has changed the file, and has not sent that.
    #[error("its contents are on another host, which is away or sends nothing")]
    Hidden,
}

impl Refusal {
    /// The errno an application sees (Linux numbers, asm-generic).
    pub fn errno(self) -> i32 {
        match self {
            Refusal::NotFound => 2,
            Refusal::Exists => 17,
            Refusal::NotDirectory => 20,
            Refusal::IsDirectory => 21,
            Refusal::NotEmpty => 39,
            Refusal::Invalid => 22,
            Refusal::NameTooLong => 36,
            Refusal::Access => 13,
            Refusal::NotPermitted => 1,
            Refusal::ReadOnly => 30,
            Refusal::TooManyLinks => 31,
            Refusal::TooLarge => 27,
            Refusal::NoSpace => 28,
            Refusal::NoAttribute => 61,
            Refusal::AttributeTooLarge => 34,
            Refusal::NotSupported => 95,
            Refusal::Stale => 116,
            Refusal::Unreachable | Refusal::Hidden => 113,
            Refusal::Io | Refusal::Lost => 5,
            Refusal::Changed => 11,
            Refusal::Protocol => 71,
            Refusal::Limit => 7,
            Refusal::Quota => 122,
            Refusal::OtherQuota => 18,
            Refusal::Copied => 116,
        }
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Refusal {
        match error {
            NameError::TooLong => Refusal::NameTooLong,
            NameError::Invalid => Refusal::Invalid,
        }
    }
}
