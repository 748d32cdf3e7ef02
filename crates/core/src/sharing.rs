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
//! lost server come back with their hosts. Of files without contents a row remembers them: the host
//! may be away then (`namespace::awaited`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::nouns::{ClientId, Ino, SIZE_MAX, Time, Timestamp, VolumeId};
use crate::promise::Inodes;

/// Most marks at a time.
pub const MARKS_MAX: usize = 1 << 20;
/// Most marks of one client. Beyond that, all files of its volume count as marked by it.
pub const OF_CLIENT_MAX: usize = 1 << 16;
/// Marks of a client that was away for longer are void.
const AWAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Most inodes of one [`Dirty`]: it goes before what others wait for, and has 16 bytes for each.
pub const DIRTY_MAX: usize = 256;

/// A file as its host has it, for those who ask of it before its data have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Announced {
    /// Bytes.
    pub size: u64,
    /// Last change of its data.
    pub mtime: Timestamp,
}

/// That a host has changed a file, and the server does not have that yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mark {
    /// What has become of it there. `None`: it is removed, or that is not known.
    pub announced: Option<Announced>,
}

impl Mark {
    /// True unless the file is known to be as empty there.
    pub fn has_contents(self) -> bool {
        self.announced.is_none_or(|announced| announced.size > 0)
    }
}

/// Files that are marked.
pub type Marked = BTreeMap<Ino, Mark>;

/// True if each of `marked` can be the mark of a file.
pub fn are_valid(marked: &Marked) -> bool {
    let is_valid = |told: Announced| told.size <= SIZE_MAX && told.mtime.is_valid();
    marked.values().all(|mark| mark.announced.is_none_or(is_valid))
}

/// What a host has changed, in the order of its words: it says one at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dirty {
    /// What it said before counts no more.
    pub is_all: bool,
    /// Files with changes that the server lacks, also once more if they were told otherwise.
    pub changed: Marked,
    /// Files with none any more.
    pub clean: Inodes,
}

/// A file without contents, as a server notes it for the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// Of the file.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// Who has contents of it.
    pub client: ClientId,
}

/// All marks of a server.
#[derive(Debug)]
pub struct Marks {
    limit: usize,
    of_client: usize,
    held: usize,
    of: BTreeMap<(VolumeId, Ino), BTreeMap<ClientId, Mark>>,
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

    /// What `client` says of its changes. Returns the files of which others are to hear. What is
    /// clean was committed, and they have heard of that.
    pub fn told(&mut self, volume: VolumeId, client: ClientId, dirty: &Dirty) -> BTreeSet<Ino> {
        let before = self.writers.get(&(volume, client)).filter(|_| dirty.is_all);
        let before = before.map(|writer| writer.marked.clone()).unwrap_or_default();
        let mut news = before;
        news.retain(|ino| !dirty.changed.contains_key(ino));
        for ino in dirty.clean.iter().chain(news.iter().copied()) {
            self.take(volume, client, ino);
        }
        if dirty.is_all {
            self.overflowed.remove(&(volume, client));
        }
        for (ino, mark) in &dirty.changed {
            self.give(volume, client, *ino, *mark);
        }
        news.extend(dirty.changed.keys());
        self.writers.retain(|_, writer| !writer.marked.is_empty());
        news
    }

    fn give(&mut self, volume: VolumeId, client: ClientId, ino: Ino, mark: Mark) {
        let writer = self.writers.entry((volume, client)).or_default();
        if !writer.marked.contains(&ino) {
            if writer.marked.len() >= self.of_client || self.held >= self.limit {
                self.overflowed.insert((volume, client));
                return;
            }
            writer.marked.insert(ino);
            self.held += 1;
        }
        self.of.entry((volume, ino)).or_default().insert(client, mark);
    }

    /// `by`, or the server itself, has changed a file: what others have announced of it is not what
    /// it becomes.
    pub fn overtaken(&mut self, file: (VolumeId, Ino), by: Option<ClientId>) {
        for (client, mark) in self.of.get_mut(&file).into_iter().flatten() {
            if Some(*client) != by {
                *mark = Mark::default();
            }
        }
    }

