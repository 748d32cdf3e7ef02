//! How soon a file's changes must be with the server: what that means for who changes it.

use segue_core::nouns::{Caller, Ino, Record, Time};
use segue_core::refusal::Refusal;

use super::{Mount, lock, nobody_asked};
use crate::options::Lm;

/// What was written to a file and not sealed.
#[derive(Clone, Debug)]
pub(super) struct Unsealed {
    /// When the oldest of it was written.
    pub(super) since: Time,
    /// Who closed the file last, leaving it so.
    by: Option<Caller>,
}

impl Unsealed {
    pub(super) fn since(since: Time) -> Unsealed {
        Unsealed { since, by: None }
    }

    /// What `by` closed, and is as if it had not been.
    pub(super) fn again(since: Time, by: Caller) -> Unsealed {
        Unsealed { since, by: Some(by) }
    }
}

impl Mount {
    /// How soon changes of `ino` must be with the server.
    pub(super) fn lm(&self, ino: Ino) -> Lm {
        self.core().lm(ino)
    }

    /// Whether who makes this change of names or attributes waits for its commit; `exclusive`: no
    /// host may have the name.
    pub(super) fn waits(&self, record: &Record, exclusive: bool) -> bool {
        self.core().lm_of(record).waits(exclusive)
    }

    /// Who closes `ino` makes what was written a change for the server, unless that is kept back.
    pub(super) fn seal_at_close(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        if self.is_kept_back(ino) {
            if let Some(unsealed) = lock(&self.unsealed).get_mut(&ino) {
                unsealed.by = Some(caller);
            }
            return Ok(());
        }
        self.seal(ino, caller, false).map(drop)
    }

    /// True if what was written to `ino` has time.
    fn is_kept_back(&self, ino: Ino) -> bool {
        if self.is_near_bound() && !self.core().awaits_verdict(ino) {
            return false;
        }
        let since = lock(&self.unsealed).get(&ino).map(|unsealed| unsealed.since);
        since.is_some_and(|since| self.core().is_delayed(ino, since, self.now()))
    }

    /// True if the server is to keep `ino` when it loses its last name, until this host knows
    /// whether it was the last: what is kept back, or was on its way and need not go, then goes
    /// nowhere.
    pub(super) fn keep_unnamed(&self, ino: Ino) -> Result<bool, Refusal> {
        let is_open = self.core().is_open(ino);
        Ok(is_open || self.is_kept_back(ino) || self.take_back(ino)?)
    }

    /// Seals every written file, open or not. Those that may be gone once the server has spoken are
    /// left, and returned.
    pub(crate) fn seal_all(&self) -> Vec<Ino> {
        self.note_maps(None).ok();
        let (left, unsealed) = {
            let core = self.core();
            core.unsealed().into_iter().partition::<Vec<Ino>, _>(|ino| core.awaits_verdict(*ino))
        };
        unsealed.into_iter().for_each(|ino| self.seal_early(ino));
        left
    }

    /// The same of those that have no more time.
    pub(super) fn seal_due(&self) {
        self.note_maps(None).ok();
        let mut unsealed = {
            let core = self.core();
            let unsealed = core.unsealed();
            // What was written to files that are gone waits for nothing.
            lock(&self.unsealed).retain(|ino, _| unsealed.contains(ino));
            unsealed
        };
        unsealed.retain(|ino| !self.is_kept_back(*ino) && !self.is_rewritten(*ino));
        unsealed.into_iter().for_each(|ino| self.seal_early(ino));
    }

    /// What waits for company goes now.
    pub(super) fn send_now(&self) {
        self.core().queue.release_all();
        self.lanes.wake();
        self.to_upload.notify_one();
    }

    /// Waits until something has waited long enough for company.
    pub(super) async fn company_came(&self) {
        let next = self.core().queue.next_release();
        match next {
            Some(at) => tokio::time::sleep(at.since(self.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Seals a file before its writer asks for it.
    pub(super) fn seal_early(&self, ino: Ino) {
        let by = lock(&self.unsealed).get(&ino).and_then(|unsealed| unsealed.by.clone());
        let writer = lock(&self.handles).writer(ino).or(by).unwrap_or_else(nobody_asked);
        if let Err(refusal) = self.seal(ino, writer, false) {
            tracing::warn!("inode {ino}: its data are not queued yet: {refusal}");
        }
    }
}
