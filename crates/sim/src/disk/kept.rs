//! The disk that a process leaves when it dies, and the part of it that survives a loss of power.
//!
//! ```text
//!   log         its first entries: at least those that were synced
//!   index       as it was after one of the last notes
//!   container   each block as it was at the last sync, or as it is
//!   preserved   all of a change, or nothing, unless it was synced
//! ```
//!
//! A loss of power takes only what the server does not have either, or has settled: else nobody
//! could say what the host shows until it has heard from the server.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::host::Notes;
use segue_core::host::cache::Scrap;
use segue_core::host::conflict::Duplicate;
use segue_core::host::log::{Change, Entry, Logged};
use segue_core::nouns::{ClientId, ContainerId, Ino, InoGrant, Time};

use super::container::{Container, Preserved};
use super::index::Index;
use crate::rng::Rng;

/// Low, so that blocks of numbers end in a run.
const SEQ_BLOCK: u64 = 16;
/// Notes that may not be on the disk yet.
const NOTES_MAX: usize = 8;

/// Which container.
pub(crate) type Key = (Ino, ContainerId);

/// What a loss of power took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    /// Entries of the log.
    pub(crate) entries: Vec<Entry>,
    /// Entries that were ever logged, less these.
    pub(crate) end: u64,
}

/// What a process that dies leaves behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The client that this cache is, and all that it was.
    client: Option<ClientId>,
    was: BTreeSet<ClientId>,
    /// The authority of the server that it belongs to.
    pub(crate) server: Option<&'static str>,
    pub(crate) log: Vec<Entry>,
    /// Entries that were ever logged, but for those that a loss of power took.
    pub(crate) end: u64,
    /// Entries of it that are durable, and entries whose data are.
    synced: usize,
    data: usize,
    /// How often the log was written anew, and how many entries of it the index had then.
    pub(crate) generation: u64,
    pub(crate) began: usize,
    pub(crate) containers: BTreeMap<Key, Container>,
    /// Those that were changed and not synced.
    pub(crate) unsynced: BTreeSet<Key>,
    pub(crate) preserved: BTreeMap<u64, Preserved>,
    /// Containers that maps may write to, and whether one did since that was logged.
    pub(super) maps: BTreeMap<Key, bool>,
    pub(crate) index: Index,
    /// What the index was since its last sync, oldest first.
    older: Vec<Index>,
    pub(crate) starts: u64,
    pub(crate) seq_reserved: u64,
    pub(crate) inos_reserved: u64,
    pub(crate) grants: Vec<InoGrant>,
    /// Changes that went out, as far as they were logged.
    pub(crate) sent: BTreeSet<u64>,
    /// Changes that are what a loss of power left.
    pub(crate) left: BTreeSet<u64>,
    /// Files and directories that another host made, too, under the same name.
    pub(crate) duplicates: Vec<Duplicate>,
    /// How many bytes may be cached, if that is bounded.
    pub(crate) cache_size: Option<u64>,
    /// The host goes down when the process does.
    pub(crate) loses_power: bool,
    /// It went down, and what it left was not looked at.
    pub(crate) lost_power: bool,
}

impl Kept {
    /// An empty disk.
    pub(crate) fn new(client: ClientId, loses_power: bool, cache_size: Option<u64>) -> Kept {
        Kept { client: Some(client), loses_power, cache_size, ..Kept::default() }
    }

    /// The client that this cache is.
    pub(crate) fn client(&self) -> ClientId {
        self.client.unwrap_or(ClientId([0; 16]))
    }

    /// True if this cache is that client, or was it.
    pub(crate) fn was(&self, client: ClientId) -> bool {
        self.client == Some(client) || self.was.contains(&client)
    }

    /// The cache is another client from now on, whose inode numbers are these.
    pub(crate) fn become_client(&mut self, client: ClientId, grants: &[InoGrant]) {
        self.was.extend(self.client.replace(client));
        self.grants = grants.to_vec();
        self.inos_reserved = 0;
    }

    /// The entries that may speak of data that are not durable begin here.
    pub(crate) fn first_unsynced(&self) -> usize {
        self.data
    }

