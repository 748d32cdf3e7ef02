//! Final outcomes of changes. Some are kept for the user. The changes leave the log, and waiters
//! and the kernel are told.
//!
//! The host forgets a change after the kept outcome and the log entry `Settled` are written. If
//! that fails, nothing has happened. The change is sent again and gets the same answer: the server
//! forgets no outcome whose `Settled` is not durable here.
//!
//! ```text
//!   keep copies and refused changes ─▶ release numbers ─▶ log ─▶ settle ─▶ tell waiters
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Answer, Call, Next, Running, Step};
use crate::host::action::{Action, CallId, Now, Task};
use crate::host::cache::AsOf;
use crate::host::conflict::Duplicate;
use crate::host::log::{Change, Entry, Logged};
use crate::host::send::Claim;
use crate::host::{Effect, Host};
use crate::nouns::{Caller, Dentry, Ino, Name, Outcome, Record, touched};
use crate::refusal::Refusal;

/// Final outcomes of changes, in the order of these.
#[derive(Clone, PartialEq, Debug)]
pub struct Settle {
    /// Each change with its outcome.
    pub answered: Vec<(Logged, Outcome)>,
    /// As of when they are.
    pub as_of: AsOf,
}

impl Settle {
    /// The settlement of a batch up to the first outcome that is not final, and that one with its
    /// change. The server has done nothing behind it.
    pub(in crate::host) fn of_batch(
        batch: Vec<Logged>,
        outcomes: Vec<Outcome>,
        as_of: AsOf,
    ) -> (Settle, Option<(Logged, Outcome)>) {
        let ends = outcomes.iter().take_while(|outcome| outcome.is_final()).count();
        let mut pairs = batch.into_iter().zip(outcomes);
        let answered = pairs.by_ref().take(ends).collect();
        (Settle { answered, as_of }, pairs.next())
    }
}

/// The fate of a change, to be kept for the user.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    /// The change.
    pub logged: Logged,
    /// Its fate.
    pub to: KeptAs,
}

/// A fate of which the user has to hear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeptAs {
    /// A conflict copy.
    Copy {
        /// Its directory.
        parent: Ino,
        /// Its name.
        name: Name,
        /// The duplicate, if it is one.
        duplicate: Option<Box<Duplicate>>,
    },
    /// Nothing, because the server refused it.
    Refused(Refusal),
}

impl Kept {
    fn of(logged: &Logged, outcome: &Outcome) -> Option<Kept> {
        let to = match outcome {
            Outcome::Refused { refusal } => KeptAs::Refused(*refusal),
            outcome => {
                let (parent, name) = logged.copy_of(outcome)?;
                let duplicate = logged.duplicate(parent, name).map(Box::new);
                KeptAs::Copy { parent, name: name.clone(), duplicate }
            }
        };
        Some(Kept { logged: logged.clone(), to })
    }

    /// True if it is to be kept for the user: no waiter with a large enough `claim` reports it.
    pub(in crate::host) fn is_unreported(&self, claim: Claim) -> bool {
        claim
            < match self.to {
                KeptAs::Copy { .. } => Claim::Answers,
                KeptAs::Refused(_) => Claim::IsRefused,
            }
    }
}

/// How far that came.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Changes that are kept.
    kept: BTreeSet<u64>,
    /// Changes whose fate is kept only if no waiter can be told.
    held: BTreeSet<u64>,
    is_settled: bool,
    /// Files that the server need not keep any more.
    releases: Vec<(Ino, Caller)>,
}

impl Host {
    pub(super) fn attempt_settle(
        &mut self,
        id: CallId,
        call: &mut Running,
        settle: &Arc<Settle>,
        now: Now,
    ) -> Result<Next, Refusal> {
        let ended = self.go_on_inner(id, call, now);
        if call.inner.is_some() {
            return Ok(Next::Step);
        }
        while call.so_far.settling.is_settled {
            let Some((ino, caller)) = call.so_far.settling.releases.pop() else {
                return Ok(Next::Reply(Answer::default()));
            };
            // If it fails, it is left to the server's own care.
            if let Ok(None) = self.begin_inner(id, call, release(ino, &caller), now) {
                return Ok(Next::Step);
            }
        }
        ended?;
        if self.keeps(id, call, settle) || self.releases_numbers(id, call, settle, now)? {
            return Ok(Next::Step);
        }
        let entry = |(logged, outcome): &(Logged, Outcome)| Entry::Settled {
            seq: logged.seq,
            outcome: Box::new(outcome.clone()),
        };
        call.step = Some(Step::Settle(Arc::clone(settle)));
        self.act(Action::AppendAll(id, settle.answered.iter().map(entry).collect()));
        Ok(Next::Step)
    }

    /// Keeps fates that no waiter reports. True if that is under way.
    fn keeps(&mut self, id: CallId, call: &mut Running, settle: &Settle) -> bool {
        for (logged, outcome) in &settle.answered {
            let Some(kept) = Kept::of(logged, outcome) else { continue };
            let settling = &mut call.so_far.settling;
            let action = if kept.is_unreported(self.waiters.claim(logged.seq)) {
                settling.kept.insert(logged.seq).then_some(Action::Keep(id, Box::new(kept)))
            } else {
                settling.held.insert(logged.seq).then_some(Action::Hold(id, Box::new(kept)))
            };
            if let Some(action) = action {
                call.step = Some(Step::Keep);
                self.act(action);
                return true;
            }
        }
        false
    }

