//! Write-back, as `segue-client`'s mount/drain.rs and mount/upload.rs do.

use std::sync::Arc;
use std::time::Duration;

use segue_core::host::action::{CallId, Deliver, Delivered, Done, Event};
use segue_core::host::call::Call;
use segue_core::host::log::{Change, DataChange, Lane, Logged};
use segue_core::nouns::{INLINE_MAX, Outcome, Piece, PieceBytes, Record, Stamped, Store, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Applied, Apply, Reply, Request};

use super::shell::Ran;
use super::{Mount, Purpose};
use crate::Violation;
use crate::plan::Bug;
use crate::server::Answer;

/// A batch that was sent, and the call that waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(super) call: CallId,
    pub(super) batch: Deliver,
}

/// One change in so many is sent at once, the others at the next tick.
const LINGERING: u64 = 4;
/// The log is rewritten when it has more entries than this.
const LOG_ENTRIES: usize = 20;

impl Mount {
    /// Sends the next batch of each lane, if there is one and none is under way.
    pub(crate) fn send(&mut self) -> Result<(), Violation> {
        Lane::ALL.into_iter().try_for_each(|lane| self.send_of(lane))
    }

    /// The same of what was changed just now, for which the drain may come later.
    pub(super) fn send_unless_lingering(&mut self) -> Result<(), Violation> {
        let waits = self.lingers && !self.core.next_seq().is_multiple_of(LINGERING);
        if waits { Ok(()) } else { self.send() }
    }

    fn send_of(&mut self, lane: Lane) -> Result<(), Violation> {
        if self.is_offline || self.is_draining(lane) {
            return Ok(());
        }
        let call = self.next_id();
        let ran = self.run(call, Event::Call { id: call, call: Call::Send(lane) }, &[])?;
        self.sends_on(lane, call, ran)
    }

    /// A call that sends came so far.
    fn sends_on(&mut self, lane: Lane, call: CallId, ran: Ran) -> Result<(), Violation> {
        match ran {
            Ran::Delivers(batch) => self.deliver(call, *batch),
            Ran::Answered(Err(Refusal::Protocol)) => Err(Violation("an answer to no batch".into())),
            Ran::Answered(answer) => {
                // Else they are sent again, and answered the same.
                self.unsettled = matches!(answer, Err(Refusal::NoSpace | Refusal::Io));
                if self.disk.kept.log.len() > LOG_ENTRIES && !self.unsettled {
                    self.disk.rewrite_log(&mut self.core, self.now);
                }
                Ok(())
            }
            // What the server has of a file whose data it refused.
            Ran::Waits(asking) => {
                let batch = Deliver { lane, batch: Arc::default(), without: None };
                let sent = Sent { call, batch };
                self.call(asking.request.clone(), Purpose::Drain(asking.request, sent));
                Ok(())
            }
            ran => Err(Violation(format!("a batch that waits: {ran:?}"))),
        }
    }

    fn deliver(&mut self, call: CallId, batch: Deliver) -> Result<(), Violation> {
        if self.disk.failing.try_read().is_err() {
            return self.undelivered((batch.lane, call), Refusal::Changed);
        }
        let request = match self.stamp(&batch.batch)? {
            Ok(mut records) => {
                let chunks = self.chunks.cut_out(&mut records, batch.without.is_none());
                let acked_below = self.disk.acked_below(&self.core);
                Request::Apply(Apply { records, chunks, acked_below })
            }
            Err(request) => request,
        };
        self.disk.acknowledged.check_sent(&batch.batch)?;
        self.disk.kept.sent.extend(batch.batch.iter().map(|logged| logged.seq));
        self.core.mark_sending(&batch.batch, self.now);
        self.call(request.clone(), Purpose::Drain(request, Sent { call, batch }));
        Ok(())
    }

    /// The batch goes another time, or otherwise.
    fn undelivered(
        &mut self,
        (lane, call): (Lane, CallId),
        refusal: Refusal,
    ) -> Result<(), Violation> {
        let ran = self.run(call, Event::Done { id: call, done: Err(refusal.into()) }, &[])?;
        self.sends_on(lane, call, ran)
    }

