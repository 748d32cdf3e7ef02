//! Uploading ahead: the chunks of large stores go to the server before their records' turn, while
//! earlier records are under way. When the turn comes the record says only what they are called.
//!
//! ```text
//!   queue:  create a | store a (5 MB) | utimes a | create b | store b (9 MB) | ..
//!                        └─ upload ─┐                           └─ upload ─┐
//!   drain:  [create a, create b]     [store a, utimes a]               [store b]
//! ```
//!
//! The drain waits for a store that is being uploaded, and sends others meanwhile. Small data go
//! inside the records, and a little more goes along with them, without asking whether the server
//! has it.
//!
//! What was uploaded counts for the connection that it went over: the next one's server session
//! has to be shown again that this host has the bytes. So with each connection begins a *round*, in
//! which everything is picked anew, and an upload that was picked in an earlier one is given up.
//! What cannot be uploaded (a quota is full, another host's version is asked for) is left to the
//! drain, which finds out what becomes of it. Chunks that came for other changes count against the
//! quota until their records are applied. So what is left goes alone, oldest first, when nothing
//! else of this host is on its way: no change is refused because of another one that is refused
//! itself, or makes room.
//!
//! Invariant: what is under way was picked in this round, and its upload has still to say what
//! became of it. The drain waits for that word.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::log::{Fit, Lane, Logged, Queue, Stage};
use crate::nouns::{INLINE_MAX, Store};
use crate::refusal::Refusal;
use crate::wire::APPLY_MAX;

/// From so many bytes on the server is asked which chunks it has. Less goes along with the
/// records: a round trip costs more.
pub const OFFER_FROM: u64 = 64 << 10;
/// Uploads side by side: one is cut and offered while the other is sent.
pub const UPLOADS: usize = 2;
/// Records in one batch. It may have some more, if they are of the last one's file.
const BATCH_RECORDS: usize = APPLY_MAX - 64;
/// A batch that somebody waits for has this many, or ends with what is waited for.
const AWAITED_RECORDS: usize = 64;
/// Changes looked at in search of something to upload, under the core's lock.
const SCAN_MAX: usize = 4096;
/// Pieces of stores that wait for their turn: a part of what a server's session remembers to
/// have been shown.
const PIECES_MAX: usize = 1 << 14;
/// What a piece takes in a message.
const PIECE_BYTES: u64 = 48;

/// Stores whose chunks went ahead.
#[derive(Debug)]
pub struct UploadAhead {
    /// Larger data go in chunks.
    inline_max: u64,
    /// From so many bytes on the server is asked which chunks it has.
    offer_from: u64,
    /// The connection that they went over, if there is one.
    nonce: Option<[u8; 32]>,
    /// Grows whenever everything is to be uploaded anew.
    round: u64,
    stores: BTreeMap<u64, Store>,
    pieces: usize,
    under_way: BTreeSet<u64>,
    /// For the drain to find out about, one by one.
    left: BTreeSet<u64>,
    /// Everything before was looked at.
    next: u64,
    /// Bytes of unsettled stores that the server has.
    sent: u64,
}

/// Changes whose chunks go together.
#[derive(Debug)]
pub struct Picked {
    /// The round in which they were picked: they are given up when that is over.
    pub round: u64,
    /// Oldest first.
    pub changes: Vec<Logged>,
}

/// How a change of data gets to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Passage {
    /// In its record: so many bytes.
    Inside(u64),
    /// With its record.
    Along(u64),
    /// Its chunks are there, and their names are so many bytes.
    Ready(u64),
    /// By the drain, alone.
    Alone,
    /// Its chunks are going there.
    Ahead,
}

impl Default for UploadAhead {
    fn default() -> UploadAhead {
        UploadAhead {
            inline_max: INLINE_MAX as u64,
            offer_from: OFFER_FROM,
            nonce: None,
            round: 0,
            stores: BTreeMap::new(),
            pieces: 0,
            under_way: BTreeSet::new(),
            left: BTreeSet::new(),
            next: 0,
            sent: 0,
        }
    }
}

impl UploadAhead {
    /// Larger data than `inline_max` go in chunks. From `offer_from` bytes on the server is asked
    /// which chunks it has.
    pub(in crate::host) fn set_sizes(&mut self, inline_max: u64, offer_from: u64) {
        (self.inline_max, self.offer_from) = (inline_max, offer_from);
    }

    /// Begins a round when the connection is another; `nonce` tells them apart.
    pub fn follow(&mut self, nonce: Option<[u8; 32]>) {
        if self.nonce != nonce {
            self.nonce = nonce;
            self.begin_anew();
        }
    }

