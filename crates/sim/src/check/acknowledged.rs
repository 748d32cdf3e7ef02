//! Acknowledged calls: the promises made to one client's applications. They are kept outside of the
//! client, so that no crash of it forgets them. Each acknowledged byte must be logged, sealed, sent
//! and settled.
//!
//! Proves S1.3, S13.3, S15.5, S23.4.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use segue_core::host::log::{Change, DataChange, Entry, Instead, Logged, Replaced};
use segue_core::nouns::{Ino, PieceBytes, Record, Store};

use super::ordered::Ordered;
use crate::Violation;
use crate::disk::Lost;

/// What was acknowledged since the last seal of a file.
#[derive(Clone, Debug, Default)]
struct Unsealed {
    dirty: BTreeSet<u64>,
    cut: Option<u64>,
    size: u64,
    /// Sessions.
    writers: BTreeSet<u32>,
}

/// Promises made to applications, as they are and as they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledged {
    now: Promises,
    /// What they were when so many entries were in the log, as far as a loss of power may bring
    /// that back.
    past: Vec<(u64, Promises)>,
    /// Changes that were settled: sent again after a power loss, they change nothing.
    settled: BTreeSet<u64>,
    /// Changes that need not be sent, though a power loss may bring them back.
    unsent: BTreeSet<u64>,
    /// The session and the process group whose doing this is.
    actor: (u32, u32),
}

#[derive(Clone, Debug, Default)]
struct Promises {
    /// The last acknowledged value of each byte that was written here.
    bytes: BTreeMap<Ino, Rc<BTreeMap<u64, u8>>>,
    unsealed: BTreeMap<Ino, Unsealed>,
    /// Files without a name that were closed for the last time. What was written to them may go
    /// nowhere: it is no part of what is written by a stale name later.
    released: BTreeSet<Ino>,
    /// Files whose last name is gone on the server, too. A crash closes these, and the next process
    /// stores what was written to them or does not.
    unnamed: BTreeSet<Ino>,
    /// Files that were written while only a handle reached them: a crash closes these.
    nameless: BTreeSet<Ino>,
    /// Changes that were logged.
    seqs: BTreeSet<u64>,
    /// Stores, as they were logged.
    sealed: BTreeMap<u64, DataChange>,
    /// What changes were of when they were logged, of which file.
    stores: BTreeMap<u64, (Ino, Rc<BTreeMap<u64, u8>>)>,
    ordered: Ordered,
}

impl Promises {
    /// Begins a change of `ino`.
    fn begin_change(&mut self, ino: Ino) {
        if self.released.remove(&ino) {
            self.unsealed.remove(&ino);
        }
    }
}

impl Acknowledged {
    /// The next entry of the log is the one behind `end`.
    pub(crate) fn remember(&mut self, end: u64) {
        self.past.push((end, self.now.clone()));
    }

    /// Nothing that is in the log will be lost.
    pub(crate) fn forget_past(&mut self) {
        self.past.clear();
    }

    /// A loss of power took the end of the log. What was overwritten there may be the old or the
    /// new.
    pub(crate) fn lost(&mut self, lost: &Lost) {
        if let Some(at) = self.past.iter().position(|(end, _)| *end == lost.end) {
            self.now = self.past.swap_remove(at).1;
        }
        self.past.clear();
        for (ino, range) in lost.entries.iter().filter_map(overwritten) {
            let stores = self.now.stores.values_mut().filter(|(file, _)| *file == ino);
            let bytes = stores.map(|(_, bytes)| bytes).chain(self.now.bytes.get_mut(&ino));
            bytes.for_each(|bytes| Rc::make_mut(bytes).retain(|at, _| !range.contains(at)));
        }
    }

    /// Sets the session and the process group of the calls that follow.
    pub(crate) fn act_for(&mut self, actor: (u32, u32)) {
        self.actor = actor;
    }

    /// Covers the changes of `ino` so far: that session syncs the file.
    pub(crate) fn cover(&mut self, ino: Ino) {
        self.now.ordered.cover(self.actor.0, ino);
    }

    /// The client died, and all its handles with it.
    pub(crate) fn crashed(&mut self) {
        self.now.ordered.crashed();
        let unnamed = std::mem::take(&mut self.now.unnamed);
        self.now.released.extend(unnamed);
        for ino in std::mem::take(&mut self.now.nameless) {
            self.now.unsealed.remove(&ino);
        }
    }

    /// The last handle of `ino` is closed, and nothing of it waits. What was written while no name
    /// led to it went nowhere, also if a server that was put back has its name again.
    pub(crate) fn closed(&mut self, ino: Ino) {
        if self.now.nameless.remove(&ino) {
            self.now.unsealed.remove(&ino);
        }
    }

