//! The host's disk: the files of the cache directory, and the host's actions on them.

pub(crate) mod basis;
pub(crate) mod beside;
pub(crate) mod conflicts;
mod data;
mod edit;
pub(crate) mod files;
pub(crate) mod notes;
pub(crate) mod park;
pub(crate) mod recover;
pub(crate) mod source;
mod space;
mod sync;
pub(crate) mod verify;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use basis::Kept;
use segue_core::refusal::Refusal;

use crate::disk::files::{Containers, Index, LogFile, Numbers, Position, Preserved};
use crate::host::SharedHost;
use crate::metrics::Metrics;
use crate::rank::Ranked;
use crate::volume::Volume;

pub(crate) use edit::Log;
pub(crate) use park::{Parking, RefusedChanges};

/// The state of a volume on this host's disk.
pub(crate) struct CacheDisk {
    pub(crate) host: Arc<SharedHost>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) metrics: Metrics,
    pub(crate) log: Ranked<LogFile>,
    /// Where the log ended a second ago, and whether it ended there a second before that.
    pub(crate) measured: Ranked<Option<Position>>,
    pub(crate) is_log_quiet: AtomicBool,
    /// Held from the beginning of a sync of the log to its end. Taken before the log.
    pub(crate) syncing: Ranked<()>,
    /// Held while overwritten bytes of changes, and then the log, are made durable. True as long as
    /// the log is not.
    pub(crate) overwriting: Ranked<bool>,
    /// Held while the index is told what is known, from asking the core to the end. Taken before
    /// the log.
    pub(crate) noting: Ranked<()>,
    pub(crate) numbers: Ranked<Numbers>,
    pub(crate) containers: Containers,
    pub(crate) preserved: Preserved,
    pub(crate) index: Index,
    pub(crate) for_user: ForUser,
    /// Below this every change is settled, durably. Told to the server with each batch and with
    /// each new connection: it forgets the outcomes below.
    pub(crate) acked_below: Arc<AtomicU64>,
    pub(crate) space: space::Space,
    pub(crate) bases: Kept,
}

/// Files that are kept until a user has dealt with them.
pub(crate) struct ForUser {
    pub(crate) refused: RefusedChanges,
    pub(crate) conflicts: Ranked<conflicts::Conflicts>,
    pub(crate) beside: beside::CopiesBeside,
}

impl CacheDisk {
    /// What an error of this host's disk means to an application.
    pub(crate) fn disk_refusal(&self, what: &str, error: &io::Error) -> Refusal {
        // Whoever asks for a size that no disk has hears of it; the disk is well.
        if error.raw_os_error() == Some(libc::EFBIG) {
            return Refusal::TooLarge;
        }
        tracing::error!("{}: {what}: {error}", self.volume.mountpoint.display());
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Refusal::NoSpace,
            _ => Refusal::Io,
        }
    }
}
