//! What may be served on this host: names and attributes ([`Tree`]), file data ([`FileData`]).

mod data;
mod forget;
mod local;
mod ranges;
#[cfg(test)]
mod tests;
mod tree;

pub use data::{FileData, Unsealed};
pub use local::{Touched, touched};
pub use ranges::RangeSet;
pub use tree::{Known, Moved, Tree, XattrMap};
