//! The batches of changes that go to the server, lane by lane.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::host::Host;
use crate::host::log::{Lane, Logged};
use crate::host::send::Picked;
use crate::nouns::{Store, Time};
use crate::refusal::Refusal;

/// Changes of a batch that goes before the mount ends, and their bytes.
const LAST_RECORDS: usize = 64;
const LAST_BYTES: u64 = 8 << 20;

impl Host {
    /// Takes the changes that go to the server next in `lane`: about as many bytes as get through
    /// in a moment, as far as that is known. Nothing else takes them until they are settled or [put
    /// back](Host::put_back).
    pub(in crate::host) fn next_batch(&mut self, lane: Lane, now: Time) -> Vec<Logged> {
        let bytes = self.batch_bytes(lane);
        let awaited = self.waiters.first();
        // A call that waits for one change waits for those that it follows.
        match awaited {
            Some(_) => self.queue.release_all(),
            None => self.queue.release(now),
        }
        let batch = self.ahead.batch(&self.queue, (lane, bytes), &self.whole, awaited);
        batch.iter().for_each(|logged| self.queue.take(logged.seq));
        batch
    }

    /// Takes changes of any lane, in their order: nobody uploads their chunks ahead.
    pub(in crate::host) fn last_batch(&mut self) -> Vec<Logged> {
        let batch = self.queue.batch(LAST_RECORDS, LAST_BYTES);
        batch.iter().for_each(|logged| self.queue.take(logged.seq));
        batch
    }

    /// How many bytes the next batch of a lane has at most.
    fn batch_bytes(&mut self, lane: Lane) -> u64 {
        self.batch_sizes.of(lane).bytes().min(self.settings.batch_max)
    }

    /// Notes that a batch was answered after `took`, of which the link's `round_trip` is a part.
    pub(in crate::host) fn batch_answered(
        &mut self,
        lane: Lane,
        batch: &[Logged],
        took: Duration,
        round_trip: Duration,
    ) {
        let weight = batch.iter().map(|logged| logged.change.weight() + logged.change.bytes());
        self.batch_sizes.of(lane).answered(weight.sum(), took, round_trip);
    }

    /// Puts back the changes of a batch that is over: those not settled wait again.
    pub(in crate::host) fn put_back(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.queue.put_back(seq);
            self.ahead.put_back(seq);
        }
    }

    /// Puts back all changes, and uploads nothing that an earlier round picked.
    pub fn put_all_back(&mut self) {
        self.queue.put_all_back();
        self.ahead.begin_anew();
    }

    /// The changes whose chunks are to be sent before their turn.
    pub fn pick_ahead(&mut self, now: Time) -> Option<Picked> {
        let most = self.batch_bytes(Lane::Data).max(self.settings.offer_from);
        self.queue.release(now);
        self.ahead.pick(&self.queue, most, &self.whole)
    }

    /// True as long as the connection is the one for which these were picked, and all of them are
    /// to be sent. Their upload is given up when that ends.
    pub fn is_picked(&self, picked: &Picked) -> bool {
        let is_queued = |logged: &Logged| self.queue.stage(logged.seq).is_some();
        self.ahead.is_in(picked.round) && picked.changes.iter().all(is_queued)
    }

    /// The chunks of `picked` are at the server, for these stores, or could not be sent.
    pub fn uploaded(&mut self, picked: &Picked, made: Result<Vec<(u64, Store)>, Refusal>) {
        if made.is_ok() {
            self.server_disk.note_taken();
        }
        self.ahead.uploaded(picked, made, &self.queue);
    }

    /// Raises these changes over others, with those that they follow. Returns which were raised.
    pub(in crate::host) fn push(&mut self, seqs: &BTreeSet<u64>) -> BTreeSet<u64> {
        self.queue.raise(seqs, self.ahead.uploading())
    }

    /// The same for another host that waits, before what is raised.
    pub(in crate::host) fn pull(&mut self, seqs: &BTreeSet<u64>) {
        self.queue.pull(seqs, self.ahead.uploading());
    }
}
