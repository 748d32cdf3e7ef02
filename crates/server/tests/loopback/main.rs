//! A real server and real connections, over loopback.

// Clippy knows tests by their attribute, and the harness has none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod backups;
mod checks;
mod chunks;
mod collection;
mod damage;
mod deltas;
mod files;
mod full;
mod harness;
mod healing;
mod hostile;
mod limits;
mod people;
mod promises;
mod repairs;
mod restart;
mod sharing;
