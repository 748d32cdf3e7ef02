//! Calls that wait for the outcome of a change: of one that they made, or of an earlier one.
//!
//! ```text
//!   logged ─▶ Await ─▶ settled ─▶ the call goes on with the outcome
//!               └─▶ the server is out of reach for too long ─▶ Unreachable
//! ```

use std::ops::Range;

use super::{Answer, Call, Next, Running, SoFar, Step};
use crate::host::Host;
use crate::host::action::{Action, Await, CallId, Patience, Task};
use crate::host::send::Claim;
use crate::nouns::{Ino, Outcome};
use crate::refusal::Refusal;

/// So many changes are company enough.
const COMPANY: usize = 64;

/// An outcome. An error: the server was out of reach for too long.
pub(super) type Heard = Result<Outcome, Refusal>;

impl Host {
    /// The outcome of change `seq`, to which the call has this `claim`. `None`: the call waits for
    /// it. Before the first wait the change is in the queue.
    pub(super) fn hears(
        &mut self,
        id: CallId,
        call: &mut Running,
        seq: u64,
        (claim, patience): (Claim, Patience),
    ) -> Option<Heard> {
        let heard = self.hears_all(id, call, &[seq], (claim, patience))?;
        Some(heard.and_then(|mut outcomes| outcomes.pop().ok_or(Refusal::Io)))
    }

    /// The same of several changes.
    fn hears_all(
        &mut self,
        id: CallId,
        call: &mut Running,
        seqs: &[u64],
        (claim, patience): (Claim, Patience),
    ) -> Option<Result<Vec<Outcome>, Refusal>> {
        let is_late = std::mem::take(&mut call.so_far.is_late);
        if call.so_far.hearing.is_empty() && !seqs.is_empty() {
            self.wake(Task::Drain);
            let numbers = seqs.iter().map(|seq| (*seq, self.waiters.add(*seq, claim)));
            call.so_far.hearing = numbers.collect();
        }
        let hearing = &call.so_far.hearing;
        if !hearing.iter().all(|(_, waiter)| self.waiters.is_told(*waiter)) {
            if is_late {
                self.stop_hearing(&call.so_far);
                call.so_far.hearing.clear();
                return Some(Err(Refusal::Unreachable));
            }
            self.awaits(id, call, patience, None);
            return None;
        }
        let heard = std::mem::take(&mut call.so_far.hearing).into_iter();
        Some(Ok(heard.filter_map(|(_, waiter)| self.waiters.heard(waiter)).collect()))
    }

    /// True if a call waits for an outcome.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// True if changes wait for company no longer: they have enough, or a call waits for one.
    pub fn has_company(&self) -> bool {
        self.has_waiters() || self.queue.len() >= COMPANY
    }

    /// The newest data of `ino`, and the claim of a call to their outcome.
    fn newest_data(&self, so_far: &SoFar, ino: Ino) -> Option<(u64, Claim)> {
        let newest = self.queue.newest_of(ino)?;
        // Where closes do not wait, data of other writers may be among them.
        let is_own = so_far.sealed == Some(newest) && self.lm(ino).closes();
        Some((newest, if is_own { Claim::IsRefused } else { Claim::Nothing }))
    }

    /// From now on the outcome of the newest data of `ino`, if there are any, is told to the call,
    /// which waits for it later ([`Host::hears_newest`]).
    pub(super) fn begin_hearing(&mut self, call: &mut Running, ino: Ino) {
        if let Some((newest, claim)) = self.newest_data(&call.so_far, ino) {
            self.wake(Task::Drain);
            call.so_far.hearing = vec![(newest, self.waiters.add(newest, claim))];
        }
    }

    /// Waits for the newest data of `ino`. A refusal is the answer, a conflict copy is none.
    pub(super) fn hears_newest(
        &mut self,
        id: CallId,
        call: &mut Running,
        ino: Ino,
    ) -> Result<Next, Refusal> {
        let heard = call.so_far.hearing.first().map(|(seq, _)| (*seq, Claim::Nothing));
        if let Some((newest, claim)) = heard.or_else(|| self.newest_data(&call.so_far, ino)) {
            let how = (claim, Patience::Grace);
            let Some(heard) = self.hears(id, call, newest, how) else { return Ok(Next::Step) };
            committed(&heard?)?;
        }
        Ok(self.answer(&call.so_far))
    }

    /// Waits until all of some changes are settled.
    pub(super) fn attempt_committed(
        &mut self,
        id: CallId,
        call: &mut Running,
    ) -> Result<Next, Refusal> {
        let Call::Committed(seqs) = &call.call else { return Err(Refusal::Invalid) };
        let pending = seqs.iter().copied().filter(|seq| self.queue.stage(*seq).is_some());
        let pending: Vec<u64> = pending.collect();
        let Some(heard) = self.hears_all(id, call, &pending, (Claim::Nothing, Patience::Grace))
        else {
            return Ok(Next::Step);
        };
        heard?.iter().try_for_each(committed)?;
        Ok(Next::Reply(Answer::default()))
    }

    /// Has the call wait until something is settled or fetched.
    pub(super) fn awaits(
        &mut self,
        id: CallId,
        call: &mut Running,
        patience: Patience,
        data: Option<(Ino, Range<u64>)>,
    ) {
        let since = self.progress;
        call.step = Some(Step::Await);
        self.act(Action::Await(id, Await { since, patience, data }));
    }

    /// Nobody waits for the outcome any more.
    pub(super) fn stop_hearing(&mut self, so_far: &SoFar) {
        so_far.hearing.iter().for_each(|(seq, waiter)| self.waiters.leave(*seq, *waiter));
    }
}

fn committed(outcome: &Outcome) -> Result<(), Refusal> {
    match outcome {
        Outcome::Refused { refusal } => Err(*refusal),
        _ => Ok(()),
    }
}
