//! The way of logged changes to the server: when each is sent, in which batch, and what its outcome
//! changes here.

mod ahead;
mod batch;
mod lanes;
mod levels;
mod server_disk;
mod settle;
mod similar;
mod waiters;

pub use ahead::{OFFER_FROM, Picked, UploadAhead};
pub use batch::{BatchSize, group_bytes};
pub(in crate::host) use levels::Unsealed;
pub use server_disk::{ServerDisk, is_to_replace};
pub use similar::{BASIS_MIN, CleanCopy};
pub use waiters::{Claim, WaiterId, Waiters};
