//! What may be served on this host: names and attributes ([`Tree`]), file data ([`FileData`]).

mod data;
mod forget;
mod local;
mod notes;
mod ranges;
#[cfg(test)]
mod tests;
mod tree;

pub use data::{ContainerId, FileData, FileNote, Unsealed};
pub use local::{Touched, touched};
pub use notes::{Meaning, NodeNote, TreeNotes};
pub use ranges::RangeSet;
pub use tree::{Known, Moved, Tree, XattrMap};
