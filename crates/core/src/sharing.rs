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
    /// Clients that had more marks than there is room for.
    overflowed: BTreeSet<(VolumeId, ClientId)>,
}

/// A client that has marked something.
#[derive(Debug, Default)]
struct Writer {
    marked: BTreeSet<Ino>,
    /// Since when it has no session.
    away: Option<Time>,
}

impl Marks {
    /// None yet, and at most `limit` at a time, of these `of_client` of each client.
    pub fn new(limit: usize, of_client: usize) -> Marks {
        let (of, writers, overflowed) = Default::default();
        Marks { limit, of_client, held: 0, of, writers, overflowed }
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
            self.overflowed.insert((volume, client));
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
        let marked = self.writers.get(&(volume, client)).map(|writer| writer.marked.clone());
        for ino in marked.into_iter().flatten() {
            self.take(volume, client, ino);
        }
        self.writers.remove(&(volume, client));
        self.overflowed.remove(&(volume, client));
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
    }

    /// The clients, without `reader`, that have changes of `ino` which the server lacks.
    pub fn writers(
        &mut self,
        volume: VolumeId,
        ino: Ino,
        reader: ClientId,
        now: Time,
    ) -> BTreeSet<ClientId> {
        let is_void = |writer: &Writer| writer.away.is_some_and(|at| now.since(at) >= AWAY_MAX);
        let void = self.writers.iter().filter(|(_, writer)| is_void(writer));
        for (volume, client) in void.map(|(of, _)| *of).collect::<Vec<_>>() {
            self.forget(volume, client);
        }
        self.marked_by(volume, ino, reader).collect()
    }

    /// True if there is one, or was until a day after it left.
    pub fn is_marked(&self, volume: VolumeId, ino: Ino, reader: ClientId) -> bool {
        self.marked_by(volume, ino, reader).next().is_some()
    }

    fn marked_by(
        &self,
        volume: VolumeId,
        ino: Ino,
        reader: ClientId,
    ) -> impl Iterator<Item = ClientId> + '_ {
        let by_name = self.of.get(&(volume, ino)).into_iter().flatten().copied();
        let overflowed = self.overflowed.iter().filter(move |(of, _)| *of == volume);
        let all = by_name.chain(overflowed.map(|(_, client)| *client));
        all.filter(move |client| *client != reader)
    }

    /// Marks that there are.
    pub fn held(&self) -> usize {
        self.held
    }
}

/// The wait of a program that opens a marked file, for the hosts that have changed it.
#[derive(Debug)]
pub struct OpenWait {
    left: BTreeSet<ClientId>,
    is_hidden: bool,
}

impl OpenWait {
    /// For those of `writers` that are connected. What others have is hidden.
    pub fn new(writers: BTreeSet<ClientId>, is_here: impl Fn(&ClientId) -> bool) -> OpenWait {
        let (left, away): (BTreeSet<_>, BTreeSet<_>) = writers.into_iter().partition(is_here);
        OpenWait { left, is_hidden: !away.is_empty() }
    }

    /// Those that have not answered.
    pub fn left(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.left.iter().copied()
    }

    /// `client` has sent what it had, or did not.
    pub fn answered(&mut self, client: ClientId, is_sent: bool) {
        self.is_hidden |= self.left.remove(&client) && !is_sent;
    }

    /// True if nobody is waited for any more.
    pub fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// True if the server lacks something that it asked for.
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }
}

/// A host that is to send a file is waited for as long as it sends enough in this time.
pub const GRACE: Duration = Duration::from_secs(10);
/// That is more than the signs of life of a host that sends nothing else.
const PROGRESS_BYTES: u64 = 1000;

/// How much a host has sent, each time that it is looked: every [`GRACE`].
#[derive(Debug)]
pub struct Progress(u64);

impl Progress {
    /// It has sent so many bytes since its connection began.
    pub fn from(received: u64) -> Progress {
        Progress(received)
    }

