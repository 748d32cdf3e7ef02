//! What the server has promised to tell, and for how long that counts [MFS 2.1].
//!
//! A promise is of one session, and counts as long as the server surely thinks that the session is
//! there: its *lease*. It covers the answer that it came with, which is therefore as of its arrival,
//! and what was asked for later: what was asked for before may have changed before it was given. A
//! break ends it, and may overtake the answer to a question from before.

use std::collections::BTreeMap;
use std::time::Duration;

use super::forget::LATE;
use super::tree::Tree;
use crate::promise::TERM;
use crate::types::{Ino, Time};

/// What the server promised counts for so long after the last question that it answered was put.
pub(super) const LEASE: Duration = Duration::from_millis(TERM.as_secs() * 980);
/// Another question is to be put after so long, while anything is promised.
const RENEW: Duration = Duration::from_secs(5);

/// What the server has promised with an answer: to tell when one of these changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promised {
    /// To which session of this host.
    pub session: u64,
    /// Of which inodes the answer tells.
    pub inodes: Vec<Ino>,
}

impl Promised {
    /// What is promised with both answers.
    pub fn and(self, other: Option<Promised>) -> Option<Promised> {
        let other = other.filter(|other| other.session == self.session)?;
        let inodes = self.inodes.into_iter().chain(other.inodes).collect();
        Some(Promised { inodes, ..self })
    }
}

/// A promise of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promise {
    session: u64,
    /// When it came.
    since: Time,
}

/// The session with the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    number: u64,
    /// When the last question was put that was answered.
    answered: Time,
    /// Something was promised to it.
    is_used: bool,
    /// When inodes were last said to have changed, lately.
    broken: BTreeMap<Ino, Time>,
    /// What was asked for until then may have changed: there were too many.
    overrun: Option<Time>,
}

impl Session {
    /// True if `ino` is known to have changed since `checked`.
    pub(super) fn has_changed(&self, ino: Ino, checked: Time) -> bool {
        let broken = self.broken.get(&ino).copied().max(self.overrun);
        broken.is_some_and(|broken| checked <= broken)
    }

    /// For how long `promise` surely covers what was asked for at `checked`.
    pub(super) fn holds(&self, promise: Option<Promise>, checked: Time, now: Time) -> Duration {
        let counts = promise.is_some_and(|p| p.session == self.number && p.since <= checked);
        if counts { self.left(now) } else { Duration::ZERO }
    }

    /// How much longer the lease lasts.
    pub(super) fn left(&self, now: Time) -> Duration {
        Time(self.answered.0 + LEASE).since(now)
    }
}

impl Tree {
    /// The session with the server is number `session`, which put the last question that was
    /// `answered` then. What was promised to any other counts no more.
    pub fn follow(&mut self, session: u64, answered: Time) {
        self.session.is_used &= self.session.number == session;
        self.session.number = session;
        self.session.answered = answered;
    }

    /// As of when an answer is that was asked for and came then, and what of that which was
    /// promised with it counts: it is as of now if none of its inodes has changed since.
    pub fn as_of(
        &self,
        promised: Option<Promised>,
        [asked, now]: [Time; 2],
    ) -> (Time, Option<Promised>) {
        let has_changed = |ino: &Ino| self.session.has_changed(*ino, asked);
        let counts = |promised: &Promised| {
            promised.session == self.session.number && !promised.inodes.iter().any(has_changed)
        };
        match promised.filter(counts) {
            Some(promised) => (now, Some(promised)),
            None => (asked, None),
        }
    }

    /// That was promised with an answer that was installed as of then.
    pub fn promised(&mut self, promised: Option<Promised>, as_of: Time) {
        let Some(Promised { session, inodes }) = promised else { return };
        for ino in inodes {
            if session != self.session.number || self.session.has_changed(ino, as_of) {
                continue;
            }
            self.session.is_used = true;
            if let Some(node) = self.nodes.get_mut(&ino) {
                let is_held = node.promise.is_some_and(|held| held.session == session);
                if !is_held {
                    node.promise = Some(Promise { session, since: as_of });
                }
            }
        }
    }

