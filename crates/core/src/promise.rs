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
//! a change learns what it led to from its outcome; it keeps its own promise.
//!
//! A change is *visible* once every other session has heard of all that it was to be told until
//! then, or is gone: then nobody relies on what was before.
//!
//! Invariant: an inode that a session was promised is as it was answered, or the session has a
//! break of it to take.

mod grace;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use grace::Grace;
pub use unseen::Unseen;

use crate::types::{Ino, VolumeId};

/// So long a server waits for a host that is silent, or does not answer a break. No promise counts
/// for longer after the last question that it answered: clients take 2 % off for their clocks.
pub const TERM: Duration = Duration::from_secs(20);

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
    next_session: u64,
    /// When questions were put that are not answered.
    asks: BTreeSet<u64>,
    /// When and by whom what changed last while one was open; by nobody if several did.
    changed: BTreeMap<Object, (u64, Option<SessionId>)>,
    /// Questions from before are answered without a promise: too much changed.
    overrun: u64,
    holders: BTreeMap<Object, BTreeSet<SessionId>>,
    sessions: BTreeMap<SessionId, Session>,
}

#[derive(Debug)]
struct Session {
    volume: VolumeId,
    promised: BTreeSet<Ino>,
    /// What has changed and is not taken.
    broken: BTreeSet<Ino>,
    /// When the first of that changed.
    broken_since: Option<u64>,
    /// When the first changed of what was taken last, until that is heard.
    telling_since: Option<u64>,
}

impl Session {
    /// When the first changed of what it has not heard.
    fn unheard_since(&self) -> Option<u64> {
        self.telling_since.or(self.broken_since)
    }
}

