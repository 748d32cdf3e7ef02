//! What can be wrong, in words.

use crate::types::{ClientId, Fingerprint, Ino};

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The inode that it is about, if it is about one.
    pub ino: Option<Ino>,
    /// Where that is in the volume, if a name leads to it.
    pub path: Option<String>,
    /// The name that it is about, with its directory, if it is about one.
    pub entry: Option<(Ino, Vec<u8>)>,
    /// What it is.
    pub damage: Damage,
}

/// What is wrong. Its words go on after "PATH: ".
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the words say it, and their numbers")]
pub enum Damage {
    #[error("the row {} cannot be read as {what}", hex(key))]
    Row { key: Vec<u8>, what: &'static str },
    #[error("the volume's own row is missing")]
    NoVolume,
    #[error("the volume's name does not lead to it")]
    VolumeName,
    #[error("the name {name:?} leads to no volume of this name")]
    StrayName { name: String },
    #[error("rows of client {client:?} are there, and nothing says what client that is")]
    Nobody { client: ClientId },
    #[error("the volume's counters are missing")]
    NoTally,
    #[error("the root directory is missing or is no directory")]
    NoRoot,
    #[error("the volume counts {told} files and directories, and {found} are there")]
    TallyInodes { told: u64, found: u64 },
    #[error("the volume counts {told} bytes, and its files have {found}")]
    TallyBytes { told: u64, found: u64 },
    #[error("its quota counts {told} bytes, and the files that count against it have {found}")]
    QuotaBytes { told: u64, found: u64 },
    #[error("its quota counts {told} files and directories, and {found} count against it")]
    QuotaInodes { told: u64, found: u64 },
    #[error("files count against its quota, and it has none")]
    NoQuota,
    #[error("it counts against another quota than the directory it stands in")]
    OtherQuota,
    #[error("the server's own inode numbers lie outside of those that were granted")]
    OwnNumbers,
    #[error("client {client:?} has inode numbers that were not granted")]
    Grants { client: ClientId },

    #[error("this name cannot be one")]
    BadName,
    #[error("the name leads to an inode that is not there")]
    NameOfNothing,
    #[error("the name leads to a directory whose place is elsewhere")]
    SecondName,
    #[error("names stand in it, and there is no such directory")]
    NoDirectory,
    #[error("names stand in it, and it is no directory")]
    NotDirectory,
    #[error("no name leads to it")]
    NoName,
    #[error("its parent directories form a ring, which the root does not lead to")]
    Ring,
    #[error("it counts {nlink} names, and has {found}")]
    Links { nlink: u32, found: u32 },
    #[error("its link count is {nlink}, and with its subdirectories should be {found}")]
    Subdirectories { nlink: u32, found: u32 },

    #[error("a client is to have it open without a name, and it is not there")]
    OrphanOfNothing,
    #[error("it is to be open without a name, at a client that the volume does not have")]
    OrphanOfNobody,
    #[error("a client is to have it open without a name, and it has names")]
    OrphanWithName,
    #[error("it has no name, and {clients} clients have it open instead of one")]
    NotOpen { clients: u32 },

    #[error("extents of a file stand there that is missing")]
    ExtentsOfNothing,
    #[error("extended attributes of an inode stand there that is missing")]
    XattrsOfNothing,
    #[error("extents stand there, and it is no file")]
    ExtentsOfKind,
    #[error("the extent that ends at byte {end} is empty or overlaps the one before it")]
    Overlap { end: u64 },
    #[error("its extents end at byte {end}, and its size is {size}")]
    BeyondEnd { end: u64, size: u64 },
    #[error("the extent that ends at byte {end} holds another number of bytes than it says")]
    InlineLength { end: u64 },
    #[error("the bytes before byte {end} are in chunk {fingerprint}, whose place is not known")]
    NoChunk { end: u64, fingerprint: Fingerprint },
    #[error("the bytes before byte {end} go beyond chunk {fingerprint}, or its lengths are wrong")]
    ChunkLength { end: u64, fingerprint: Fingerprint },
    #[error("the bytes before byte {end} are in leaf {leaf}, which is not there")]
    NoLeaf { end: u64, leaf: Fingerprint },
    #[error("the bytes before byte {end} go beyond leaf {leaf}")]
    LeafLength { end: u64, leaf: Fingerprint },
    #[error("{bytes} bytes of it cannot be read, the first of them at byte {first}: {cause}")]
    Bytes { bytes: u64, first: u64, cause: String },

    #[error("chunk {fingerprint} counts {told} references, and has {found}")]
    ChunkRefs { fingerprint: Fingerprint, told: u64, found: u64 },
    #[error("leaf {leaf} counts {told} references, and has {found}")]
    LeafRefs { leaf: Fingerprint, told: u64, found: u64 },
    #[error("nothing refers to {fingerprint}, and it would never be collected")]
    NotIdle { fingerprint: Fingerprint },
    #[error("the extents of leaf {leaf} are not those that it was named after")]
    LeafName { leaf: Fingerprint },
    #[error("a row says that something is not needed, and it is, or is not there")]
    IdleOfNothing,
    #[error("the volume counts {told} bytes that came and are in no file yet, and {found} are")]
    Arrived { told: u64, found: u64 },
    #[error("pack {pack} counts {told} chunks, and {found} are in it")]
    Pack { pack: u64, told: u64, found: u64 },

    #[error("it counts {told} bytes that are not holes, and has {found}")]
    Allocated { told: u64, found: u64 },
    #[error("its target is missing, has another length than it says, or should not be there")]
    Target,
    #[error("its number was never granted to anybody")]
    Number,
    #[error(
        "its versions are later than the volume's last commit, or that of its data than its own"
    )]
    Versions,
}

impl Damage {
    /// What can be done about it in this version.
    pub fn remedy(&self) -> &'static str {
        match self {
            Damage::NoChunk { .. } | Damage::ChunkLength { .. } | Damage::Bytes { .. } => {
                "reading there fails, never with wrong bytes; write the file anew from a whole copy \
                 (a backup, a host that has it cached), which heals every file with these bytes"
            }
            Damage::TallyInodes { .. }
            | Damage::TallyBytes { .. }
            | Damage::QuotaBytes { .. }
            | Damage::QuotaInodes { .. }
            | Damage::NoQuota
            | Damage::OtherQuota
            | Damage::Links { .. }
            | Damage::Subdirectories { .. }
            | Damage::Allocated { .. }
            | Damage::XattrsOfNothing
            | Damage::ExtentsOfNothing
            | Damage::OrphanOfNothing
            | Damage::OrphanOfNobody
            | Damage::NotOpen { .. }
            | Damage::ChunkRefs { .. }
            | Damage::LeafRefs { .. }
            | Damage::NotIdle { .. }
            | Damage::IdleOfNothing
            | Damage::Arrived { .. }
            | Damage::StrayName { .. }
            | Damage::Nobody { .. }
            | Damage::Pack { .. } => {
                "no file's bytes are lost by it; stop the server and have it rebuilt: segue volume \
                 repair"
            }
            _ => {
                "keep a copy of the data directory as it is; what it is about may be gone and has \
                 to come from a backup (segue volume restore), or be rebuilt from what is left \
                 (segue volume repair --dry-run says how far)"
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
