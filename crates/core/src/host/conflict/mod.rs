//! Files and directories that two hosts made under one name: those that may become one. Also the
//! server that a cache belongs to.

mod copies;
mod equal;
mod meeting;
mod merge;

pub use copies::{Duplicate, may_merge_later};
pub(in crate::host) use equal::Are;
pub use meeting::{Meeting, meet};
pub use merge::{may_be_same, may_become_one};
