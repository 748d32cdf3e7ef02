//! Rows: what stands under the keys, in postcard.

use std::fmt::{self, Formatter};

use bytes::Bytes;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Fault, Limits, MetaSnapshot, MetaTxn, keys};
use crate::nouns::{
    Attr, ClientId, Fingerprint, Ino, InoGrant, OpId, Outcome, Timestamp, VolumeId,
};

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRow {
    /// Its name.
    pub name: String,
    /// Random, and never that of another volume.
    pub uuid: [u8; 16],
    /// Grows when the volume is restored from a backup.
    pub epoch: u32,
    /// When it was made.
    pub created: Timestamp,
    /// The first inode number that nobody was granted.
    pub next_ino: u64,
    /// What it may hold.
    pub limits: Limits,
    /// Numbers that may have been granted before a restore, of which it has no record: who has
    /// them may use those that no inode has.
    pub lost: Vec<InoGrant>,
}

/// What changes with every commit of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Counter of the last version given.
    pub commits: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Bytes of all files that are not holes.
    pub allocated: u64,
    /// Next number for an inode that the server itself makes.
    pub own_next: u64,
    /// End of the numbers that the server keeps for itself.
    pub own_end: u64,
}

/// An inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InodeRow {
    pub(crate) attr: Attr,
    /// Target of a symbolic link.
    pub(crate) target: Option<Vec<u8>>,
    /// A directory's parent; of another inode the directory of the name that it had first or was
    /// moved to last, or of another one when that went. It need not be there any more.
    pub(crate) parent: Ino,
    /// The name in `parent`.
    pub(crate) name: Vec<u8>,
    /// The records that made the data what they are: one, and those that would have made the same.
    pub(crate) made_by: Vec<OpId>,
    /// Which of the file's contents its extents are: a replaced content may be there for a
    /// while longer, until it is collected.
    pub(crate) generation: u32,
}

/// A run of bytes of a file, under the key of its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Where the bytes are.
    pub source: Source,
}

/// Where the bytes of an extent are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Source {
    /// Here.
    Inline(Bytes),
    /// In a chunk.
    Chunk {
        /// Which.
        fingerprint: Fingerprint,
        /// First byte in it.
        start: u32,
    },
    /// Where a leaf says.
    Leaf {
        /// Which.
        leaf: Fingerprint,
        /// First byte in it.
        start: u64,
    },
}

/// A run of extents without gaps, which never changes: what is cut out of it is a part of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeafRow {
    /// Extent rows that refer to it.
    pub refs: u64,
    /// When it may go if there are none, in seconds since 1970.
    pub due: u64,
    /// Bytes of all its extents.
    pub len: u64,
    /// They, none of them in another leaf.
    pub extents: Vec<Extent>,
}

/// A chunk of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkRow {
    /// Where it is.
    pub place: ChunkPlace,
    /// Extents that refer to it: rows, and those in leaves.
    pub refs: u64,
    /// When it may go if there are none, in seconds since 1970.
    pub due: u64,
}

/// What the rows of chunks refer to in a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PackRow {
    /// How many chunks.
    pub chunks: u64,
    /// Their bytes in the pack.
    pub live_bytes: u64,
}

/// The place of a chunk in a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkPlace {
    /// Number of the pack.
    pub pack: u64,
    /// Where its bytes start in the pack.
    pub offset: u64,
    /// Bytes in the pack.
    pub stored_len: u32,
    /// Bytes of the chunk itself.
    pub raw_len: u32,
    /// The pack has it in zstd.
    pub compressed: bool,
}

/// A client: bound to one identity and one volume on first use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientRow {
    /// The identity.
    pub identity: String,
    /// The volume.
    pub volume: VolumeId,
    /// The latest life of its log.
    pub incarnation: u32,
    /// Its inode numbers.
    pub grants: Vec<InoGrant>,
    /// When it was last heard of, in seconds since 1970, exact to an hour.
    pub seen: u64,
}

/// What became of a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OutcomeRow {
    pub(crate) digest: [u8; 32],
    pub(crate) outcome: Outcome,
    /// The inode that went with it. Where none did, and in rows of earlier versions, the row ends
    /// before.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "at_end")]
    pub(crate) removed: Option<Ino>,
}

/// What a row says at its end, or nothing if it ends before.
fn at_end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ino>, D::Error> {
    struct AtEnd;
    impl<'de> Visitor<'de> for AtEnd {
        type Value = Option<Ino>;

        fn expecting(&self, to: &mut Formatter<'_>) -> fmt::Result {
            to.write_str("an inode or the end")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Option<Ino>, A::Error> {
            // As an option is written.
            if let Ok(Some(true)) = row.next_element() { row.next_element() } else { Ok(None) }
        }
    }
    deserializer.deserialize_tuple(2, AtEnd)
}

/// The row under `key`.
pub fn get_row<S: MetaSnapshot, R: DeserializeOwned>(
    snapshot: &mut S,
    key: &[u8],
    what: &'static str,
) -> Result<Option<R>, Fault<S::Error>> {
    let Some(bytes) = snapshot.get(key).map_err(Fault::Store)? else { return Ok(None) };
    decode(&bytes, what).map(Some)
}

/// The row that `bytes` are.
pub(crate) fn decode<R: DeserializeOwned, E>(
    bytes: &[u8],
    what: &'static str,
) -> Result<R, Fault<E>> {
    postcard::from_bytes(bytes).map_err(|_| Fault::Damaged(what))
}

/// Puts `row` under `key`.
pub fn put_row<T: MetaTxn, R: Serialize>(
    txn: &mut T,
    key: &[u8],
    row: &R,
) -> Result<(), Fault<T::Error>> {
    let bytes = postcard::to_stdvec(row).map_err(|_| Fault::Damaged("a row does not encode"))?;
    txn.put(key, &bytes).map_err(Fault::Store)
}

/// Removes all rows under `prefix`, so many at a time.
pub(super) fn remove_all<T: MetaTxn>(
    txn: &mut T,
    prefix: &[u8],
    slice: usize,
) -> Result<(), Fault<T::Error>> {
    let end = keys::after(prefix);
    loop {
        let rows = txn.range_past_damage(prefix, &end, slice).map_err(Fault::Store)?;
        rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)?;
        if rows.len() < slice {
            return Ok(());
        }
    }
}

pub(crate) fn inode<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Option<InodeRow>, Fault<S::Error>> {
    get_row(snapshot, &keys::inode(volume, ino), "an inode")
}

pub(super) fn dentry<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    parent: Ino,
    name: &[u8],
) -> Result<Option<Ino>, Fault<S::Error>> {
    get_row(snapshot, &keys::dentry(volume, parent, name), "a directory entry")
}

pub(crate) fn client<S: MetaSnapshot>(
    snapshot: &mut S,
    client: ClientId,
) -> Result<Option<ClientRow>, Fault<S::Error>> {
    get_row(snapshot, &keys::client(client), "a client")
}

/// The chunk `fingerprint` of a volume.
pub fn chunk<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    fingerprint: &Fingerprint,
) -> Result<Option<ChunkRow>, Fault<S::Error>> {
    get_row(snapshot, &keys::chunk(volume, fingerprint), "a chunk")
}

/// The leaf `fingerprint` of a volume.
pub(crate) fn leaf<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    fingerprint: &Fingerprint,
) -> Result<Option<LeafRow>, Fault<S::Error>> {
    get_row(snapshot, &keys::leaf(volume, fingerprint), "a leaf")
}
