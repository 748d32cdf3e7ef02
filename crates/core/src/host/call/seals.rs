//! Seals of many files at a time: when their time is over, when a user wants them at the server,
//! and at the end of a mount.
//!
//! ```text
//!   SealAll ─▶ LogMaps ─▶ Seal of each file
//!   Push ────▶ SealAll of the files below some paths ─▶ its changes go before others
//! ```

use std::time::Duration;

use super::{Answer, Call, Next, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Done, Now, Task, Undone};
use crate::nouns::{Caller, Ino};
use crate::refusal::Refusal;

/// Which written files are sealed before their writers ask for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seals {
    /// Those that have no more time.
    Due,
    /// All, but for those that nobody may need once the server has spoken.
    Decided,
    /// All.
    All,
    /// Those below one of these paths.
    Below(Vec<Vec<u8>>),
    /// These.
    These(Vec<Ino>),
}

/// After so many seals, calls are let in that wait for the log.
const SEAL_MAX: usize = 64;

/// The results of the seals of a call.
#[derive(Debug, Default)]
pub(super) struct SealingAll {
    /// Files that are still to be sealed, once it is known which.
    to_seal: Option<Vec<Ino>>,
    /// How many were sealed since others could append to the log.
    sealed: usize,
    /// Those that nobody may need.
    left: Vec<Ino>,
    /// Why one could not be sealed. The others are.
    failed: Option<Refusal>,
}

impl Host {
    pub(super) fn attempt_seal_all(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        if !call.so_far.is_carried {
            call.step = Some(Step::LogMaps);
            self.act(Action::LogMaps(id, None));
            return Ok(Next::Step);
        }
        let ended = self.go_on_inner(id, call, now);
        call.so_far.sealing_all.note(ended.map(drop));
        if call.so_far.sealing_all.to_seal.is_none() {
            let Call::SealAll(which) = &call.call else { return Err(Refusal::Invalid) };
            let (to_seal, left) = self.chosen(which, now);
            call.so_far.sealing_all.to_seal = Some(to_seal);
            call.so_far.sealing_all.left = left;
        }
        if call.inner.is_none() && call.so_far.sealing_all.sealed >= SEAL_MAX {
            call.so_far.sealing_all.sealed = 0;
            call.step = Some(Step::Pause);
            self.act(Action::Pause(id, Duration::ZERO));
            return Ok(Next::Step);
        }
        while call.inner.is_none()
            && let Some(ino) = call.so_far.sealing_all.to_seal.as_mut().and_then(Vec::pop)
        {
            call.so_far.sealing_all.sealed += 1;
            let caller = self.sealer(ino).unwrap_or_else(Caller::nobody);
            let seal = Call::Seal { ino, caller, waits: false };
            let ended = self.begin_inner(id, call, seal, now);
            call.so_far.sealing_all.note(ended.map(drop));
        }
        let SealingAll { left, failed, .. } = &mut call.so_far.sealing_all;
        match (call.inner.is_some(), failed) {
            (true, _) => Ok(Next::Step),
            (false, Some(refusal)) => Err(*refusal),
            (false, None) => {
                Ok(Next::Reply(Answer { left: std::mem::take(left), ..Answer::default() }))
            }
        }
    }

    /// Maps are logged, or could not be.
    pub(super) fn maps_logged(call: &mut Running, done: Result<Done, Undone>) {
        call.so_far.is_carried = true;
        call.so_far.sealing_all.note(done.map(drop).map_err(|undone| undone.refusal));
    }

    /// The files to seal, the last one first, and those that are left.
    fn chosen(&mut self, which: &Seals, now: Now) -> (Vec<Ino>, Vec<Ino>) {
        let (mut to_seal, left) = match which {
            Seals::Due => (self.due_to_seal(now.time), Vec::new()),
            Seals::Decided => self.to_seal_at_end(),
            Seals::All => (self.unsealed(), Vec::new()),
            Seals::Below(tops) => (self.unsealed_below(tops), Vec::new()),
            Seals::These(inodes) => (inodes.clone(), Vec::new()),
        };
        to_seal.reverse();
        (to_seal, left)
    }

    /// Has the changes below some paths go before other changes.
    pub(super) fn attempt_push(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Push(tops) = &call.call else { return Err(Refusal::Invalid) };
        let tops = tops.clone();
        let sealed = match call.has_inner() {
            true => self.go_on_inner(id, call, now),
            false => self.begin_inner(id, call, Call::SealAll(Seals::Below(tops.clone())), now),
        };
        if call.inner.is_some() {
            return Ok(Next::Step);
        }
        // Data that could not be sealed are sealed later. The queued changes go all the same.
        drop(sealed);
        let seqs = self.changes_below(&tops);
        let new = self.push(&seqs);
        self.go_first();
        let pushed = self.queue.among(&new.union(&seqs).copied().collect());
        Ok(Next::Reply(Answer { pushed, ..Answer::default() }))
    }

    /// Some changes are to go before others now.
    pub(super) fn go_first(&mut self) {
        // Those that wait for company go, too.
        self.queue.release_all();
        self.wake(Task::Drain);
        self.wake(Task::Upload);
        self.wake(Task::Pushed);
    }
}

impl SealingAll {
    /// A part of it has ended.
    fn note(&mut self, ended: Result<(), Refusal>) {
        self.failed = self.failed.or(ended.err());
    }
}
