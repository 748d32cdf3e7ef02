//! Which files hosts have changed that the server does not have yet [MFS 5].
//!
//! A host says that at once, ahead of the data: it *marks* the file. Whoever relies on the file
//! hears that it changed. Whoever opens it then is answered when the writer's host has sent what it
//! had (`segue-server`'s `pulls`).
//!
//! ```text
//!   writer ── Dirty ─▶ told() ─▶ breaks        others ask again, and hear that it is marked
//!   opener ── Open ──▶ writers() ─▶ Pull       the writer's host sends what it has
//!   writer ── Dirty ─▶ told()                  the server has everything: the mark is gone
//! ```
//!
//! Marks are in memory. Each connection of a host begins with all marks that it has, so those of a
//! lost server come back with their hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::nouns::{ClientId, Ino, Time, VolumeId};
use crate::promise::Inodes;

/// Most marks at a time.
pub const MARKS_MAX: usize = 1 << 20;
/// Most marks of one client. Beyond that, all files of its volume count as marked by it.
pub const OF_CLIENT_MAX: usize = 1 << 16;
/// Marks of a client that was away for longer are void.
const AWAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Most inodes of one [`Dirty`].
pub const DIRTY_MAX: usize = 4096;

/// What a host has changed, in the order of its words: it says one at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dirty {
    /// What it said before counts no more.
    pub is_all: bool,
    /// Files with changes that the server lacks.
    pub changed: Inodes,
    /// Files with none any more.
    pub clean: Inodes,
}

/// All marks of a server.
#[derive(Debug)]
pub struct Marks {
    limit: usize,
    of_client: usize,
    held: usize,
    of: BTreeMap<(VolumeId, Ino), BTreeSet<ClientId>>,
    writers: BTreeMap<(VolumeId, ClientId), Writer>,
}

/// A client as the author of marks.
#[derive(Debug, Default)]
struct Writer {
    marked: BTreeSet<Ino>,
    /// It had more than there is room for.
    has_all: bool,
    /// Since when it has no session.
    away: Option<Time>,
}

impl Marks {
    /// None yet, and at most `limit` at a time, of these `of_client` of each client.
    pub fn new(limit: usize, of_client: usize) -> Marks {
        let (of, writers) = Default::default();
        Marks { limit, of_client, held: 0, of, writers }
    }

    /// What `client` says of its changes.
    pub fn told(&mut self, volume: VolumeId, client: ClientId, dirty: &Dirty) {
        if dirty.is_all {
            self.forget(volume, client);
        }
        for ino in dirty.clean.iter() {
            self.take(volume, client, ino);
        }
        for ino in dirty.changed.iter() {
            self.give(volume, client, ino);
        }
    }

    fn give(&mut self, volume: VolumeId, client: ClientId, ino: Ino) {
        let writer = self.writers.entry((volume, client)).or_default();
        if writer.marked.contains(&ino) {
            return;
        }
        if writer.marked.len() >= self.of_client || self.held >= self.limit {
            writer.has_all = true;
            return;
        }
        writer.marked.insert(ino);
        self.of.entry((volume, ino)).or_default().insert(client);
        self.held += 1;
    }

    fn take(&mut self, volume: VolumeId, client: ClientId, ino: Ino) {
        let Some(writer) = self.writers.get_mut(&(volume, client)) else { return };
        if !writer.marked.remove(&ino) {
            return;
        }
        self.held -= 1;
        let of = self.of.get_mut(&(volume, ino));
        if of.is_some_and(|of| of.remove(&client) && of.is_empty()) {
            self.of.remove(&(volume, ino));
        }
    }

    /// Nothing counts any more that `client` has marked.
    fn forget(&mut self, volume: VolumeId, client: ClientId) {
        let Some(writer) = self.writers.get(&(volume, client)) else { return };
        for ino in writer.marked.clone() {
            self.take(volume, client, ino);
        }
        self.writers.remove(&(volume, client));
    }

    /// A session of `client` begins.
    pub fn came(&mut self, volume: VolumeId, client: ClientId) {
        if let Some(writer) = self.writers.get_mut(&(volume, client)) {
            writer.away = None;
        }
    }

    /// The last session of `client` is over. Its marks stay for a day.
    pub fn left(&mut self, volume: VolumeId, client: ClientId, now: Time) {
        if let Some(writer) = self.writers.get_mut(&(volume, client)) {
            writer.away = Some(now);
        }
        let is_void = |writer: &Writer| writer.away.is_some_and(|at| now.since(at) >= AWAY_MAX);
        let void = self.writers.iter().filter(|(_, writer)| is_void(writer));
        for (volume, client) in void.map(|(of, _)| *of).collect::<Vec<_>>() {
            self.forget(volume, client);
        }
    }

