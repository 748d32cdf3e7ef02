//! A Segue server: metadata in SQLite, chunks in packs, a session for each connection.
//!
//! ```text
//!   hosts ═ QUIC ═▶ session ──▶ store thread ──▶ meta.db      one transaction for a group
//!                     │  │         ▲
//!                     │  └─ reads ─┼─ snapshots of meta.db    never behind a commit
//!                     └─ chunks ─▶ packs ─ synced ─┘          data before metadata
//!   segue on this machine ─▶ control.sock ─▶ admin
//! ```
//!
//! What is decided about files is decided in `segue-core`; here is where the waiting is.
//!
//! Invariant: what a client is told to be done is on the disk. Chunks are synced before rows
//! refer to them, rows before the answer; a disk that fails once is not believed again until a
//! restart.

mod addresses;
pub mod admin;
pub mod backup;
pub mod check;
mod clock;
mod collect;
mod connected_clients;
mod control;
mod data_dir;
mod disk_space;
mod error;
mod healing;
mod meta;
mod metrics;
mod packs;
mod principals;
mod promises;
mod random;
pub mod repair;
pub mod restore;
mod segments;
mod serve;
mod session;
mod sessions;
mod task;

pub use control::socket_path;
pub use error::{Remedy, ServeError};
pub use segue_core::sched::Discipline;
pub use serve::{ServeOptions, serve};
