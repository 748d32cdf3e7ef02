//! Watching a directory and all below it.

use serde::{Deserialize, Serialize};

use crate::nouns::{Attr, Ino, Name};

/// From so many changes on an answer ends with their commit.
pub const WATCHED_MAX: usize = 4096;

/// Asks for changes below a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// It.
    pub directory: Ino,
    /// Those behind this commit; without one the answer comes at once, and says where to begin.
    pub since: Option<u64>,
    /// Only new conflict copies beside files whose data the asking client made, and names of
    /// copies that are gone.
    pub copies: bool,
}

/// Changes below a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchedAll {
    /// All up to this commit; the host has heard of the breaks that came with them.
    pub commit: u64,
    /// Each once.
    pub changes: Vec<Watched>,
    /// There may have been others, of which nothing is known any more.
    pub others: bool,
}

/// What became of a name or a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watched {
    /// Where it is, from the directory on; empty for that itself.
    pub path: Vec<Name>,
    /// What.
    pub became: Became,
}

/// What became of it, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Became {
    /// The name was given: to something new, renamed, or linked.
    Named(Attr),
    /// Contents or attributes are others.
    Changed(Attr),
    /// The name means nothing any more.
    Gone,
}
