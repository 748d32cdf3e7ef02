//! The messages between client and server: a u16 tag, then postcard.
//!
//! A call is a request with an optional body and a reply with an optional body. Bodies are
//! not described here: `segue-rpc` streams them beside the message. Every request can be sent
//! again without harm: reads change nothing, and records carry their OpId.

mod delta;
mod names;
mod sharing;
mod watch;

use serde::{Deserialize, Serialize};

pub use delta::{Brief, DICTIONARY_MAX, Delta, Leaf, LeafPart, OUTLINE_MAX, Outline, Outlined};
pub use names::{
    Found, Looked, Lookup, Node, Page, Promising, Readdir, Renewed, Resume, Resumed, Space, Xattrs,
};
pub use sharing::{DIRTY_MAX, Dirty, Marked, Opened, are_valid};
pub use watch::{Became, WATCHED_MAX, Watch, Watched, WatchedAll};

use crate::nouns::{Class, ClientId, Fingerprint, Ino, InoGrant, Outcome, Role, Stamped, Version};
use crate::refusal::Refusal;

/// Version of this protocol. Both sides agree on it before any message, by ALPN.
pub const VERSION: u32 = 17;

/// The ALPN name of a version.
pub fn alpn(version: u32) -> Vec<u8> {
    format!("segue/{version}").into_bytes()
}
/// Longest encoded message without its body, in bytes.
pub const MESSAGE_MAX: usize = 16 << 20;
/// Longest range of one FETCH, in bytes.
pub const FETCH_MAX: u64 = 4 << 20;
/// Most bytes of chunks that one APPLY brings along, as they travel.
pub const APPLY_BODY_MAX: usize = 1 << 20;
/// Most records in one APPLY.
pub const APPLY_MAX: usize = 4096;
/// Most chunks in one OFFER or PUT.
pub const OFFER_MAX: usize = 1024;
/// Most leaves in one STAGE: 700 KB.
pub const STAGE_MAX: usize = 16;
/// Most entries in one page of a listing.
pub const PAGE_MAX: u32 = 4096;
/// Most inodes in one BREAK.
pub const BREAK_MAX: usize = 4096;
/// Most inodes in one RESUME.
pub const RESUME_MAX: u64 = 1 << 19;
/// The lowest LIMIT, bytes a second: with less, what others wait for would take minutes.
pub const LIMIT_MIN: u64 = 1 << 10;

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than a tag.
    #[error("message is cut short")]
    Short,
    /// A tag of another version, or garbage.
    #[error("message tag {0} is unknown")]
    UnknownTag(u16),
    /// The fields do not decode.
    #[error("message does not decode: {0}")]
    Fields(#[from] postcard::Error),
}

macro_rules! messages {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$vdoc:meta])* $tag:literal $variant:ident($body:ty),)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant($body),)* }

        impl $name {
            /// The name of each message.
            pub const NAMES: &[&str] = &[$(stringify!($variant)),*];

            /// Tag and fields.
            pub fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
                match self {
                    $($name::$variant(body) => {
                        let tag: u16 = $tag;
                        postcard::to_extend(body, tag.to_le_bytes().to_vec())
                    })*
                }
            }

            /// The message that `bytes` are.
            pub fn decode(bytes: &[u8]) -> Result<$name, DecodeError> {
                let (tag, fields) = bytes.split_first_chunk::<2>().ok_or(DecodeError::Short)?;
                match u16::from_le_bytes(*tag) {
                    $($tag => Ok($name::$variant(postcard::from_bytes(fields)?)),)*
                    other => Err(DecodeError::UnknownTag(other)),
                }
            }

            /// The message's name, for logs and metrics.
            pub fn name(&self) -> &'static str {
                match self { $($name::$variant(_) => stringify!($variant),)* }
            }
        }
    };
}