    /// A new inode got another number. Data that were written to it so far are its own, and its
    /// open handles are refused from now on. True if that is under way.
    fn releases_numbers(
        &mut self,
        id: CallId,
        call: &mut Running,
        settle: &Settle,
        now: Now,
    ) -> Result<bool, Refusal> {
        for (logged, outcome) in &settle.answered {
            let Some(ino) = self.number_to_release(logged, outcome) else { continue };
            self.handles.lose(ino);
            if self.seals(id, call, (ino, &logged.caller), false)
                || self.begin_inner(id, call, release(ino, &logged.caller), now)?.is_none()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The log says so.
    pub(super) fn settled(&mut self, call: &mut Running, settle: &Settle, now: Now) {
        let Settle { answered, as_of } = settle;
        let effects: Vec<Vec<Effect>> = answered
            .iter()
            .map(|(logged, outcome)| Host::settle(self, logged.seq, outcome, as_of))
            .collect();
        for effect in effects.iter().flatten() {
            if let Effect::Replace(ino) = effect {
                self.leave(*ino);
            }
        }
        let mistaken = answered.iter().filter_map(|(logged, outcome)| logged.mistaken(outcome));
        mistaken.for_each(|ino| self.nodes.release(ino));
        for (logged, outcome) in answered {
            self.take_back_unpromised(logged, outcome, as_of);
        }
        for ((logged, outcome), effects) in answered.iter().zip(effects) {
            let claim = self.waiters.claim(logged.seq);
            self.waiters.tell(logged.seq, outcome);
            let settling = &call.so_far.settling;
            let is_held =
                settling.held.contains(&logged.seq) && !settling.kept.contains(&logged.seq);
            if is_held && Kept::of(logged, outcome).is_some_and(|kept| kept.is_unreported(claim)) {
                // The call has stopped waiting since.
                self.act(Action::KeepHeld(logged.seq));
            }
            if claim < Claim::Answers && logged.copy_of(outcome).is_some() {
                self.wake(Task::Merge);
            }
            if let (Outcome::Refused { refusal }, Change::Data(data)) = (outcome, &logged.change) {
                // Also after a waiter was told: other programs may have written some of it.
                self.handles.refused(data.ino, *refusal);
            }
            for effect in effects {
                self.follow_effect(effect, logged, &mut call.so_far.settling);
            }
        }
        let inodes = answered.iter().flat_map(|(logged, _)| logged.change.inodes());
        for ino in inodes.collect::<BTreeSet<Ino>>() {
            if self.is_gone(ino) {
                self.forget_file(ino, now.time);
            }
        }
        call.so_far.settling.is_settled = true;
        self.wake(Task::Settled);
    }

    /// The kernel could use this host's changes for a while. Whatever an outcome touches it asks
    /// for again: the server may have changed more than this host did, such as the directory of a
    /// conflict copy, which lists another name then.
    fn take_back_unpromised(&mut self, logged: &Logged, outcome: &Outcome, as_of: &AsOf) {
        let unpromised = as_of.unpromised(outcome);
        let known = logged.change.inodes();
        let touched_inodes = outcome.touched().iter().map(|attr| attr.ino);
        let forgotten: BTreeSet<Ino> = touched_inodes.chain(unpromised.iter().copied()).collect();
        for ino in forgotten {
            self.act(Action::ForgetAttributes(ino));
            if !known.contains(&ino) && self.listings.drop_one(ino) {
                self.act(Action::ForgetListing(ino));
            }
        }
        let Change::Record(record) = &logged.change else { return };
        for (parent, name) in touched(record).names {
            if unpromised.contains(&parent) {
                let is_directory = self.tree.names_directory(parent, &name);
                let at = Dentry { parent, name };
                self.act(Action::forget_entry(at, is_directory));
            }
        }
    }

    fn follow_effect(&mut self, effect: Effect, logged: &Logged, settling: &mut Settling) {
        match effect {
            Effect::Replace(ino) => self.act(Action::ForgetData(ino)),
            Effect::Conflict { parent, name, .. } => {
                self.forget_told(logged);
                self.act(Action::ForgetName(Dentry { parent, name }));
            }
            Effect::Release(ino) => settling.releases.push((ino, logged.caller.clone())),
            Effect::Refused { .. } => self.forget_told(logged),
        }
    }

    /// The kernel was told of a change that did not happen.
    fn forget_told(&mut self, logged: &Logged) {
        match &logged.change {
            Change::Record(record) => {
                let touched = touched(record);
                for (parent, name) in touched.names {
                    self.act(Action::ForgetName(Dentry { parent, name }));
                }
                touched.inodes.into_iter().for_each(|ino| self.act(Action::ForgetData(ino)));
            }
            Change::Data(data) => self.act(Action::ForgetData(data.ino)),
        }
    }
}

pub(super) fn release(ino: Ino, caller: &Caller) -> Call {
    let (record, caller) = (Record::Release { ino }, caller.clone());
    Call::Change { record, caller, claim: None, expects: None }
}
