//! Write-back, as `segue-client`'s mount/drain.rs and mount/upload.rs do.

use std::sync::Arc;

use segue_core::host::cache::AsOf;
use segue_core::host::call::{Call, Settle};
use segue_core::host::log::{Change, DataChange, Lane, Logged};
use segue_core::nouns::{INLINE_MAX, Ino, Outcome, Piece, PieceBytes, Record, Stamped, Store};
use segue_core::refusal::Refusal;
use segue_core::wire::{Apply, Request};

use super::{Mount, Purpose};
use crate::Violation;
use crate::plan::Bug;

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
        let batch = self.core.next_batch(lane, self.now);
        if batch.is_empty() {
            return Ok(());
        }
        if self.failing.try_read().is_err() {
            self.core.put_back(batch.iter().map(|logged| logged.seq));
            return Ok(());
        }
        let is_rewritten = |logged: &Logged| self.core.queue.is_rewritten(logged.seq);
        if self.bug != Some(Bug::ClientSendsRewritten) && batch.iter().any(is_rewritten) {
            self.sync_disk();
        }
        let request = match self.stamp(&batch)? {
            Ok(mut records) => {
                let chunks = self.chunks.cut_out(&mut records);
                Request::Apply(Apply { records, chunks, acked_below: self.acked_below() })
            }
            Err(request) => request,
        };
        self.acknowledged.check_sent(&batch)?;
        self.kept.sent.extend(batch.iter().map(|logged| logged.seq));
        self.core.mark_sending(&batch, self.now);
        self.call(request.clone(), Purpose::Drain(lane, request, batch));
        Ok(())
    }

    pub(super) fn acked_below(&self) -> u64 {
        match self.bug {
            Some(Bug::ClientAcksUnsynced) => self.core.acked_below(),
            _ => self.acked_below,
        }
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
            let bytes = self.source(seq, data, &range);
            for (part, bytes) in (0..).zip(bytes.chunks(INLINE_MAX)) {
                let offset = range.start + part * INLINE_MAX as u64;
                pieces.push(Piece { offset, bytes: PieceBytes::Inline(bytes.to_vec()) });
            }
        }
        let store = data.store(pieces, cut);
        self.acknowledged.sent(seq, data, &store)?;
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

    /// The outcomes of a batch.
    pub(super) fn settle_batch(
        &mut self,
        batch: Vec<Logged>,
        outcomes: Vec<Outcome>,
        as_of: &AsOf,
    ) -> Result<(), Violation> {
        if outcomes.is_empty() || outcomes.len() > batch.len() {
            return Err(Violation(format!("{} outcomes of {}", outcomes.len(), batch.len())));
        }
        let (settle, not_yet) = Settle::of_batch(batch, outcomes, as_of.clone());
        if !settle.answered.is_empty() {
            let answered = &settle.answered;
            let files: Vec<Ino> = answered.iter().map(|(logged, _)| logged.change.ino()).collect();
            let seqs: Vec<u64> = answered.iter().map(|(logged, _)| logged.seq).collect();
            // Else they are sent again, and answered the same.
            self.unsettled = self.host_call(Call::Settle(Arc::new(settle)))?.is_err();
            if self.unsettled {
                return Ok(());
            }
            self.baseless.retain(|seq| !seqs.contains(seq));
            if self.bug == Some(Bug::ClientDropsDirtyData) {
                self.kept.containers.retain(|(ino, _), _| !files.contains(ino));
            }
            if self.kept.log.len() > LOG_ENTRIES {
                self.rewrite_log();
            }
        }
        if let Some((logged, outcome)) = not_yet {
            // It goes again with the next batch.
            self.core.not_yet(logged.seq, &outcome, None).ok();
            if let Outcome::Missing { chunks } = outcome {
                self.chunks.missing(&chunks)?;
            }
        }
        Ok(())
    }

    /// Writes what the log says anew, in less. The index has all of it before, and all data are
    /// durable.
    pub(crate) fn rewrite_log(&mut self) {
        let entries = self.core.log_entries();
        if !self.note() || self.failing.try_write().is_err() {
            return;
        }
        if !entries.is_empty() {
            self.kept.sync_containers();
        }
        self.kept.sync_index();
        self.kept.rewrite(entries);
        self.acked_below = self.core.acked_below();
    }
}