messages! {
    /// What one side asks of the other.
    Request {
        /// First call of a connection: which volume, which cache. Reply `Welcome`.
        1 Hello(Hello),
        /// Only call without a certificate: an invite for a certificate. Reply `Enrolled`.
        2 Enrol(Enrol),
        /// Attributes of an inode. Reply `Node`.
        10 Getattr(Ino),
        /// A name in a directory. Reply `Looked`.
        11 Lookup(Lookup),
        /// A page of a directory with attributes. Reply `Page`.
        12 Readdir(Readdir),
        /// All extended attributes of an inode. Reply `Xattrs`.
        13 Xattrs(Ino),
        /// Space and inodes of what an inode counts against. Reply `Space`.
        14 Statfs(Ino),
        /// What a host knows from its last session, to be promised in this one: which of that
        /// changed since. Reply `Resumed`.
        15 Resume(Resume),
        /// A sign of life, so that what is promised counts for longer. Reply `Renewed`.
        16 Renew(()),
        /// Waits for changes below a directory. Reply `Watched`.
        17 Watch(Watch),
        /// How much may be sent to this host, on this connection. Reply `Limited`.
        18 Limit(Limit),
        /// Attributes of a file that a program opens, once hosts that have changed it have sent
        /// that. Reply `Opened`.
        19 Open(Ino),
        /// A range of a file. Reply `Fetched`; body: the bytes of its data segments.
        20 Fetch(Fetch),
        /// Where a file's next data are. Reply `Sought`.
        21 Seek(Seek),
        /// How a file is cut. Reply `Outlined`.
        22 Outline(Outline),
        /// Whether the data of two files are the same. Reply `Compared`.
        23 Compare(Compare),
        /// Chunks that the client has, with proof. Reply `Wanted`.
        30 Offer(Offer),
        /// Chunks that the server wanted; body: their bytes one after the other. Reply `Stored`.
        31 Put(Put),
        /// Runs of chunks that the server has, to be named as leaves. Reply `Staged`.
        32 Stage(Stage),
        /// Records to apply, in order; body: the chunks that it brings along. Reply `Applied`.
        40 Apply(Apply),
        /// More inode numbers. Reply `Granted`.
        41 Grant(()),
        /// Waits until no other host relies on what was before the changes that are committed now.
        /// Reply `Visible`.
        42 Visible(()),
        /// Files that this host has changed, and of which the server lacks something; and files of
        /// which it has everything again. Reply `Marked`.
        43 Dirty(Dirty),
        /// From the server: inodes have changed that it had promised to tell of. Reply `Broken`,
        /// once neither this host's cache nor its kernel uses what was known of them.
        50 Break(Break),
        /// From the server: chunks that are damaged there. Reply `Healed`, once this host has put
        /// those that it has in its cache.
        51 Heal(Heal),
        /// From the server: another host opens a file that this one has changed. Reply `Pulled`,
        /// once the server has what this host had written when the request came, or takes none.
        52 Pull(Ino),
    }
}

messages! {
    /// What is answered.
    Reply {
        /// The request was understood and refused.
        0 Refused(Refused),
        /// To `Hello`.
        1 Welcome(Welcome),
        /// To `Enrol`.
        2 Enrolled(Enrolled),
        /// To `Getattr`.
        10 Node(Found),
        /// To `Lookup`.
        11 Looked(Looked),
        /// To `Readdir`.
        12 Page(Page),
        /// To `Xattrs`.
        13 Xattrs(Xattrs),
        /// To `Statfs`.
        14 Space(Space),
        /// To `Resume`.
        15 Resumed(Option<Resumed>),
        /// To `Renew`.
        16 Renewed(Renewed),
        /// To `Watch`.
        17 Watched(WatchedAll),
        /// To `Limit`.
        18 Limited(()),
        /// To `Open`.
        19 Opened(Opened),
        /// To `Fetch`.
        20 Fetched(Fetched),
        /// To `Seek`.
        21 Sought(Sought),
        /// To `Outline`.
        22 Outlined(Outlined),
        /// To `Compare`. False also where it cannot be told.
        23 Compared(bool),
        /// To `Offer`.
        30 Wanted(Wanted),
        /// To `Put`.
        31 Stored(Stored),
        /// To `Stage`.
        32 Staged(Staged),
        /// To `Apply`.
        40 Applied(Applied),
        /// To `Grant`.
        41 Granted(InoGrant),
        /// To `Visible`.
        42 Visible(()),
        /// To `Dirty`.
        43 Marked(()),
        /// To `Break`.
        50 Broken(()),
        /// To `Heal`: how many chunks this host has put.
        51 Healed(u32),
        /// To `Pull`: whether the server has it.
        52 Pulled(bool),
    }
}

