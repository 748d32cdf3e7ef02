//! How soon a file's changes must be with the server: what that means for who changes it.

use segue_core::host::call::Call;
use segue_core::nouns::{Caller, Ino};
use segue_core::refusal::Refusal;

use crate::options::Lm;
use crate::shell::Shell;

impl Shell {
    /// Makes what was written to `ino` a change for the server.
    fn seal(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        self.call(Call::Seal { ino, caller, waits: false }).map(drop)
    }

    /// How soon changes of `ino` must be with the server.
    pub(crate) fn lm(&self, ino: Ino) -> Lm {
        self.host.lock().lm(ino)
    }

    /// Makes what was written to `ino` a change for the server, at a close by `caller`, unless that
    /// is kept back.
    pub(crate) fn seal_at_close(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        self.call(Call::SealAtClose { ino, caller }).map(drop)
    }

    /// Seals every written file, open or not. Those that may be gone once the server has spoken are
    /// left, and returned.
    pub(crate) fn seal_all(&self) -> Vec<Ino> {
        self.note_maps(None).ok();
        let (unsealed, left) = self.host.lock().to_seal_at_end();
        unsealed.into_iter().for_each(|ino| self.seal_early(ino));
        left
    }

    /// The same of those that have no more time.
    pub(crate) fn seal_due(&self) {
        self.note_maps(None).ok();
        let due = self.host.lock().due_to_seal(self.host.now());
        due.into_iter().for_each(|ino| self.seal_early(ino));
    }

    /// What waits for company goes now.
    pub(crate) fn send_now(&self) {
        self.host.lock().queue.release_all();
        self.wakes.lanes.wake();
        self.wakes.to_upload.notify_one();
    }

    /// Seals a file before its writer asks for it.
    pub(crate) fn seal_early(&self, ino: Ino) {
        let writer = self.host.lock().sealer(ino).unwrap_or_else(Caller::nobody);
        if let Err(refusal) = self.seal(ino, writer) {
            tracing::warn!("inode {ino}: its data are not queued yet: {refusal}");
        }
    }
}
