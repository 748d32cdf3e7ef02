//! The volume of a mount, and its options.

use std::path::PathBuf;

use segue_core::host::call::Owner;

use crate::options::MountOptions;

/// The mounted volume: its address, its place and its options.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) url: String,
    pub(crate) mountpoint: PathBuf,
    pub(crate) options: MountOptions,
    pub(crate) owner: Owner,
}
