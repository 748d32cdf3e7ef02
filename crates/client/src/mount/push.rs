//! What a user wants at the server first: it goes in a lane of its own, with what it has to follow,
//! at a class before other data.

use super::Mount;
use super::sync::is_below;
use crate::control::types::{AnyPath, PushReply};

impl Mount {
    /// Has what was changed below these paths go first; how many changes that are with those that
    /// they follow, and how many bytes of data these have.
    pub(crate) fn push(&self, paths: &[AnyPath]) -> PushReply {
        self.note_maps(None).ok();
        let unsealed = {
            let core = self.core();
            let mut unsealed = core.unsealed();
            unsealed.retain(|ino| is_below(paths, &core.tree.path_bytes(*ino)));
            unsealed
        };
        unsealed.into_iter().for_each(|ino| self.seal_early(ino));
        let seqs = self.below(paths);
        let (records, bytes) = {
            let mut core = self.core();
            let new = core.push(&seqs);
            core.queue.among(&new.union(&seqs).copied().collect())
        };
        // Calls of what is on its way already.
        self.lanes.pushed.send_replace(());
        self.send_now();
        PushReply { records, bytes, offline: self.remote.is_offline(), denied: self.is_denied() }
    }
}
