//! What may be served on this host: names and attributes ([`Tree`]), file data ([`FileData`]);
//! and what of these goes ([`choose`]).

mod data;
mod evict;
mod forget;
mod local;
mod notes;
mod ranges;
#[cfg(test)]
mod tests;
mod tree;

pub use data::{ContainerId, FileData, FileNote, Unsealed};
pub use evict::{Bounds, Candidate, Disk, MinFree, choose};
pub use local::{Touched, touched};
pub use notes::{Meaning, NodeNote, TreeNotes};
pub use ranges::RangeSet;
pub use tree::{Known, Moved, Tree, XattrMap};