    /// True if it has sent enough since this was asked last.
    pub fn goes_on(&mut self, received: u64) -> bool {
        received.saturating_sub(std::mem::replace(&mut self.0, received)) >= PROGRESS_BYTES
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

    fn writers(marks: &mut Marks, ino: u64, reader: ClientId) -> Vec<ClientId> {
        let writers = marks.writers(HOME, Ino(ino), reader, Time::default());
        assert_eq!(marks.is_marked(HOME, Ino(ino), reader), !writers.is_empty());
        writers.into_iter().collect()
    }

    #[test]
    fn a_file_is_marked_for_others_until_each_writer_is_through() {
        let mut marks = Marks::new(100, 100);
        marks.told(HOME, TIN, &dirty(&[7, 8], &[]));
        marks.told(HOME, ZINC, &dirty(&[7], &[]));
        assert_eq!(writers(&mut marks, 7, LEAD), [TIN, ZINC]);
        assert_eq!(writers(&mut marks, 7, TIN), [ZINC], "who wrote it needs no mark");
        assert_eq!(marks.writers(VolumeId(2), Ino(7), LEAD, Time::default()), BTreeSet::new());
        marks.told(HOME, TIN, &dirty(&[], &[7, 9]));
        assert_eq!(
            (writers(&mut marks, 7, LEAD), writers(&mut marks, 7, ZINC)),
            (vec![ZINC], vec![])
        );
        marks.told(HOME, ZINC, &dirty(&[], &[7]));
        assert_eq!((writers(&mut marks, 7, LEAD), marks.held()), (vec![], 1));
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
        let left = |marks: &mut Marks, now| {
            marks.writers(HOME, Ino(7), LEAD, at(now)).into_iter().collect::<Vec<_>>()
        };
        marks.left(HOME, TIN, at(0));
        marks.came(HOME, TIN);
        assert_eq!(left(&mut marks, 30), [TIN, ZINC], "it came back");
        marks.left(HOME, ZINC, at(30));
        assert_eq!(left(&mut marks, 53), [TIN, ZINC]);
        // Whoever asks finds that, though nobody came or left meanwhile.
        assert_eq!(left(&mut marks, 54), [TIN]);
        assert_eq!(marks.held(), 1);
    }

    #[test]
    fn who_marks_too_much_has_marked_everything() {
        let mut marks = Marks::new(3, 2);
        marks.told(HOME, TIN, &dirty(&[7, 8, 9], &[]));
        assert_eq!((writers(&mut marks, 5, LEAD), marks.held()), (vec![TIN], 2));
        assert_eq!(writers(&mut marks, 5, TIN), []);
        marks.told(HOME, ZINC, &dirty(&[7, 8], &[]));
        assert_eq!((writers(&mut marks, 5, LEAD), marks.held()), (vec![TIN, ZINC], 3));
        marks.told(HOME, TIN, &Dirty { is_all: true, ..dirty(&[7], &[]) });
        assert_eq!((writers(&mut marks, 5, LEAD), marks.held()), (vec![ZINC], 2));
    }

    #[test]
    fn what_an_open_waits_for_is_hidden_unless_each_host_has_sent_it() {
        let wait =
            |here: &[ClientId]| OpenWait::new([TIN, ZINC].into(), |client| here.contains(client));
        assert!(wait(&[]).is_over() && wait(&[]).is_hidden(), "both are away");
        let mut both = wait(&[TIN, ZINC]);
        both.answered(TIN, true);
        both.answered(LEAD, false);
        assert!(!both.is_over() && both.left().eq([ZINC]));
        both.answered(ZINC, true);
        assert!(both.is_over() && !both.is_hidden());
        let mut silent = wait(&[TIN, ZINC]);
        silent.answered(TIN, false);
        silent.answered(ZINC, true);
        assert!(silent.is_over() && silent.is_hidden());
        assert!(wait(&[TIN]).is_hidden() && !wait(&[TIN]).is_over());
    }

    #[test]
    fn signs_of_life_are_no_progress() {
        let mut progress = Progress::from(5000);
        assert!(!progress.goes_on(5999));
        assert!(progress.goes_on(6999) && !progress.goes_on(6999));
        assert!(!progress.goes_on(10), "it has another connection");
    }
}
