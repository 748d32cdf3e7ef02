//! The server's promises to tell a session when an inode changes [MFS 2.1].
//!
//! ```text
//!   session            server
//!      │── question ──▶ ask()         what changes from here on is remembered
//!      │                (reads)
//!      │◀── answer ──── answered()    promised, unless it changed in between
//!      │                changed()     somebody else's commit
//!      │◀── break ───── take_breaks() the promise is over
//!      │── broken ────▶ heard()       nothing relies on it any more
//! ```
//!
//! A promise is kept once: who hears of a change asks again, and is promised again. Whoever makes
//! a change learns what it led to from its outcome, and is promised that.
//!
//! Where there is no room for a promise others of the session that has most are broken, in turn.
//!
//! A change is *visible* once every other session has heard of all that it was to be told until
//! then, or is gone: then nobody relies on what was before.
//!
//! Invariant: an inode that a session was promised is as it was answered, or the session has a
//! break of it to take.

mod company;
mod grace;
mod inodes;
#[cfg(test)]
mod tests;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{self, Unbounded};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use company::{Company, KEPT_SECONDS};
pub use grace::Grace;
pub use inodes::Inodes;
pub use unseen::Unseen;

use crate::nouns::{ClientId, Ino, Record, Stamped, Time, VolumeId};
use crate::sharing::{Awaited, Dirty, MARKS_MAX, Mark, Marked, Marks, OF_CLIENT_MAX};

/// So long a server waits for a host that is silent, or does not answer a break. No promise counts
/// for longer after the last question that it answered: clients take 2 % off for their clocks.
pub const TERM: Duration = Duration::from_secs(20);

/// Where there is no room, this part of what a session may have is broken at a time, and no more
/// than so many: others wait for the table.
const EVICTED: usize = 64;
const EVICTED_MAX: usize = 4096;

/// One session; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(u64);

/// A question that is being answered. It ends with [`Promises::answered`] or
/// [`Promises::unanswered`].
#[derive(Debug)]
#[must_use = "what changes is remembered until it ends"]
pub struct Ask(u64);

/// An inode of a volume.
pub type Object = (VolumeId, Ino);

/// What somebody committed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// What changed.
    pub objects: Vec<Object>,
    /// Of these, what is not there any more.
    pub gone: BTreeSet<Object>,
}

/// All promises of a server.
#[derive(Debug)]
pub struct Promises {
    /// Most promises.
    limit: usize,
    /// Most of them to one session.
    of_session: usize,
    held: usize,
    /// Counts questions and changes.
    clock: u64,
    /// Number of the last commit whose changes were told of.
    commit: u64,
    next_session: u64,
    /// When questions were put that are not answered.
    asks: BTreeSet<u64>,
    /// When and by whom what changed last while one was open; by nobody if several did.
    changed: BTreeMap<Object, (u64, Option<SessionId>)>,
    /// Questions from before are answered without a promise: too much changed.
    overrun: u64,
    holders: BTreeMap<Object, BTreeSet<SessionId>>,
    sessions: BTreeMap<SessionId, PromiseHolder>,
    marks: Marks,
}

/// A session as the holder of promises.
#[derive(Debug)]
struct PromiseHolder {
    volume: VolumeId,
    client: ClientId,
    promised: BTreeSet<Ino>,
    /// What has changed and is not taken.
    broken: BTreeSet<Ino>,
    /// When the first of that changed.
    broken_since: Option<u64>,
    /// When the first changed of what was taken last, until that is heard.
    telling_since: Option<u64>,
    /// It has heard of all that was promised to it and changed up to that commit.
    heard: u64,
    /// Behind this one the next is broken where there is no room.
    last_evicted: Ino,
}

/// What a host may rely on of the inodes in an answer. Without it: on nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Promising {
    /// Changes of these are not told.
    pub but: Inodes,
    /// Another host has changed these, and the server does not have that yet: whoever opens one
    /// asks before.
    pub marked: Marked,
}

/// What came of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "who has something to take is to be woken"]
pub struct Promised {
    /// What the session may rely on.
    pub promising: Promising,
    /// Who has something to take.
    pub told: BTreeSet<SessionId>,
}

impl Promised {
    fn but(but: Inodes, told: BTreeSet<SessionId>) -> Promised {
        Promised { promising: Promising { but, marked: Marked::default() }, told }
    }
}

impl PromiseHolder {
    /// When the first changed of what it has not heard.
    fn unheard_since(&self) -> Option<u64> {
        self.telling_since.or(self.broken_since)
    }
}