    /// The clients, without `reader`, that have changes of `ino` which the server lacks.
    pub fn writers(&self, volume: VolumeId, ino: Ino, reader: ClientId) -> BTreeSet<ClientId> {
        let first = (volume, ClientId([0; 16]));
        let of_volume = self.writers.range(first..).take_while(|((of, _), _)| *of == volume);
        let with_all = of_volume.filter(|(_, writer)| writer.has_all).map(|((_, id), _)| *id);
        let mut writers = self.of.get(&(volume, ino)).cloned().unwrap_or_default();
        writers.extend(with_all);
        writers.remove(&reader);
        writers
    }

    /// True if there is one.
    pub fn is_marked(&self, volume: VolumeId, ino: Ino, reader: ClientId) -> bool {
        let is_another = |of: &BTreeSet<ClientId>| of.iter().any(|client| *client != reader);
        self.of.get(&(volume, ino)).is_some_and(is_another)
            || self
                .writers
                .iter()
                .any(|((of, client), writer)| writer.has_all && *of == volume && *client != reader)
    }

    /// Marks that there are.
    pub fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: VolumeId = VolumeId(1);
    const TIN: ClientId = ClientId([1; 16]);
    const ZINC: ClientId = ClientId([2; 16]);
    const LEAD: ClientId = ClientId([3; 16]);

    fn dirty(changed: &[u64], clean: &[u64]) -> Dirty {
        let inodes = |numbers: &[u64]| numbers.iter().copied().map(Ino).collect();
        Dirty { is_all: false, changed: inodes(changed), clean: inodes(clean) }
    }

    fn writers(marks: &Marks, ino: u64, reader: ClientId) -> Vec<ClientId> {
        let writers: Vec<_> = marks.writers(HOME, Ino(ino), reader).into_iter().collect();
        assert_eq!(marks.is_marked(HOME, Ino(ino), reader), !writers.is_empty());
        writers
    }

    #[test]
    fn a_file_is_marked_for_others_until_each_writer_is_through() {
        let mut marks = Marks::new(100, 100);
        marks.told(HOME, TIN, &dirty(&[7, 8], &[]));
        marks.told(HOME, ZINC, &dirty(&[7], &[]));
        assert_eq!(writers(&marks, 7, LEAD), [TIN, ZINC]);
        assert_eq!(writers(&marks, 7, TIN), [ZINC], "who wrote it needs no mark");
        assert_eq!(marks.writers(VolumeId(2), Ino(7), LEAD), BTreeSet::new());
        marks.told(HOME, TIN, &dirty(&[], &[7, 9]));
        assert_eq!((writers(&marks, 7, LEAD), writers(&marks, 7, ZINC)), (vec![ZINC], vec![]));
        marks.told(HOME, ZINC, &dirty(&[], &[7]));
        assert_eq!((writers(&marks, 7, LEAD), marks.held()), (vec![], 1));
    }

    #[test]
    fn a_connection_begins_with_all_that_its_host_has() {
        let mut marks = Marks::new(100, 100);
        marks.told(HOME, TIN, &dirty(&[7, 8], &[]));
        marks.told(HOME, TIN, &Dirty { is_all: true, ..dirty(&[8, 9], &[]) });
        let marked = |ino| marks.is_marked(HOME, Ino(ino), LEAD);
        assert_eq!([7, 8, 9].map(marked), [false, true, true]);
    }

    #[test]
    fn marks_of_a_host_that_is_away_for_a_day_are_void() {
        let at = |hours: u64| Time(Duration::from_secs(hours * 3600));
        let mut marks = Marks::new(100, 100);
        for client in [TIN, ZINC] {
            marks.told(HOME, client, &dirty(&[7], &[]));
        }
        marks.left(HOME, TIN, at(0));
        marks.came(HOME, TIN);
        marks.left(HOME, LEAD, at(30));
        assert_eq!(writers(&marks, 7, LEAD), [TIN, ZINC], "it came back");
        marks.left(HOME, ZINC, at(30));
        marks.left(HOME, LEAD, at(53));
        assert_eq!(writers(&marks, 7, LEAD), [TIN, ZINC]);
        marks.left(HOME, LEAD, at(54));
        assert_eq!(writers(&marks, 7, LEAD), [TIN]);
    }

    #[test]
    fn who_marks_too_much_has_marked_everything() {
        let mut marks = Marks::new(3, 2);
        marks.told(HOME, TIN, &dirty(&[7, 8, 9], &[]));
        assert_eq!((writers(&marks, 5, LEAD), marks.held()), (vec![TIN], 2));
        assert_eq!(writers(&marks, 5, TIN), []);
        marks.told(HOME, ZINC, &dirty(&[7, 8], &[]));
        assert_eq!((writers(&marks, 5, LEAD), marks.held()), (vec![TIN, ZINC], 3));
        marks.told(HOME, TIN, &Dirty { is_all: true, ..dirty(&[7], &[]) });
        assert_eq!((writers(&marks, 5, LEAD), marks.held()), (vec![ZINC], 2));
    }
}
