//! Seals: what was written to a file becomes one change for the server, at a close, a sync, or when
//! its time is over.

use super::{Answer, Call, Next, Running, Sealing, SoFar};
use crate::host::Host;
use crate::host::action::{CallId, Now};
use crate::host::cache::FileData;
use crate::host::log::Entry;
use crate::nouns::{Caller, Ino};
use crate::refusal::Refusal;

impl Host {
    pub(super) fn attempt_seal(&mut self, id: CallId, call: &mut Running) -> Result<Next, Refusal> {
        let Call::Seal { ino, caller, waits } = &call.call else { return Err(Refusal::Invalid) };
        let (ino, caller, waits) = (*ino, caller.clone(), *waits);
        let is_hearing = !call.so_far.hearing.is_empty();
        if !is_hearing && self.seals(id, call, (ino, &caller), waits) {
            return Ok(Next::Step);
        }
        match waits {
            true => self.hears_newest(id, call, ino),
            false => Ok(self.answer(&call.so_far)),
        }
    }

    pub(super) fn attempt_seal_at_close(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::SealAtClose { ino, caller } = &call.call else { return Err(Refusal::Invalid) };
        let (ino, caller) = (*ino, caller.clone());
        if self.is_kept_back(ino, now.time) {
            self.close_unsealed(ino, caller);
        } else if self.seals(id, call, (ino, &caller), false) {
            return Ok(Next::Step);
        }
        Ok(self.answer(&call.so_far))
    }

    /// Seals `ino` for a call that is done without that. True if it is under way.
    pub(super) fn may_seal(
        &mut self,
        id: CallId,
        call: &mut Running,
        place: (Ino, &Caller),
    ) -> bool {
        !call.so_far.is_seal_put_off && self.begins_seal(id, call, place, false, Sealing::May)
    }

    /// The same for a call that fails without that.
    pub(super) fn seals(
        &mut self,
        id: CallId,
        call: &mut Running,
        place: (Ino, &Caller),
        waits: bool,
    ) -> bool {
        self.begins_seal(id, call, place, waits, Sealing::Must)
    }

    /// Seals what was written to `ino`, into a pending change of its data if that can be and the
    /// call does not wait. True if that is under way, false if nothing is to be sealed.
    fn begins_seal(
        &mut self,
        id: CallId,
        call: &mut Running,
        (ino, caller): (Ino, &Caller),
        waits: bool,
        sealing: Sealing,
    ) -> bool {
        if !self.files.get(&ino).is_some_and(FileData::has_dirty) {
            return false;
        }
        if !waits && let Some(replaced) = self.take_to_amend(ino, caller) {
            self.append_seal(id, call, Entry::Replaced(replaced), sealing);
            return true;
        }
        let Some(entry) = self.draft_seal(ino, caller.clone()) else { return false };
        if !self.reserves(id, call) {
            self.append_seal(id, call, entry, sealing);
        }
        true
    }
}

impl Host {
    /// The answer to a call that waits for no outcome.
    pub(super) fn answer(&self, so_far: &SoFar) -> Next {
        Next::Reply(self.answer_of(so_far))
    }

    pub(super) fn answer_of(&self, so_far: &SoFar) -> Answer {
        let is_slowed = so_far.added > 0 && self.is_near_bound();
        Answer {
            ino: so_far.ino,
            seq: so_far.logged.or(so_far.sealed),
            slowed_by: is_slowed.then_some(so_far.added),
            ..Answer::default()
        }
    }
}
