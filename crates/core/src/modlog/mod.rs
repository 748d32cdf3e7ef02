//! The update log: the client's ordered list of changes that the server does not have yet.
//!
//! ```text
//!   write, truncate ──▶ Written, Resized ─┐ seal (close, fsync, timer)
//!                                         ▼
//!   create, rename, .. ─────────────▶ Change ──▶ server ──▶ Settled
//! ```
//!
//! Invariant: what stands in the log file and is not settled is in the [`Queue`] or in a
//! file's dirty ranges, and nothing leaves either before the server's final answer.

mod ahead;
mod batch;
mod bound;
mod change;
mod entry;
mod leftover;
mod order;
mod queue;
mod record;
mod redo;
mod server_disk;
mod verify;

pub use ahead::{OFFER_FROM, Picked, UploadAhead};
pub use batch::{BatchSize, group_bytes};
pub use bound::Bound;
pub use change::{After, Change, DataChange, Logged};
pub use entry::{Entry, Payload, SUM_BLOCK, WritePlace};
pub use leftover::{Leftover, latest_told, replay};
pub use queue::{Fit, Lane, Queue, Stage};
pub use record::{
    Base, INLINE_MAX, NewNode, Outcome, Piece, PieceBytes, Record, RenameMode, SetAttr, Stamped,
    Store,
};
pub use redo::{Redo, has_all, redo};
pub use server_disk::{ServerDisk, is_to_replace};
pub use verify::{lacking, left_of};
