//! A record: one change of the file system, as it stands in the update log and on the wire.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Attr, Caller, Fingerprint, Ino, Name, Timestamp, Version};

/// What a new inode is to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NewNode {
    /// Empty regular file.
    File,
    /// Empty directory.
    Directory,
    /// Symbolic link to these bytes.
    Symlink(#[serde(with = "bytes_as_slice")] Vec<u8>),
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device with this number.
    CharDevice(u32),
    /// Block device with this number.
    BlockDevice(u32),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of data.
    pub mtime: Option<Timestamp>,
    /// The times were given as "now": a writer may set them, not only the owner.
    pub times_now: bool,
}

impl SetAttr {
    /// True if it says when something was changed, and nothing else: who may change it may say so.
    pub(crate) fn is_only_when(&self) -> bool {
        let when = SetAttr { mtime: self.mtime, times_now: true, ..SetAttr::default() };
        self.mtime.is_some() && *self == when
    }
}

/// How a rename treats an existing target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RenameMode {
    /// The target is replaced: this inode, or nothing, was there when the user renamed.
    Replace(Option<Ino>),
    /// EEXIST if there is a target (RENAME_NOREPLACE).
    NoReplace,
    /// Both names change places; this inode was the other one (RENAME_EXCHANGE).
    Exchange(Ino),
}

/// Which state of the data a store was made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Base {
    /// The data version that the client had read.
    Version(Version),
    /// The result of the client's own record with this seq, of the same incarnation.
    Result(u64),
}

/// A run of new bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Where it starts in the file.
    pub offset: u64,
    /// What it is.
    pub bytes: PieceBytes,
}

/// The bytes of a [`Piece`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PieceBytes {
    /// Here they are, at most [`INLINE_MAX`].
    Inline(#[serde(with = "bytes_as_slice")] Vec<u8>),
    /// A whole chunk that the server holds.
    Chunk {
        /// Its fingerprint.
        fingerprint: Fingerprint,
        /// Its length in bytes.
        len: u32,
    },
    /// Zeros that need no room.
    Hole {
        /// How many.
        len: u64,
    },
    /// A whole leaf that the server holds.
    Leaf {
        /// Its name.
        leaf: Fingerprint,
        /// Its length in bytes.
        len: u64,
    },
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match &self.bytes {
            PieceBytes::Inline(bytes) => bytes.len() as u64,
            PieceBytes::Chunk { len, .. } => u64::from(*len),
            PieceBytes::Hole { len } | PieceBytes::Leaf { len, .. } => *len,
        }
    }

    /// True for a piece without bytes, which nobody should send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Largest run of bytes that travels inside a record.
pub const INLINE_MAX: usize = 8192;

