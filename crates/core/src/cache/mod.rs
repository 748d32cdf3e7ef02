//! What may be served on this host: names and attributes ([`Tree`]), file data ([`FileData`]), what
//! the kernel may read by itself ([`Nodes`]); and what of all that goes ([`choose`]).

mod as_of;
mod data;
mod evict;
mod forget;
mod lifetime;
mod listings;
mod local;
mod nodes;
mod notes;
mod pages;
mod promised;
mod ranges;
#[cfg(test)]
mod tests;
mod tree;
mod xattrs;

pub use as_of::{AsOf, Promised, When};
pub(crate) use data::RANGES_MAX;
pub use data::{ContainerId, FileData, FileNote, Unsealed};
pub use evict::{Bounds, Candidate, Disk, MinFree, choose};
pub use lifetime::Known;
pub(crate) use local::names_after;
pub use local::{Touched, touched};
pub use nodes::{Ask, LeftBehind, Nodes, Way};
pub use notes::{Meaning, NodeNote, TreeNotes};
pub use pages::Pages;
pub use ranges::RangeSet;
pub use tree::{Moved, Tree};
pub use xattrs::{XattrMap, Xattrs};
