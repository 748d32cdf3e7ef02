//! A client: core's `Host` in a process that can die, above a disk that does not.
//!
//! ```text
//!   applications ─▶ Mount ─▶ Host ─▶ actions ─▶ HostDisk, SimRemote ─▶ events ─▶ Host
//! ```
//!
//! A call to the server suspends the operation that asked. The stop
//! [`Ask`](crate::apps::Stop::Ask) carries the request. The operation begins anew when the reply
//! has been taken in.

mod chores;
mod kernel;
mod maps;
mod merges;
mod shell;

use std::time::Duration;

use segue_core::host::call::{Call, Seals};
use segue_core::host::{Host, Settings};
use segue_core::nouns::Time;

use crate::Violation;
use crate::check::acknowledged::Acknowledged;
use crate::disk::{HostDisk, Kept};
use crate::plan::Bug;
use crate::remote::SimRemote;
use chores::Chores;
use kernel::Kernel;
use merges::Merging;
pub(crate) use shell::{Hearing, Ran};

/// Where the server promises nothing its answers are believed for so long.
pub(crate) const POLL: Duration = Duration::from_secs(1);
/// Low, so that the core's limit is reached.
pub(crate) const NODE_LIMIT: usize = 12;
/// Low, as files are small.
const CLONE_MIN: u64 = 8;
/// Low, as files are small.
const BACKED_MIN: u64 = 1;
/// Low, so that a run has more batches.
const BATCH_MAX: u64 = 1000;
/// 2026-11-21, when virtual time begins.
pub(crate) const EPOCH_SECS: i64 = 1_795_219_200;

/// A running client.
pub(crate) struct Mount {
    pub(crate) core: Host,
    pub(crate) disk: HostDisk,
    pub(crate) remote: SimRemote,
    pub(crate) kernel: Kernel,
    pub(crate) now: Time,
    /// The wall clock is ahead by so many seconds.
    pub(crate) ahead: i64,
    /// Calls of the host.
    host_calls: u64,
    pub(crate) chores: Chores,
    pub(crate) merging: Merging,
    /// There may be quotas, and it is to be asked how much they have left.
    pub(crate) has_limits: bool,
    bug: Option<Bug>,
}

impl Mount {
    /// Starts a process on the disk of an earlier one; requests are numbered from `next_request`.
    pub(crate) fn start(
        left: (Kept, Acknowledged),
        next_request: u64,
        bug: Option<Bug>,
        now: Time,
    ) -> Result<Mount, Violation> {
        let mut mount = Mount::new(left, next_request, bug, now);
        mount.disk.recover(&mut mount.core, u32::MAX, now)?;
        if let Some(call) = mount.core.refuse_lost(mount.moment()) {
            mount.host_call(call)?.map_err(|refusal| Violation(refusal.to_string()))?;
        }
        mount.log_left_maps()?;
        mount.remote.connect(&mount.core, &mount.disk, now);
        Ok(mount)
    }

    /// Starts a process that dies after so many steps of its recovery, if there are so many.
    pub(crate) fn die_recovering(
        left: (Kept, Acknowledged),
        bug: Option<Bug>,
        now: Time,
        steps: u32,
    ) -> Result<(Kept, Acknowledged), Violation> {
        let mut mount = Mount::new(left, 0, bug, now);
        mount.disk.recover(&mut mount.core, steps, now)?;
        Ok((mount.disk.kept, mount.disk.acknowledged))
    }

    fn new(
        (kept, acknowledged): (Kept, Acknowledged),
        next_request: u64,
        bug: Option<Bug>,
        now: Time,
    ) -> Mount {
        let mut core = Host::new(NODE_LIMIT, kept.seq_reserved.max(1));
        let (clone_min, batch_max, backed_min) = (CLONE_MIN, BATCH_MAX, BACKED_MIN);
        let settings = Settings { clone_min, batch_max, backed_min, ..Settings::default() };
        core.configure(Settings { backs: true, ..settings });
        bug.and_then(Bug::fault).into_iter().for_each(|fault| core.plant(fault));
        core.tell_for_long();
        let kernel = Kernel::new(bug);
        Mount {
            core,
            remote: SimRemote::new(&kept, next_request, bug),
            disk: HostDisk::new(kept, acknowledged, bug),
            kernel,
            now,
            ahead: 0,
            host_calls: 0,
            chores: Chores::default(),
            merging: Merging::default(),
            has_limits: false,
            bug,
        }
    }

    /// The process dies. Returns its disk, and the number of its next request.
    pub(crate) fn die(self) -> (Kept, Acknowledged, u64) {
        (self.disk.kept, self.disk.acknowledged, self.remote.next_request())
    }

    /// The chores that the real client does every few seconds.
    pub(crate) fn tick(&mut self) -> Result<(), Violation> {
        // Writes that cannot be logged now are logged the next time.
        self.log_maps(None)?.ok();
        self.core.shrink(self.now);
        self.time_comes()?;
        self.disk.sync(&self.core);
        self.disk.note(&mut self.core, self.now);
        self.disk.sweep(&mut self.core);
        self.disk.clean_cache(&mut self.core);
        self.disk.kept.lost_power &= self.core.is_in_doubt();
        self.ask_for_room();
        self.merge()
    }

    /// Asks how much quotas have left, at first and when something was changed since.
    fn ask_for_room(&mut self) {
        let is_due = !self.remote.is_offline && self.has_limits;
        if !is_due || std::mem::replace(&mut self.chores.knows_room, true) {
            return;
        }
        let mut quotas = self.core.quotas_to_ask();
        quotas.insert(None);
        self.remote.ask_for_room(quotas, self.now);
    }

    /// Everything that was written is to be sent.
    pub(crate) fn seal_all(&mut self) -> Result<(), Violation> {
        // Another time, if the disk is full.
        self.host_call(Call::SealAll(Seals::Decided))?.ok();
        self.core.release_all();
        self.tick()
    }
}
