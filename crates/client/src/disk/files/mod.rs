//! A volume's cache directory: what this host must not lose, and what saves it from asking.
//!
//! ```text
//!   STATE/VOLUME-UUID/
//!     lock            one process at a time
//!     state.json      cache identity, reserved numbers
//!     update.log      changes that the server does not have (log.rs)
//!     containers/     a sparse file for each inode with data here (container.rs), but
//!                     for little that is new and in the log (young.rs)
//!     maps/           containers that memory maps may write to (maps.rs)
//!     preserved/      what changes on their way had there before (preserved.rs)
//!     index.db        what is known of the volume, and which bytes are valid (index.rs)
//!     refused/        changes that the server refused, kept for the user
//! ```

mod container;
mod containers;
mod directory;
mod durable;
mod index;
mod log;
mod maps;
mod numbers;
mod preserved;
mod young;

pub(crate) use container::{Container, copy_data};
pub(crate) use containers::{Containers, Key, ReadContainer, read_container};
pub(crate) use directory::{
    KnownServer, StateDirectory, holder, known_volume, remember_volume, replace_file, volumes,
};
#[cfg(test)]
pub(crate) use durable::failing;
pub(crate) use durable::sync_directory;
pub(crate) use index::Index;
pub(crate) use log::{DataMark, FoundLog, LogFile, Position, SHORT_LOG};
pub(crate) use maps::{LeftMap, Maps, mapped};
pub(crate) use numbers::Numbers;
pub(crate) use preserved::Preserved;
