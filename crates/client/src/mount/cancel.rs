//! What is not sent because of what came later: data that were written anew, stores of files that
//! are removed, changes that cancel out, and files that another one was renamed over.

use segue_core::host::log::{Change, Entry, Logged};
use segue_core::nouns::{Caller, Ino, touched};
use segue_core::refusal::Refusal;

use super::{Mount, lock};

impl Mount {
    /// Makes what was written to `ino` part of the change with its data that waits, if that can be.
    pub(super) fn amend(&self, ino: Ino, caller: &Caller) -> Result<bool, Refusal> {
        let mut log = lock(&self.log);
        let (seq, entry) = {
            let mut core = self.core();
            let Some((seq, entry)) = core.take_to_amend(ino, caller) else { return Ok(false) };
            (seq, entry)
        };
        if let Err(error) = log.append(&entry) {
            return Err(self.taken_for_nothing(&[seq], &error));
        }
        self.core().admit(entry, self.now());
        self.lanes.wake();
        self.to_upload.notify_one();
        Ok(true)
    }

    /// `ino` is about to lose its last name: what was stored of it and waits is as if it had never
    /// been closed, and goes nowhere once the server has said that there is no other name. True if
    /// something was taken back.
    pub(super) fn take_back(&self, ino: Ino) -> Result<bool, Refusal> {
        let mut is_taken_back = false;
        // A file may be stored in parts.
        while self.take_back_newest(ino)? {
            is_taken_back = true;
        }
        Ok(is_taken_back)
    }

    fn take_back_newest(&self, ino: Ino) -> Result<bool, Refusal> {
        let mut log = lock(&self.log);
        let taken = self.core().take_to_unseal(ino);
        let Some(seq) = taken else { return Ok(false) };
        if let Err(error) = log.append(&Entry::Unsealed { seq }) {
            return Err(self.taken_for_nothing(&[seq], &error));
        }
        if self.core().unseal(seq, self.now()).is_none() {
            return Ok(false);
        }
        self.settled.send_replace(());
        Ok(true)
    }

    /// `ino` may have lost its last name just now: if the server has heard of none of its changes,
    /// none is sent.
    pub(super) fn cancel_out(&self, ino: Ino) {
        let mut log = lock(&self.log);
        let taken = self.core().take_to_cancel(ino);
        let Some(seqs) = taken else { return };
        if let Err(error) = log.append(&Entry::Cancelled { ino, seqs: seqs.clone() }) {
            // It is sent.
            self.taken_for_nothing(&seqs, &error);
            return;
        }
        let (cancelled, times) = {
            let mut core = self.core();
            let cancelled = core.cancel(ino, &seqs);
            let times = core.times_of_cancelled(&cancelled);
            (cancelled, times)
        };
        drop(log);
        self.drop_cancelled(ino, &cancelled);
        let by = cancelled.last().map(|logged| logged.caller.clone()).unwrap_or_default();
        for record in times {
            if let Err(refusal) = self.log_record(record, by.clone(), false) {
                tracing::debug!("a directory's time is lost: {refusal}");
            }
        }
        self.settled.send_replace(());
        self.lanes.wake();
    }

    /// Change `by` may be a rename over a file of which the server has not heard: then nothing of
    /// that is sent.
    pub(super) fn supersede(&self, by: u64) {
        let mut log = lock(&self.log);
        let taken = self.core().take_superseded(by);
        let Some((ino, seqs, amended)) = taken else { return };
        let all: Vec<u64> = seqs.iter().copied().chain([by]).collect();
        let entry = Entry::Superseded { ino, seqs: seqs.clone(), by: Box::new(amended.clone()) };
        if let Err(error) = log.append(&entry) {
            // All of it is sent.
            self.taken_for_nothing(&all, &error);
            return;
        }
        let cancelled = self.core().supersede(ino, &seqs, &amended);
        drop(log);
        self.drop_cancelled(ino, &cancelled);
        self.settled.send_replace(());
        self.lanes.wake();
    }

    /// Drops cancelled changes of `ino`, which has no name any more.
    fn drop_cancelled(&self, ino: Ino, cancelled: &[Logged]) {
        for logged in cancelled {
            let Change::Record(record) = &logged.change else { continue };
            // The kernel was told of directories as they were with it.
            let others = touched(record).inodes.into_iter().filter(|other| *other != ino);
            others.for_each(|other| self.kernel.forget_attributes(other));
        }
        self.reap_one(ino);
    }

    /// What was to become of these could not be logged, and did not happen.
    fn taken_for_nothing(&self, seqs: &[u64], error: &std::io::Error) -> Refusal {
        self.core().send_after_all(seqs);
        self.lanes.wake();
        self.disk_refusal("update.log", error)
    }
}