    /// Takes the last entry out of the log.
    pub(crate) fn cut_last(&mut self) {
        if self.log.pop().is_some() {
            self.end -= 1;
            self.synced = self.synced.min(self.log.len());
        }
    }

    pub(crate) fn append(&mut self, entry: Entry) {
        self.log.push(entry);
        self.end += 1;
    }

    /// Entries up to this one, counted as in `end`, stay whatever happens.
    pub(crate) fn durable_end(&self) -> u64 {
        self.end - (self.log.len() - self.data) as u64
    }

    /// The log is durable as it is now.
    pub(crate) fn sync_log(&mut self) {
        self.synced = self.log.len();
    }

    /// And so are the data of which it speaks and that it does not have itself.
    pub(crate) fn sync_disk(&mut self) {
        self.sync_preserved();
        self.sync_log();
        self.data = self.log.len();
    }

    pub(crate) fn sync_preserved(&mut self) {
        self.preserved.values_mut().for_each(|preserved| preserved.durable = None);
    }

    pub(crate) fn sync_containers(&mut self) {
        for key in std::mem::take(&mut self.unsynced) {
            if let Some(container) = self.containers.get_mut(&key) {
                container.sync();
            }
        }
    }

    /// The index is about to change.
    pub(crate) fn save_index(&mut self) -> &mut Index {
        if self.loses_power {
            if self.older.len() == NOTES_MAX {
                self.older.remove(0);
            }
            self.older.push(self.index.clone());
        }
        &mut self.index
    }

    /// Saves in the index what the first `entries` of the log did.
    pub(crate) fn note(&mut self, notes: &Notes, entries: usize, now: Time) {
        let position = (self.generation, entries);
        let index = self.save_index();
        index.position = position;
        for key in index.save(notes, now) {
            self.containers.remove(&key);
        }
    }

    /// Keeps word of a duplicate, unless a process that died did so.
    pub(crate) fn keep_duplicate(&mut self, duplicate: Option<Duplicate>) {
        let is_known = duplicate.as_ref().is_some_and(|other| self.duplicates.contains(other));
        self.duplicates.extend(duplicate.filter(|_| !is_known));
    }

    /// Reserves numbers of changes from `first` on; those below the returned one may be used.
    pub(crate) fn reserve_seqs(&mut self, first: u64) -> u64 {
        self.seq_reserved = self.seq_reserved.max(first) + SEQ_BLOCK;
        self.seq_reserved
    }

    /// Removes what nobody needs any more.
    pub(super) fn remove(&mut self, scrap: Scrap) {
        match scrap {
            Scrap::Container(ino, id) => drop(self.containers.remove(&(ino, id))),
            Scrap::Preserved(seq) => drop(self.preserved.remove(&seq)),
        }
    }

    /// The bytes of a container, which is made if there is none.
    pub(crate) fn bytes_of_container(&mut self, key: Key) -> &mut Vec<u8> {
        &mut self.containers.entry(key).or_default().bytes
    }

    pub(crate) fn sync_index(&mut self) {
        self.older.clear();
    }

    /// The log is replaced by one that says the same in less, all of which the index has.
    pub(crate) fn rewrite(&mut self, entries: Vec<Entry>) {
        self.generation += 1;
        self.began = entries.len();
        self.log = entries;
        self.sync_log();
        self.data = self.log.len();
    }

    /// How many entries of the log the index has. One that has more than there are is of no use.
    pub(crate) fn noted(&mut self) -> usize {
        let (generation, entries) = self.index.position;
        if generation < self.generation {
            return self.began;
        }
        if entries <= self.log.len() {
            return entries.max(self.began);
        }
        *self.save_index() = Index::default();
        0
    }

    /// The least number of entries that the log may have after a loss of power.
    fn floor(&self, is_alone: bool) -> usize {
        let may_go = |entry: &Entry| match entry {
            Entry::Change(Logged { seq, .. }) => !is_alone || !self.sent.contains(seq),
            _ => true,
        };
        let mut floor = self.log.len();
        while floor > self.data && may_go(&self.log[floor - 1]) {
            floor -= 1;
        }
        floor
    }