impl Promises {
    /// None yet, and at most `limit` at a time, of these `of_session` to each. As many changes
    /// are remembered. The last commit has number `commit`.
    pub fn new(limit: usize, of_session: usize, commit: u64) -> Promises {
        Promises {
            limit,
            of_session,
            held: 0,
            clock: 0,
            commit,
            next_session: 0,
            asks: BTreeSet::new(),
            changed: BTreeMap::new(),
            overrun: 0,
            holders: BTreeMap::new(),
            sessions: BTreeMap::new(),
            marks: Marks::new(MARKS_MAX, OF_CLIENT_MAX),
        }
    }

    /// A session of `client` on `volume` begins.
    pub fn enter(&mut self, volume: VolumeId, client: ClientId) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.marks.came(volume, client);
        let session = PromiseHolder {
            volume,
            client,
            promised: BTreeSet::new(),
            broken: BTreeSet::new(),
            broken_since: None,
            telling_since: None,
            heard: self.commit,
            last_evicted: Ino(0),
        };
        self.sessions.insert(id, session);
        id
    }

    /// It is over: nothing is promised to it any more.
    pub fn leave(&mut self, id: SessionId, now: Time) {
        let Some(session) = self.sessions.get(&id) else { return };
        let PromiseHolder { volume, client, .. } = *session;
        let promised = session.promised.clone();
        for ino in promised {
            self.take(id, (volume, ino));
        }
        self.sessions.remove(&id);
        assert!(!self.sessions.is_empty() || self.held == 0, "nobody holds {} promises", self.held);
        let is_here =
            |session: &PromiseHolder| (session.volume, session.client) == (volume, client);
        if !self.sessions.values().any(is_here) {
            self.marks.left(volume, client, now);
        }
    }

    /// `id` relies on what these inodes are now, or hears otherwise of what has changed until now.
    pub fn hold(&mut self, id: SessionId, inodes: &[Ino]) -> Promised {
        let ask = self.ask();
        self.answered(ask, id, inodes)
    }

    /// The last commit of which all has been told to `id` that was promised to it.
    pub fn heard_through(&mut self, id: SessionId) -> u64 {
        let commit = self.commit;
        let Some(session) = self.sessions.get_mut(&id) else { return 0 };
        if session.unheard_since().is_none() {
            session.heard = commit;
        }
        session.heard
    }

    /// All that commit `number` changed, and those before it, was [`Promises::changed`].
    pub fn committed(&mut self, number: u64) {
        self.commit = self.commit.max(number);
    }

    /// Changes of `object` are promised to `id` from now on.
    fn give(&mut self, id: SessionId, object: Object) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let is_new = session.promised.insert(object.1);
        let is_holder = self.holders.entry(object).or_default().insert(id);
        assert_eq!(is_new, is_holder, "{id:?} holds {object:?}, or does not");
        self.held += usize::from(is_new);
    }

    /// They are not promised to it any more.
    fn take(&mut self, id: SessionId, object: Object) {
        let holders = self.holders.get_mut(&object);
        let was_holder = holders.is_some_and(|holders| holders.remove(&id));
        let session = self.sessions.get_mut(&id);
        let was_promised = session.is_some_and(|session| session.promised.remove(&object.1));
        assert_eq!(was_promised, was_holder, "{id:?} held {object:?}, or did not");
        assert!(self.held > 0 || !was_holder, "{object:?} was held, and nothing is");
        self.held -= usize::from(was_holder);
        if self.holders.get(&object).is_some_and(BTreeSet::is_empty) {
            self.holders.remove(&object);
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Somebody is about to read what it answers a session with.
    pub fn ask(&mut self) -> Ask {
        let at = self.tick();
        self.asks.insert(at);
        Ask(at)
    }

    /// It is not answered with anything that could be promised.
    pub fn unanswered(&mut self, ask: Ask) {
        let was_oldest = self.asks.first() == Some(&ask.0);
        self.asks.remove(&ask.0);
        match self.asks.first() {
            None => self.changed.clear(),
            // Beside a slow question many others end.
            Some(&oldest) if was_oldest => self.changed.retain(|_, (at, _)| *at > oldest),
            Some(_) => {}
        }
    }

    /// `id` is answered with what `inodes` were at some moment since `ask`: of which changes are
    /// promised.
    pub fn answered(&mut self, ask: Ask, id: SessionId, inodes: &[Ino]) -> Promised {
        let promised = self.promise(&ask, id, inodes);
        self.unanswered(ask);
        promised.unwrap_or_else(|| Promised::but(inodes.iter().copied().collect(), BTreeSet::new()))
    }

    fn promise(&mut self, ask: &Ask, id: SessionId, inodes: &[Ino]) -> Option<Promised> {
        let session = self.sessions.get(&id)?;
        let volume = session.volume;
        let more = inodes.iter().filter(|ino| !session.promised.contains(ino)).count();
        if ask.0 <= self.overrun || inodes.len() > self.of_session {
            return None;
        }
        let told = self.make_room(id, more);
        let mut but = Vec::new();
        for &ino in inodes {
            let changed = self.changed.get(&(volume, ino));
            match changed.is_some_and(|(at, author)| *at > ask.0 && *author != Some(id)) {
                true => but.push(ino),
                false => self.give(id, (volume, ino)),
            }
        }
        let marked = self.marked(id, inodes);
        Some(Promised { promising: Promising { but: but.into_iter().collect(), marked }, told })
    }

    /// Breaks promises until `more` can be given to `id`. Who has something to take.
    fn make_room(&mut self, id: SessionId, more: usize) -> BTreeSet<SessionId> {
        let mut told = BTreeSet::new();
        let has = |promises: &Promises, id| {
            promises.sessions.get(&id).map_or(0, |session: &PromiseHolder| session.promised.len())
        };
        let beyond = has(self, id).saturating_add(more).saturating_sub(self.of_session);
        if beyond > 0 && self.evict(id, beyond.max(EVICTED_MAX.min(self.of_session / EVICTED))) {
            told.insert(id);
        }
        loop {
            let beyond = self.held.saturating_add(more).saturating_sub(self.limit);
            let most = self.sessions.iter().max_by_key(|(_, session)| session.promised.len());
            let Some((&most, _)) = most.filter(|_| beyond > 0) else { return told };
            if !self.evict(most, beyond.max(EVICTED_MAX.min(self.of_session / EVICTED))) {
                return told;
            }
            told.insert(most);
        }
    }

    /// Breaks `count` promises of `id`, or all that there are. False if there was none.
    fn evict(&mut self, id: SessionId, count: usize) -> bool {
        let at = self.tick();
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let behind = session.promised.range((Bound::Excluded(session.last_evicted), Unbounded));
        let before = session.promised.range(..=session.last_evicted);
        let evicted: Vec<Ino> = behind.chain(before).copied().take(count).collect();
        let Some(last) = evicted.last() else { return false };
        session.last_evicted = *last;
        session.broken_since.get_or_insert(at);
        session.broken.extend(&evicted);
        let volume = session.volume;
        evicted.into_iter().for_each(|ino| self.take(id, (volume, ino)));
        true
    }

    /// `author` has changed these inodes, or nobody who has a session. Call it after the commit
    /// and before its answer; who has something to take is returned.
    pub fn changed(
        &mut self,
        objects: impl IntoIterator<Item = Object>,
        author: Option<SessionId>,
    ) -> BTreeSet<SessionId> {
        let at = self.tick();
        let mut told = BTreeSet::new();
        for object in objects {
            if !self.asks.is_empty() {
                let (last, by) = self.changed.entry(object).or_insert((at, author));
                *last = at;
                *by = by.filter(|by| Some(*by) == author);
            }
            let holders = self.holders.get(&object);
            let others = holders.into_iter().flatten().filter(|id| Some(**id) != author);
            for id in others.copied().collect::<Vec<_>>() {
                self.take(id, object);
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.broken.insert(object.1);
                    session.broken_since.get_or_insert(at);
                }
                told.insert(id);
            }
        }
        if self.changed.len() > self.limit {
            self.changed.clear();
            self.overrun = at;
        }
        told
    }

    /// `author` made `change`, or nobody who has a session, and is told what `inodes` are now: of
    /// which of these changes are promised.
    pub fn committed_by(
        &mut self,
        author: Option<SessionId>,
        change: &Change,
        inodes: &[Ino],
    ) -> Promised {
        let client = author.and_then(|id| self.sessions.get(&id)).map(|session| session.client);
        for object in &change.objects {
            self.marks.overtaken(*object, client);
        }
        let mut told = self.changed(change.objects.iter().copied(), author);
        self.gone(&change.gone);
        let Some(author) = author else { return Promised { told, ..Promised::default() } };
        let volume = self.sessions.get(&author).map(|session| session.volume);
        let is_gone =
            |ino: &Ino| volume.is_some_and(|volume| change.gone.contains(&(volume, *ino)));
        let (gone, there): (Vec<Ino>, Vec<Ino>) = inodes.iter().partition(|ino| is_gone(ino));
        let promised = self.hold(author, &there);
        told.extend(promised.told);
        let Promising { but, marked } = promised.promising;
        let but = gone.into_iter().chain(but.iter()).collect();
        // What others have announced is older than what the author has made now.
        let marked = marked.into_keys().map(|ino| (ino, Mark::default())).collect();
        Promised { promising: Promising { but, marked }, told }
    }

    /// The host of `id` says what it has changed. Who has something to take is returned.
    pub fn dirty(&mut self, id: SessionId, dirty: &Dirty) -> BTreeSet<SessionId> {
        let Some(session) = self.sessions.get(&id) else { return BTreeSet::new() };
        let PromiseHolder { volume, client, .. } = *session;
        let news = self.marks.told(volume, client, dirty);
        self.changed(news.into_iter().map(|ino| (volume, ino)), Some(id))
    }

    /// An earlier server noted these.
    pub fn noted(&mut self, awaited: &[Awaited], now: Time) {
        for Awaited { volume, ino, client } in awaited {
            self.marks.noted(*volume, *client, *ino, now);
        }
    }

    /// Of the files that these records create, those whose contents `client` has said to have.
    pub fn awaited_of(&self, volume: VolumeId, client: ClientId, records: &[Stamped]) -> Marked {
        let created = records.iter().filter_map(|stamped| match stamped.record {
            Record::Create { ino, .. } => Some(ino),
            _ => None,
        });
        self.marks.contents_of(volume, client, created)
    }

    /// Of `inodes` those that another host has changed, and of which the server lacks something.
    pub fn marked(&self, id: SessionId, inodes: &[Ino]) -> Marked {
        let Some(session) = self.sessions.get(&id) else { return Marked::default() };
        let mark = |ino: &Ino| {
            let mark = self.marks.mark(session.volume, *ino, session.client)?;
            Some((*ino, mark))
        };
        inodes.iter().filter_map(mark).collect()
    }

    /// The other clients that have changed `ino`, and have not sent all of that.
    /// With true unless they say that it is empty.
    pub fn writers(&mut self, id: SessionId, ino: Ino, now: Time) -> (BTreeSet<ClientId>, bool) {
        let Some(session) = self.sessions.get(&id) else { return Default::default() };
        let writers = self.marks.writers(session.volume, ino, session.client, now);
        (writers, self.marks.has_contents(session.volume, ino, session.client))
    }

    /// Marks that there are.
    pub fn marks(&self) -> usize {
        self.marks.held()
    }

    /// These are gone, which was [`Promises::changed`]: no inode has their numbers again, so there
    /// is nothing to promise.
    fn gone(&mut self, objects: &BTreeSet<Object>) {
        for object in objects {
            for id in self.holders.get(object).cloned().unwrap_or_default() {
                self.take(id, *object);
            }
        }
    }

    /// At most `most` of the inodes that have changed, and that were promised to `id`; none before
    /// it has heard of those that were taken last.
    pub fn take_breaks(&mut self, id: SessionId, most: usize) -> Vec<Ino> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        if session.telling_since.is_some() {
            return Vec::new();
        }
        let taken: Vec<Ino> = session.broken.iter().copied().take(most).collect();
        for ino in &taken {
            session.broken.remove(ino);
        }
        session.telling_since = session.broken_since;
        if session.broken.is_empty() {
            session.broken_since = None;
        }
        taken
    }

    /// True if it is to be told to `id` that `ino` has changed.
    pub fn is_to_be_told(&self, id: SessionId, ino: Ino) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.broken.contains(&ino))
    }

    /// `id` has heard of what was taken for it last, and believes nothing of it any more.
    pub fn heard(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.telling_since = None;
        }
    }

    /// The moment, as [`Promises::is_visible`] takes it.
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// True if no session on `volume` but `author` relies on what was before a change of before
    /// `moment`.
    pub fn is_visible(&self, volume: VolumeId, author: SessionId, moment: u64) -> bool {
        let mut others = self.sessions.iter().filter(|(id, _)| **id != author);
        others.all(|(_, session)| {
            session.volume != volume || session.unheard_since().is_none_or(|since| since > moment)
        })
    }

    /// Sessions on the volume of `object`. Those to which it is promised come first: they probably
    /// have it in their caches.
    pub fn likely_holders(&self, object: Object) -> Vec<SessionId> {
        let holders = self.holders.get(&object);
        let is_holder = |id: &SessionId| holders.is_some_and(|holders| holders.contains(id));
        let on_volume = self.sessions.iter().filter(|(_, session)| session.volume == object.0);
        let (mut first, others): (Vec<_>, Vec<_>) =
            on_volume.map(|(id, _)| *id).partition(is_holder);
        first.extend(others);
        first
    }

    /// Promises that are held now.
    pub fn held(&self) -> usize {
        self.held
    }
}
