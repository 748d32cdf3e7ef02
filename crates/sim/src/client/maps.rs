//! Writes of memory maps, logged as a mount logs them.

use segue_core::host::call::Call;
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;

use super::Mount;
use crate::Violation;
use crate::apps::Tried;
use crate::plan::Bug;

impl Mount {
    /// Logs the writes of maps into the containers of this file, or of all.
    pub(crate) fn log_maps(&mut self, only: Option<Ino>) -> Tried<()> {
        if self.bug == Some(Bug::ClientForgetsMaps) {
            return Ok(Ok(()));
        }
        let mut logged = Ok(());
        for key in self.disk.changed_maps(only) {
            match self.host_call(Call::Mapped { ino: key.0, container: key.1 })? {
                Ok(_) => self.disk.map_logged(&self.core, key, true),
                Err(Refusal::Changed) => self.disk.map_logged(&self.core, key, false),
                // It is tried again the next time.
                Err(refusal) => logged = Err(refusal),
            }
        }
        Ok(logged)
    }

    /// No program has a map any more.
    pub(crate) fn all_unmapped(&mut self) -> Result<(), Violation> {
        if self.log_maps(None)?.is_ok() {
            self.disk.all_unmapped(&mut self.core);
        }
        Ok(())
    }

    /// Logs the stores of maps of an earlier process. There are no maps of it any more.
    pub(super) fn log_left_maps(&mut self) -> Result<(), Violation> {
        for (ino, _) in self.disk.changed_maps(None) {
            self.disk.load_node(&mut self.core, ino);
            self.disk.load(&mut self.core, ino).ok();
        }
        // On a full disk the process would not start.
        self.all_unmapped()
    }
}
