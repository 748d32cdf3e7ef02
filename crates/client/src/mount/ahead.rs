//! Uploading ahead: the chunks of large stores go to the server before their records' turn, while
//! earlier records are under way. When the turn comes the record says only what they are called.
//!
//! ```text
//!   queue:  create a | store a (5 MB) | utimes a | create b | store b (9 MB) | ..
//!                        └─ upload ─┐                           └─ upload ─┐
//!   drain:  [create a, store a, utimes a] ──▶ APPLY     [create b, store b] ──▶ APPLY
//! ```
//!
//! The drain waits for a store that is being uploaded, and holds back what was done to the same
//! file just before, so that nobody sees it without its data. Small data go inside the records,
//! and a little more goes along with them, without asking whether the server has it.
//!
//! What was uploaded counts for the connection that it went over: the next one's server session
//! has to be shown again that this host has the bytes. What cannot be uploaded (a quota is full,
//! another host's version is asked for) is left to the drain, which finds out what becomes of it.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::modlog::{Change, INLINE_MAX, Logged, Store};
use segue_core::refusal::Refusal;
use segue_core::wire::APPLY_MAX;
use segue_rpc::LinkState;

use super::upload::{Group, OFFER_FROM};
use super::{Mount, Shared, lock};

/// Uploads side by side: one is cut and offered while the other is sent.
pub(super) const UPLOADS: usize = 2;
/// Changes looked at in search of something to upload, under the core's lock.
const SCAN_MAX: usize = 4096;
/// Pieces of stores that wait for their turn: a part of what a server's session remembers to
/// have been shown.
const PIECES_MAX: usize = 1 << 14;
/// What a piece takes in a message.
const PIECE_BYTES: u64 = 48;
/// Records in one batch. It may have some more, if they are of the last one's file.
const BATCH_RECORDS: usize = APPLY_MAX - 64;
/// A batch that somebody waits for has this many, or ends with what is waited for.
const AWAITED_RECORDS: usize = 64;

/// Stores whose chunks went ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The connection that they went over.
    nonce: [u8; 32],
    stores: BTreeMap<u64, Store>,
    pieces: usize,
    under_way: BTreeSet<u64>,
    /// For the drain to find out about.
    left: BTreeSet<u64>,
    /// Everything before was looked at.
    next: u64,
    /// Bytes of unsettled stores that the server has.
    sent: u64,
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

impl Ahead {
    /// Begins anew when the connection is another.
    fn of(&mut self, nonce: [u8; 32]) -> &mut Ahead {
        if self.nonce != nonce {
            *self = Ahead { nonce, ..Ahead::default() };
        }
        self
    }

    /// How a change of `bytes` of data gets to the server over this connection.
    fn passage(&self, seq: u64, bytes: u64) -> Passage {
        match self.stores.get(&seq) {
            Some(store) => Passage::Ready(PIECE_BYTES * store.pieces.len() as u64),
            None if bytes <= INLINE_MAX as u64 => Passage::Inside(bytes),
            None if self.left.contains(&seq) => Passage::Alone,
            None if self.under_way.contains(&seq) || bytes >= OFFER_FROM as u64 => Passage::Ahead,
            None => Passage::Along(bytes),
        }
    }

    fn settled(&mut self, logged: &Logged) {
        self.left.remove(&logged.seq);
        if let Some(store) = self.stores.remove(&logged.seq) {
            self.pieces -= store.pieces.len();
            self.sent = self.sent.saturating_sub(logged.change.bytes());
        }
    }
}

impl Mount {
    fn nonce(&self) -> Option<[u8; 32]> {
        match self.remote.link().state() {
            LinkState::Online { welcome, .. } => Some(welcome.nonce),
            _ => None,
        }
    }

    /// What goes to the server next; nothing if the oldest change waits for its chunks.
    pub(super) fn next_batch(&self) -> Vec<Logged> {
        let awaited = lock(&self.waiters).keys().next().copied();
        let bytes = lock(&self.batch_size).bytes();
        let nonce = self.nonce().unwrap_or_default();
        let core = self.core();
        let mut ahead = lock(&self.ahead);
        let ahead = ahead.of(nonce);
        let whole = lock(&self.whole);
        let (mut taken, mut along, mut waits_for) = (0, 0, None);
        let mut batch = core.queue.batch_of(BATCH_RECORDS, bytes, |logged| {
            if taken >= AWAITED_RECORDS && awaited.is_some_and(|seq| seq < logged.seq) {
                return None;
            }
            let passage = match whole.contains(&logged.seq) {
                true => Passage::Alone,
                false => ahead.passage(logged.seq, logged.change.bytes()),
            };
            let weight = match passage {
                Passage::Inside(bytes) => Some(bytes),
                Passage::Along(bytes) => {
                    along += bytes;
                    (along < OFFER_FROM as u64).then_some(bytes)
                }
                Passage::Ready(bytes) => Some(bytes),
                // With it nothing else fits.
                Passage::Alone => (taken == 0).then_some(u64::MAX / 2),
                Passage::Ahead => {
                    waits_for = Some(logged.change.ino());
                    None
                }
            };
            taken += 1;
            Some(logged.change.weight() + weight?)
        });
        // Nobody is to see the file without its data.
        while let Some(last) = batch.last()
            && waits_for == Some(last.change.ino())
            && awaited != Some(last.seq)
        {
            batch.pop();
        }
        if let Some(last) = batch.last() {
            ahead.next = ahead.next.max(last.seq + 1);
        }
        batch
    }

