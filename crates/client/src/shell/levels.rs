//! How soon a file's changes must be with the server: what that means for who changes it.

use segue_core::host::call::{Call, Seals};
use segue_core::nouns::{Caller, Ino};
use segue_core::refusal::Refusal;

use crate::options::Lm;
use crate::shell::Shell;

impl Shell {
    /// How soon changes of `ino` must be with the server.
    pub(crate) fn lm(&self, ino: Ino) -> Lm {
        self.host.lock().lm(ino)
    }

    /// Makes what was written to `ino` a change for the server, at a close by `caller`, unless that
    /// is kept back.
    pub(crate) fn seal_at_close(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        self.call(Call::SealAtClose { ino, caller }).map(drop)
    }

    /// Seals written files before their writers ask for it. Returns those that are left.
    pub(crate) fn seal_all(&self, which: Seals) -> Result<Vec<Ino>, Refusal> {
        let sealed = self.call(Call::SealAll(which));
        let sealed = sealed.inspect_err(|refusal| {
            tracing::warn!("some written data are not queued yet: {refusal}");
        });
        Ok(sealed?.answer.left)
    }

    /// What waits for company goes now.
    pub(crate) fn send_now(&self) {
        self.host.lock().release_all();
        self.wakes.lanes.wake();
        self.wakes.to_upload.notify_one();
    }
}
