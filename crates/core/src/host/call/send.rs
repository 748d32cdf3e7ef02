//! A batch of changes that goes to the server: taken, delivered, settled, and put back as far as it
//! is not settled.
//!
//! ```text
//!   take ─▶ SyncDisk, if changes were rewritten ─▶ Deliver ─▶ settle final outcomes ─▶ put back
//!             ▲                                │
//!             └── fewer changes, or names only ┘ the server takes less
//! ```
//!
//! How a batch is delivered is the business of the remote: chunks, proofs, bases and messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Call, Look, Next, Running, Settle, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Deliver, Delivered, Done, Now, Undone};
use crate::host::cache::AsOf;
use crate::host::log::{Change, Lane, Logged};
use crate::host::send::Without;
use crate::nouns::{Ino, Outcome, Time};
use crate::refusal::Refusal;

/// Outcomes that are settled at one go.
const SETTLE_MAX: usize = 64;

/// How far a batch came.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// The changes that were taken, without those that were left for another one.
    taken: Vec<u64>,
    /// The same until they are answered.
    batch: Arc<Vec<Logged>>,
    /// The server takes no chunks of it, because of this.
    without: Option<Refusal>,
    is_synced: bool,
    /// Why it cannot be sent now.
    failed: Option<Refusal>,
    answered: Option<Outcomes>,
    /// Which session was told of all up to which commit, when that was asked for.
    heard: Option<(u64, u64, Time)>,
    /// Numbers of the outcomes that are settled next are released in the kernel.
    has_released: bool,
    /// Others may append to the log before the next outcomes are settled.
    lets_in: bool,
    /// The part under way is a look.
    is_looking: bool,
}

/// The answer of the server.
#[derive(Debug)]
struct Outcomes {
    /// The final ones that are not settled.
    left: VecDeque<(Logged, Outcome)>,
    as_of: AsOf,
    not_yet: Option<(Logged, Outcome)>,
    /// Files whose data were refused: their attributes here are those of the refused data.
    refused: Vec<Ino>,
}

impl Host {
    /// The changes of a batch that is over wait again, if they are not settled.
    pub(super) fn end_sending(&mut self, sending: &Sending) {
        self.put_back(sending.taken.iter().copied());
    }

    pub(super) fn attempt_send(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        if call.has_inner() {
            let ended = self.go_on_inner(id, call, now);
            if call.inner.is_some() {
                return Ok(Next::Step);
            }
            call.so_far.sending.ended(ended.map(drop))?;
        }
        if let Some(refusal) = call.so_far.sending.failed {
            return Err(refusal);
        }
        if call.so_far.sending.taken.is_empty() {
            let batch = match call.call {
                Call::Send(lane) => self.next_batch(lane, now.time),
                _ => self.last_batch(),
            };
            if batch.is_empty() {
                return Ok(Next::Reply(Answer::default()));
            }
            call.so_far.sending.takes(batch);
        }
        while call.so_far.sending.has_to_settle() {
            if self.settles_some(id, call, now)? {
                return Ok(Next::Step);
            }
        }
        let sending = &mut call.so_far.sending;
        let sent = Answer { has_sent: true, ..Answer::default() };
        match &sending.answered {
            None => {
                self.delivers(id, call);
                Ok(Next::Step)
            }
            Some(Outcomes { not_yet: Some((logged, outcome)), .. }) => {
                let (seq, outcome, without) = (logged.seq, outcome.clone(), sending.without);
                self.not_yet(seq, &outcome, without)?;
                Ok(Next::Reply(sent))
            }
            Some(_) => Ok(Next::Reply(sent)),
        }
    }

    /// Has the batch delivered, once this host's disk has it as it is sent.
    fn delivers(&mut self, id: CallId, call: &mut Running) {
        let lane = lane_of(&call.call);
        let sending = &mut call.so_far.sending;
        let is_rewritten = |logged: &Logged| self.queue.is_rewritten(logged.seq);
        if !sending.is_synced && sending.batch.iter().any(is_rewritten) {
            call.step = Some(Step::SyncDisk);
            return self.act(Action::SyncDisk(id));
        }
        let (batch, without) = (Arc::clone(&sending.batch), sending.without);
        call.step = Some(Step::Deliver);
        self.act(Action::Deliver(id, Deliver { lane, batch, without }));
    }

    /// Takes in the end of a sync.
    pub(super) fn synced_to_send(call: &mut Running, done: Result<Done, Undone>) {
        let sending = &mut call.so_far.sending;
        sending.is_synced = done.is_ok();
        sending.failed = done.err().map(|undone| undone.refusal);
    }

    /// Takes in the end of a delivery.
    pub(super) fn delivered(&mut self, call: &mut Running, done: Result<Done, Undone>, now: Now) {
        let lane = lane_of(&call.call);
        let sending = &mut call.so_far.sending;
        let taken_in = match done {
            Ok(Done::Delivered(delivered)) => self.outcomes_came(sending, lane, *delivered, now),
            Ok(Done::NoChunks(refusal)) => self.goes_without(sending, refusal, now),
            Ok(_) => Err(Refusal::Protocol),
            Err(undone) => self.goes_smaller(sending, undone.refusal, now),
        };
        sending.failed = taken_in.err();
    }