    /// The server says that `ino` has changed. As many breaks are remembered as inodes.
    pub fn broken(&mut self, ino: Ino, now: Time) {
        self.session.broken.insert(ino, now);
        if self.session.broken.len() > self.limit {
            self.session.broken.clear();
            self.session.overrun = Some(now);
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.promise = None;
        }
    }

    /// Forgets breaks that no answer can come behind any more.
    pub fn forget_breaks(&mut self, now: Time) {
        self.session.broken.retain(|_, at| now.since(*at) < LATE);
    }

    /// True if what is known of `ino` is what the server has, or this host's own.
    pub fn is_promised(&self, ino: Ino, now: Time) -> bool {
        let Some(node) = self.nodes.get(&ino) else { return false };
        let covers = |checked| self.covers(ino, checked, now);
        node.pending > 0 || node.checked.is_some_and(covers)
    }

    /// True if a promise covers what was asked for of `ino` at `checked`.
    pub(super) fn covers(&self, ino: Ino, checked: Time, now: Time) -> bool {
        let promise = self.nodes.get(&ino).and_then(|node| node.promise);
        let holds = self.session.holds(promise, checked, now) > Duration::ZERO;
        holds && !self.session.has_changed(ino, checked)
    }

    /// True if a question is to be put so that the server keeps what it has promised.
    pub fn wants_lease(&self, now: Time) -> bool {
        self.session.is_used && now.since(self.session.answered) >= RENEW
    }

