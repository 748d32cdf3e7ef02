//! What a mount is of, and how it was asked for.

use std::path::PathBuf;

use segue_core::host::call::Owner;

use crate::options::MountOptions;

/// What is mounted, where, how and by whom.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) url: String,
    pub(crate) mountpoint: PathBuf,
    pub(crate) options: MountOptions,
    pub(crate) owner: Owner,
}
