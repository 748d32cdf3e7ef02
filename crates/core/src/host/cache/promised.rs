//! What the server has promised to tell, and for how long that counts [MFS 2.1].
//!
//! A promise is of one session, and counts as long as the server surely thinks that the session is
//! there: its *lease*. It covers the answer that it came with, which is therefore as of its
//! arrival, and what was asked for later: what was asked for before may have changed before it was
//! given. A break ends it, and may overtake the answer to a question from before.
//!
//! A session goes on in the next one where the server knows what changed in between: everything
//! since the last commit of which this host surely had heard. That is as if these breaks had been
//! late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::forget::LATE;
use super::tree::Tree;
use crate::nouns::{Ino, Time};
use crate::promise::{Inodes, TERM};
use crate::sharing::{Announced, Mark};
use crate::wire::{RESUME_MAX, Resume, Resumed};

/// What the server promised counts for so long after the last question that it answered was put.
pub(super) const LEASE: Duration = Duration::from_millis(TERM.as_secs() * 980);
/// Another question is to be put after so long, while anything is promised.
const RENEW: Duration = Duration::from_secs(5);
/// Most runs of inodes that are resumed, a few bytes each, before anything else is asked. What lies
/// between close ones is promised as well.
const RUNS_MAX: usize = 4096;

/// A promise of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promise {
    pub(super) session: u64,
    /// When it came.
    pub(super) since: Time,
    /// Another host has changed the inode, and the server lacks some of that.
    pub(super) mark: Option<Mark>,
}

/// Up to where a session of this host was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heard {
    session: u64,
    /// Of the volume: commits of another are those of another history.
    epoch: u32,
    /// All changes of what was promised to it are heard up to this commit.
    commit: u64,
}

/// What the next session begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Next {
    epoch: u32,
    /// The commit that it begins with.
    commit: u64,
    /// What was promised to this one is promised to it too.
    resumes: Option<u64>,
}

/// The session with the server, and how far its promises may be trusted.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustedSession {
    pub(super) number: u64,
    /// Up to where this one was told.
    heard: Option<Heard>,
    /// Up to where the last one was told to which anything was promised.
    last: Option<Heard>,
    next: Option<Next>,
    /// When the last question was put that was answered.
    answered: Time,
    /// When it was last asked how far this one was told.
    renewed: Time,
    /// A promise counts for so long after it came, if the user wants that.
    term: Option<Duration>,
    /// Something was promised to it.
    pub(super) is_used: bool,
    /// When inodes were last said to have changed, lately.
    broken: BTreeMap<Ino, Time>,
    /// What was asked for until then may have changed: there were too many.
    overrun: Option<Time>,
    /// The last of those that are not remembered any more: an answer to what was asked for before
    /// comes too late to be promised.
    forgotten: Option<Time>,
}

impl TrustedSession {
    /// True if `ino` is known to have changed since `checked`.
    pub(super) fn has_changed(&self, ino: Ino, checked: Time) -> bool {
        let broken = self.broken.get(&ino).copied().max(self.overrun);
        broken.is_some_and(|broken| checked <= broken)
    }

    /// The same where it may have changed and nobody remembers.
    pub(super) fn may_have_changed(&self, ino: Ino, asked: Time) -> bool {
        self.has_changed(ino, asked) || Some(asked) <= self.forgotten
    }

    /// For how long `promise` surely covers what was asked for at `checked`.
    pub(super) fn holds(&self, promise: Option<Promise>, checked: Time, now: Time) -> Duration {
        let counts = |p: &Promise| p.session == self.number && p.since <= checked;
        promise.filter(counts).map_or(Duration::ZERO, |p| self.left(now).min(self.of_term(p, now)))
    }

    /// For how long `promise` counts if the session does.
    fn of_term(&self, promise: Promise, now: Time) -> Duration {
        self.term.map_or(Duration::MAX, |term| Time(promise.since.0 + term).since(now))
    }

    /// True if a promise that comes now takes the place of `held`. The older one covers more, so
    /// it stays as long as it counts.
    pub(super) fn replaces(&self, held: Promise, now: Time) -> bool {
        held.session != self.number || self.of_term(held, now) == Duration::ZERO
    }

    /// Which one it is, if there is one.
    pub(super) fn number(&self) -> Option<u64> {
        (self.number > 0).then_some(self.number)
    }

    /// How much longer the lease lasts.
    pub(super) fn left(&self, now: Time) -> Duration {
        self.end().since(now)
    }

    /// When the lease ends, if it is not renewed.
    pub(super) fn end(&self) -> Time {
        Time(self.answered.0 + LEASE)
    }

