//! A batch whose chunks the server does not take, because a quota or its disk is full.

use segue_core::host::log::Logged;
use segue_core::host::send::is_to_replace;
use segue_core::refusal::Refusal;

use super::{Mount, lock};

/// How a batch goes on whose chunks the server does not take.
pub(super) enum Without {
    /// With fewer changes.
    Fewer,
    /// When other changes are settled.
    Later,
    /// With the names of its chunks only.
    Named,
}

impl Mount {
    /// How a batch goes on, of which the server refused the chunks. An error if it is sent again
    /// as it is.
    pub(super) fn without_chunks(
        &self,
        batch: &mut Vec<Logged>,
        refusal: Refusal,
    ) -> Result<Without, Refusal> {
        if !batch.first().is_some_and(|first| self.decides(first, refusal)) {
            return Err(refusal);
        }
        if batch.len() > 1 {
            self.halve(batch);
            return Ok(Without::Fewer);
        }
        let waits = self.refused_chunks(batch);
        Ok(if waits { Without::Later } else { Without::Named })
    }

    /// True if what becomes of a change is for the server to say now, which has no room for its
    /// chunks.
    fn decides(&self, logged: &Logged, refusal: Refusal) -> bool {
        if refusal != Refusal::NoSpace {
            return refusal == Refusal::Quota;
        }
        let (now, is_awaited) = (self.now(), self.is_awaited(logged.seq));
        if !is_awaited && is_to_replace(&self.core().queue, logged) {
            return false;
        }
        let mut disk = lock(&self.lanes.server_disk);
        disk.note_full(now);
        disk.decides(now, is_awaited)
    }
}
