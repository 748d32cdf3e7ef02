//! Changes of names and attributes: their entry in the log, and what need not be sent because of
//! them.
//!
//! ```text
//!   unseal or seal data of the file ─▶ log ─▶ admit ─▶ cancel what this change makes needless
//! ```

use std::collections::BTreeSet;

use super::outcome::Heard;
use super::{Answer, Call, Next, Running, SoFar};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now, Patience, Reach, Task};
use crate::host::log::{Change, Entry, Instead, Logged};
use crate::host::send::Claim;
use crate::nouns::{Caller, Dentry, Ino, Outcome, Record, RenameMode, Version, touched};
use crate::refusal::Refusal;

/// The program is told that the name exists. So its change is taken back.
#[derive(Debug)]
pub(super) struct GivesWay {
    /// The inode that it made.
    made: Option<Ino>,
}

/// The change that takes `record` back, by which `ino` got the name `at` instead of the wanted one:
/// a new inode goes, and a renamed one gets its old name again.
fn way_back(record: Record, at: Dentry, ino: Ino, is_directory: bool) -> Record {
    let Dentry { parent, name } = at;
    match record {
        Record::Rename { from_parent: to_parent, from_name: to_name, .. } => {
            let (from_parent, from_name) = (parent, name);
            let (mode, open) = (RenameMode::Replace(None), false);
            Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open }
        }
        _ if is_directory => Record::Rmdir { parent, name, ino },
        _ => Record::Unlink { parent, name, ino, open: false },
    }
}

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
        if let Some(claim) = claim
            && call.so_far.is_inner
            && !call.so_far.is_named
        {
            self.wake(Task::Drain);
            let waiter = Some((seq, self.waiters.add(seq, claim)));
            return Ok(Next::Reply(Answer { waiter, ..self.answer_of(&call.so_far) }));
        }
        if let Some(claim) = claim {
            // A removal by this host itself has no user who could deal with a refusal.
            let patience = if expects.is_some() { Patience::Ever } else { Patience::Grace };
            let Some(heard) = self.hears(id, call, seq, (claim, patience)) else {
                return Ok(Next::Step);
            };
            return match call.so_far.is_named {
                true => self.end_named(id, call, (record, caller), heard, now),
                false => self.end_heard(&call.so_far, heard),
            };
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
        match call.so_far.gives_way.take() {
            None => Ok(self.answer(&call.so_far)),
            Some(GivesWay { made }) => {
                // The kernel never heard of it.
                if let Some(ino) = made {
                    self.let_go(ino);
                }
                Err(Refusal::Exists)
            }
        }
    }

    /// Answers with an outcome.
    fn end_heard(&self, so_far: &SoFar, heard: Heard) -> Result<Next, Refusal> {
        let outcome = Some(Box::new(heard?));
        Ok(Next::Reply(Answer { outcome, ..self.answer_of(so_far) }))
    }

    /// The outcome of a program's change is known, or the server is out of reach: then the change
    /// stays in the log, and wins or becomes a conflict copy later.
    fn end_named(
        &mut self,
        id: CallId,
        call: &mut Running,
        (record, caller): (Record, Caller),
        heard: Heard,
        now: Now,
    ) -> Result<Next, Refusal> {
        match heard {
            Ok(Outcome::Refused { refusal }) => Err(refusal),
            Ok(Outcome::Conflict { parent, name, copy, .. }) => {
                let is_directory = self.tree.is_directory(copy);
                let made = matches!(record, Record::Create { .. }).then_some(copy);
                let record = way_back(record, Dentry { parent, name }, copy, is_directory);
                call.call = Call::Change { record, caller, claim: None, expects: None };
                call.so_far = SoFar { gives_way: Some(GivesWay { made }), ..SoFar::default() };
                self.attempt_change(id, call, now)
            }
            Ok(_) | Err(Refusal::Unreachable) => Ok(self.answer(&call.so_far)),
            Err(refusal) => Err(refusal),
        }
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
            // All changes of a new file cancel out. To unseal its data first is of no use.
            let cancels_out = self.queue.is_new_with_one_name(ino);
            if !is_kept
                && !cancels_out
                && let Some(replaced) = self.take_to_unseal(ino)
            {
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
            let how = (Claim::Answers, Patience::Grace);
            let Some(heard) = self.hears(id, call, seq, how) else {
                return Ok(Next::Step);
            };
            return self.end_heard(&call.so_far, heard);
        }
        let record = self.clone_of(from, to, bytes).ok_or(Refusal::NotSupported)?;
        self.logs(id, call, (record, caller), now);
        Ok(Next::Step)
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
        let records = cancelled.iter().filter_map(|logged| match &logged.change {
            Change::Record(record) => Some(record),
            Change::Data(_) => None,
        });
        // The kernel was told of directories as they were with it.
        let others: BTreeSet<Ino> = records.flat_map(|record| touched(record).inodes).collect();
        let others = others.into_iter().filter(|other| *other != ino);
        others.for_each(|other| self.act(Action::ForgetAttributes(other)));
        if self.is_gone(ino) {
            self.forget_file(ino, now.time);
        }
        self.wake(Task::Settled);
    }
}