    /// The answer to a batch, or to what was fetched for it. False if nothing goes on.
    pub(super) fn batch_answered(
        &mut self,
        request: &Request,
        sent: &Sent,
        (reply, body): Answer,
        asked: Time,
    ) -> Result<bool, Violation> {
        let (lane, call, batch) = (sent.batch.lane, sent.call, &sent.batch.batch);
        match (reply, request) {
            (reply, Request::Getattr(_)) => {
                let ran = self.tell(call, (reply, body), request, asked)?;
                self.sends_on(lane, call, ran)?;
            }
            (reply @ Reply::Applied(_), _) => {
                let promised = self.promised(&reply);
                let Reply::Applied(Applied { outcomes, visible, heard, .. }) = reply else {
                    return Ok(false);
                };
                self.outcomes_came(batch, &outcomes, sent.batch.without.is_none())?;
                let (took, round_trip) = (Duration::ZERO, Duration::ZERO);
                let delivered = Delivered { outcomes, promised, heard, asked, took, round_trip };
                let done = Ok(Done::Delivered(Box::new(delivered)));
                let ran = self.run(call, Event::Done { id: call, done }, &[])?;
                self.sends_on(lane, call, ran)?;
                if !visible {
                    self.call(Request::Visible(()), Purpose::Visible);
                }
            }
            (Reply::Refused(refused), Request::Fetch(_)) => {
                self.give_up_base(batch, refused.refusal);
                self.undelivered((lane, call), Refusal::Changed)?;
            }
            // Another time: its disk is full.
            (Reply::Refused(refused), Request::Apply(apply))
                if refused.refusal == Refusal::NoSpace =>
            {
                let done = match apply.chunks.is_empty() {
                    true => Err(refused.refusal.into()),
                    false => Ok(Done::NoChunks(refused.refusal)),
                };
                let ran = self.run(call, Event::Done { id: call, done }, &[])?;
                self.sends_on(lane, call, ran)?;
                // Unless what was sent twice is done the second time.
                self.unsettled = true;
                return Ok(false);
            }
            (reply @ Reply::Fetched(_), _) => {
                // No end of asking would bring what was cut off here meanwhile.
                if !self.has_place_for(request) {
                    self.give_up_base(batch, Refusal::Io);
                }
                self.take_data(request, (reply, body), asked);
                self.give_up_cut(batch, request);
                self.undelivered((lane, call), Refusal::Changed)?;
            }
            (Reply::Refused(refused), _)
                if refused.refusal == Refusal::Copied && self.copied.may_be =>
            {
                self.undelivered((lane, call), Refusal::Changed)?;
                self.copied.is_shut_out = true;
                return Ok(false);
            }
            (reply, _) => return Err(Violation(format!("apply: {reply:?}"))),
        }
        Ok(true)
    }

    /// What the client's own notes make of outcomes.
    fn outcomes_came(
        &mut self,
        batch: &[Logged],
        outcomes: &[Outcome],
        brought: bool,
    ) -> Result<(), Violation> {
        if outcomes.is_empty() || outcomes.len() > batch.len() {
            return Err(Violation(format!("{} outcomes of {}", outcomes.len(), batch.len())));
        }
        for (logged, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Outcome::Missing { chunks } if brought => self.chunks.missing(chunks)?,
                outcome if outcome.is_final() => {
                    self.baseless.remove(&logged.seq);
                    if self.bug == Some(Bug::ClientDropsDirtyData) {
                        let settled = logged.change.ino();
                        self.disk.kept.containers.retain(|(ino, _), _| *ino != settled);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The records of a batch, or what must be fetched before.
    fn stamp(&mut self, batch: &[Logged]) -> Result<Result<Vec<Stamped>, Request>, Violation> {
        let mut records = Vec::new();
        for logged in batch {
            let record = match &logged.change {
                Change::Record(record) => record.clone(),
                Change::Data(data) => match self.complete(logged.seq, data) {
                    Some(request) => return Ok(Err(request)),
                    None => Record::Store(self.store(logged.seq, data)?),
                },
            };
            let Logged { seq, time, operation, known, .. } = *logged;
            let caller = logged.caller.clone();
            records.push(Stamped { seq, time, caller, operation, known, record });
        }
        Ok(Ok(records))
    }

    /// What is missing of a store that must be whole, and can be had.
    fn complete(&mut self, seq: u64, data: &DataChange) -> Option<Request> {
        if !self.core.is_wanted_whole(seq) || self.baseless.contains(&seq) {
            return None;
        }
        let size = self.core.tree.peek(data.ino).map_or(0, |attr| attr.size);
        self.next_gap(data.ino, 0..data.size, size)
    }

    fn store(&self, seq: u64, data: &DataChange) -> Result<Store, Violation> {
        let wanted_whole = self.core.is_wanted_whole(seq);
        let (ranges, cut) = match wanted_whole {
            true => (vec![0..data.size], Some(0)),
            false => (data.ranges.clone(), data.cut),
        };
        let mut pieces = Vec::new();
        for range in ranges {
            let range = range.start.min(data.size)..range.end.min(data.size);
            let bytes = self.disk.source(&self.core, (seq, data), &range);
            for (part, bytes) in (0..).zip(bytes.chunks(INLINE_MAX)) {
                let offset = range.start + part * INLINE_MAX as u64;
                pieces.push(Piece { offset, bytes: PieceBytes::Inline(bytes.to_vec()) });
            }
        }
        let store = data.store(pieces, cut);
        self.disk.acknowledged.sent(seq, data, &store)?;
        Ok(store)
    }

    /// What the server wants fetched for a whole store cannot be had.
    pub(super) fn give_up_base(&mut self, batch: &[Logged], refusal: Refusal) {
        if refusal != Refusal::Unreachable {
            self.baseless.extend(batch.iter().map(|logged| logged.seq));
        }
    }

    /// What was fetched for a whole store may have been cut off since, in a change that only the
    /// log of an earlier process knows. It would be fetched for ever.
    pub(super) fn give_up_cut(&mut self, batch: &[Logged], request: &Request) {
        let Request::Fetch(ask) = request else { return };
        let size = self.core.tree.peek(ask.ino).map_or(0, |attr| attr.size);
        let range = ask.offset..ask.offset + ask.len;
        let is_cut = self.core.files.get(&ask.ino).is_some_and(|file| {
            let is_missing = !file.to_fetch(range.clone(), size).is_empty();
            is_missing
                && file.version() == ask.version
                && file.fillable(range, ask.version).is_empty()
        });
        if is_cut {
            self.baseless.extend(batch.iter().map(|logged| logged.seq));
        }
    }
}
