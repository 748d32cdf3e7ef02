//! Batches: the records of one are made of the log and of the bytes on the disk, and its answer is
//! told to the host.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use segue_core::host::Host;
use segue_core::host::action::{CallId, Deliver, Delivered, Done, Undone};
use segue_core::host::log::Logged;
use segue_core::nouns::{Fingerprint, Outcome, PieceBytes, Record, Stamped, Time};
use segue_core::refusal::Refusal;
use segue_core::upload::{Made, changes_of};
use segue_core::wire::{Applied, Apply, Reply, Request};

use super::upload::{Changes, UploadId, Uploading, Waits};
use super::{Asking, SimRemote};
use crate::Violation;
use crate::disk::{Carried, HostDisk};
use crate::plan::Bug;
use crate::server::Answer;

/// The batch goes another time, or otherwise.
const AGAIN: Carried = Err(Undone { refusal: Refusal::Changed, is_logged: false });

/// How far a batch came.
#[derive(Debug)]
pub(crate) enum Sent {
    /// Its stores are being made.
    Uploads,
    /// Its chunks went ahead, or could not.
    Ahead,
    /// It goes in this message.
    Asks(Asking),
    /// It does not go.
    Ended(Carried),
}

impl SimRemote {
    /// Begins to send a batch.
    pub(crate) fn deliver(
        &mut self,
        places: (&mut Host, &mut HostDisk),
        (call, deliver): (CallId, Deliver),
        now: Time,
    ) -> Result<Sent, Violation> {
        if places.1.failing.try_read().is_err() {
            return Ok(Sent::Ended(AGAIN));
        }
        let uploading = Uploading::new(places.0, Changes::Batch(call, deliver), self.least);
        self.go_on_uploading(places, (UploadId::Batch(call), uploading), now)
    }

    /// Goes on to make stores, with an answer. It was asked for and came at these `times`.
    pub(crate) fn uploads(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        id: UploadId,
        heard: (Waits, Answer),
        times: [Time; 2],
    ) -> Result<Option<Sent>, Violation> {
        let Some(mut uploading) = self.uploads.remove(&id) else { return Ok(None) };
        self.upload_heard((core, disk), (id, &mut uploading), heard, times)?;
        let [_, now] = times;
        self.go_on_uploading((core, disk), (id, uploading), now).map(Some)
    }

    pub(super) fn go_on_uploading(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        (id, mut uploading): (UploadId, Uploading),
        now: Time,
    ) -> Result<Sent, Violation> {
        let made = self.upload((core, disk), (id, &mut uploading), now)?;
        if made.is_some() {
            self.forget_upload(id);
        }
        let Some(made) = made else {
            self.uploads.insert(id, uploading);
            return Ok(Sent::Uploads);
        };
        let Uploading { of, ready, .. } = uploading;
        Ok(match (of, made) {
            (Changes::Ahead(picked), made) => {
                core.uploaded(&picked, made.map(|made| made.stores));
                Sent::Ahead
            }
            (Changes::Batch(call, deliver), Ok(mut made)) => {
                made.stores.extend(ready);
                Sent::Asks(self.apply((core, disk), (call, deliver), made, now)?)
            }
            (Changes::Batch(..), Err(refusal)) => {
                Sent::Ended(Done::without_chunks(refusal).map_err(Undone::from))
            }
        })
    }

