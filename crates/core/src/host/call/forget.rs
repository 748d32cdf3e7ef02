//! The server was put back from a copy: it does not know some versions that this host knows.
//!
//! ```text
//!   log: Forgot ─▶ index, durably ─▶ memory ─▶ kernel
//! ```
//!
//! The log is first: outcomes of forgotten changes stand in it, and the next process would believe
//! them. The index is durable before the log knows of any later version, because a hello names the
//! latest one. So a process that dies in between leaves a host that is told again.

use super::{Answer, Call, Next, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, LostNotes};
use crate::host::cache::FileData;
use crate::host::log::Entry;
use crate::nouns::{Ino, Version};
use crate::refusal::Refusal;
use crate::wire::History;

/// The part under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forgetting {
    InLog,
    InIndex,
}

impl Host {
    pub(super) fn attempt_forget(
        &mut self,
        id: CallId,
        call: &mut Running,
    ) -> Result<Next, Refusal> {
        let Call::Forget(history) = &call.call else { return Err(Refusal::Invalid) };
        if call.so_far.is_carried {
            return Ok(Next::Reply(Answer::default()));
        }
        self.act(Action::Append(id, Box::new(Entry::Forgot(history.clone()))));
        call.step = Some(Step::Forget(Forgetting::InLog));
        Ok(Next::Step)
    }

    /// The log or the index has forgotten.
    pub(super) fn forgotten(&mut self, id: CallId, call: &mut Running, by: Forgetting) {
        let Call::Forget(history) = &call.call else { return };
        match by {
            Forgetting::InLog => {
                let ahead = self.files.iter().filter(|(_, file)| file.is_ahead());
                let kept = ahead.map(|(ino, _)| *ino).collect();
                let lost = LostNotes { history: history.clone(), kept };
                self.act(Action::ForgetNotes(id, Box::new(lost)));
                call.step = Some(Step::Forget(Forgetting::InIndex));
            }
            Forgetting::InIndex => {
                let lost = self.forget_lost(history);
                for ino in lost {
                    self.leave(ino);
                    self.act(Action::ForgetData(ino));
                }
                call.so_far.is_carried = true;
            }
        }
    }

    /// The volume has the versions of `history`: what is known of others is asked for again. The
    /// files of which data were dropped. What this host changed stays, and was made from data that
    /// are nowhere else: it may become a conflict copy.
    pub(in crate::host) fn forget_lost(&mut self, history: &History) -> Vec<Ino> {
        self.tree.forget_lost(history);
        let is_lost = |file: &FileData| !history.has(file.version()) && !file.is_ahead();
        let lost = self.files.iter().filter(|(_, file)| is_lost(file));
        let lost: Vec<Ino> = lost.map(|(ino, _)| *ino).collect();
        for &ino in &lost {
            let fresh = self.fresh_container();
            let Some(file) = self.files.get_mut(&ino) else { continue };
            let old = file.container();
            file.discard(Version::default(), fresh);
            self.abandon(ino, old);
        }
        lost
    }
}
