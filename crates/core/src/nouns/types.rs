//! The nouns that everything else is about: inodes, names, versions, fingerprints, callers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::persist::Lm;

/// Number of an inode: unique in its volume for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of every volume.
    pub const ROOT: Ino = Ino(1);
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a volume on its server, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct VolumeId(pub u32);

/// 128 random bits made with each cache directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub [u8; 16]);

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

/// Identity of one record: applied at most once, whatever is sent again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct OpId {
    /// The cache that wrote the record.
    pub client: ClientId,
    /// Which life of that cache's update log.
    pub incarnation: u32,
    /// Place in the log.
    pub seq: u64,
}

/// State of an inode's attributes or data: a later one of the same epoch is greater.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Version {
    /// Grows when a volume is restored from a backup.
    pub epoch: u32,
    /// Grows with every commit in the volume.
    pub counter: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.counter)
    }
}

/// BLAKE3-256 of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_hex(&self.0, f)
    }
}

fn fmt_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Wall-clock time since 1970, as files carry it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub secs: i64,
    /// 0 to 999,999,999, always forward from `secs`.
    pub nanos: u32,
}

/// Most bytes of a file: offsets are signed to applications.
pub const SIZE_MAX: u64 = i64::MAX as u64;

impl Timestamp {
    /// True if it has no more nanoseconds than a second.
    pub fn is_valid(self) -> bool {
        self.nanos < 1_000_000_000
    }
}

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Attributes of an inode, as stat(2) reports them, with the versions that caches compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// The inode.
    pub ino: Ino,
    /// File, directory, ..
    pub kind: Kind,
    /// Permission bits with setuid, setgid, sticky (07777).
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner. 0 is the volume's owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u32,
    /// Bytes from the start to the end of file.
    pub size: u64,
    /// Bytes that are not holes.
    pub allocated: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Changes with every committed change of this inode; of a directory also with its entries.
    pub change: Version,
    /// Changes with every committed change of the data.
    pub data_version: Version,
    /// The directory against whose quota it counts.
    pub quota: Option<Ino>,
    /// How soon changes of it, or of what is below it, must be with the server; `None`: as in the
    /// directory it is in.
    pub lm: Option<Lm>,
}

impl Attr {
    /// The later one of its versions.
    pub fn latest(&self) -> Version {
        self.change.max(self.data_version)
    }
}

/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;

/// A name in a directory: 1 to 255 bytes without '/' and NUL, not "." or "..".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Vec<u8>);

/// Why bytes are not a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// ENAMETOOLONG.
    #[error("name is longer than {NAME_MAX} bytes")]
    TooLong,
    /// EINVAL.
    #[error("name is empty, '.', '..', or holds '/' or NUL")]
    Invalid,
}

impl Name {
    /// Checks `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Name, NameError> {
        let bytes = bytes.into();
        if bytes.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        let reserved = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if reserved || bytes.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(NameError::Invalid);
        }
        Ok(Name(bytes))
    }

    /// A key that sorts before every name, and is none.
    pub(crate) fn least() -> Name {
        Name(Vec::new())
    }

    /// The name as the kernel gave it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;
    fn try_from(bytes: Vec<u8>) -> Result<Name, NameError> {
        Name::new(bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Vec<u8> {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

/// Priority of a message; a smaller one goes first [MFS table 1].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Class {
    /// Attributes, names, breaks, pulls: small and waited for.
    Validate,
    /// File data and directory contents that someone waits for.
    Fetch,
    /// Write-back of metadata.
    StoreAttr,
    /// Write-back of shared files.
    StoreFast,
    /// Write-back of unshared files.
    StoreData,
    /// What nobody asked for yet.
    Prefetch,
}

impl Class {
    /// Every class, most urgent first.
    pub const ALL: [Class; 6] = [
        Class::Validate,
        Class::Fetch,
        Class::StoreAttr,
        Class::StoreFast,
        Class::StoreData,
        Class::Prefetch,
    ];

    /// The class of a change that has waited for too long: it rises by one, and never above
    /// [`Class::StoreFast`].
    pub fn when_due(self) -> Class {
        match self {
            Class::StoreData => Class::StoreFast,
            Class::Prefetch => Class::StoreData,
            other => other,
        }
    }

    /// The class of an answer of more than a packet, without a body. Write-back waits for it before
    /// it goes on, so it takes its turn among what is fetched: below that it would wait for as long
    /// as anything is.
    pub fn of_answer(self) -> Class {
        match self {
            Class::StoreAttr | Class::StoreFast | Class::StoreData => Class::Fetch,
            other => other,
        }
    }

    /// The class's name in the command line's words and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Class::Validate => "validate",
            Class::Fetch => "fetch",
            Class::StoreAttr => "store-attr",
            Class::StoreFast => "store-fast",
            Class::StoreData => "store-data",
            Class::Prefetch => "prefetch",
        }
    }
}

/// Who asked for a change: resolved once, when the kernel's request arrives.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Process, 0 when the kernel itself asked.
    pub pid: u32,
    /// Process group, by which operations will be told apart.
    pub process_group: u32,
    /// Program name as the kernel has it (comm).
    pub program: String,
    /// Process session, 0 if it is not known: what a sync in it covers comes before what it does
    /// later. Only this host needs to know.
    #[serde(skip)]
    pub session: u32,
}

impl Caller {
    /// The caller of changes that no program asked for.
    pub fn nobody() -> Caller {
        Caller { program: "segue".into(), ..Caller::default() }
    }

    /// True if the caller is in group `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// What an identity may do on its volume: each more than those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything, changes nothing.
    Reader,
    /// Reads and writes as the volume's owner, whatever local user asks.
    Writer,
    /// Speaks for all users of its host.
    Host,
}

/// A run of unused inode numbers that belongs to one client for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InoGrant {
    /// First number.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl InoGrant {
    /// True if `ino` is one of the granted numbers.
    pub fn contains(&self, ino: Ino) -> bool {
        ino.0 >= self.first && ino.0 - self.first < self.count
    }
}

/// A moment on a clock that only goes forward, counted from when the process began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub std::time::Duration);

impl Time {
    /// How long ago `earlier` was; nothing if it is still to come.
    pub fn since(self, earlier: Time) -> std::time::Duration {
        self.0.saturating_sub(earlier.0)
    }
}
