//! A mount: the shell of the host. It waits for the server and the disk, and decides nothing about
//! files that the host could decide.
//!
//! ```text
//!   FUSE ──▶ names, changes, data ──▶ shell ──▶ host (mutex) ──▶ answer
//!                 │                     │         ▲
//!              remote               log file      │ outcomes
//!                                       └──▶ drain┴──▶ remote
//! ```
//!
//! The order of locks is in `rank`. No lock is held across an await.

mod ahead;
mod basis;
mod beside;
mod bound;
mod carry;
mod changes;
mod clone;
mod conflicts;
mod data;
mod differ;
mod directories;
mod drain;
mod due;
mod fetch;
mod group;
mod healing;
mod holes;
mod idle;
mod kernel;
mod levels;
mod limits;
mod link;
mod lost;
mod merge;
pub(crate) mod metrics;
mod names;
mod notes;
mod park;
mod promises;
mod push;
mod read_ahead;
mod recover;
mod release;
mod report;
mod room;
mod session;
mod shell;
mod source;
mod space;
mod start;
mod sync;
mod through;
mod told;
mod upload;
pub(crate) mod verify;
mod visible;
mod watching;
pub(crate) mod why;
mod xattr;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_core::host::Host;
use segue_core::host::call::{Call, Owner};
use segue_core::nouns::{Attr, Ino, Name, Time, Timestamp};
use segue_core::promise::Unseen;
use segue_core::refusal::Refusal;
use segue_core::wire::Space;
use tokio::sync::{Notify, mpsc, watch};

use crate::options::MountOptions;
use crate::rank::{Held, Ranked};
use crate::remote::Remote;
use crate::state::{Containers, Index, LogFile, Numbers, Preserved};

pub(crate) use changes::Creation;
pub(crate) use data::{OpenMode, Opened, SizeChange, Written};
pub(crate) use directories::{DirectoryHandle, Reading};
pub(crate) use holes::{Allocation, Sight};
pub(crate) use kernel::KernelCache;
pub(crate) use shell::Changed;
pub use start::{MountPlan, Ready, mount};
pub(crate) use sync::Scope;

/// Inodes kept in memory.
const NODE_LIMIT: usize = 500_000;

/// One mounted volume.
pub(crate) struct Mount {
    core: Ranked<Host>,
    log: Ranked<LogFile>,
    /// Held from the beginning of a sync of the log to its end. Taken before the log.
    syncing: Ranked<()>,
    /// Held while the index is told what is known, from asking the core to the end. Taken before
    /// the log.
    noting: Ranked<()>,
    numbers: Mutex<Numbers>,
    containers: Containers,
    preserved: Preserved,
    index: Index,
    pub(crate) remote: Remote,
    pub(crate) options: MountOptions,
    pub(crate) owner: Owner,
    pub(crate) url: String,
    mountpoint: PathBuf,
    refused_dir: PathBuf,
    refused: AtomicU64,
    metrics: metrics::Metrics,
    conflicts: Mutex<conflicts::Conflicts>,
    beside: beside::CopiesBeside,
    slows: why::Slows,
    merges: merge::Merges,
    /// Below this every change is settled, durably. Told to the server with each batch and with
    /// each new connection: it forgets the outcomes below.
    acked_below: Arc<AtomicU64>,
    directories: Mutex<directories::Directories>,
    /// By the directory whose quota it is; no more than a volume has of those.
    last_space: Mutex<BTreeMap<Option<Ino>, Space>>,
    lanes: drain::Lanes,
    unseen: Mutex<Unseen>,
    limiter: limits::Limiter,
    slowed: bound::Slowed,
    /// The number of the next call.
    calls: AtomicU64,
    space: space::Space,
    kept: basis::Kept,
    /// The host's deadline may be earlier.
    time: Notify,
    /// Calls that the host starts itself.
    calls_to_start: mpsc::UnboundedSender<Call>,
    /// The process is to end, whatever is still open.
    quit: Notify,
    /// There may be something to upload ahead.
    to_upload: Notify,
    /// It is to be asked what quotas have left.
    short_of_room: Notify,
    /// More is cached than may be.
    to_clean: Notify,
    /// Some fetch ended.
    fetched: Notify,
    fetches: read_ahead::Fetches,
    /// Changes with each settlement.
    settled: watch::Sender<()>,
    kernel: KernelCache,
    through: through::PassthroughState,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("url", &self.url).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere must not take the user's data with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wall-clock time in milliseconds, for the last use of files.
fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Mount {
    fn core(&self) -> Held<'_, Host> {
        let mut core = self.core.lock();
        let (session, answered) = self.remote.session();
        core.tree.follow(session, answered);
        core
    }

    /// The moment on this mount's clock.
    pub(crate) fn now(&self) -> Time {
        self.remote.now()
    }

    /// Wall-clock time, for files.
    pub(crate) fn wall(&self) -> Timestamp {
        timestamp(SystemTime::now())
    }

    /// How long the kernel may keep attributes of `ino`.
    pub(crate) fn kernel_lifetime(&self, ino: Ino) -> Duration {
        self.core().tree.remaining(ino, self.now())
    }

    /// Held while an answer to the kernel is made and given: what is taken back is taken back
    /// behind it.
    pub(crate) fn kernel_hears(&self) -> RwLockReadGuard<'_, ()> {
        self.kernel.answering()
    }

    /// The kernel asks for something.
    pub(crate) fn kernel_asks(&self) {
        self.kernel.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// How long the kernel may keep that `name` in `parent` is `ino`.
    pub(crate) fn kernel_name_lifetime(&self, parent: Ino, name: &Name, ino: Ino) -> Duration {
        self.core().tree.name_remaining(parent, name, ino, self.now())
    }

    /// What an error of this host's disk means to an application.
    fn disk_refusal(&self, what: &str, error: &io::Error) -> Refusal {
        // Whoever asks for a size that no disk has hears of it; the disk is well.
        if error.raw_os_error() == Some(libc::EFBIG) {
            return Refusal::TooLarge;
        }
        tracing::error!("{}: {what}: {error}", self.mountpoint.display());
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Refusal::NoSpace,
            _ => Refusal::Io,
        }
    }

    /// Attributes as this host shows them.
    pub(crate) fn shown(&self, attr: Attr) -> Attr {
        let (uid, gid) = self.owner.to_host(attr.uid, attr.gid);
        Attr { uid: self.options.uid.unwrap_or(uid), gid: self.options.gid.unwrap_or(gid), ..attr }
    }
}

/// `time` as files carry it.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let secs = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { secs: secs(after), nanos: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp { secs: -secs(before), nanos: 0 },
                nanos => Timestamp { secs: -secs(before) - 1, nanos: 1_000_000_000 - nanos },
            }
        }
    }
}

/// A shared mount.
pub(crate) type Shared = Arc<Mount>;