    /// True if promises end sooner than the lease, because the user wants that.
    pub(super) fn is_limited(&self) -> bool {
        self.term.is_some()
    }
}

impl Tree {
    /// Has each promise count for no longer than `term` after it came. A shorter time is always
    /// safe: this host asks more often.
    pub fn limit_promises(&mut self, term: Option<Duration>) {
        self.session.term = term;
    }

    /// The session with the server is number `session`, which put the last question that was
    /// `answered` then. What was promised to any other counts no more.
    pub fn follow(&mut self, session: u64, answered: Time) {
        if answered > self.session.answered {
            self.outliving.renewed();
        }
        self.session.answered = answered;
        if self.session.number == session {
            return;
        }
        let is_used = std::mem::take(&mut self.session.is_used);
        if let Some(heard) = self.session.heard.take().filter(|_| is_used) {
            self.session.last = Some(heard);
        }
        self.session.number = session;
        self.session.renewed = answered;
        // Without a connection there is none.
        if session == 0 {
            return;
        }
        if let Some(Next { epoch, commit, resumes }) = self.session.next.take() {
            self.session.heard = Some(Heard { session, epoch, commit });
            if let Some(earlier) = resumes {
                self.session.last = None;
                self.resume_promises(earlier, session);
            }
        }
    }

    fn resume_promises(&mut self, earlier: u64, session: u64) {
        let listed = self.nodes.values_mut().filter_map(|node| node.listed.as_mut());
        listed.filter(|(of, _)| *of == earlier).for_each(|(of, _)| *of = session);
        let promises = self.nodes.values_mut().filter_map(|node| node.promise.as_mut());
        for promise in promises.filter(|promise| promise.session == earlier) {
            // What is marked now counts as changed, and has no promise any more.
            (promise.session, promise.mark) = (session, None);
            self.session.is_used = true;
        }
    }

    /// Another connection is being made, which takes the place of one that was being made, and the
    /// volume is in `epoch`. What is to be asked over it first, if what was promised before may
    /// count again.
    pub fn to_resume(&mut self, epoch: u32) -> Option<Resume> {
        self.session.next = None;
        let heard = self.session.last.filter(|heard| heard.epoch == epoch)?;
        let is_promised = |promise: &Promise| promise.session == heard.session;
        let held =
            self.nodes.iter().filter(|(_, node)| node.promise.as_ref().is_some_and(is_promised));
        let most = usize::try_from(RESUME_MAX).unwrap_or(usize::MAX);
        let held: Inodes = held.map(|(ino, _)| *ino).take(most).collect();
        let held = held.within(RUNS_MAX, RESUME_MAX);
        (!held.is_empty()).then_some(Resume { since: heard.commit, held })
    }

    /// This host becomes another client: the server may have applied its changes without an answer,
    /// and tells nobody of his own changes. So promises to the client that it was count no more.
    pub fn become_another(&mut self) {
        (self.session.last, self.session.heard) = (None, None);
    }

    /// Has the connection that is being made begin with `commit` of `epoch`.
    pub fn begin_connection(&mut self, epoch: u32, commit: u64) {
        self.session.next = Some(Next { epoch, commit, resumes: None });
    }

    /// Takes over the promises `held` into the connection that is being made, as `resumed` says.
    pub fn resume(&mut self, held: &Inodes, resumed: &Resumed, now: Time) {
        let Some(last) = &mut self.session.last else { return };
        last.commit = resumed.commit;
        let Heard { session: earlier, epoch, commit } = *last;
        self.session.next = Some(Next { epoch, commit, resumes: Some(earlier) });
        resumed.changed.iter().for_each(|ino| self.broken(ino, now));
        let held: BTreeSet<Ino> = held.iter().collect();
        for (ino, node) in &mut self.nodes {
            node.promise.take_if(|promise| promise.session == earlier && !held.contains(ino));
        }
    }

    /// The server has told `session` of all changes up to `commit`: that was asked for then.
    pub fn heard_through(&mut self, session: u64, commit: u64, asked: Time) {
        if session != self.session.number {
            return;
        }
        self.session.renewed = asked;
        if let Some(heard) = &mut self.session.heard {
            heard.commit = heard.commit.max(commit);
        }
    }

    /// The server says that `ino` has changed. As many breaks are remembered as inodes.
    pub fn broken(&mut self, ino: Ino, now: Time) {
        let broken = self.session.broken.entry(ino).or_insert(now);
        *broken = now.max(*broken);
        if self.session.broken.len() > self.limit {
            self.session.broken.clear();
            self.session.overrun = self.session.overrun.max(Some(now));
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.promise = None;
        }
    }

