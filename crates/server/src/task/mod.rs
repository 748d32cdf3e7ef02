//! Parts that long tasks of an administrator share: check, repair, backup and restore.
//!
//! A task reads or writes much and reports its progress to the administrator. It ends early if
//! nobody listens to its reports any more, or if the server stops.

mod failed;
pub(crate) mod lost_files;
mod rate_limit;
mod reporter;
pub(crate) mod times;

pub(crate) use failed::Failed;
pub(crate) use rate_limit::{LIVE_RATE_BYTES, RateLimit};
pub(crate) use reporter::Reporter;