impl Request {
    /// Whether it is a few hundred bytes without a body, and answered by as much and without
    /// waiting for others: many such calls share a stream.
    pub fn is_small(&self) -> bool {
        matches!(
            self,
            Request::Getattr(_)
                | Request::Lookup(_)
                | Request::Statfs(_)
                | Request::Renew(_)
                | Request::Seek(_)
                | Request::Grant(_)
        )
    }

    /// The class at which the request and its reply travel [MFS table 1].
    pub fn class(&self) -> Class {
        match self {
            Request::Hello(_)
            | Request::Enrol(_)
            | Request::Getattr(_)
            | Request::Lookup(_)
            | Request::Xattrs(_)
            | Request::Statfs(_)
            | Request::Resume(_)
            | Request::Renew(_)
            | Request::Limit(_)
            | Request::Seek(_)
            | Request::Grant(_)
            | Request::Visible(_)
            | Request::Open(_)
            | Request::Dirty(_)
            | Request::Pull(_)
            | Request::Break(_) => Class::Validate,
            Request::Readdir(_) | Request::Fetch(_) | Request::Watch(_) => Class::Fetch,
            Request::Apply(apply) => Apply::class(apply.chunks.len()),
            Request::Outline(_)
            | Request::Compare(_)
            | Request::Offer(_)
            | Request::Put(_)
            | Request::Stage(_)
            | Request::Heal(_) => Class::StoreData,
        }
    }
}

/// A refusal with words for a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Which.
    pub refusal: Refusal,
    /// What was refused and what to do, one line; may be empty.
    pub words: String,
}

/// Opens a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the volume.
    pub volume: String,
    /// The cache; bound to the identity on first use.
    pub client: ClientId,
    /// Which life of the cache's log.
    pub incarnation: u32,
    /// The host's name, for conflict copies.
    pub host: String,
    /// The client needs no outcome below this seq any more.
    pub acked_below: u64,
    /// No record has this seq or a later one yet.
    pub next: u64,
    /// The latest version of anything in the volume that the host knows.
    pub known: Option<Version>,
    /// The client that this one was until it turned out that there are two.
    pub was: Option<ClientId>,
    /// Nothing of an earlier process of this cache is open any more: its orphans may go.
    pub fresh_start: bool,
}

impl Hello {
    /// What a cache says over the same connection that the server found to be a copy: it becomes
    /// `client`, whose sequence numbers are all unused, and keeps its log as it is.
    #[must_use]
    pub fn as_another(&self, client: ClientId) -> Hello {
        Hello { client, was: Some(self.client), ..self.clone() }
    }
}

/// A session is open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The volume's random identity, which names the client's cache directory.
    pub volume_uuid: [u8; 16],
    /// The volume's epoch.
    pub epoch: u32,
    /// What the identity may do.
    pub role: Role,
    /// Numbers for new inodes.
    pub grants: Vec<InoGrant>,
    /// Key of the proofs in `Offer`.
    pub nonce: [u8; 32],
    /// Number of the server's last commit: what this session learns is no older.
    pub commit: u64,
    /// Which versions there are, if the host knows a later one: the volume was put back from a
    /// copy.
    pub history: Option<History>,
}

/// The versions of a volume that its server knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct History {
    /// The volume's epoch.
    pub epoch: u32,
    /// Their counters, from the first to the last of each life of the server.
    pub lives: Vec<(u64, u64)>,
}

impl History {
    /// True if `version` is one of them.
    pub fn has(&self, version: Version) -> bool {
        let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(&version.counter);
        version.epoch <= self.epoch && self.lives.iter().any(is_in)
    }
}

/// Asks for a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enrol {
    /// The invite's code.
    pub code: String,
    /// PKCS #10 request with the host's public key, DER.
    pub request_der: Vec<u8>,
    /// The host's name, for `segue identity list`.
    pub host: String,
    /// The volume that it is to mount. An invite to another one is not used up.
    pub volume: String,
}

/// The certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enrolled {
    /// Certificate of the host's key, PEM.
    pub certificate_pem: String,
    /// The server's CA, PEM.
    pub authority_pem: String,
    /// The volume that the invite was for.
    pub volume: String,
    /// What the identity may do there.
    pub role: Role,
}

/// How much the other side may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// Bytes on the wire, at least [`LIMIT_MIN`]; `None`: as much as the link takes.
    pub bytes_per_second: Option<u64>,
    /// All other traffic on the way goes first.
    pub is_background: bool,
}