    /// Everything is to be uploaded anew.
    pub fn begin_anew(&mut self) {
        let UploadAhead { inline_max, offer_from, nonce, round, .. } = *self;
        let round = round + 1;
        *self = UploadAhead { inline_max, offer_from, nonce, round, ..UploadAhead::default() };
    }

    /// Change `seq` is wanted in another way. Others may be wanted so, too.
    pub fn leave(&mut self, seq: u64) {
        self.begin_anew();
        self.left.insert(seq);
    }

    /// Puts back change `seq`, whose batch is over.
    pub fn put_back(&mut self, seq: u64) {
        self.next = self.next.min(seq);
    }

    /// True as long as what was picked in `round` counts.
    pub fn is_in(&self, round: u64) -> bool {
        self.round == round
    }

    /// It was picked in this round, or is not to be.
    pub fn is_known(&self, seq: u64) -> bool {
        let is_picked = self.under_way.contains(&seq) || self.stores.contains_key(&seq);
        is_picked || self.left.contains(&seq)
    }

    /// The next changes whose chunks go together, if there are enough of them and not more than
    /// `most` bytes. The server wants some as a `whole`, which is the drain's business. Nothing
    /// overtakes what is left to the drain.
    pub fn pick(&mut self, queue: &Queue, most: u64, whole: &BTreeSet<u64>) -> Option<Picked> {
        let has_older = self.stores.first_key_value().is_some_and(|(seq, _)| *seq < self.next);
        if self.nonce.is_none() || (self.pieces >= PIECES_MAX && has_older) {
            return None;
        }
        let (mut changes, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        let mut through = self.next;
        let mut first_held = None;
        let first_left = self.first_left(queue);
        let goes_before = |logged: &&Logged| first_left.is_none_or(|left| logged.seq < left);
        for logged in queue.iter_from(self.next).take_while(goes_before).take(SCAN_MAX) {
            let more = logged.change.bytes();
            let is_known = self.is_known(logged.seq) || whole.contains(&logged.seq);
            let waits = queue.stage(logged.seq) == Some(Stage::Waits)
                && !queue.raised().contains(&logged.seq);
            let is_held = queue.is_held(logged.seq);
            if is_held {
                first_held.get_or_insert(logged.seq);
            }
            if more > self.inline_max && waits && !is_known && !is_held {
                if bytes >= self.offer_from && bytes + more > most {
                    break;
                }
                bytes += more;
                changes.push(logged.clone());
            }
            looked_at += 1;
            through = logged.seq + 1;
        }
        // Those that wait for company are looked at again.
        let through = first_held.map_or(through, |held| through.min(held));
        if bytes < self.offer_from {
            // They go along with their records, unless there will be more of them.
            if looked_at == SCAN_MAX || changes.is_empty() {
                self.next = through;
            }
            return None;
        }
        self.next = through;
        self.under_way.extend(changes.iter().map(|logged| logged.seq));
        Some(Picked { round: self.round, changes })
    }

    /// Takes in what became of an upload.
    pub fn uploaded(
        &mut self,
        picked: &Picked,
        made: Result<Vec<(u64, Store)>, Refusal>,
        queue: &Queue,
    ) {
        if !self.is_in(picked.round) {
            return;
        }
        for logged in &picked.changes {
            self.under_way.remove(&logged.seq);
        }
        match made {
            Ok(made) => {
                for (seq, store) in made.into_iter().filter(|(seq, _)| queue.stage(*seq).is_some())
                {
                    self.pieces += store.pieces.len();
                    self.stores.insert(seq, store);
                }
            }
            Err(Refusal::Unreachable) => {
                let first = picked.changes.first().map_or(0, |logged| logged.seq);
                self.next = self.next.min(first);
            }
            Err(_) => self.left.extend(picked.changes.iter().map(|logged| logged.seq)),
        }
    }

    /// What goes to the server next in this lane, about `bytes` of it. The server wants some as a
    /// `whole`; somebody waits for change `awaited`.
    pub fn batch(
        &self,
        queue: &Queue,
        (lane, bytes): (Lane, u64),
        whole: &BTreeSet<u64>,
        awaited: Option<u64>,
    ) -> Vec<Logged> {
        let (mut taken, mut along) = (0, 0);
        let first_left = self.first_left(queue).filter(|seq| self.is_alone(queue, *seq));
        queue.batch_of(lane, BATCH_RECORDS, bytes, |logged| {
            if taken >= AWAITED_RECORDS && awaited.is_some_and(|seq| seq < logged.seq) {
                return Fit::Ends;
            }
            if queue.is_held(logged.seq) {
                return Fit::Skips;
            }
            let passage = match self.passage(logged.seq, logged.change.bytes()) {
                _ if self.left.contains(&logged.seq) && first_left != Some(logged.seq) => {
                    return Fit::Skips;
                }
                _ if whole.contains(&logged.seq) => Passage::Alone,
                // Nobody uploads it ahead.
                Passage::Ahead if lane.goes_first() && !self.under_way.contains(&logged.seq) => {
                    Passage::Alone
                }
                passage => passage,
            };
            let weight = match passage {
                Passage::Inside(bytes) | Passage::Ready(bytes) => bytes,
                Passage::Along(bytes) if along + bytes < self.offer_from => {
                    along += bytes;
                    bytes
                }
                // With it nothing else fits.
                Passage::Alone if taken == 0 => u64::MAX / 2,
                Passage::Along(_) | Passage::Alone => return Fit::Ends,
                Passage::Ahead => return Fit::Skips,
            };
            taken += 1;
            Fit::Takes(logged.change.weight() + weight)
        })
    }

    /// The oldest change that is left to the drain.
    fn first_left(&self, queue: &Queue) -> Option<u64> {
        self.left.iter().find(|seq| queue.stage(**seq).is_some()).copied()
    }

    /// True if the chunks of no other change are on their way, or wait at the server for a record
    /// that can go now. Whatever the server then says of change `seq` is final.
    fn is_alone(&self, queue: &Queue, seq: u64) -> bool {
        let is_there = |other: u64| self.stores.contains_key(&other) || self.left.contains(&other);
        let counts =
            |other: &Logged| other.change.bytes() >= self.offer_from || is_there(other.seq);
        let mut others = queue.under_way().filter(|other| other.seq != seq);
        let can_go = |other: &u64| queue.is_free(*other) && !queue.is_held(*other);
        self.under_way.is_empty() && !others.any(counts) && !self.stores.keys().any(can_go)
    }

    /// The server takes no chunks of change `seq`. True if the change has to wait for its turn,
    /// false if it is alone.
    pub fn refused_chunks(&mut self, queue: &Queue, seq: u64) -> bool {
        self.left.insert(seq);
        self.first_left(queue) != Some(seq) || !self.is_alone(queue, seq)
    }

    /// The store of change `seq`, if its chunks went ahead over this connection.
    pub fn store(&self, seq: u64) -> Option<&Store> {
        self.stores.get(&seq)
    }

    /// Chunks of data that wait reached the server.
    pub fn note_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Bytes of data that wait and that the server has already.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Changes whose data are on their way.
    pub fn uploading(&self) -> &BTreeSet<u64> {
        &self.under_way
    }

    /// How a change of `bytes` of data gets to the server over this connection.
    fn passage(&self, seq: u64, bytes: u64) -> Passage {
        match self.stores.get(&seq) {
            Some(store) => Passage::Ready(PIECE_BYTES * store.pieces.len() as u64),
            None if bytes <= self.inline_max => Passage::Inside(bytes),
            None if self.left.contains(&seq) => Passage::Alone,
            None if self.under_way.contains(&seq) || bytes >= self.offer_from => Passage::Ahead,
            None => Passage::Along(bytes),
        }
    }

    /// Panics if a store went ahead of a change that is gone.
    pub(in crate::host) fn check_in_turn(&self, queue: &Queue) {
        let first = self.stores.keys().next().filter(|seq| queue.stage(**seq).is_none());
        assert!(first.is_none(), "a store went ahead of change {first:?}, which is gone");
        assert!(!self.stores.is_empty() || self.pieces == 0, "no store has pieces");
    }

    /// Panics if the stores that went ahead are not those of changes.
    pub(in crate::host) fn check_invariants(&self, queue: &Queue) {
        self.check_in_turn(queue);
        let pieces: usize = self.stores.values().map(|store| store.pieces.len()).sum();
        assert_eq!(self.pieces, pieces, "the pieces of stores that went ahead");
        let known = self.stores.keys().chain(&self.under_way);
        let gone = known.into_iter().find(|seq| queue.stage(**seq).is_none());
        assert!(gone.is_none(), "change {gone:?} goes ahead, and is gone");
        let both = self.under_way.iter().find(|seq| self.stores.contains_key(seq));
        assert!(both.is_none(), "change {both:?} goes ahead twice");
    }

    /// It is not sent: if it was on its way, that ends, and what went with it is looked at again.
    pub fn cancelled(&mut self, logged: &Logged) {
        match self.under_way.contains(&logged.seq) {
            true => self.begin_anew(),
            false => self.settled(logged),
        }
    }

    /// The server's final answer to it is here.
    pub fn settled(&mut self, logged: &Logged) {
        self.left.remove(&logged.seq);
        if let Some(store) = self.stores.remove(&logged.seq) {
            self.pieces -= store.pieces.len();
            self.sent = self.sent.saturating_sub(logged.change.bytes());
        }
    }
}

#[cfg(test)]
mod tests;
