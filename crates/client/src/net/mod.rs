//! The server of a mount: questions to it, and data from it.

mod fetch;
pub(crate) mod limits;
mod read_ahead;
mod remote;

use std::sync::Arc;

use read_ahead::Fetches;

use crate::disk::CacheDisk;
use crate::host::SharedHost;
use crate::wakes::Wakes;

pub(crate) use remote::{Remote, WireChunk};

/// Gets data from the server into containers.
pub(crate) struct Fetcher {
    pub(crate) host: Arc<SharedHost>,
    pub(crate) disk: Arc<CacheDisk>,
    pub(crate) remote: Remote,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) fetches: Fetches,
}