/// New data of one file, applied as a whole or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Store {
    /// The file.
    pub ino: Ino,
    /// The state it was made from; another one on the server is a conflict.
    pub base: Base,
    /// The smallest size that the file had since `base`: everything beyond goes first.
    pub cut: Option<u64>,
    /// Size afterwards.
    pub size: u64,
    /// New bytes, ascending and not overlapping.
    pub pieces: Vec<Piece>,
    /// When the data last changed; `None` if a later setattr record says so.
    pub mtime: Option<Timestamp>,
    /// `pieces` are the whole content, so that a conflict can keep it beside the server's.
    pub whole: bool,
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A new inode under a new name.
    Create {
        /// Directory.
        parent: Ino,
        /// New name in it.
        name: Name,
        /// Number of the new inode, from the client's grants.
        ino: Ino,
        /// What it is.
        node: NewNode,
        /// Permission bits (07777), umask applied.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A further name for an inode.
    Link {
        /// The inode, not a directory.
        ino: Ino,
        /// Directory of the new name.
        parent: Ino,
        /// New name.
        name: Name,
    },
    /// A name of anything but a directory goes.
    Unlink {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: Name,
        /// What the name meant when the user removed it.
        ino: Ino,
        /// The file is open here: keep its data until `Release`.
        open: bool,
    },
    /// An empty directory goes.
    Rmdir {
        /// Directory that holds it.
        parent: Ino,
        /// Name in it.
        name: Name,
        /// What the name meant when the user removed it.
        ino: Ino,
    },
    /// A name moves.
    Rename {
        /// Directory it leaves.
        from_parent: Ino,
        /// Name it had.
        from_name: Name,
        /// What the name meant when the user renamed.
        ino: Ino,
        /// Directory it enters.
        to_parent: Ino,
        /// Name it gets.
        to_name: Name,
        /// What happens to an existing target.
        mode: RenameMode,
        /// The replaced file is open here: keep its data until `Release`.
        open: bool,
    },
    /// Attributes change.
    SetAttr {
        /// The inode.
        ino: Ino,
        /// What changes.
        set: SetAttr,
    },
    /// An extended attribute is set.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// Full name, `user.` included.
        #[serde(with = "bytes_as_slice")]
        name: Vec<u8>,
        /// New value.
        #[serde(with = "bytes_as_slice")]
        value: Vec<u8>,
    },
    /// An extended attribute goes.
    RemoveXattr {
        /// The inode.
        ino: Ino,
        /// Full name.
        #[serde(with = "bytes_as_slice")]
        name: Vec<u8>,
    },
    /// Data change.
    Store(Store),
    /// The last handle here of an unlinked file is closed.
    Release {
        /// The file.
        ino: Ino,
    },
    /// An empty file gets all data of another, without a byte of them travelling. Where either
    /// is not what it was meant to be nothing happens, and its outcome shows an empty file.
    Clone {
        /// The empty file.
        ino: Ino,
        /// The state of its data.
        base: Base,
        /// The other file.
        from: Ino,
        /// The version of the data that are meant.
        version: Version,
    },
}

impl Record {
    /// All inodes that it names.
    pub fn inodes_mut(&mut self) -> Vec<&mut Ino> {
        match self {
            Record::Create { parent, ino, .. }
            | Record::Link { ino, parent, .. }
            | Record::Unlink { parent, ino, .. }
            | Record::Rmdir { parent, ino, .. } => vec![parent, ino],
            Record::Rename { from_parent, ino, to_parent, mode, .. } => {
                let target = match mode {
                    RenameMode::Replace(target) => target.as_mut(),
                    RenameMode::Exchange(target) => Some(target),
                    RenameMode::NoReplace => None,
                };
                [from_parent, ino, to_parent].into_iter().chain(target).collect()
            }
            Record::SetAttr { ino, .. }
            | Record::SetXattr { ino, .. }
            | Record::RemoveXattr { ino, .. }
            | Record::Release { ino } => vec![ino],
            Record::Store(store) => vec![&mut store.ino],
            Record::Clone { ino, from, .. } => vec![ino, from],
        }
    }

    /// Bytes that are in it beside its numbers and names: what can make it long.
    pub fn payload(&self) -> usize {
        match self {
            Record::SetXattr { value, .. } => value.len(),
            Record::Create { node: NewNode::Symlink(target), .. } => target.len(),
            _ => 0,
        }
    }

    /// A word for `segue log`.
    pub fn kind(&self) -> &'static str {
        match self {
            Record::Create { node: NewNode::Directory, .. } => "mkdir",
            Record::Create { node: NewNode::Symlink(_), .. } => "symlink",
            Record::Create { .. } => "create",
            Record::Link { .. } => "link",
            Record::Unlink { .. } => "unlink",
            Record::Rmdir { .. } => "rmdir",
            Record::Rename { .. } => "rename",
            Record::SetAttr { .. } => "setattr",
            Record::SetXattr { .. } => "setxattr",
            Record::RemoveXattr { .. } => "removexattr",
            Record::Store(_) => "store",
            Record::Release { .. } => "release",
            Record::Clone { .. } => "clone",
        }
    }

    /// The inode that the record is about.
    pub fn ino(&self) -> Ino {
        match self {
            Record::Create { ino, .. }
            | Record::Link { ino, .. }
            | Record::Unlink { ino, .. }
            | Record::Rmdir { ino, .. }
            | Record::Rename { ino, .. }
            | Record::SetAttr { ino, .. }
            | Record::SetXattr { ino, .. }
            | Record::RemoveXattr { ino, .. }
            | Record::Store(Store { ino, .. })
            | Record::Clone { ino, .. }
            | Record::Release { ino } => *ino,
        }
    }

    /// The inode that has a name less afterwards.
    pub fn removed(&self) -> Option<Ino> {
        match self {
            Record::Rmdir { ino, .. } => Some(*ino),
            _ => self.unnamed(),
        }
    }

    /// The file, if it is one, that has a name less afterwards.
    pub fn unnamed(&self) -> Option<Ino> {
        match self {
            Record::Unlink { ino, .. } => Some(*ino),
            Record::Rename { mode: RenameMode::Replace(ino), .. } => *ino,
            _ => None,
        }
    }

    /// Has the server keep that file when this was its last name.
    pub fn keep_unnamed(&mut self) {
        if let Record::Unlink { open, .. } | Record::Rename { open, .. } = self {
            *open = true;
        }
    }

    /// True if the server keeps that file when this was its last name, until it is released.
    pub fn keeps_unnamed(&self) -> bool {
        matches!(self, Record::Unlink { open: true, .. } | Record::Rename { open: true, .. })
    }
}

