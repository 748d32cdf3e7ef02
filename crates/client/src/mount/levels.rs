//! How soon a file's changes must be with the server: what that means for who changes it.

use segue_core::host::call::Call;
use segue_core::nouns::{Caller, Ino};
use segue_core::refusal::Refusal;

use super::Mount;
use crate::options::Lm;

impl Mount {
    /// How soon changes of `ino` must be with the server.
    pub(super) fn lm(&self, ino: Ino) -> Lm {
        self.core().lm(ino)
    }

    /// Makes what was written to `ino` a change for the server, at a close by `caller`, unless that
    /// is kept back.
    pub(super) fn seal_at_close(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        self.call(Call::SealAtClose { ino, caller }).map(drop)
    }

    /// Seals every written file, open or not. Those that may be gone once the server has spoken are
    /// left, and returned.
    pub(crate) fn seal_all(&self) -> Vec<Ino> {
        self.note_maps(None).ok();
        let (unsealed, left) = self.core().to_seal_at_end();
        unsealed.into_iter().for_each(|ino| self.seal_early(ino));
        left
    }

    /// The same of those that have no more time.
    pub(super) fn seal_due(&self) {
        self.note_maps(None).ok();
        let due = self.core().due_to_seal(self.now());
        due.into_iter().for_each(|ino| self.seal_early(ino));
    }

    /// What waits for company goes now.
    pub(super) fn send_now(&self) {
        self.core().queue.release_all();
        self.lanes.wake();
        self.to_upload.notify_one();
    }

    /// Seals a file before its writer asks for it.
    pub(super) fn seal_early(&self, ino: Ino) {
        let writer = self.core().sealer(ino).unwrap_or_else(Caller::nobody);
        if let Err(refusal) = self.seal(ino, writer) {
            tracing::warn!("inode {ino}: its data are not queued yet: {refusal}");
        }
    }
}