    fn take(&mut self, volume: VolumeId, client: ClientId, ino: Ino) {
        let Some(writer) = self.writers.get_mut(&(volume, client)) else { return };
        if !writer.marked.remove(&ino) {
            return;
        }
        self.held -= 1;
        let of = self.of.get_mut(&(volume, ino));
        if of.is_some_and(|of| of.remove(&client).is_some() && of.is_empty()) {
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

    /// An earlier server noted that `client`, which has no session yet, has the contents of `ino`.
    pub fn noted(&mut self, volume: VolumeId, client: ClientId, ino: Ino, now: Time) {
        self.give(volume, client, ino, Mark::default());
        self.left(volume, client, now);
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
        self.marked_by(volume, ino, reader).map(|(client, _)| client).collect()
    }

    /// True unless the clients, without `reader`, that have marked `ino` say that it is empty.
    pub fn has_contents(&self, volume: VolumeId, ino: Ino, reader: ClientId) -> bool {
        self.marked_by(volume, ino, reader).any(|(_, mark)| mark.has_contents())
    }

    /// The mark of `ino` for `reader`, if there is one, or was until a day after its host left.
    /// What a host that is away has cannot be read, so nothing is told of that.
    pub fn mark(&self, volume: VolumeId, ino: Ino, reader: ClientId) -> Option<Mark> {
        let is_here = |client| {
            let writer = self.writers.get(&(volume, client));
            writer.is_some_and(|writer| writer.away.is_none())
        };
        let marks = self.marked_by(volume, ino, reader);
        let marks =
            marks.map(|(client, mark)| if is_here(client) { mark } else { Mark::default() });
        marks.max_by_key(|mark| mark.announced.map(|announced| announced.mtime))
    }

    fn marked_by(
        &self,
        volume: VolumeId,
        ino: Ino,
        reader: ClientId,
    ) -> impl Iterator<Item = (ClientId, Mark)> + '_ {
        let by_name = self.of.get(&(volume, ino)).into_iter().flatten();
        let by_name = by_name.map(|(client, mark)| (*client, *mark));
        let overflowed = self.overflowed.iter().filter(move |(of, _)| *of == volume);
        let all = by_name.chain(overflowed.map(|(_, client)| (*client, Mark::default())));
        all.filter(move |(client, _)| *client != reader)
    }

    /// Of `files` those of which `client` has said to have contents.
    pub fn contents_of(
        &self,
        volume: VolumeId,
        client: ClientId,
        files: impl Iterator<Item = Ino>,
    ) -> Marked {
        let mark = |ino| Some((ino, *self.of.get(&(volume, ino))?.get(&client)?));
        files.filter_map(mark).filter(|(_, mark)| mark.has_contents()).collect()
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
    /// One of the hosts has contents of it, as far as is known.
    has_contents: bool,
}

impl OpenWait {
    /// For those of `writers` that are connected. What others have is hidden.
    pub fn new(
        (writers, has_contents): (BTreeSet<ClientId>, bool),
        is_here: impl Fn(&ClientId) -> bool,
    ) -> OpenWait {
        let (left, away): (BTreeSet<_>, BTreeSet<_>) = writers.into_iter().partition(is_here);
        OpenWait { left, is_hidden: !away.is_empty(), has_contents }
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

    /// The same where the server has `size` bytes: a file that is as empty there hides nothing.
    pub fn hides(&self, size: u64) -> bool {
        self.is_hidden && (size > 0 || self.has_contents)
    }
}

/// What an open does where a host has changes of the file and does not send them: it is away, or
/// silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hidden {
    /// It gets the server's version. A file that has no contents there may be one without its
    /// first: then it fails.
    #[default]
    Last,
    /// It fails.
    Fail,
    /// It waits until they have come.
    Wait,
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
        let changed = changed.iter().map(|ino| (Ino(*ino), Mark::default())).collect();
        let clean = clean.iter().copied().map(Ino).collect();
        Dirty { is_all: false, changed, clean }
    }

    /// That file 7 is so long, and was changed then.
    fn announced(size: u64, secs: i64) -> Dirty {
        let announced = Announced { size, mtime: Timestamp { secs, nanos: 0 } };
        let changed = Marked::from([(Ino(7), Mark { announced: Some(announced) })]);
        Dirty { changed, ..Dirty::default() }
    }

    fn writers(marks: &mut Marks, ino: u64, reader: ClientId) -> Vec<ClientId> {
        let writers = marks.writers(HOME, Ino(ino), reader, Time::default());
        assert_eq!(marks.mark(HOME, Ino(ino), reader).is_some(), !writers.is_empty());
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
        let marked = |ino| marks.mark(HOME, Ino(ino), LEAD).is_some();
        assert_eq!([7, 8, 9].map(marked), [false, true, true]);
        let all = Dirty { is_all: true, ..dirty(&[9], &[]) };
        assert_eq!(marks.told(HOME, TIN, &all), [Ino(8), Ino(9)].into());
        assert_eq!(marks.told(HOME, TIN, &dirty(&[9], &[7])), [Ino(9)].into());
        assert_eq!(marks.told(HOME, TIN, &dirty(&[7], &[9])), [Ino(7)].into());
    }

    #[test]
    fn the_last_change_is_told_of_hosts_that_are_there() {
        let mut marks = Marks::new(100, 100);
        let size = |marks: &Marks, reader| {
            let mark = marks.mark(HOME, Ino(7), reader);
            mark.map(|mark| mark.announced.map(|announced| announced.size))
        };
        marks.told(HOME, TIN, &announced(10, 5));
        marks.told(HOME, ZINC, &announced(20, 4));
        assert_eq!(
            [LEAD, TIN, ZINC].map(|host| size(&marks, host)),
            [10, 20, 10].map(|n| Some(Some(n)))
        );
        marks.told(HOME, ZINC, &announced(30, 6));
        assert_eq!((size(&marks, LEAD), marks.held()), (Some(Some(30)), 2), "told once more");
        marks.left(HOME, ZINC, Time::default());
        assert_eq!(size(&marks, LEAD), Some(Some(10)));
        marks.overtaken((HOME, Ino(7)), Some(TIN));
        assert_eq!(size(&marks, LEAD), Some(Some(10)), "it is its own change");
        marks.overtaken((HOME, Ino(7)), Some(LEAD));
        assert_eq!(size(&marks, LEAD), Some(None));
        marks.told(HOME, TIN, &announced(10, 5));
        marks.left(HOME, TIN, Time::default());
        assert_eq!(size(&marks, LEAD), Some(None), "it is marked, and can be read as it was");
    }

    #[test]
    fn no_file_is_longer_than_its_offsets_or_has_too_many_nanoseconds() {
        let is_valid = |size, nanos| {
            let announced = Announced { size, mtime: Timestamp { secs: -1, nanos } };
            are_valid(&[(Ino(7), Mark { announced: Some(announced) })].into())
        };
        assert!(is_valid(SIZE_MAX, 999_999_999) && are_valid(&dirty(&[7], &[]).changed));
        assert!(!is_valid(SIZE_MAX + 1, 0) && !is_valid(0, 1_000_000_000));
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
    fn what_an_earlier_server_noted_counts_until_its_host_says_otherwise() {
        let at = |hours: u64| Time(Duration::from_secs(hours * 3600));
        let mut marks = Marks::new(9, 9);
        for (ino, client) in [(7, TIN), (8, TIN), (7, ZINC)] {
            marks.noted(HOME, client, Ino(ino), at(0));
        }
        assert_eq!(marks.mark(HOME, Ino(7), LEAD), Some(Mark::default()));
        marks.came(HOME, TIN);
        marks.told(HOME, TIN, &Dirty { is_all: true, ..dirty(&[8], &[]) });
        assert_eq!(marks.writers(HOME, Ino(7), LEAD, at(1)), [ZINC].into());
        assert_eq!(marks.writers(HOME, Ino(8), LEAD, at(30)), [TIN].into());
        assert_eq!(marks.writers(HOME, Ino(7), LEAD, at(30)), [].into(), "that is a day ago");
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
        let wait = |here: &[ClientId]| {
            OpenWait::new(([TIN, ZINC].into(), true), |client| here.contains(client))
        };
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
        let hides = |has_contents| {
            let wait = OpenWait::new(([TIN].into(), has_contents), |_| false);
            [0, 9].map(|size| wait.hides(size))
        };
        assert_eq!((hides(true), hides(false)), ([true, true], [false, true]));
    }

    #[test]
    fn signs_of_life_are_no_progress() {
        let mut progress = Progress::from(5000);
        assert!(!progress.goes_on(5999));
        assert!(progress.goes_on(6999) && !progress.goes_on(6999));
        assert!(!progress.goes_on(10), "it has another connection");
    }
}