    /// Forgets breaks that hardly any answer can come behind any more.
    pub fn forget_breaks(&mut self, now: Time) {
        let forgotten = &mut self.session.forgotten;
        self.session.broken.retain(|_, at| {
            let is_young = now.since(*at) < LATE;
            if !is_young {
                *forgotten = Some(*at).max(*forgotten);
            }
            is_young
        });
    }

    /// True if what is known of `ino` is what the server has, or this host's own.
    pub fn is_promised(&self, ino: Ino, now: Time) -> bool {
        let Some(node) = self.nodes.get(&ino) else { return false };
        let covers = |checked| self.covers(ino, checked, now);
        node.pending > 0 || node.checked.is_some_and(covers)
    }

    /// The session with the server, if there is one.
    pub(in crate::host) fn session_number(&self) -> Option<u64> {
        self.session.number()
    }

    /// True if another host has changed `ino`, and the server did not have all of that when it last
    /// spoke of it.
    pub fn is_marked(&self, ino: Ino) -> bool {
        self.mark_of_others(ino).is_some()
    }

    fn mark_of_others(&self, ino: Ino) -> Option<Mark> {
        self.nodes.get(&ino)?.promise?.mark
    }

    /// True if the server has no contents of `ino`, and another host has some, as far as is known.
    pub(in crate::host) fn lacks_contents(&self, ino: Ino) -> bool {
        let node = self.nodes.get(&ino).filter(|node| node.attr.size == 0 && node.pending == 0);
        node.is_some() && self.mark_of_others(ino).is_some_and(Mark::has_contents)
    }

    /// Files that are marked, as far as is known.
    pub fn marked(&self) -> usize {
        let promises = self.nodes.values().filter_map(|node| node.promise);
        promises.filter(|promise| promise.mark.is_some()).count()
    }

    /// Size and time of `ino` on another host, if the server has said them, has told of no change
    /// since, and has an older version.
    pub fn announced(&self, ino: Ino) -> Option<Announced> {
        let node = self.nodes.get(&ino).filter(|node| node.pending == 0)?;
        let promise = node.promise.filter(|promise| promise.session == self.session.number)?;
        promise.mark?.announced.filter(|announced| announced.mtime > node.attr.mtime)
    }

