//! What a user wants at the server first: it goes in a lane of its own, with what it has to follow, at a
//! class before other data.

use segue_core::modlog::Stage;

use super::sync::{Scope, Target, is_below};
use super::{Mount, lock};
use crate::control::types::PushReply;

impl Mount {
    /// Has what was changed below these paths go first; how many changes that are with those that they
    /// follow, and how many bytes of data these have.
    pub(crate) fn push(&self, paths: Vec<String>) -> PushReply {
        self.note_maps(None);
        let unsealed = {
            let core = self.core();
            let mut unsealed = core.unsealed();
            unsealed.retain(|ino| is_below(&paths, &core.tree.path(*ino)));
            unsealed
        };
        unsealed.into_iter().for_each(|ino| self.seal_early(ino));
        let target = self.target(&Scope::Below(paths));
        let (records, bytes) = {
            let mut core = self.core();
            let seqs = match target {
                Target::These(seqs) => seqs,
                Target::Through(last) => core
                    .queue
                    .iter()
                    .map(|(logged, _)| logged.seq)
                    .filter(|seq| *seq <= last)
                    .collect(),
            };
            let others = core.queue.raised().clone();
            core.queue.raise(&seqs);
            let ahead = lock(&self.ahead);
            let is_under_way = |seq: &&u64| {
                let waits = core.queue.stage(**seq) == Some(Stage::Waits);
                !waits || ahead.uploading().contains(*seq)
            };
            let under_way: Vec<u64> =
                core.queue.raised().difference(&others).filter(is_under_way).copied().collect();
            self.lanes.pushed.send_modify(|pushed| pushed.extend(under_way));
            let now = core.queue.raised().difference(&others).chain(&seqs).copied().collect();
            core.queue.among(&now)
        };
        self.send_now();
        PushReply { records, bytes, offline: self.remote.is_offline() }
    }

    /// True while something is on its way that was pushed when it was so already.
    pub(super) fn is_pushed_under_way(&self) -> bool {
        if self.lanes.pushed.borrow().is_empty() {
            return false;
        }
        let core = self.core();
        self.lanes.pushed.send_if_modified(|pushed| {
            pushed.retain(|seq| core.queue.stage(*seq).is_some());
            false
        });
        !self.lanes.pushed.borrow().is_empty()
    }
}