    /// The store of change `seq`, if its chunks went ahead over this connection.
    pub(super) fn store_sent_ahead(&self, seq: u64) -> Option<Store> {
        let nonce = self.nonce()?;
        lock(&self.ahead).of(nonce).stores.get(&seq).cloned()
    }

    /// These changes are settled.
    pub(super) fn settled_ahead<'a>(&self, changes: impl Iterator<Item = &'a Logged>) {
        let mut ahead = lock(&self.ahead);
        changes.for_each(|logged| ahead.settled(logged));
    }

    /// The server wants change `seq` in another way. Others may be wanted so, too.
    pub(super) fn leave_to_drain(&self, seq: u64) {
        let mut ahead = lock(&self.ahead);
        *ahead = Ahead { nonce: ahead.nonce, left: [seq].into(), ..Ahead::default() };
    }

    /// Chunks of data that wait reached the server.
    pub(super) fn note_sent(&self, bytes: u64) {
        lock(&self.ahead).sent += bytes;
        // Whoever waits for progress sees some.
        self.settled.send_modify(|_| ());
    }

    /// Bytes of data that wait and that the server has already.
    pub(super) fn sent_ahead(&self) -> u64 {
        lock(&self.ahead).sent
    }

    /// Changes whose data are on their way.
    pub(super) fn uploading(&self) -> BTreeSet<u64> {
        lock(&self.ahead).under_way.clone()
    }

    /// Uploads for as long as the mount lives.
    pub(super) async fn upload_ahead(self: Shared) {
        let mut link = self.remote.link().watch();
        let mut settled = self.settled.subscribe();
        loop {
            let picked = self.pick();
            if picked.is_empty() {
                tokio::select! {
                    () = self.to_upload.notified() => {}
                    _ = link.changed() => {}
                    _ = settled.changed() => {}
                }
                continue;
            }
            // There may be something for the other one.
            self.to_upload.notify_one();
            let made = self.upload(&picked).await;
            let failed = made.as_ref().err().copied();
            self.uploaded(&picked, made);
            self.unblocked.notify_one();
            if let Some(refusal) = failed {
                tracing::debug!("uploading ahead: {refusal}");
                self.pause().await;
            }
        }
    }

    /// The next changes whose chunks go together, if there are enough of them.
    fn pick(&self) -> Vec<Logged> {
        let Some(nonce) = self.nonce() else { return Vec::new() };
        let most = lock(&self.batch_size).bytes().max(OFFER_FROM as u64);
        let core = self.core();
        let mut ahead = lock(&self.ahead);
        let ahead = ahead.of(nonce);
        let has_older = ahead.stores.first_key_value().is_some_and(|(seq, _)| *seq < ahead.next);
        if ahead.pieces >= PIECES_MAX && has_older {
            return Vec::new();
        }
        let whole = lock(&self.whole);
        let (mut picked, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        let mut through = ahead.next;
        for logged in core.queue.iter_from(ahead.next).take(SCAN_MAX) {
            let more = logged.change.bytes();
            let is_left = ahead.left.contains(&logged.seq) || whole.contains(&logged.seq);
            if more > INLINE_MAX as u64 && !is_left {
                if bytes >= OFFER_FROM as u64 && bytes + more > most {
                    break;
                }
                bytes += more;
                picked.push(logged.clone());
            }
            looked_at += 1;
            through = logged.seq + 1;
        }
        if bytes < OFFER_FROM as u64 {
            // They go along with their records, unless there will be more of them.
            if looked_at == SCAN_MAX || picked.is_empty() {
                ahead.next = through;
            }
            return Vec::new();
        }
        ahead.next = through;
        ahead.under_way.extend(picked.iter().map(|logged| logged.seq));
        picked
    }

    async fn upload(self: &Shared, picked: &[Logged]) -> Result<Vec<(u64, Store)>, Refusal> {
        let mut group = Group::default();
        let mut made = Vec::with_capacity(picked.len());
        for logged in picked {
            let Change::Data(data) = &logged.change else { continue };
            made.push((logged.seq, self.store(logged.seq, data, &mut group).await?));
        }
        self.send_group(&mut group).await?;
        group.landed().await?;
        Ok(made)
    }

    fn uploaded(&self, picked: &[Logged], made: Result<Vec<(u64, Store)>, Refusal>) {
        let Some(nonce) = self.nonce() else { return };
        let oldest = self.core().queue.oldest_seq();
        let mut ahead = lock(&self.ahead);
        // Over a connection that is gone: the one that is there now has its own.
        let is_same = ahead.nonce == nonce;
        let ahead = ahead.of(nonce);
        let was_picked = |seq: &u64| picked.iter().any(|logged| logged.seq == *seq);
        let known = ahead.under_way.iter().filter(|seq| was_picked(seq)).count() == picked.len();
        if !is_same || !known {
            return;
        }
        ahead.under_way.retain(|seq| !was_picked(seq));
        match made {
            Ok(made) => {
                for (seq, store) in made {
                    if oldest.is_some_and(|oldest| oldest <= seq) {
                        ahead.pieces += store.pieces.len();
                        ahead.stores.insert(seq, store);
                    }
                }
            }
            Err(Refusal::Unreachable) => {
                let first = picked.first().map_or(0, |logged| logged.seq);
                ahead.next = ahead.next.min(first);
            }
            Err(_) => ahead.left.extend(picked.iter().map(|logged| logged.seq)),
        }
    }
}
