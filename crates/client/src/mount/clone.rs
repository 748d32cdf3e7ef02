//! copy_file_range(2) of whole files: the server copies references, and no byte travels.
//!
//! It is tried for what `cp` does: all of a file into one that is still empty. Where it cannot
//! be, or the link is down, the caller is told that it is not supported here, and its kernel
//! copies the bytes through this host.

use segue_core::host::Copied;
use segue_core::host::call::Call;
use segue_core::nouns::Outcome;
use segue_core::refusal::Refusal;

use crate::mount::Mount;

impl Mount {
    /// Copies from one open file to another, and returns how many bytes.
    pub(crate) async fn copy(&self, from: u64, to: u64, asked: Copied) -> Result<u64, Refusal> {
        let (from, to) = (self.handle(from)?, self.handle(to)?);
        // A container that was left behind has another version than the server.
        let is_behind = self.kernel.left_with(&from).is_some();
        if !to.writable || is_behind || self.remote.is_offline() {
            return Err(Refusal::NotSupported);
        }
        let (bytes, caller) = (asked, to.caller.clone());
        let call = Call::Clone { from: from.ino, to: to.ino, bytes, caller };
        let copied = self.shell.call_asking(call).await;
        let size = self.host.lock().tree().peek(from.ino).map_or(0, |attr| attr.size);
        match copied.ok().and_then(|copied| copied.answer.outcome).as_deref() {
            Some(Outcome::Done { touched })
                if touched.iter().any(|attr| attr.ino == to.ino && attr.size == size) =>
            {
                Ok(size)
            }
            // Whatever kept it from happening, a copy of the bytes will meet it and say so.
            _ => Err(Refusal::NotSupported),
        }
    }
}
