//! Signals that wake the tasks of a mount.

use segue_core::host::action::Task;
use segue_core::host::call::Call;
use segue_core::host::log::Lane;
use segue_core::refusal::Refusal;
use tokio::sync::{Notify, mpsc, watch};

use crate::rank::Ranked;

/// Each wakes its waiters.
#[derive(Debug)]
pub(crate) struct Wakes {
    pub(crate) lanes: Lanes,
    /// The host's deadline may be earlier.
    pub(crate) time: Notify,
    /// Calls that the host starts itself.
    pub(crate) calls_to_start: mpsc::UnboundedSender<Call>,
    /// There may be something to upload ahead.
    pub(crate) to_upload: Notify,
    /// It is to be asked what quotas have left.
    pub(crate) short_of_room: Notify,
    /// Some fetch ended.
    pub(crate) fetched: Notify,
    /// Changes with each settlement.
    pub(crate) settled: watch::Sender<()>,
    /// A conflict copy is known that was not.
    pub(crate) merges: Notify,
}

impl Wakes {
    pub(crate) fn new(calls_to_start: mpsc::UnboundedSender<Call>) -> Wakes {
        Wakes {
            lanes: Lanes::default(),
            time: Notify::new(),
            calls_to_start,
            to_upload: Notify::new(),
            short_of_room: Notify::new(),
            fetched: Notify::new(),
            settled: watch::Sender::new(()),
            merges: Notify::new(),
        }
    }

    /// Wakes the task that the host has work for.
    pub(crate) fn wake(&self, task: Task) {
        match task {
            Task::Drain => self.lanes.wake_all(),
            Task::Time => self.time.notify_one(),
            Task::Upload => self.to_upload.notify_one(),
            Task::Pushed => self.lanes.pushed.send_replace(()),
            Task::Settled => self.settled.send_replace(()),
            Task::Fetched => self.fetched.notify_waiters(),
            Task::Quotas => self.short_of_room.notify_one(),
            Task::Merge => self.merges.notify_one(),
        }
    }
}

/// How one lane fares.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// There may be something to send.
    pub(crate) wakes: Notify,
    /// Why the last batch could not be sent, if it could not.
    pub(crate) hindered: Ranked<Option<Refusal>>,
}

/// All lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    metadata: Sending,
    pulled: Sending,
    fast: Sending,
    data: Sending,
    /// Changes that wait for company have enough, or somebody waits for them.
    pub(crate) hurry: Notify,
    /// Wakes the calls that carry something when something is pushed: it may be what they carry.
    pub(crate) pushed: watch::Sender<()>,
}

impl Lanes {
    pub(crate) fn of(&self, lane: Lane) -> &Sending {
        match lane {
            Lane::Metadata => &self.metadata,
            Lane::Pulled => &self.pulled,
            Lane::Fast => &self.fast,
            Lane::Data => &self.data,
        }
    }

    /// There may be something to send.
    pub(crate) fn wake_all(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.of(lane).wakes.notify_one());
    }

    /// Why something could not be sent, if there is such a reason.
    pub(crate) fn hindered(&self) -> Option<Refusal> {
        Lane::ALL.into_iter().find_map(|lane| *self.of(lane).hindered.lock())
    }
}
