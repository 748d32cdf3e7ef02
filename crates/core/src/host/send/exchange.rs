//! A batch that is sent, and an answer of the server after which some of it is sent again.

use std::collections::BTreeMap;

use super::server_disk::is_to_replace;
use crate::host::Host;
use crate::host::action::Task;
use crate::host::log::{Change, Logged};
use crate::nouns::{Ino, NewNode, Outcome, Record, Time};
use crate::refusal::Refusal;
use crate::sharing::Marked;

/// How a batch goes on whose chunks the server does not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) enum Without {
    /// With fewer changes.
    Fewer,
    /// When other changes are settled.
    Later,
    /// With the names of its chunks only: the server says whether it refuses the change.
    Named,
}

/// The file that a change creates.
fn new_file(logged: &Logged) -> Option<Ino> {
    match &logged.change {
        Change::Record(Record::Create { ino, node: NewNode::File, .. }) => Some(*ino),
        _ => None,
    }
}

impl Host {
    /// Notes that a batch goes to the server now: its changes are decided there from here on.
    /// Returns the new files of which more is to come than is in the batch. The server takes them
    /// for announced.
    pub fn mark_sending(&mut self, batch: &[Logged], now: Time) -> Marked {
        let mut sent: BTreeMap<Ino, u32> = BTreeMap::new();
        for logged in batch {
            self.room.mark_sending(logged.seq);
            self.queue.mark_sending(logged.seq, now);
            logged.change.inodes().into_iter().for_each(|ino| *sent.entry(ino).or_default() += 1);
        }
        let is_awaited = |ino: &Ino| self.tree.pending_changes(*ino) > sent[ino];
        let awaited: Vec<Ino> = batch.iter().filter_map(new_file).filter(is_awaited).collect();
        let marked: Marked = awaited.into_iter().map(|ino| (ino, self.mark_of(ino, now))).collect();
        self.announcing.count_as_told(&marked);
        marked
    }

    /// Leaves the later half of a batch for another one.
    pub(in crate::host) fn halve(&mut self, batch: &mut Vec<Logged>) {
        let later = batch.split_off(batch.len() / 2);
        self.put_back(later.into_iter().map(|logged| logged.seq));
    }

    /// Notes that the server took chunks.
    pub(in crate::host) fn note_chunks_taken(&mut self) {
        self.server_disk.note_taken();
    }

    /// How a batch goes on whose chunks the server did not take, because a quota or its disk is
    /// full. An error if it is sent again as it is.
    pub(in crate::host) fn without_chunks(
        &mut self,
        batch: &mut Vec<Logged>,
        refusal: Refusal,
        now: Time,
    ) -> Result<Without, Refusal> {
        let Some(first) = batch.first().filter(|first| self.decides(first, refusal, now)) else {
            return Err(refusal);
        };
        if batch.len() > 1 {
            self.halve(batch);
            return Ok(Without::Fewer);
        }
        let waits = self.ahead.refused_chunks(&self.queue, first.seq);
        Ok(if waits { Without::Later } else { Without::Named })
    }

    /// True if what becomes of a change is for the server to say now, which has no room for its
    /// chunks.
    fn decides(&mut self, logged: &Logged, refusal: Refusal, now: Time) -> bool {
        if refusal != Refusal::NoSpace {
            return refusal == Refusal::Quota;
        }
        self.server_disk.note_full(now);
        // Other hosts wait for no data that have to wait for room.
        self.wake(Task::Settled);
        let is_awaited = self.waiters.is_awaited(logged.seq);
        if !is_awaited && is_to_replace(&self.queue, logged) {
            return false;
        }
        self.server_disk.decides(now, is_awaited)
    }

    /// Notes an outcome that is not final, of a change that goes to the server once more.
    /// `without`: its chunks were not taken, because of this. An error means that the next attempt
    /// has to wait.
    pub(in crate::host) fn not_yet(
        &mut self,
        seq: u64,
        outcome: &Outcome,
        without: Option<Refusal>,
    ) -> Result<(), Refusal> {
        self.ahead.leave(seq);
        match (outcome, without) {
            (Outcome::NeedsWhole, _) if self.whole.insert(seq) => Ok(()),
            // It fits, and others were faster with what they send.
            (Outcome::Missing { .. }, Some(refusal)) => Err(refusal),
            // The next attempt offers all chunks again; or it was whole, and something is wrong.
            _ => Err(Refusal::Changed),
        }
    }

    /// True if the server wants the store of change `seq` whole.
    pub fn is_wanted_whole(&self, seq: u64) -> bool {
        self.whole.contains(&seq)
    }
}
