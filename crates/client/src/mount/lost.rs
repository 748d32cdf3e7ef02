//! The server's data directory was put back from a copy: what this host knows of commits that the
//! server has forgotten is asked for again.

use segue_core::host::action::{Done, LostNotes, Undone};
use segue_core::host::cache::Scrap;
use segue_core::host::call::Call;
use segue_core::nouns::Version;
use segue_core::refusal::Refusal;
use segue_core::wire::Welcome;

use super::Mount;
use super::notes::known;

impl Mount {
    /// The latest version of anything that this host knows.
    pub(super) fn latest_known(&self) -> Option<Version> {
        let noted = known("index.db", self.index.latest()).flatten();
        noted.max(Some(self.core().tree.latest()))
    }

    /// Forgets what a server does not know that says so in `welcome`, on the disk, in memory and in
    /// the kernel, before anything is asked over its connection.
    pub(super) fn forget_lost(&self, welcome: &Welcome) -> Result<(), Refusal> {
        let Some(history) = &welcome.history else { return Ok(()) };
        tracing::warn!(
            "the server's data were put back from a copy: what this host knows of later changes is \
             asked for again, and its own pending changes may become conflict copies"
        );
        self.forget_copies();
        // What is being noted is of before.
        let _noting = self.noting.lock();
        self.call(Call::Forget(history.clone())).map(drop)
    }

    /// Forgets notes of the index, durably.
    pub(super) fn forget_notes(&self, lost: &LostNotes) -> Result<Done, Undone> {
        let gone = self.index.forget_lost(&lost.history, |ino| lost.kept.contains(&ino));
        let gone = gone.and_then(|gone| self.index.sync().map(|()| gone));
        let gone = gone.map_err(|error| {
            tracing::error!("cannot write index.db: {error}");
            Refusal::Io
        })?;
        for (ino, container) in gone {
            let is_used = self.core().needs_container(ino, container);
            if !is_used {
                self.remove(Scrap::Container(ino, container));
            }
        }
        Ok(Done::Carried)
    }
}
