//! Upkeep: what keeps the volumes of a store in order, beside the records of hosts.
//!
//! ```text
//!   namespace ◀── upkeep     the rows and their rules; upkeep of these rows
//! ```
//!
//! | module | work |
//! |---|---|
//! | `check`, `repair` | find rows that do not fit together, and put them right |
//! | `dump`, `restore` | give all rows of a volume to another store, and take them there |
//! | `collect` | remove rows that nothing refers to |
//! | `remnant_ages`, `orphans` | end the time of removed files, and of open files of lost hosts |
//! | `tidy` | replace many small extents of a file by few large ones |
//!
//! A shell calls these functions at times of its choice, each in a transaction or on a snapshot. No
//! record needs them, so `namespace` does not use this module. A server without upkeep would serve
//! its hosts as before, until its disk is full.
//!
//! Invariant: upkeep changes no name, no attribute and no byte of a named file that is in order.
//! Only `repair` changes damaged files, and only `restore` adds or replaces a volume.

pub mod check;
pub mod collect;
pub mod dump;
mod orphans;
mod remnant_ages;
pub mod repair;
pub mod restore;
pub mod tidy;

#[cfg(test)]
pub(crate) mod tests;

pub use orphans::{drop_silent_orphans, silent_clients};
pub use remnant_ages::RemnantAges;
