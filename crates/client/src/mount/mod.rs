//! A mount, and the calls of programs on it. They decide nothing about files that the host could
//! decide.
//!
//! ```text
//!   FUSE ──▶ mount ──▶ shell ──▶ host (mutex) ──▶ answer
//!                        │
//!                        ├──▶ disk: log, containers, index
//!                        ├──▶ kernel: its caches
//!                        └──▶ net: fetches; write-back delivers batches
//! ```
//!
//! Each of these rooms calls only those to the right and below. The order of locks is in `rank`. No
//! lock is held across an await.

mod assemble;
mod changes;
mod clone;
mod data;
pub(crate) mod directories;
mod holes;
pub(crate) mod idle;
mod merge;
mod names;
mod room;
mod session;
pub(crate) mod start;
mod tasks;
mod xattr;

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::nouns::{Attr, Ino};
use segue_core::wire::Space;
use tokio::sync::Notify;

use crate::disk::CacheDisk;
use crate::host::SharedHost;
use crate::kernel::KernelView;
use crate::metrics::Metrics;
use crate::net::Remote;
use crate::net::limits::Limiter;
use crate::rank::Ranked;
use crate::shell::Shell;
use crate::volume::Volume;
use crate::waits::Slows;
use crate::wakes::Wakes;
use crate::write_back::WriteBack;

pub(crate) use changes::Creation;
pub(crate) use data::{OpenMode, Opened, Part, SizeChange, Written};
pub(crate) use directories::DirectoryHandle;
pub(crate) use holes::{Allocation, Sight};
pub use start::{MountPlan, Ready, mount};

/// Inodes kept in memory.
const NODE_LIMIT: usize = 500_000;

/// One mounted volume.
pub(crate) struct Mount {
    pub(crate) host: Arc<SharedHost>,
    pub(crate) disk: Arc<CacheDisk>,
    pub(crate) kernel: Arc<KernelView>,
    pub(crate) shell: Arc<Shell>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) remote: Remote,
    pub(crate) volume: Arc<Volume>,
    pub(crate) limiter: Limiter,
    pub(crate) metrics: Metrics,
    pub(crate) slows: Arc<Slows>,
    directories: Ranked<directories::Directories>,
    /// By the directory whose quota it is; no more than a volume has of those.
    last_space: Ranked<BTreeMap<Option<Ino>, Space>>,
    /// The process is to end, whatever is still open.
    quit: Notify,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("url", &self.volume.url).finish_non_exhaustive()
    }
}

/// A shared mount.
pub(crate) type Shared = Arc<Mount>;

impl Mount {
    /// Attributes as this host shows them.
    pub(crate) fn shown(&self, attr: Attr) -> Attr {
        let now = self.host.moment();
        let attr = self.host.lock().shown(attr, now);
        let Volume { owner, options, .. } = &*self.volume;
        let (uid, gid) = owner.to_host(attr.uid, attr.gid);
        Attr { uid: options.uid.unwrap_or(uid), gid: options.gid.unwrap_or(gid), ..attr }
    }
}