    /// An open reads the server's version of `ino`. That is shown until the next announcement. If
    /// nothing `is_hidden`, it is what other hosts have.
    pub(in crate::host) fn forget_announced(&mut self, ino: Ino, is_hidden: bool) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let read = Announced { size: node.attr.size, mtime: node.attr.mtime };
        if let Some(mark) = node.promise.as_mut().and_then(|promise| promise.mark.as_mut()) {
            mark.announced = (!is_hidden).then_some(read);
        }
    }

    /// True if a promise covers what was asked for of `ino` at `checked`.
    pub(super) fn covers(&self, ino: Ino, checked: Time, now: Time) -> bool {
        let promise = self.nodes.get(&ino).and_then(|node| node.promise);
        let holds = self.session.holds(promise, checked, now) > Duration::ZERO;
        holds && !self.session.has_changed(ino, checked)
    }

    /// When the host is to ask up to which commit this session was told. The question renews the
    /// lease, and the next session can begin at that commit. `None`: nothing is promised.
    pub fn renewal(&self) -> Option<Time> {
        let since = self.session.answered.min(self.session.renewed);
        self.session.is_used.then_some(Time(since.0 + RENEW))
    }

    /// True if that is due.
    pub fn wants_lease(&self, now: Time) -> bool {
        self.renewal().is_some_and(|at| at <= now)
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
    use crate::host::cache::{Known, Promised, When};
    use crate::nouns::{Attr, Kind, Name};
    use crate::testing::attr;
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
        let mut tree = Tree::new(100);
        tree.set_poll(LIFETIME);
        tree.follow(1, at(400));
        tree
    }

    fn told(inodes: &[Ino], session: u64) -> Option<Promised> {
        Some(Promised::unmarked(session, inodes.iter().copied()))
    }

    fn promise(tree: &mut Tree, inodes: &[Ino], session: u64, at: Time) {
        let as_of = tree.as_of(told(inodes, session), [at, at]);
        tree.promised(&as_of);
    }

    fn is_fresh(tree: &Tree, now: Time) -> bool {
        matches!(tree.attr(FILE, now), Known::Fresh(_))
    }

    /// Proves S6.10, S6.11.
    #[test]
    fn what_is_promised_is_fresh_until_it_breaks_or_the_lease_is_over() {
        let mut tree = tree();
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        assert!(!is_fresh(&tree, at(1000)));
        promise(&mut tree, &[FILE], 1, at(0));
        assert!(is_fresh(&tree, at(19_999)) && !is_fresh(&tree, at(20_000)));
        assert_eq!(tree.remaining(FILE, at(5000)), LIFETIME, "the kernel is told for so long");
        tree.follow(1, at(10_400));
        assert!(is_fresh(&tree, at(29_000)));
        tree.broken(FILE, at(25_000));
        assert!(!is_fresh(&tree, at(25_000)));
    }

    #[test]
    fn a_promise_expires_by_itself_if_its_time_is_limited() {
        let mut tree = tree();
        tree.limit_promises(Some(Duration::from_millis(500)));
        tree.install_node(node(attr(7, Kind::File, 1)), at(1000));
        promise(&mut tree, &[FILE], 1, at(1000));
        assert_eq!(tree.remaining(FILE, at(1200)), Duration::from_millis(800), "of the poll");
        assert!(tree.is_promised(FILE, at(1499)) && !tree.is_promised(FILE, at(1500)));
        promise(&mut tree, &[FILE], 1, at(1499));
        assert!(!tree.is_promised(FILE, at(1500)), "the older one stayed");
        tree.install_node(node(attr(7, Kind::File, 1)), at(3000));
        promise(&mut tree, &[FILE], 1, at(3000));
        assert!(tree.is_promised(FILE, at(3499)) && !tree.is_promised(FILE, at(3500)));
    }

    /// Proves S6.13.
    #[test]
    fn promises_are_of_one_session() {
        let mut tree = tree();
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        promise(&mut tree, &[FILE], 1, at(0));
        tree.follow(2, at(70_400));
        assert!(!is_fresh(&tree, at(5000)));
        tree.install_node(node(attr(7, Kind::File, 1)), at(5000));
        promise(&mut tree, &[FILE], 1, at(5000));
        assert!(!is_fresh(&tree, at(6000)), "an answer of the session before");
        promise(&mut tree, &[FILE], 2, at(5000));
        assert!(is_fresh(&tree, at(6000)));
    }

    /// A tree that was promised `FILE` and `DIRECTORY` in session 1, which heard of all up to 41.
    fn promised_tree() -> Tree {
        let mut tree = Tree::new(100);
        tree.set_poll(LIFETIME);
        tree.begin_connection(1, 40);
        tree.follow(1, at(400));
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        tree.install_node(node(attr(5, Kind::Directory, 1)), at(0));
        promise(&mut tree, &[FILE, DIRECTORY], 1, at(0));
        tree.heard_through(1, 41, at(900));
        tree.heard_through(7, 99, at(900));
        tree.follow(0, at(400));
        tree
    }

    /// Proves S6.13.
    #[test]
    fn a_session_goes_on_in_the_next_one_but_for_what_changed() {
        let mut tree = promised_tree();
        assert!(!is_fresh(&tree, at(2000)));
        let held: Inodes = [FILE, DIRECTORY].into_iter().collect();
        assert_eq!(tree.to_resume(1), Some(Resume { since: 41, held: held.clone() }));
        let changed = [DIRECTORY].into_iter().collect();
        tree.resume(&held, &Resumed { changed, commit: 50 }, at(60_000));
        assert!(!is_fresh(&tree, at(60_000)), "not before there is a session");
        tree.follow(2, at(60_000));
        assert!(is_fresh(&tree, at(60_001)) && is_fresh(&tree, at(79_000)));
        assert!(!tree.is_promised(DIRECTORY, at(60_001)));
        assert_eq!((tree.promises(at(60_001)), tree.wants_lease(at(65_000))), (1, true));
        tree.broken(FILE, at(61_000));
        tree.follow(0, at(60_000));
        assert_eq!(tree.to_resume(1), None, "nothing is held");
    }

    #[test]
    fn a_session_that_is_not_resumed_begins_anew() {
        let mut tree = promised_tree();
        assert_eq!(tree.to_resume(2), None, "the volume was restored");
        assert!(tree.to_resume(1).is_some());
        tree.begin_connection(1, 70);
        tree.follow(2, at(60_000));
        assert!(!is_fresh(&tree, at(60_001)));
        tree.follow(0, at(60_000));
        assert_eq!(
            tree.to_resume(1).map(|resume| resume.since),
            Some(41),
            "nothing was promised since"
        );
        tree.follow(3, at(60_000));
        promise(&mut tree, &[FILE], 3, at(60_000));
        tree.follow(0, at(60_000));
        assert_eq!(tree.to_resume(1).map(|resume| resume.since), Some(41), "3 began nowhere");
    }

    /// The server had removed a file by a change of this host that was never answered, and the host
    /// believed for ever that it was there.
    #[test]
    fn promises_to_the_client_that_a_host_was_are_not_resumed() {
        let mut tree = promised_tree();
        assert!(tree.to_resume(1).is_some());
        tree.become_another();
        assert_eq!(tree.to_resume(1), None);
    }

    /// The connection over which it was resumed was never used: what it heard counts.
    #[test]
    fn what_was_resumed_over_a_lost_connection_is_resumed_again() {
        let mut tree = promised_tree();
        let Some(Resume { held, .. }) = tree.to_resume(1) else { panic!("nothing to resume") };
        let changed = [FILE].into_iter().collect();
        tree.resume(&held, &Resumed { changed, commit: 50 }, at(60_000));
        let held = [DIRECTORY].into_iter().collect();
        assert_eq!(tree.to_resume(1), Some(Resume { since: 50, held }));
        tree.follow(2, at(60_000));
        assert_eq!(tree.promises(at(60_001)), 0);
    }

    /// Breaks go before answers: what comes behind one is used for nothing.
    /// Proves S6.10.
    #[test]
    fn a_break_that_overtakes_the_answer_counts() {
        let mut tree = tree();
        let as_of = |tree: &Tree, session| {
            let as_of = tree.as_of(told(&[FILE, DIRECTORY], session), [at(50), at(120)]);
            [FILE, DIRECTORY].map(|ino| (&as_of).of(ino))
        };
        assert_eq!(as_of(&tree, 1), [at(120); 2]);
        assert_eq!(as_of(&tree, 2), [at(50); 2]);
        tree.broken(FILE, at(100));
        assert_eq!(as_of(&tree, 1), [at(50), at(120)], "of the other it was promised");
        tree.install_node(node(attr(7, Kind::File, 1)), at(50));
        promise(&mut tree, &[FILE], 1, at(50));
        assert!(!is_fresh(&tree, at(101)));
        tree.install_node(node(attr(7, Kind::File, 2)), at(150));
        promise(&mut tree, &[FILE], 1, at(150));
        assert!(is_fresh(&tree, at(9000)));
        tree.broken(FILE, at(40));
        assert_eq!(tree.session.broken.get(&FILE), Some(&at(100)), "it came later");
        tree.forget_breaks(at(100 + 30_000));
        assert!(tree.session.broken.is_empty());
        let late = |asked| tree.as_of(told(&[FILE], 1), [at(asked), at(30_200)]);
        assert!(!late(100).is_promised(FILE), "a break that came meanwhile is forgotten");
        assert!(late(101).is_promised(FILE));
        let late = tree.as_of(told(&[FILE], 1), [at(101), at(30_200)]);
        tree.broken(DIRECTORY, at(30_250));
        tree.forget_breaks(at(70_000));
        tree.install_node(node(attr(7, Kind::File, 3)), &late);
        tree.promised(&late);
        assert_eq!(tree.nodes[&FILE].promise, None);
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
        promise(&mut tree, &[DIRECTORY, FILE], 1, at(500));
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
        promise(&mut tree, &[DIRECTORY, FILE], 1, at(0));
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
        let mut tree = Tree::new(3);
        tree.set_poll(LIFETIME);
        tree.follow(1, at(400));
        tree.install_node(node(attr(7, Kind::File, 1)), at(0));
        promise(&mut tree, &[FILE], 1, at(0));
        (10..13).for_each(|ino| tree.broken(Ino(ino), at(100)));
        assert!(is_fresh(&tree, at(100)));
        tree.broken(Ino(13), at(110));
        assert!(!is_fresh(&tree, at(110)) && tree.session.broken.is_empty());
        assert_eq!((&tree.as_of(told(&[FILE], 1), [at(105), at(120)])).of(FILE), at(105));
        tree.install_node(node(attr(7, Kind::File, 1)), at(120));
        assert!(is_fresh(&tree, at(130)));
    }

    /// Proves S6.11.
    #[test]
    fn a_lease_is_renewed_while_anything_is_promised() {
        let mut tree = tree();
        assert!(!tree.wants_lease(at(9000)));
        tree.install_node(node(attr(7, Kind::File, 1)), at(500));
        promise(&mut tree, &[FILE], 1, at(500));
        assert_eq!([5399, 5400].map(|ms| tree.wants_lease(at(ms))), [false, true]);
        tree.follow(1, at(5400));
        assert!(tree.wants_lease(at(5400)), "others' answers say nothing");
        tree.heard_through(1, 41, at(5400));
        assert!(!tree.wants_lease(at(9000)));
        tree.follow(2, at(5400));
        assert!(!tree.wants_lease(at(30_000)), "another session was promised nothing");
    }
}
