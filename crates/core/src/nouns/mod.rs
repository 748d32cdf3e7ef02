//! The nouns that client and server share: inodes and their attributes, records and their outcomes,
//! ranges of bytes. They decide nothing, and use no other module that does.

mod container;
mod dentry;
mod ranges;
mod record;
mod touched;
mod types;

pub use container::ContainerId;
pub use dentry::Dentry;
pub use ranges::RangeSet;
pub(crate) use record::bytes_as_slice;
pub use record::{
    Base, INLINE_MAX, NewNode, Outcome, Piece, PieceBytes, Record, RenameMode, SetAttr, Stamped,
    Store,
};
pub(crate) use touched::names_after;
pub use touched::{Touched, touched};
pub use types::*;
