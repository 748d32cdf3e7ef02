//! Changes of names and attributes: their entry in the log, and what need not be sent because of
//! them.
//!
//! ```text
//!   unseal or seal data of the file ─▶ log ─▶ admit ─▶ cancel what this change makes needless
//! ```

use super::{Answer, Call, Next, Running, SoFar};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now, Reach, Task};
use crate::host::log::{Change, Entry, Instead, Logged};
use crate::host::send::Claim;
use crate::nouns::{Caller, Ino, Record, Version, touched};
use crate::refusal::Refusal;

impl Host {
    pub(super) fn attempt_change(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Change { record, caller, claim, expects } = &call.call else {
            return Err(Refusal::Invalid);
        };
        let (record, caller, claim, expects) = (record.clone(), caller.clone(), *claim, *expects);
        let Some(seq) = call.so_far.logged else {
            return self.begin_change(id, call, (record, caller, expects), now);
        };
        if let Some(claim) = claim {
            return Ok(self.await_own(seq, claim, &call.so_far));
        }
        if !std::mem::replace(&mut call.so_far.is_cancelled, true)
            && let Some(entry) = self.take_needless(seq, &record)
        {
            return Ok(self.append(id, call, entry));
        }
        while let Some(record) = call.so_far.times.pop() {
            if self.logs(id, call, (record, caller.clone()), now) {
                return Ok(Next::Step);
            }
        }
        Ok(self.answer(&call.so_far))
    }

    fn begin_change(
        &mut self,
        id: CallId,
        call: &mut Running,
        (mut record, caller, expects): (Record, Caller, Option<Version>),
        now: Now,
    ) -> Result<Next, Refusal> {
        if let Some(version) = expects {
            let ino = record.ino();
            let is_same = self.tree.peek(ino).is_some_and(|attr| attr.data_version == version);
            if self.is_open(ino) || self.is_ahead(ino) || !is_same {
                return Err(Refusal::Changed);
            }
        }
        if let Some(ino) = record.unnamed() {
            let is_kept = self.is_open(ino) || self.is_kept_back(ino, now.time);
            if !is_kept && let Some(replaced) = self.take_to_unseal(ino) {
                return Ok(self.append(id, call, Entry::Replaced(replaced)));
            }
            if is_kept || call.so_far.is_unsealed {
                record.keep_unnamed();
            }
        }
        for ino in self.seal_first(&record) {
            if self.seals(id, call, (ino, &caller), false) {
                return Ok(Next::Step);
            }
        }
        // An expected file is removed as it is known here, whatever others made of it.
        let link = if expects.is_some() { Reach::Offline } else { now.link };
        self.logs(id, call, (record, caller), Now { link, ..now });
        Ok(Next::Step)
    }

    pub(super) fn attempt_clone(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Clone { from, to, bytes, caller } = &call.call else {
            return Err(Refusal::Invalid);
        };
        let (from, to, bytes, caller) = (*from, *to, *bytes, caller.clone());
        if let Some(seq) = call.so_far.logged {
            return Ok(self.await_own(seq, Claim::Answers, &call.so_far));
        }
        let record = self.clone_of(from, to, bytes).ok_or(Refusal::NotSupported)?;
        self.logs(id, call, (record, caller), now);
        Ok(Next::Step)
    }

    /// Answers with a waiter for change `seq`, which the call made.
    fn await_own(&mut self, seq: u64, claim: Claim, so_far: &SoFar) -> Next {
        let waiter = self.waiters.add(seq, claim);
        self.wake(Task::Drain);
        Next::Reply(Answer { waiter: Some((seq, waiter)), ..self.answer_of(so_far) })
    }

    /// Logs `record`, after numbers are reserved if need be. True, always: that is under way.
    pub(super) fn logs(
        &mut self,
        id: CallId,
        call: &mut Running,
        (record, caller): (Record, Caller),
        now: Now,
    ) -> bool {
        if self.reserves(id, call) {
            return true;
        }
        let entry = match now.link {
            Reach::Online => self.draft_change(record, caller, now.wall),
            Reach::Silent | Reach::Offline => self.draft_apart(record, caller, now.wall),
        };
        self.append(id, call, entry);
        true
    }

    /// Takes the changes that change `seq` makes needless.
    fn take_needless(&mut self, seq: u64, record: &Record) -> Option<Entry> {
        let replaced = match record {
            Record::Unlink { ino, .. } | Record::Rmdir { ino, .. } | Record::Release { ino } => {
                self.take_to_cancel(*ino)
            }
            Record::Rename { .. } => self.take_superseded(seq),
            _ => None,
        };
        replaced.map(Entry::Replaced)
    }

    /// Changes that are `gone` were replaced.
    pub(super) fn replaced(&mut self, call: &mut Running, by: &Instead, gone: &[Logged], now: Now) {
        self.wake(Task::Drain);
        match by {
            Instead::More { .. } => self.wake(Task::Upload),
            Instead::Unsealed => {
                call.so_far.is_unsealed = true;
                self.wake(Task::Settled);
            }
            Instead::Nothing(ino) => {
                call.so_far.times = self.times_of_cancelled(gone);
                self.cancelled(*ino, gone, now);
            }
            Instead::Rename(ino, _) => self.cancelled(*ino, gone, now),
        }
    }

    /// Changes of `ino`, which has no name any more, are cancelled.
    fn cancelled(&mut self, ino: Ino, cancelled: &[Logged], now: Now) {
        for logged in cancelled {
            let Change::Record(record) = &logged.change else { continue };
            // The kernel was told of directories as they were with it.
            let others = touched(record).inodes.into_iter().filter(|other| *other != ino);
            others.for_each(|other| self.act(Action::ForgetAttributes(other)));
        }
        if self.is_gone(ino) {
            self.forget_file(ino, now.time);
        }
        self.wake(Task::Settled);
    }
}
