//! The way of logged changes to the server: when each is sent, in which batch, and what its outcome
//! changes here.

mod ahead;
mod batch;
mod exchange;
mod lanes;
mod levels;
mod server_disk;
mod settle;
mod similar;
mod waiters;

pub use ahead::{OFFER_FROM, Picked, UPLOADS, UploadAhead};
pub use batch::group_bytes;
pub(in crate::host) use batch::{BYTES_MAX as BATCH_MAX, BatchSizes};
pub(in crate::host) use exchange::Without;
pub(in crate::host) use levels::Unsealed;
pub(in crate::host) use server_disk::ServerDisk;
pub use similar::{BASIS_MIN, CleanCopy};
pub use waiters::Claim;
pub(in crate::host) use waiters::{WaiterId, Waiters};
