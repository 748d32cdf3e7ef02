//! The batches of changes that go to the server, lane by lane, and stores that the server wants in
//! another way.

use std::collections::BTreeSet;

use crate::host::Host;
use crate::host::log::{Lane, Logged};
use crate::host::send::Picked;
use crate::nouns::{Store, Time};
use crate::refusal::Refusal;

impl Host {
    /// Takes the changes that go to the server next in `lane`, about `bytes` of them. Nothing else
    /// takes them until they are settled or [put back](Host::put_back).
    pub fn next_batch(&mut self, lane: Lane, bytes: u64, now: Time) -> Vec<Logged> {
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

    /// Puts back the changes of a batch that is over: those not settled wait again.
    pub fn put_back(&mut self, seqs: impl IntoIterator<Item = u64>) {
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
    pub fn pick_ahead(&mut self, most: u64, now: Time) -> Option<Picked> {
        self.queue.release(now);
        self.ahead.pick(&self.queue, most, &self.whole)
    }

    /// The chunks of `picked` are at the server, for these stores, or could not be sent.
    pub fn uploaded(&mut self, picked: &Picked, made: Result<Vec<(u64, Store)>, Refusal>) {
        self.ahead.uploaded(picked, made, &self.queue);
    }

    /// Notes that the server takes no chunks of change `seq`. True if the change has to wait until
    /// others are settled.
    pub fn refused_chunks(&mut self, seq: u64) -> bool {
        self.ahead.refused_chunks(&self.queue, seq)
    }

    /// Notes that the server wants the store of change `seq` whole. False if it was whole.
    pub fn want_whole(&mut self, seq: u64) -> bool {
        self.whole.insert(seq)
    }

    /// True if the server wants the store of change `seq` whole.
    pub fn is_wanted_whole(&self, seq: u64) -> bool {
        self.whole.contains(&seq)
    }

    /// Raises these changes over others, with those that they follow. Returns which were raised.
    pub fn push(&mut self, seqs: &BTreeSet<u64>) -> BTreeSet<u64> {
        self.queue.raise(seqs, self.ahead.uploading())
    }
}