impl Promises {
    /// None yet, and at most `limit` at a time, of these `of_session` to each. As many changes
    /// are remembered.
    pub fn new(limit: usize, of_session: usize) -> Promises {
        Promises {
            limit,
            of_session,
            held: 0,
            clock: 0,
            next_session: 0,
            asks: BTreeSet::new(),
            changed: BTreeMap::new(),
            overrun: 0,
            holders: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// A session on `volume` begins.
    pub fn enter(&mut self, volume: VolumeId) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let (promised, broken) = (BTreeSet::new(), BTreeSet::new());
        let session = Session { volume, promised, broken, broken_since: None, telling_since: None };
        self.sessions.insert(id, session);
        id
    }

    /// It is over: nothing is promised to it any more.
    pub fn leave(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for ino in session.promised {
            self.let_go(id, (session.volume, ino));
        }
    }

    fn let_go(&mut self, id: SessionId, object: Object) {
        let Some(holders) = self.holders.get_mut(&object) else { return };
        self.held -= usize::from(holders.remove(&id));
        if holders.is_empty() {
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

    /// `id` is answered with what `inodes` were at some moment since `ask`. True if their changes
    /// are promised.
    pub fn answered(&mut self, ask: Ask, id: SessionId, inodes: &[Ino]) -> bool {
        let promised = self.promise(&ask, id, inodes);
        self.unanswered(ask);
        promised
    }

    fn promise(&mut self, ask: &Ask, id: SessionId, inodes: &[Ino]) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let has_changed = |ino: &Ino| {
            let changed = self.changed.get(&(session.volume, *ino));
            changed.is_some_and(|(at, author)| *at > ask.0 && *author != Some(id))
        };
        let is_full = self.held.saturating_add(inodes.len()) > self.limit
            || session.promised.len().saturating_add(inodes.len()) > self.of_session;
        if is_full || ask.0 <= self.overrun || inodes.iter().any(has_changed) {
            return false;
        }
        for &ino in inodes {
            if session.promised.insert(ino) {
                self.holders.entry((session.volume, ino)).or_default().insert(id);
                self.held += 1;
            }
        }
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
                self.let_go(id, object);
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.promised.remove(&object.1);
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

    /// Promises that are held now.
    pub fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VOLUME: VolumeId = VolumeId(1);

    fn take(promises: &mut Promises, id: SessionId) -> Vec<u64> {
        let taken = promises.take_breaks(id, usize::MAX).into_iter().map(|ino| ino.0).collect();
        promises.heard(id);
        taken
    }

    fn promise(promises: &mut Promises, id: SessionId, inodes: &[Ino]) {
        let ask = promises.ask();
        assert!(promises.answered(ask, id, inodes));
    }

    #[test]
    fn others_hear_of_a_change_once_and_its_author_does_not() {
        let mut promises = Promises::new(100, 100);
        let [a, b] = [(); 2].map(|()| promises.enter(VOLUME));
        for id in [a, b] {
            let ask = promises.ask();
            assert!(promises.answered(ask, id, &[Ino(7), Ino(8)]));
        }
        assert_eq!(promises.changed([(VOLUME, Ino(7))], Some(a)), BTreeSet::from([b]));
        assert_eq!(promises.changed([(VOLUME, Ino(7))], Some(a)), BTreeSet::new());
        assert_eq!(promises.changed([(VolumeId(2), Ino(8))], None), BTreeSet::new());
        assert_eq!((take(&mut promises, a), take(&mut promises, b)), (vec![], vec![7]));
        assert_eq!(take(&mut promises, b), []);
        assert_eq!(
            promises.changed([(VOLUME, Ino(7)), (VOLUME, Ino(8))], None),
            BTreeSet::from([a, b])
        );
        assert_eq!(promises.held(), 0);
    }

    #[test]
    fn a_change_is_visible_once_all_others_have_heard_of_it_or_are_gone() {
        let mut promises = Promises::new(100, 100);
        let [a, b, c] = [(); 3].map(|()| promises.enter(VOLUME));
        for id in [a, b, c] {
            promise(&mut promises, id, &[Ino(7), Ino(8)]);
        }
        promises.changed([(VOLUME, Ino(7))], Some(a));
        let first = promises.now();
        promises.changed([(VOLUME, Ino(8))], Some(b));
        let second = promises.now();
        let visible = |promises: &Promises, id| {
            [first, second].map(|moment| promises.is_visible(VOLUME, id, moment))
        };
        assert!(promises.is_visible(VolumeId(2), a, second));
        assert_eq!(promises.take_breaks(b, 1), [Ino(7)]);
        assert_eq!(promises.take_breaks(c, 1), [Ino(7)]);
        assert_eq!(promises.take_breaks(c, 1), [], "one at a time");
        assert_eq!(visible(&promises, a), [false, false]);
        promises.heard(b);
        promises.leave(c);
        assert_eq!(visible(&promises, a), [true, true]);
        assert_eq!(visible(&promises, b), [true, false], "a has not heard of the second");
        assert_eq!(promises.take_breaks(a, 1), [Ino(8)]);
        promises.heard(a);
        assert_eq!(visible(&promises, b), [true, true]);
    }

    /// What came while a session was told is told behind that.
    #[test]
    fn what_breaks_during_a_break_is_not_visible_with_it() {
        let mut promises = Promises::new(100, 100);
        let [a, b] = [(); 2].map(|()| promises.enter(VOLUME));
        promise(&mut promises, b, &[Ino(7), Ino(8), Ino(9)]);
        promises.changed([(VOLUME, Ino(7)), (VOLUME, Ino(8))], Some(a));
        let first = promises.now();
        assert_eq!(promises.take_breaks(b, 1), [Ino(7)]);
        promises.changed([(VOLUME, Ino(9))], Some(a));
        let second = promises.now();
        promises.heard(b);
        assert!(!promises.is_visible(VOLUME, a, first), "8 is not heard");
        assert_eq!(take(&mut promises, b), [8, 9]);
        assert!(promises.is_visible(VOLUME, a, second));
    }

    /// The answer was read before the change, and got its promise behind it.
    #[test]
    fn what_changed_while_it_was_read_is_not_promised() {
        let mut promises = Promises::new(100, 100);
        let [a, b] = [(); 2].map(|()| promises.enter(VOLUME));
        let ask = promises.ask();
        promises.changed([(VOLUME, Ino(7))], Some(b));
        assert!(!promises.answered(ask, a, &[Ino(7), Ino(8)]));
        let [first, second] = [promises.ask(), promises.ask()];
        promises.changed([(VOLUME, Ino(7))], Some(a));
        assert!(promises.answered(first, a, &[Ino(7)]), "its own changes are no news to it");
        promises.changed([(VOLUME, Ino(8))], Some(b));
        promises.changed([(VOLUME, Ino(8))], Some(a));
        assert!(!promises.answered(second, a, &[Ino(8)]));
        assert!(promises.changed.is_empty());
    }

    #[test]
    fn promises_and_what_is_remembered_are_bounded() {
        let mut promises = Promises::new(3, 2);
        let [a, b] = [(); 2].map(|()| promises.enter(VOLUME));
        let ask = promises.ask();
        assert!(promises.answered(ask, a, &[Ino(1), Ino(2)]));
        let ask = promises.ask();
        assert!(!promises.answered(ask, a, &[Ino(3)]), "it has its share");
        let ask = promises.ask();
        assert!(!promises.answered(ask, b, &[Ino(1), Ino(2)]), "there is no room");
        promises.leave(a);
        assert_eq!(promises.held(), 0);
        let ask = promises.ask();
        promises.changed((10..14).map(|ino| (VOLUME, Ino(ino))), None);
        assert!(promises.changed.is_empty());
        assert!(!promises.answered(ask, b, &[Ino(99)]), "it may have been among them");
        let ask = promises.ask();
        assert!(promises.answered(ask, b, &[Ino(10)]));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(usize),
        Read(usize),
        Answer(usize),
        Change(Option<usize>, u64),
        Hear(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3usize).prop_map(Step::Ask),
            (0..8usize).prop_map(Step::Read),
            (0..8usize).prop_map(Step::Answer),
            (prop::option::of(0..3usize), 0..3u64).prop_map(|(by, ino)| Step::Change(by, ino)),
            (0..3usize).prop_map(Step::Hear),
        ]
    }

    /// A question under way, and what was read for it.
    type Question = (Ask, usize, Option<[u64; 3]>);

    proptest! {
        /// Whatever a session believes under a promise is so, or it has a break to hear.
        #[test]
        fn what_is_promised_is_so(steps in prop::collection::vec(step(), 0..80)) {
            let mut promises = Promises::new(1000, 1000);
            let ids = [(); 3].map(|()| promises.enter(VOLUME));
            let mut truth = [0u64; 3];
            let mut believed = [[None::<u64>; 3]; 3];
            let mut open: Vec<Question> = Vec::new();
            for step in steps {
                match step {
                    Step::Ask(who) => open.push((promises.ask(), who, None)),
                    Step::Read(at) if at < open.len() => open[at].2 = Some(truth),
                    Step::Answer(at) if at < open.len() => {
                        let (ask, who, read) = open.remove(at);
                        let read = read.unwrap_or(truth);
                        let all = [0, 1, 2].map(Ino);
                        if promises.answered(ask, ids[who], &all) {
                            // What it changed itself meanwhile it knows better.
                            believed[who] = [0, 1, 2].map(|ino| {
                                Some(read[ino].max(believed[who][ino].unwrap_or(0)))
                            });
                        }
                    }
                    Step::Change(by, ino) => {
                        truth[ino as usize] += 1;
                        promises.changed([(VOLUME, Ino(ino))], by.map(|by| ids[by]));
                        if let Some(by) = by {
                            believed[by][ino as usize] = Some(truth[ino as usize]);
                        }
                    }
                    Step::Hear(who) => {
                        for ino in take(&mut promises, ids[who]) {
                            believed[who][ino as usize] = None;
                        }
                    }
                    _ => {}
                }
                for (who, id) in ids.iter().enumerate() {
                    let session = &promises.sessions[id];
                    for ino in 0..3u64 {
                        let holds = session.promised.contains(&Ino(ino));
                        // A break may come behind the answer to a later question: then the
                        // session does not believe what it was promised.
                        if let Some(believed) = believed[who][ino as usize]
                            && holds
                            && !session.broken.contains(&Ino(ino))
                        {
                            prop_assert_eq!(believed, truth[ino as usize]);
                        }
                    }
                }
            }
        }
    }
}
