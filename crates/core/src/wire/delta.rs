//! What lets a small change of a large file go as what changed.
//!
//! A version of a file that both sides have is a *basis*. The server tells how it is cut; a host
//! names what a new version has in common with it by where that stands, and sends a chunk that
//! differs as a difference.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::nouns::{Fingerprint, Ino, Version};

/// Most parts of one answer to OUTLINE: 36 KB, half a second of a slow link.
pub const OUTLINE_MAX: usize = 1 << 12;
/// Longest dictionary of one chunk, in bytes.
pub const DICTIONARY_MAX: u64 = 4 << 20;

/// The first bytes of a fingerprint. With the chunk's length they find it in one file; what they
/// lead to is checked by the whole fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Brief(pub [u8; 4]);

impl From<&Fingerprint> for Brief {
    fn from(Fingerprint([a, b, c, d, ..]): &Fingerprint) -> Brief {
        Brief([*a, *b, *c, *d])
    }
}

/// Asks how one data version of a file is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outline {
    /// The file.
    pub ino: Ino,
    /// The version meant; another one on the server is refused with `Changed`.
    pub version: Version,
    /// From where on.
    pub offset: u64,
}

/// How it is cut: parts without gaps, as many as one answer takes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outlined {
    /// The file's size.
    pub size: u64,
    /// Where the first part begins: no later than was asked for.
    pub start: u64,
    /// Length of each, and what it may be called if it is a chunk from its beginning on.
    pub parts: Vec<(u64, Option<Brief>)>,
}

/// A leaf that is to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leaf {
    /// What it is to be called. Runs that lead to anything else are refused.
    pub name: Fingerprint,
    /// What it has, one after the other.
    pub parts: Vec<LeafPart>,
}

/// Whole chunks of a leaf.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LeafPart {
    /// One, by fingerprint and length.
    Chunk(Fingerprint, u32),
    /// All that stand in a range of one data version of a file.
    Run {
        /// The file.
        ino: Ino,
        /// The version.
        version: Version,
        /// From the first chunk's first byte to behind the last one's last.
        range: Range<u64>,
    },
}

/// A chunk that travels as what differs from a part of a file: a zstd frame that has these bytes as
/// its prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Delta {
    /// Which of the chunks that are put.
    pub index: u32,
    /// The file.
    pub ino: Ino,
    /// Its data version.
    pub version: Version,
    /// Where the bytes stand in it, at most [`DICTIONARY_MAX`].
    pub range: Range<u64>,
}