    /// Of how many inodes the server surely tells.
    pub fn promises(&self, now: Time) -> usize {
        let is_over = self.session.left(now) == Duration::ZERO;
        let counts = |held: Promise| held.session == self.session.number && !is_over;
        self.nodes.values().filter(|node| node.promise.is_some_and(counts)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Known;
    use crate::testing::attr;
    use crate::types::{Attr, Kind, Name};
    use crate::wire::Node;

    const LIFETIME: Duration = Duration::from_secs(1);
    const FILE: Ino = Ino(7);
    const DIRECTORY: Ino = Ino(5);

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    fn node(attr: Attr) -> Node {
        Node { attr, target: None }
    }

    /// A tree on session 1, whose lease lasts 20 seconds.
    fn tree() -> Tree {
        let mut tree = Tree::new(LIFETIME, 100);
        tree.follow(1, at(400));
        tree
    }

    fn told(inodes: &[Ino], session: u64) -> Option<Promised> {
        Some(Promised { session, inodes: inodes.to_vec() })
    }

    fn is_fresh(tree: &Tree, now: Time) -> bool {
        matches!(tree.attr(FILE, now), Known::Fresh(_))
    }

    #[test]
    fn what_is_promised_is_fresh_until_it_breaks_or_the_lease_is_over() {
        let mut tree = tree();
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        assert!(!is_fresh(&tree, at(1000)));
        tree.promised(told(&[FILE], 1), at(0));
        assert!(is_fresh(&tree, at(19_999)) && !is_fresh(&tree, at(20_000)));
        assert_eq!(tree.remaining(FILE, at(5000)), LIFETIME, "the kernel is told for so long");
        tree.follow(1, at(10_400));
        assert!(is_fresh(&tree, at(29_000)));
        tree.broken(FILE, at(25_000));
        assert!(!is_fresh(&tree, at(25_000)));
    }

    #[test]
    fn promises_are_of_one_session() {
        let mut tree = tree();
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        tree.promised(told(&[FILE], 1), at(0));
        tree.follow(2, at(70_400));
        assert!(!is_fresh(&tree, at(5000)));
        tree.install_node(node(attr(7, Kind::File, 1)), at(5000));
        tree.promised(told(&[FILE], 1), at(5000));
        assert!(!is_fresh(&tree, at(6000)), "an answer of the session before");
        tree.promised(told(&[FILE], 2), at(5000));
        assert!(is_fresh(&tree, at(6000)));
    }

    /// Breaks go before answers: what comes behind one is used for nothing.
    #[test]
    fn a_break_that_overtakes_the_answer_counts() {
        let mut tree = tree();
        let as_of = |tree: &Tree, session| tree.as_of(told(&[FILE], session), [at(50), at(120)]);
        assert_eq!(as_of(&tree, 1), (at(120), told(&[FILE], 1)));
        assert_eq!(as_of(&tree, 2), (at(50), None));
        tree.broken(FILE, at(100));
        assert_eq!(as_of(&tree, 1), (at(50), None));
        tree.install_node(node(attr(7, Kind::File, 1)), at(50));
        tree.promised(told(&[FILE], 1), at(50));
        assert!(!is_fresh(&tree, at(101)));
        tree.install_node(node(attr(7, Kind::File, 2)), at(150));
        tree.promised(told(&[FILE], 1), at(150));
        assert!(is_fresh(&tree, at(9000)));
        tree.forget_breaks(at(100 + 30_000));
        assert!(tree.session.broken.is_empty());
    }

    /// A listing of one's own making was believed after another host had changed the directory,
    /// because a question from before it was answered late, with a promise.
    #[test]
    fn a_promise_covers_what_was_asked_for_since_it_came() {
        let mut tree = tree();
        let name = Name::new("a").unwrap();
        let directory = attr(5, Kind::Directory, 1);
        let file = node(attr(7, Kind::File, 1));
        assert!(tree.install_name(directory, name.clone(), Some(file), at(0)));
        tree.install_node(node(directory), at(500));
        tree.promised(told(&[DIRECTORY, FILE], 1), at(500));
        assert_eq!(tree.name(DIRECTORY, &name, at(1200)), Known::Stale(Some(FILE)));
        assert!(!is_fresh(&tree, at(1200)));
        assert!(tree.is_promised(DIRECTORY, at(1200)));
        assert!(!tree.is_promised(FILE, at(1200)) && tree.wants_lease(at(5400)));
    }

    #[test]
    fn names_and_listings_depend_on_their_directory() {
        let mut tree = tree();
        let name = Name::new("a").unwrap();
        let directory = attr(5, Kind::Directory, 1);
        let entries = vec![(name.clone(), node(attr(7, Kind::File, 1)))];
        assert!(tree.install_listing(directory, entries, at(0)));
        tree.promised(told(&[DIRECTORY, FILE], 1), at(0));
        let absent = Name::new("b").unwrap();
        assert_eq!(tree.name(DIRECTORY, &name, at(9000)), Known::Fresh(Some(FILE)));
        assert_eq!(tree.name(DIRECTORY, &absent, at(9000)), Known::Fresh(None));
        tree.broken(DIRECTORY, at(9500));
        assert_eq!(tree.name(DIRECTORY, &name, at(9600)), Known::Stale(Some(FILE)));
        assert!(matches!(tree.listing(DIRECTORY, at(9600)), Known::Stale(_)));
        assert!(is_fresh(&tree, at(9600)), "the file has not changed");
        assert_eq!((tree.promises(at(9600)), tree.promises(at(20_000))), (1, 0));
    }

    /// Where too much changed to remember each, nothing from before is believed.
    #[test]
    fn breaks_are_bounded() {
        let mut tree = Tree::new(LIFETIME, 3);
        tree.follow(1, at(400));
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        tree.promised(told(&[FILE], 1), at(0));
        (10..13).for_each(|ino| tree.broken(Ino(ino), at(100)));
        assert!(is_fresh(&tree, at(100)));
        tree.broken(Ino(13), at(110));
        assert!(!is_fresh(&tree, at(110)) && tree.session.broken.is_empty());
        assert_eq!(tree.as_of(told(&[FILE], 1), [at(105), at(120)]), (at(105), None));
        tree.install_node(node(attr(7, Kind::File, 1)), at(120));
        assert!(is_fresh(&tree, at(130)));
    }

    #[test]
    fn a_lease_is_renewed_while_anything_is_promised() {
        let mut tree = tree();
        assert!(!tree.wants_lease(at(9000)));
        tree.install_node(node(attr(7, Kind::File, 1)), at(500));
        tree.promised(told(&[FILE], 1), at(500));
        assert_eq!([5399, 5400].map(|ms| tree.wants_lease(at(ms))), [false, true]);
        tree.follow(1, at(5400));
        assert!(!tree.wants_lease(at(9000)));
        tree.follow(2, at(5400));
        assert!(!tree.wants_lease(at(30_000)), "another session was promised nothing");
    }
}
