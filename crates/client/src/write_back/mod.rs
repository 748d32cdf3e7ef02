//! Write-back: batches that the host delivers, as messages to a Segue server. The chunks of their
//! stores are decided by [`segue_core::upload`]. Nothing above this room knows of them.

mod ahead;
mod basis;
mod drain;
mod due;
mod upload;

use std::sync::Arc;

use crate::disk::CacheDisk;
use crate::host::SharedHost;
use crate::net::Remote;
use crate::shell::Shell;
use crate::volume::Volume;
use crate::wakes::Wakes;

pub(crate) use drain::PARTING;
pub(crate) use due::age;

/// Brings the host's changes to the server.
pub(crate) struct WriteBack {
    pub(crate) host: Arc<SharedHost>,
    pub(crate) disk: Arc<CacheDisk>,
    pub(crate) shell: Arc<Shell>,
    pub(crate) remote: Remote,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) volume: Arc<Volume>,
}
