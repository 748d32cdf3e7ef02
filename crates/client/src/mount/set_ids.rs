//! Set-id bits of files that are written.
//!
//! The kernel leaves them to us (HANDLE_KILLPRIV_V2): it says of each write whether its writer
//! may keep them. Otherwise it would ask before each write whether there is something to take
//! away, and take it with a chmod in the writer's name, which the server refuses to anyone but
//! the owner.

use segue_core::host::SetIds;
use segue_core::nouns::{Caller, Ino, Record};
use segue_core::refusal::Refusal;

use super::Mount;

impl Mount {
    /// The bits of `ino`, whose data were just changed by somebody who may not keep them, go
    /// here and on the server.
    ///
    /// `caller` is who opened the file, in whose name it is stored, and at once: later it could be
    /// in somebody else's.
    pub(super) fn drop_set_ids(&self, ino: Ino, caller: &Caller) -> Result<(), Refusal> {
        let Some(how) = self.core().set_ids_after_write(ino, caller) else { return Ok(()) };
        self.seal(ino, caller.clone(), false)?;
        match how {
            SetIds::GoWithTheStore => self.core().tree.drop_set_ids(ino),
            SetIds::GoByChmod(set) => {
                self.log_record(Record::SetAttr { ino, set }, caller.clone(), false)?;
            }
        }
        // stat(2) right after the write is to tell.
        self.kernel.forget_attributes(ino);
        Ok(())
    }
}