    /// The message of a batch whose stores are made.
    fn apply(
        &self,
        (core, disk): (&mut Host, &mut HostDisk),
        (call, deliver): (CallId, Deliver),
        Made { stores, chunks }: Made<Bytes>,
        now: Time,
    ) -> Result<Asking, Violation> {
        let batch = &deliver.batch;
        let store = |seq| stores.iter().find(|(of, _)| *of == seq).map(|(_, store)| store.clone());
        for (seq, data) in changes_of(batch) {
            let spelled = self.spelled.get(&seq);
            let spelled = spelled.ok_or_else(|| Violation("a store was not made".into()))?;
            disk.acknowledged.sent(seq, &data, spelled)?;
        }
        let records = batch.iter().map(|logged| logged.stamped(store(logged.seq)));
        let records: Option<Vec<Stamped>> = records.collect();
        let records = records.ok_or_else(|| Violation("a store was not made".into()))?;
        let body = chunks.iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
        let chunks = chunks.iter().map(|chunk| (chunk.name, chunk.len)).collect();
        disk.acknowledged.check_sent(batch)?;
        disk.kept.sent.extend(batch.iter().map(|logged| logged.seq));
        let (acked_below, awaited) = (disk.acked_below(core), core.mark_sending(batch, now));
        let request = Request::Apply(Apply { records, chunks, acked_below, awaited });
        Ok(Asking { call, request, body, batch: Some(deliver) })
    }

    /// The answer to a batch in the host's words.
    pub(super) fn batch_done(
        &mut self,
        disk: &mut HostDisk,
        (request, deliver): (&Request, &Deliver),
        reply: Reply,
        asked: Time,
    ) -> Result<Carried, Violation> {
        let promised = self.session.promised(&reply);
        let Request::Apply(apply) = request else {
            return Err(Violation(format!("a batch asks {request:?}")));
        };
        Ok(match reply {
            Reply::Applied(Applied { outcomes, heard, .. }) => {
                self.outcomes_came(disk, (&deliver.batch, apply), &outcomes)?;
                let (took, round_trip) = (Duration::ZERO, Duration::ZERO);
                let delivered = Delivered { outcomes, promised, heard, asked, took, round_trip };
                Ok(Done::Delivered(Box::new(delivered)))
            }
            // Another time: its disk is full.
            Reply::Refused(refused) if refused.refusal == Refusal::NoSpace => {
                match apply.chunks.is_empty() {
                    true => Err(refused.refusal.into()),
                    false => Ok(Done::NoChunks(refused.refusal)),
                }
            }
            Reply::Refused(refused)
                if refused.refusal == Refusal::Copied && self.door.spare.is_some() =>
            {
                self.door.is_shut_out = true;
                AGAIN
            }
            reply => return Err(Violation(format!("apply: {reply:?}"))),
        })
    }

    /// Notes outcomes of a batch.
    fn outcomes_came(
        &mut self,
        disk: &mut HostDisk,
        (batch, apply): (&[Logged], &Apply),
        outcomes: &[Outcome],
    ) -> Result<(), Violation> {
        if outcomes.is_empty() || outcomes.len() > batch.len() {
            return Err(Violation(format!("{} outcomes of {}", outcomes.len(), batch.len())));
        }
        for (logged, outcome) in batch.iter().zip(outcomes) {
            if let Outcome::Missing { chunks } = outcome {
                let named = names_in(&apply.records);
                if let Some(other) = chunks.iter().find(|chunk| !named.contains(chunk)) {
                    return Err(Violation(format!("nobody named {other:?}")));
                }
            }
            if outcome.is_final() && self.bug == Some(Bug::ClientDropsDirtyData) {
                let settled = logged.change.ino();
                disk.kept.containers.retain(|(ino, _), _| *ino != settled);
            }
        }
        Ok(())
    }
}

/// The chunks and leaves that records name.
fn names_in(records: &[Stamped]) -> BTreeSet<Fingerprint> {
    let stores = records.iter().filter_map(|stamped| match &stamped.record {
        Record::Store(store) => Some(store),
        _ => None,
    });
    let pieces = stores.flat_map(|store| &store.pieces);
    let name = |bytes: &PieceBytes| match bytes {
        PieceBytes::Chunk { fingerprint, .. } => Some(*fingerprint),
        PieceBytes::Leaf { leaf, .. } => Some(*leaf),
        _ => None,
    };
    pieces.filter_map(|piece| name(&piece.bytes)).collect()
}