    /// The host goes down. As the real client does later, the log is cut off where it speaks of
    /// preserved bytes that are not there. `is_applied` tells which changes the server has.
    pub(crate) fn lose_power(
        &mut self,
        is_alone: bool,
        is_applied: impl Fn(u64) -> bool,
        rng: &mut Rng,
    ) -> Lost {
        let unsynced = self.unsynced_overwrites(is_applied);
        let floor = self.floor(is_alone);
        let least = floor.max(self.synced);
        let mut len = least + rng.index(self.log.len() - least + 1);
        for seq in self.lose_preserved(floor, rng) {
            len = len.min(self.unsynced_preserved(seq).unwrap_or(len));
        }
        let entries = self.log.split_off(len);
        self.end -= entries.len() as u64;
        self.containers.retain(|_, container| container.lose_power(rng));
        let lost = unsynced.into_iter().filter(|(at, ..)| *at >= len);
        for (_, key, offset, bytes) in lost {
            if let Some(container) = self.containers.get_mut(&key) {
                container.keeps(offset, &bytes);
            }
        }
        self.sync_preserved();
        self.unsynced.clear();
        let version = rng.index(self.older.len() + 1);
        if version < self.older.len() {
            self.index = self.older.swap_remove(version);
        }
        self.older.clear();
        (self.synced, self.data) = (len, len);
        self.lost_power = true;
        Lost { entries, end: self.end }
    }

    /// Bytes of changes that the server lacks and that were overwritten since the last sync: by
    /// which entry they were preserved, and their place. The real client syncs what it preserved,
    /// and the log, before containers, and within a second. Few kernels write a page sooner by
    /// themselves. If one does, a store may be of two states (docs/decisions/0014-client-log.md).
    fn unsynced_overwrites(
        &self,
        is_applied: impl Fn(u64) -> bool,
    ) -> Vec<(usize, Key, u64, Vec<u8>)> {
        let container = |wanted: u64| {
            self.log.iter().find_map(|entry| match entry {
                Entry::Change(Logged { seq, change: Change::Data(data), .. }) if *seq == wanted => {
                    Some((data.ino, data.container))
                }
                _ => None,
            })
        };
        let overwritten = |(at, entry): (usize, &Entry)| {
            let Entry::Preserved { seq, range, .. } = entry else { return None };
            if is_applied(*seq) {
                return None;
            }
            let kept = &self.preserved.get(seq)?.bytes;
            let bytes: Option<Vec<u8>> = range.clone().map(|at| kept.get(&at).copied()).collect();
            Some((at, container(*seq)?, range.start, bytes?))
        };
        self.log.iter().enumerate().skip(self.data).filter_map(overwritten).collect()
    }

    /// The first entry that speaks of preserved bytes of change `seq` that may not be durable.
    fn unsynced_preserved(&self, seq: u64) -> Option<usize> {
        let is_it = |entry: &Entry| matches!(entry, Entry::Preserved { seq: it, .. } if *it == seq);
        let after = self.log[self.data..].iter().position(is_it);
        after.map(|at| self.data + at)
    }

    /// Loses what was preserved and not synced; but not so that the log would be cut off below
    /// `floor`. Of which changes?
    fn lose_preserved(&mut self, floor: usize, rng: &mut Rng) -> Vec<u64> {
        let unsynced = self.preserved.iter().filter(|(_, preserved)| preserved.durable.is_some());
        let may_go = |seq: &u64| self.unsynced_preserved(*seq).is_none_or(|at| at >= floor);
        let may_go: Vec<u64> = unsynced.map(|(seq, _)| *seq).filter(may_go).collect();
        let lost: Vec<u64> = may_go.into_iter().filter(|_| rng.chance(500)).collect();
        for seq in &lost {
            if let Some(preserved) = self.preserved.get_mut(seq) {
                preserved.bytes = preserved.durable.take().unwrap_or_default();
            }
        }
        lost
    }
}
