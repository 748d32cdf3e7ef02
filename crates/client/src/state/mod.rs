//! A volume's cache directory: what this host must not lose, and what saves it from asking.
//!
//! ```text
//!   STATE/VOLUME-UUID/
//!     lock            one process at a time
//!     state.json      cache identity, reserved numbers
//!     update.log      changes that the server does not have (log.rs)
//!     containers/     one sparse file for each inode with data here (containers.rs)
//!     index.db        which bytes of the containers are valid (index.rs)
//!     refused/        changes that the server refused, kept for the user
//! ```

mod containers;
mod directory;
mod index;
mod log;
mod numbers;

pub(crate) use containers::{Container, Containers};
pub(crate) use directory::{
    StateDirectory, known_volume, remember_volume, replace_file, sync_directory,
};
pub(crate) use index::Index;
pub(crate) use log::LogFile;
pub(crate) use numbers::Numbers;
