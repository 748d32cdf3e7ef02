//! The name of a container file.

use serde::{Deserialize, Serialize};

/// A container file of one inode. When all that is cached of a file goes, it gets another one: so
/// what is here of an older version is never mistaken for the newer, and whoever still needs the
/// old one has it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct ContainerId(pub u64);
