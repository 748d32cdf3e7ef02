//! What may be served on this host: names and attributes ([`Tree`]), file data ([`FileData`]), what
//! the kernel may read by itself ([`Nodes`]); and what of all that goes ([`choose`]).

mod as_of;
mod data;
mod evict;
mod forget;
mod kept;
mod lifetime;
mod listings;
mod local;
mod nodes;
mod notes;
mod outliving;
mod pages;
mod places;
mod promised;
mod stirred;
mod storms;
#[cfg(test)]
mod tests;
mod tree;
mod xattrs;

pub use as_of::{AsOf, Promised, When};
pub(crate) use data::RANGES_MAX;
pub use data::{FileData, FileNote, Unsealed};
pub use evict::{Bounds, Candidate, Disk, MinFree, choose};
pub use kept::{KeptListings, Listed, Reading};
pub use lifetime::Known;
pub use nodes::{Ask, BACKED_MAX, LeftBehind, Nodes, Way};
pub use notes::{Meaning, NodeNote, TreeNotes};
pub use outliving::LONG;
pub use pages::Pages;
pub use places::{Scrap, Sight};
pub(in crate::host) use storms::Storms;
pub use tree::{Moved, Tree};
pub use xattrs::{XattrMap, Xattrs};
