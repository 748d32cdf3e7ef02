//! Files that hosts have changed and the server does not have yet.

use serde::{Deserialize, Serialize};

use super::Found;
pub use crate::sharing::{DIRTY_MAX, Dirty, Marked, are_valid};

/// A file that a program opens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// It.
    pub found: Found,
    /// The server lacks changes of a host that is away, or that sent nothing for a while.
    pub is_hidden: bool,
}
