//! The update log: the host's ordered list of changes that the server does not have yet.
//!
//! ```text
//!   write, truncate ──▶ Written, Resized ─┐ seal (close, fsync, timer)
//!                                         ▼
//!   create, rename, .. ─────────────▶ Change ──▶ server ──▶ Settled
//! ```
//!
//! Invariant: what stands in the log file and is not settled is in the [`Queue`] or in a
//! file's dirty ranges, and nothing leaves either before the server's final answer.

mod admit;
mod bound;
mod cancel;
mod change;
pub(in crate::host) mod covered;
mod draft;
mod entry;
mod leftover;
mod order;
mod queue;
mod redo;
mod verify;

pub(in crate::host) use bound::Pending;
pub use bound::{Bound, Writers};
pub use change::{After, Change, DataChange, Logged};
pub use entry::{Entry, Instead, Payload, Replaced, SUM_BLOCK, WritePlace};
pub use leftover::{Leftover, latest_told, replay};
pub use queue::{Fit, Lane, Queue, Stage};
pub use redo::{Covered, Redo, covered_by, redo};
pub use verify::{lacking, left_of};