    /// The batch was not delivered: less of it may fit into a message. One change that does not fit
    /// never will.
    fn goes_smaller(
        &mut self,
        sending: &mut Sending,
        refusal: Refusal,
        now: Now,
    ) -> Result<(), Refusal> {
        if refusal != Refusal::TooLarge {
            return Err(refusal);
        }
        let mut batch = sending.batch.to_vec();
        if batch.len() > 1 {
            self.halve(&mut batch);
            sending.takes(batch);
        } else {
            let as_of = self.tree.as_of(None, [now.time; 2]);
            sending.answered(vec![Outcome::Refused { refusal }], as_of);
        }
        Ok(())
    }

    /// The server takes no chunks of the batch.
    fn goes_without(
        &mut self,
        sending: &mut Sending,
        refusal: Refusal,
        now: Now,
    ) -> Result<(), Refusal> {
        let mut batch = sending.batch.to_vec();
        match self.without_chunks(&mut batch, refusal, now.time)? {
            Without::Fewer => sending.takes(batch),
            Without::Named => sending.without = Some(refusal),
            // It waits for its turn.
            Without::Later => {
                let as_of = self.tree.as_of(None, [now.time; 2]);
                sending.answered(Vec::new(), as_of);
            }
        }
        Ok(())
    }

    fn outcomes_came(
        &mut self,
        sending: &mut Sending,
        lane: Lane,
        delivered: Delivered,
        now: Now,
    ) -> Result<(), Refusal> {
        let Delivered { outcomes, promised, heard, asked, took, round_trip } = delivered;
        let batch = &sending.batch;
        if !(1..=batch.len()).contains(&outcomes.len()) {
            return Err(Refusal::Protocol);
        }
        self.batch_answered(lane, batch, took, round_trip);
        let inline_max = self.settings.inline_max;
        let has_chunks = |logged: &Logged| logged.change.bytes() > inline_max;
        if sending.without.is_none() && batch.iter().any(has_chunks) {
            self.note_chunks_taken();
        }
        let session = promised.as_ref().map(|promised| promised.session);
        let as_of = self.tree.as_of(promised, [asked, now.time]);
        sending.heard = session.map(|session| (session, heard, asked));
        sending.answered(outcomes, as_of);
        Ok(())
    }

    /// Settles the next outcomes, or asks for a file with refused data. True if that is under way.
    fn settles_some(&mut self, id: CallId, call: &mut Running, now: Now) -> Result<bool, Refusal> {
        let sending = &mut call.so_far.sending;
        let Some(outcomes) = &mut sending.answered else { return Ok(false) };
        if outcomes.left.is_empty() {
            if let Some((session, commit, asked)) = sending.heard.take() {
                self.tree.heard_through(session, commit, asked);
            }
            let Some(ino) = outcomes.refused.pop() else { return Ok(false) };
            // If it cannot be asked now, it is asked for later.
            sending.is_looking = true;
            let ended = self.begin_inner(id, call, Call::Look(Look::AttrAnew(ino)), now);
            if call.inner.is_none() {
                call.so_far.sending.ended(ended.map(drop))?;
            }
            return Ok(call.inner.is_some());
        }
        if std::mem::take(&mut sending.lets_in) {
            call.step = Some(Step::Pause);
            self.act(Action::Pause(id, Duration::ZERO));
            return Ok(true);
        }
        let many = outcomes.left.len().min(SETTLE_MAX);
        if !std::mem::replace(&mut sending.has_released, true) {
            let released = outcomes.left.iter().take(many);
            let released =
                released.filter_map(|(logged, outcome)| self.number_to_release(logged, outcome));
            let released: Vec<Ino> = released.collect();
            if !released.is_empty() {
                call.step = Some(Step::Release);
                self.act(Action::Release(id, released));
                return Ok(true);
            }
        }
        let answered = outcomes.left.drain(..many).collect();
        (sending.has_released, sending.lets_in) = (false, true);
        let settle = Settle { answered, as_of: outcomes.as_of.clone() };
        let ended = self.begin_inner(id, call, Call::Settle(Arc::new(settle)), now);
        if call.inner.is_some() {
            return Ok(true);
        }
        call.so_far.sending.ended(ended.map(drop))?;
        Ok(false)
    }
}

fn lane_of(call: &Call) -> Lane {
    if let Call::Send(lane) = call { *lane } else { Lane::Data }
}

impl Sending {
    /// These are sent.
    fn takes(&mut self, batch: Vec<Logged>) {
        self.taken = batch.iter().map(|logged| logged.seq).collect();
        self.batch = Arc::new(batch);
    }

    /// The server answered so to the first changes of the batch.
    fn answered(&mut self, outcomes: Vec<Outcome>, as_of: AsOf) {
        let batch = Arc::unwrap_or_clone(std::mem::take(&mut self.batch));
        let (settle, not_yet) = Settle::of_batch(batch, outcomes, as_of);
        let Settle { answered, as_of } = settle;
        let refused =
            answered.iter().filter_map(|(logged, outcome)| match (outcome, &logged.change) {
                (Outcome::Refused { .. }, Change::Data(data)) => Some(data.ino),
                _ => None,
            });
        let refused = refused.collect();
        self.answered = Some(Outcomes { left: answered.into(), as_of, not_yet, refused });
    }

    fn has_to_settle(&self) -> bool {
        let has = |outcomes: &Outcomes| !(outcomes.left.is_empty() && outcomes.refused.is_empty());
        self.heard.is_some() || self.answered.as_ref().is_some_and(has)
    }

    /// A part of it ended: a settlement, or a look, which may fail.
    fn ended(&mut self, ended: Result<(), Refusal>) -> Result<(), Refusal> {
        if std::mem::take(&mut self.is_looking) { Ok(()) } else { ended }
    }
}
