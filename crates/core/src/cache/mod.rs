//! What may be served on this host: names and attributes ([`Tree`]), file data ([`FileData`]), what
//! the kernel may read by itself ([`Nodes`]).

mod data;
mod forget;
mod local;
mod nodes;
mod notes;
mod ranges;
#[cfg(test)]
mod tests;
mod tree;

pub use data::{ContainerId, FileData, FileNote, Unsealed};
pub use local::{Touched, touched};
pub use nodes::{Ask, LeftBehind, Nodes, Way};
pub use notes::{Meaning, NodeNote, TreeNotes};
pub use ranges::RangeSet;
pub use tree::{Known, Moved, Tree, XattrMap};