/// Asks for a range of one data version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// The file.
    pub ino: Ino,
    /// The version wanted; another one on the server is refused with `Changed`.
    pub version: Version,
    /// First byte.
    pub offset: u64,
    /// How many; clipped at end of file and [`FETCH_MAX`].
    pub len: u64,
}

/// What a range holds: segments from `offset` on without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetched {
    /// (length, is data): data segments follow in the body, others are zeros.
    pub segments: Vec<(u64, bool)>,
}

/// Asks where the next data of one data version are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seek {
    /// The file.
    pub ino: Ino,
    /// The version meant; another one on the server is refused with `Changed`.
    pub version: Version,
    /// Where to look from.
    pub offset: u64,
}

/// The first run of data from the offset on: what lies before it is a hole. A long run may be
/// answered in parts: what follows it has to be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sought {
    /// Its first byte; the end of file if there is none.
    pub start: u64,
    /// Where it ends; `start` if there is none.
    pub end: u64,
}

/// Asks whether two files have the same bytes, each in one data version; another one on the server
/// is refused with `Changed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Compare {
    /// The one.
    pub one: (Ino, Version),
    /// The other.
    pub other: (Ino, Version),
}

/// Chunks the client has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Fingerprint and, to show possession, BLAKE3 of the chunk keyed by the session's nonce.
    pub chunks: Vec<(Fingerprint, Fingerprint)>,
}

/// Chunks the server lacks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Places in the offer.
    pub indexes: Vec<u32>,
}

/// Chunks that follow in the body.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Put {
    /// Fingerprint and length of each.
    pub chunks: Vec<(Fingerprint, u32)>,
    /// The files that they are for, at most [`OFFER_MAX`]: what they hold is replaced.
    pub files: Vec<Ino>,
    /// Those of them that travel as differences, ascending.
    pub deltas: Vec<Delta>,
}

/// What became of chunks that were put.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Places of differences that lead to nothing here: these chunks are to come whole.
    pub lacking: Vec<u32>,
}

/// Leaves to be made, before the record that names them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Each of whole chunks, one after the other.
    pub leaves: Vec<Leaf>,
    /// The files that they are for, as in [`Put`].
    pub files: Vec<Ino>,
}

/// What became of the leaves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Staged {
    /// Chunks that the server lacks, or the session has not shown to have: as long as there are
    /// any, the leaves that name them are not made.
    pub missing: Vec<Fingerprint>,
    /// Places of leaves that are not made because their parts do not lead to what they are called.
    pub astray: Vec<u32>,
}

impl Staged {
    /// True if some leaf is not made.
    pub fn lacks(&self) -> bool {
        !(self.missing.is_empty() && self.astray.is_empty())
    }
}

/// Records to apply.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Apply {
    /// Ascending by seq.
    pub records: Vec<Stamped>,
    /// Fingerprint and length of each chunk in the body: what is small travels with the
    /// records that need it, which saves a round trip.
    pub chunks: Vec<(Fingerprint, u32)>,
    /// The client needs no outcome below this seq any more.
    pub acked_below: u64,
    /// Files that the records create, and whose first contents are still to come: marked before
    /// anybody can see their names.
    pub awaited: Marked,
}

impl Apply {
    /// The class at which records travel with so many chunks: those of metadata have none.
    pub fn class(chunks: usize) -> Class {
        if chunks == 0 { Class::StoreAttr } else { Class::StoreData }
    }
}

/// What became of the records.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Applied {
    /// One for each record up to the first that is not final; later ones were not tried.
    pub outcomes: Vec<Outcome>,
    /// No other host relies on what was before, of all that is committed: `Visible` need not wait.
    pub visible: bool,
    /// See [`Promising`]: of the inodes that the outcomes touched. Not of those of outcomes that
    /// are repeated.
    pub promised: Option<Promising>,
    /// This session has been told of all that was promised to it, up to this commit.
    pub heard: u64,
}

/// Promises that are over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Break {
    /// What changed; at most [`BREAK_MAX`].
    pub inodes: Vec<Ino>,
}

/// Chunks of a file that are damaged on the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heal {
    /// The file.
    pub ino: Ino,
    /// Where each stands in the file, its fingerprint and its length; at most [`OFFER_MAX`].
    pub chunks: Vec<(u64, Fingerprint, u32)>,
}