    /// What was written to files since their last seal: what is there of it must be this.
    pub(crate) fn written(&self) -> BTreeMap<Ino, BTreeMap<u64, u8>> {
        let known = |ino: &Ino, dirty: &BTreeSet<u64>| {
            let truth = self.now.bytes.get(ino)?;
            Some((*ino, dirty.iter().filter_map(|at| Some((*at, *truth.get(at)?))).collect()))
        };
        self.now.unsealed.iter().filter_map(|(ino, file)| known(ino, &file.dirty)).collect()
    }

    /// True if the client has logged what became of change `seq`.
    pub(crate) fn is_settled(&self, seq: u64) -> bool {
        self.settled.contains(&seq)
    }

    /// Changes that were logged.
    pub(crate) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        self.now.seqs.difference(&self.unsent).copied()
    }

    /// An application was told that `bytes` stand at `offset`.
    pub(crate) fn wrote(&mut self, ino: Ino, offset: u64, bytes: &[u8], old_size: u64) {
        self.now.begin_change(ino);
        let file = self.now.unsealed.entry(ino).or_default();
        file.writers.insert(self.actor.0);
        let truth = Rc::make_mut(self.now.bytes.entry(ino).or_default());
        for (at, byte) in (offset..).zip(bytes) {
            file.dirty.insert(at);
            truth.insert(at, *byte);
        }
        file.size = old_size.max(offset + bytes.len() as u64);
    }

    /// An application was told that `ino` is `size` bytes long.
    pub(crate) fn resized(&mut self, ino: Ino, size: u64, old_size: u64) {
        self.now.begin_change(ino);
        let file = self.now.unsealed.entry(ino).or_default();
        file.writers.insert(self.actor.0);
        if size < old_size {
            file.dirty.split_off(&size);
            file.cut = Some(file.cut.map_or(size, |cut| cut.min(size)));
            Rc::make_mut(self.now.bytes.entry(ino).or_default()).split_off(&size);
        }
        file.size = size;
    }

    fn replaced(&mut self, Replaced { seqs, by }: &Replaced) -> Result<(), Violation> {
        match by {
            Instead::More { data, .. } => {
                return seqs.iter().try_for_each(|seq| self.amended(*seq, data));
            }
            Instead::Unsealed => seqs.iter().for_each(|seq| self.unsealed_again(*seq)),
            Instead::Nothing(ino) | Instead::Rename(ino, _) => {
                self.unsent.extend(seqs);
                self.now.stores.retain(|seq, _| !seqs.contains(seq));
                self.now.sealed.retain(|seq, _| !seqs.contains(seq));
                self.now.unsealed.remove(ino);
            }
        }
        Ok(())
    }

    fn amended(&mut self, seq: u64, data: &DataChange) -> Result<(), Violation> {
        let before = self.now.stores.remove(&seq);
        let first = self.now.sealed.remove(&seq);
        let writers = self.writers(data.ino);
        self.now.ordered.amended(seq, &writers);
        self.sealed(seq, data)?;
        if let Some(both) = first.and_then(|first| first.with(data)) {
            self.now.sealed.insert(seq, both);
        }
        if let (Some((_, before)), Some((_, store))) = (before, self.now.stores.get_mut(&seq)) {
            let (cut, store) = (data.cut.unwrap_or(u64::MAX), Rc::make_mut(store));
            for (at, byte) in before.range(..cut) {
                store.entry(*at).or_insert(*byte);
            }
        }
        Ok(())
    }

    /// An entry went into the log.
    pub(crate) fn logged(&mut self, entry: &Entry) -> Result<(), Violation> {
        if let Entry::Settled { seq, outcome } = entry {
            let gone = outcome.touched().iter().filter(|attr| attr.nlink == 0);
            self.now.unnamed.extend(gone.map(|attr| attr.ino));
            self.settled.insert(*seq);
            self.now.ordered.settled(*seq);
            self.now.stores.remove(seq);
            self.now.sealed.remove(seq);
        }
        if let Entry::Replaced(replaced) = entry {
            return self.replaced(replaced);
        }
        if let (Entry::Nameless(_), Some(place)) = (entry, entry.place()) {
            self.now.nameless.insert(place.ino);
        }
        let Some(logged) = entry.change() else { return Ok(()) };
        if !self.now.seqs.insert(logged.seq) {
            return Err(Violation(format!("seq {} is used twice", logged.seq)));
        }
        let makers = match &logged.change {
            Change::Data(data) => self.writers(data.ino),
            Change::Record(_) => BTreeSet::from([self.actor.0]),
        };
        // A chore seals in the name of the process that has the file open, or closed it.
        let group = match (&logged.change, self.actor.1) {
            (Change::Data(_), 0) => logged.caller.process_group,
            (_, group) => group,
        };
        self.now.ordered.logged(logged, group, &makers);
        match &logged.change {
            Change::Data(data) => return self.sealed(logged.seq, data),
            Change::Record(Record::Release { ino }) => {
                self.now.nameless.remove(ino);
                self.now.released.insert(*ino);
            }
            Change::Record(_) => {}
        }
        Ok(())
    }

    /// Sessions that wrote to `ino` since its last seal.
    fn writers(&self, ino: Ino) -> BTreeSet<u32> {
        self.now.unsealed.get(&ino).map(|file| file.writers.clone()).unwrap_or_default()
    }

    /// Checks that these may be sent in this order.
    pub(crate) fn check_sent(&self, batch: &[Logged]) -> Result<(), Violation> {
        for (at, Logged { seq, .. }) in batch.iter().enumerate() {
            let is_there = |other: u64| {
                self.settled.contains(&other)
                    || self.unsent.contains(&other)
                    || batch[..at].iter().any(|logged| logged.seq == other)
            };
            self.now.ordered.sent(*seq, is_there)?;
        }
        Ok(())
    }

    fn sealed(&mut self, seq: u64, data: &DataChange) -> Result<(), Violation> {
        let Some(told) = self.now.unsealed.remove(&data.ino) else {
            return Err(Violation(format!("sealed what nobody wrote: {data:?}")));
        };
        let ranges: BTreeSet<u64> = data.ranges.iter().cloned().flatten().collect();
        if ranges != told.dirty || data.cut != told.cut || data.size != told.size {
            return Err(Violation(format!("sealed {data:?}, told {told:?}")));
        }
        let truth = self.now.bytes.entry(data.ino).or_default();
        let store: BTreeMap<u64, u8> =
            ranges.iter().filter_map(|at| Some((*at, *truth.get(at)?))).collect();
        self.now.stores.insert(seq, (data.ino, Rc::new(store)));
        self.now.sealed.insert(seq, data.clone());
        Ok(())
    }

    fn unsealed_again(&mut self, seq: u64) {
        self.unsent.insert(seq);
        self.now.stores.remove(&seq);
        let Some(data) = self.now.sealed.remove(&seq) else { return };
        let mut dirty: BTreeSet<u64> = data.ranges.iter().cloned().flatten().collect();
        let file = self
            .now
            .unsealed
            .entry(data.ino)
            .or_insert_with(|| Unsealed { size: data.size, ..Unsealed::default() });
        dirty.split_off(&file.cut.unwrap_or(u64::MAX));
        file.dirty.append(&mut dirty);
        file.cut = file.cut.into_iter().chain(data.cut).min();
    }

    /// `store` is what goes to the server for `data`, change `seq`.
    pub(crate) fn sent(&self, seq: u64, data: &DataChange, store: &Store) -> Result<(), Violation> {
        if self.settled.contains(&seq) {
            return Ok(());
        }
        let mut sent = BTreeMap::new();
        for piece in &store.pieces {
            if let PieceBytes::Inline(bytes) = &piece.bytes {
                sent.extend((piece.offset..).zip(bytes.iter().copied()));
            }
        }
        // Whatever was written since.
        let truth = self.now.stores.get(&seq);
        for (at, byte) in truth.into_iter().flat_map(|(_, truth)| truth.iter()) {
            let at = *at;
            if sent.get(&at) != Some(byte) {
                let words =
                    format!("byte {at} of #{} is {byte}, sent {:?}", data.ino, sent.get(&at));
                return Err(Violation(words));
            }
        }
        Ok(())
    }

    /// Files that were written and not sealed.
    pub(crate) fn unsealed(&self) -> impl Iterator<Item = Ino> + '_ {
        self.now.unsealed.keys().copied()
    }
}

/// What an entry has overwritten or cut off in a file's container, or says that a failed write has.
pub(crate) fn overwritten(entry: &Entry) -> Option<(Ino, Range<u64>)> {
    match entry {
        Entry::Written { place, offset, data } => Some((place.ino, *offset..offset + data.len())),
        Entry::Resized { place, size } => Some((place.ino, *size..place.old_size.max(*size))),
        Entry::Spoiled { ino, range, .. } => Some((*ino, range.clone())),
        Entry::Nameless(entry) => overwritten(entry),
        _ => None,
    }
}
