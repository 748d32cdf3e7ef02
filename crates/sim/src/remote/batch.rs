//! Batches: the records of one are made of the log and of the bytes on the disk, and its answer is
//! told to the host.

use std::time::Duration;

use segue_core::host::Host;
use segue_core::host::action::{CallId, Deliver, Delivered, Done, Undone};
use segue_core::host::log::{Change, DataChange, Logged};
use segue_core::nouns::{INLINE_MAX, Outcome, Piece, PieceBytes, Record, Stamped, Store, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Applied, Apply, Fetch, Reply, Request};

use super::fetch::has_place_for;
use super::{Asking, SimRemote};
use crate::Violation;
use crate::disk::{Carried, HostDisk};
use crate::plan::Bug;
use crate::server::Answer;

/// The batch goes another time, or otherwise.
const AGAIN: Carried = Err(Undone { refusal: Refusal::Changed, is_logged: false });

impl SimRemote {
    /// The message of a batch, or the question that must be answered before. `None` if the disk
    /// cannot be read.
    pub(crate) fn deliver(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        (call, deliver): (CallId, Deliver),
        now: Time,
    ) -> Result<Option<Asking>, Violation> {
        if disk.failing.try_read().is_err() {
            return Ok(None);
        }
        let batch = &deliver.batch;
        let (request, body) = match self.stamp(core, disk, batch)? {
            Ok(mut records) => {
                let (chunks, body) = self.chunks.cut_out(&mut records, deliver.without.is_none());
                let acked_below = disk.acked_below(core);
                (Request::Apply(Apply { records, chunks, acked_below }), body)
            }
            Err(request) => (request, Vec::new()),
        };
        disk.acknowledged.check_sent(batch)?;
        disk.kept.sent.extend(batch.iter().map(|logged| logged.seq));
        core.mark_sending(batch, now);
        Ok(Some(Asking { call, request, body, batch: Some(deliver) }))
    }

    /// The records of a batch, or the fetch that must come before.
    fn stamp(
        &self,
        core: &mut Host,
        disk: &HostDisk,
        batch: &[Logged],
    ) -> Result<Result<Vec<Stamped>, Request>, Violation> {
        let mut records = Vec::new();
        for logged in batch {
            let record = match &logged.change {
                Change::Record(record) => record.clone(),
                Change::Data(data) => match self.complete(core, logged.seq, data) {
                    Some(request) => return Ok(Err(request)),
                    None => Record::Store(store(core, disk, logged.seq, data)?),
                },
            };
            let Logged { seq, time, operation, known, .. } = *logged;
            let caller = logged.caller.clone();
            records.push(Stamped { seq, time, caller, operation, known, record });
        }
        Ok(Ok(records))
    }

    /// The fetch of missing bytes of a store that must be whole, if they can be had.
    fn complete(&self, core: &mut Host, seq: u64, data: &DataChange) -> Option<Request> {
        if !core.is_wanted_whole(seq) || self.baseless.contains(&seq) {
            return None;
        }
        let size = core.tree.peek(data.ino).map_or(0, |attr| attr.size);
        self.next_gap(core, data.ino, 0..data.size, size)
    }

    /// The answer to a batch, or to a fetch for one, in the host's words.
    pub(super) fn batch_done(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        (request, deliver): (&Request, &Deliver),
        (reply, body): Answer,
        times: [Time; 2],
    ) -> Result<Carried, Violation> {
        let batch = &deliver.batch;
        let promised = self.session.promised(&reply);
        Ok(match (reply, request) {
            (Reply::Applied(Applied { outcomes, heard, .. }), _) => {
                self.outcomes_came(disk, batch, &outcomes, deliver.without.is_none())?;
                let (took, round_trip) = (Duration::ZERO, Duration::ZERO);
                let [asked, _] = times;
                let delivered = Delivered { outcomes, promised, heard, asked, took, round_trip };
                Ok(Done::Delivered(Box::new(delivered)))
            }
            (Reply::Refused(refused), Request::Fetch(_)) => {
                if refused.refusal != Refusal::Unreachable {
                    self.give_up_base(batch);
                }
                AGAIN
            }
            // Another time: its disk is full.
            (Reply::Refused(refused), Request::Apply(apply))
                if refused.refusal == Refusal::NoSpace =>
            {
                match apply.chunks.is_empty() {
                    true => Err(refused.refusal.into()),
                    false => Ok(Done::NoChunks(refused.refusal)),
                }
            }
            (reply @ Reply::Fetched(_), Request::Fetch(ask)) => {
                // No end of asking would bring what was cut off here meanwhile.
                if !has_place_for(core, ask) {
                    self.give_up_base(batch);
                }
                self.take_data((core, disk), request, (reply, body), times);
                if is_cut(core, ask) {
                    self.give_up_base(batch);
                }
                AGAIN
            }
            (Reply::Refused(refused), _)
                if refused.refusal == Refusal::Copied && self.door.spare.is_some() =>
            {
                self.door.is_shut_out = true;
                AGAIN
            }
            (reply, _) => return Err(Violation(format!("apply: {reply:?}"))),
        })
    }

    /// Notes outcomes of a batch, which `brought` its chunks.
    fn outcomes_came(
        &mut self,
        disk: &mut HostDisk,
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
                        disk.kept.containers.retain(|(ino, _), _| *ino != settled);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The base of a whole store cannot be had.
    fn give_up_base(&mut self, batch: &[Logged]) {
        self.baseless.extend(batch.iter().map(|logged| logged.seq));
    }
}

/// The store of change `seq`.
fn store(core: &Host, disk: &HostDisk, seq: u64, data: &DataChange) -> Result<Store, Violation> {
    let (ranges, cut) = match core.is_wanted_whole(seq) {
        true => (vec![0..data.size], Some(0)),
        false => (data.ranges.clone(), data.cut),
    };
    let mut pieces = Vec::new();
    for range in ranges {
        let range = range.start.min(data.size)..range.end.min(data.size);
        let bytes = disk.source(core, (seq, data), &range);
        for (part, bytes) in (0..).zip(bytes.chunks(INLINE_MAX)) {
            let offset = range.start + part * INLINE_MAX as u64;
            pieces.push(Piece { offset, bytes: PieceBytes::Inline(bytes.to_vec()) });
        }
    }
    let store = data.store(pieces, cut);
    disk.acknowledged.sent(seq, data, &store)?;
    Ok(store)
}

/// True if fetched bytes are still missing, and there is no place for them. They may have been cut
/// off since, in a change that only the log of an earlier process knows: they would be fetched for
/// ever.
fn is_cut(core: &Host, ask: &Fetch) -> bool {
    let size = core.tree.peek(ask.ino).map_or(0, |attr| attr.size);
    let range = ask.offset..ask.offset + ask.len;
    core.files.get(&ask.ino).is_some_and(|file| {
        let is_missing = !file.to_fetch(range.clone(), size).is_empty();
        is_missing && file.version() == ask.version && file.fillable(range, ask.version).is_empty()
    })
}