/// A record with its place in the log, its time and whose it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stamped {
    /// Place in the log; with client and incarnation the record's OpId.
    pub seq: u64,
    /// When the user made the change: mtime and ctime of what it touches.
    pub time: Timestamp,
    /// Who made it.
    pub caller: Caller,
    /// The operation it belongs to, when operations are shipped [OPS 3].
    pub operation: Option<u64>,
    /// The data of the file that loses its last name by this, as they were known: if they are
    /// others by now, somebody has changed what this would remove, and it stays. Nothing where it
    /// may go whatever it is.
    ///
    /// Of a store its base, if a loss of power may have taken the end of its host's log: what that
    /// did since is on the server perhaps, and newer.
    pub known: Option<Base>,
    /// The change.
    pub record: Record,
}

impl Stamped {
    /// The record without what may differ when it is sent again after a crash: a store's
    /// bytes are read from the container each time, and how they are cut depends on them.
    /// Whatever changed them in between has an entry of its own behind this one.
    pub fn identity(&self) -> Stamped {
        let mut identity = self.clone();
        if let Record::Store(store) = &mut identity.record {
            store.pieces.clear();
            store.cut = None;
            store.whole = false;
        }
        identity
    }
}

/// What became of a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Applied. Final.
    Done {
        /// New attributes of the inodes it touched that still exist.
        touched: Vec<Attr>,
    },
    /// The server's version stayed; ours stands beside it. Final.
    Conflict {
        /// Directory of the copy.
        parent: Ino,
        /// Name of the copy, `NAME.conflict-HOST-TIME`.
        name: Name,
        /// New attributes of the copy, its directory and the inode the server kept.
        touched: Vec<Attr>,
        /// The copy.
        copy: Ino,
    },
    /// Not applied, and never will be. Final.
    Refused {
        /// Why.
        refusal: crate::refusal::Refusal,
    },
    /// Not applied: a conflict, but the store was not `whole`. Send it again whole.
    NeedsWhole,
    /// Not applied: the server lacks these chunks. Offer them and send it again.
    Missing {
        /// Which.
        chunks: Vec<Fingerprint>,
    },
}

impl Outcome {
    /// True if the server keeps this outcome under the record's OpId.
    pub fn is_final(&self) -> bool {
        !matches!(self, Outcome::NeedsWhole | Outcome::Missing { .. })
    }

    /// True if `ino` has no name any more.
    pub fn leaves_nameless(&self, ino: Ino) -> bool {
        self.touched().iter().any(|attr| attr.ino == ino && attr.nlink == 0)
    }

    /// The inodes of which some of them tell.
    pub fn inodes(outcomes: &[Outcome]) -> BTreeSet<Ino> {
        outcomes.iter().flat_map(Outcome::touched).map(|attr| attr.ino).collect()
    }

    /// What it says of inodes.
    pub fn touched(&self) -> &[Attr] {
        match self {
            Outcome::Done { touched } | Outcome::Conflict { touched, .. } => touched,
            _ => &[],
        }
    }
}

/// Byte strings as one slice instead of a sequence of numbers.
pub(crate) mod bytes_as_slice {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        Ok(<bytes::Bytes>::deserialize(deserializer)?.to_vec())
    }
}
