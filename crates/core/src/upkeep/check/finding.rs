//! What can be wrong, in words.

use crate::nouns::{ClientId, Fingerprint, Ino};

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
    #[error("the row {} is damaged: it is not {what}", hex(key))]
    Row { key: Vec<u8>, what: &'static str },
    #[error("the row of the volume itself is missing")]
    NoVolume,
    #[error("the name of the volume does not lead to it")]
    VolumeName,
    #[error("the name {name:?} leads to no volume of this name")]
    StrayName { name: String },
    #[error("client {client:?} has rows, but the row of the client itself is missing")]
    Nobody { client: ClientId },
    #[error("the counters of the volume are missing")]
    NoTally,
    #[error("the root directory is missing, or is not a directory")]
    NoRoot,
    #[error("the counter of files and directories in the volume is {told}, but there are {found}")]
    TallyInodes { told: u64, found: u64 },
    #[error("the counter of bytes in the volume is {told}, but its files have {found}")]
    TallyBytes { told: u64, found: u64 },
    #[error("the counter of bytes in its quota is {told}, but its files have {found}")]
    QuotaBytes { told: u64, found: u64 },
    #[error("the counter of files and directories in its quota is {told}, but there are {found}")]
    QuotaInodes { told: u64, found: u64 },
    #[error("files are counted in its quota, but it has no quota")]
    NoQuota,
    #[error("it is counted in another quota than its directory")]
    OtherQuota,
    #[error("the server's own inode numbers are outside of the granted ones")]
    OwnNumbers,
    #[error("client {client:?} has inode numbers that were not granted")]
    Grants { client: ClientId },

    #[error("this is not a valid name")]
    BadName,
    #[error("the name leads to a missing inode")]
    NameOfNothing,
    #[error("the name leads to a directory that has its name elsewhere")]
    SecondName,
    #[error("it has names in it, but the directory itself is missing")]
    NoDirectory,
    #[error("it has names in it, but is not a directory")]
    NotDirectory,
    #[error("no name leads to it")]
    NoName,
    #[error("its parent directories form a ring that no name in the root leads to")]
    Ring,
    #[error("its link count is {nlink}, but the number of its names is {found}")]
    Links { nlink: u32, found: u32 },
    #[error("its link count is {nlink}, but should be {found} with its subdirectories")]
    Subdirectories { nlink: u32, found: u32 },

    #[error("a client is noted to have it open without a name, but it is missing")]
    OrphanOfNothing,
    #[error("it is noted as open without a name by a client that the volume does not have")]
    OrphanOfNobody,
    #[error("a client is noted to have it open without a name, but it has names")]
    OrphanWithName,
    #[error("it has no name, and {clients} clients are noted to have it open instead of one")]
    NotOpen { clients: u32 },

    #[error("it has extents, but the file itself is missing")]
    ExtentsOfNothing,
    #[error("it has extended attributes, but the inode itself is missing")]
    XattrsOfNothing,
    #[error("it has extents, but is not a regular file")]
    ExtentsOfKind,
    #[error("the extent that ends at byte {end} is empty or overlaps the one before it")]
    Overlap { end: u64 },
    #[error("its extents end at byte {end}, but its size is {size} bytes")]
    BeyondEnd { end: u64, size: u64 },
    #[error("the extent that ends at byte {end} has another length than its data")]
    InlineLength { end: u64 },
    #[error("the bytes before byte {end} are in chunk {fingerprint}, whose place is unknown")]
    NoChunk { end: u64, fingerprint: Fingerprint },
    #[error("the bytes before byte {end} exceed chunk {fingerprint}, or its lengths are wrong")]
    ChunkLength { end: u64, fingerprint: Fingerprint },
    #[error("the bytes before byte {end} are in leaf {leaf}, which is missing")]
    NoLeaf { end: u64, leaf: Fingerprint },
    #[error("the bytes before byte {end} exceed leaf {leaf}")]
    LeafLength { end: u64, leaf: Fingerprint },
    #[error("{bytes} bytes of it cannot be read, the first at byte {first}: {cause}")]
    Bytes { bytes: u64, first: u64, cause: String },

    #[error("the reference count of chunk {fingerprint} is {told}, but it has {found} references")]
    ChunkRefs { fingerprint: Fingerprint, told: u64, found: u64 },
    #[error("the reference count of leaf {leaf} is {told}, but it has {found} references")]
    LeafRefs { leaf: Fingerprint, told: u64, found: u64 },
    #[error("{fingerprint} has no references, but is not marked for collection")]
    NotIdle { fingerprint: Fingerprint },
    #[error("the extents of leaf {leaf} do not match its name")]
    LeafName { leaf: Fingerprint },
    #[error("a chunk or leaf is marked for collection, but is referenced or missing")]
    IdleOfNothing,
    #[error(
        "the counter of uploaded bytes that are in no file yet is {told}, but there are {found}"
    )]
    Arrived { told: u64, found: u64 },
    #[error("the counter of chunks in pack {pack} is {told}, but it has {found}")]
    Pack { pack: u64, told: u64, found: u64 },

    #[error("the counter of its bytes outside of holes is {told}, but it has {found}")]
    Allocated { told: u64, found: u64 },
    #[error("its target is missing, has a wrong length, or should not exist")]
    Target,
    #[error("its inode number was never granted")]
    Number,
    #[error(
        "its version is later than the last commit of the volume, or older than the version of its \
         data"
    )]
    Versions,
}

impl Damage {
    /// What can be done about it in this version.
    pub fn remedy(&self) -> &'static str {
        match self {
            Damage::NoChunk { .. } | Damage::ChunkLength { .. } | Damage::Bytes { .. } => {
                "reads of these bytes fail and never return wrong bytes; a running server asks the \
                 hosts that have them cached; if the next check still finds this, write the file \
                 again from an intact copy (a backup, or cp on a host that has it cached): that \
                 repairs every file with these bytes"
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
                "no file data are lost; stop the server and rebuild the damaged rows: segue volume \
                 repair"
            }
            _ => {
                "copy the data directory first; the damaged object may be lost: restore it from a \
                 backup (segue volume restore), or rebuild the remaining data (segue volume repair \
                 --dry-run shows the result)"
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
