//! How soon a file's changes must be with the server: what that means for who changes it.

use segue_core::host::call::{Call, Seals};
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;

use crate::shell::Shell;

impl Shell {
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
        self.wakes.lanes.wake_all();
        self.wakes.to_upload.notify_one();
    }
}
