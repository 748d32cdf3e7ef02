//! How long what the server said may be used, and what was told of it for as long.
//!
//! That is as long as a promise holds which is no younger than the question, or for `poll` after
//! that was put; then it is stale and asked for again. What is known to have changed since is
//! stale. What this host changed is fresh until the last change of it is settled.

use std::time::Duration;

use super::outliving::LONG;
use super::promised::LEASE;
use super::tree::{Listing, NodeEntry, Tree};
use crate::nouns::{Attr, Ino, Name, Time};

/// Who asks is told for so long at a time, as long as nothing takes it back.
pub(super) const TOLD: Duration = Duration::from_secs(1);

/// What the cache knows of something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known<T> {
    /// It may be used.
    Fresh(T),
    /// It was true once; usable only when nobody can be asked.
    Stale(T),
    /// Nothing.
    Unknown,
}

impl<T> Known<T> {
    /// The value if it may be used, or if `offline` makes anything usable.
    pub fn usable(self, offline: bool) -> Option<T> {
        match self {
            Known::Fresh(value) => Some(value),
            Known::Stale(value) if offline => Some(value),
            _ => None,
        }
    }
}

impl Tree {
    /// Sets for how long an answer without a promise is believed, for a server that promises
    /// nothing. Before, such an answer serves its own question only.
    pub fn set_poll(&mut self, every: Duration) {
        self.poll = every;
    }

    /// True if what was asked for at `checked` may be used; it depends on `ino`, an inode itself or
    /// the directory of a name.
    pub(super) fn is_fresh(&self, ino: Ino, checked: Option<Time>, now: Time) -> bool {
        checked.is_some_and(|checked| self.left(ino, checked, now) > Duration::ZERO)
    }

    /// How much longer that may be used, as far as can be told now: after that it is looked at
    /// again.
    fn left(&self, ino: Ino, checked: Time, now: Time) -> Duration {
        if self.session.has_changed(ino, checked) {
            return Duration::ZERO;
        }
        let young = self.poll.saturating_sub(now.since(checked));
        let promise = self.nodes.get(&ino).and_then(|node| node.promise);
        let left = young.max(self.lifetime(self.session.holds(promise, checked, now)));
        // What is shown changes when a program closes the file, without word to the kernel.
        if self.announced(ino).is_some() { left.min(TOLD) } else { left }
    }

    /// The lifetime of an answer of which a promise surely holds for so long.
    fn lifetime(&self, holds: Duration) -> Duration {
        let outlives = match self.session.is_limited() {
            true => None,
            false => self.outliving.lifetime(holds),
        };
        outlives.unwrap_or(holds.min(self.longest))
    }

    /// True if what was asked for at `checked`, which depends on `ino`, is taken back from the
    /// kernel before the lease ends.
    pub(super) fn is_kept(&self, ino: Ino, checked: Time, now: Time) -> bool {
        self.left(ino, checked, now) == LONG
    }

    /// The part of a lifetime that is within the lease.
    pub fn within_lease(&self, lifetime: Duration, now: Time) -> Duration {
        lifetime.min(self.session.left(now).max(TOLD))
    }

    pub(super) fn judge<T>(
        &self,
        value: T,
        ino: Ino,
        (pending, checked): (u32, Option<Time>),
        now: Time,
    ) -> Known<T> {
        if pending > 0 || self.is_fresh(ino, checked, now) {
            Known::Fresh(value)
        } else {
            Known::Stale(value)
        }
    }

    /// From now on the kernel is told for as long as the server's promises surely hold, or for
    /// [`LONG`](super::LONG), and not for a second at a time. It will hear of breaks, that a
    /// session is over, and that a lease is about to be.
    pub fn tell_for_long(&mut self) {
        self.longest = LEASE;
        self.outliving.allow();
    }

    /// True if the kernel may have been told something in this session, or the one before, that it
    /// would use now.
    pub fn may_be_told(&self, now: Time) -> bool {
        let is_leased = self.longest > TOLD && self.session.left(now) > Duration::ZERO;
        is_leased || self.outliving.may_be()
    }

    /// When all that the kernel was told is to be taken back, unless the lease is renewed.
    pub fn end_of_lease(&self) -> Option<Time> {
        let reserve = self.outliving.reserve_to_end()?;
        Some(Time(self.session.end().0.saturating_sub(reserve)))
    }

    /// The kernel knows so many inodes.
    pub(in crate::host) fn kernel_knows(&mut self, inodes: usize) {
        self.outliving.set_known(inodes);
    }

    /// All that the kernel was told is being taken back. Returns the names that it may know:
    /// listings are told whole again, or each of their names would be asked for by itself.
    pub fn take_told(&mut self) -> Vec<(Ino, Name)> {
        self.outliving.begin_end();
        self.nodes.values_mut().for_each(|node| node.told = None);
        let names = self.names.iter().filter(|(_, entry)| entry.ino.is_some());
        names.map(|(key, _)| key.clone()).collect()
    }

    /// All that the kernel was told was taken back, or could not be.
    pub fn told_is_taken(&mut self, is_taken_back: bool) {
        self.outliving.ended(is_taken_back);
    }

    /// True if names that somebody may have been told are not known any more, since this was asked
    /// last.
    pub fn take_dropped(&mut self) -> bool {
        std::mem::take(&mut self.has_dropped)
    }

    /// How much longer an answer about `ino` may be used: what the kernel's cache is given.
    pub fn remaining(&self, ino: Ino, now: Time) -> Duration {
        match self.nodes.get(&ino) {
            Some(NodeEntry { pending: 1.., .. }) => TOLD,
            Some(NodeEntry { checked: Some(checked), .. }) => self.left(ino, *checked, now),
            _ => Duration::ZERO,
        }
    }

    /// How much longer it may be said that `name` in `parent` is `ino`.
    pub fn name_remaining(&self, parent: Ino, name: &Name, ino: Ino, now: Time) -> Duration {
        let listed = match self.nodes.get(&parent).map(|node| node.listing) {
            Some(Listing::Own) => return self.remaining(ino, now),
            Some(Listing::Complete(checked)) => checked,
            _ => None,
        };
        let known = match self.names.get(&(parent, name.clone())) {
            Some(entry) if entry.pending > 0 => return self.remaining(ino, now),
            Some(entry) => entry.checked.max(listed),
            None => listed,
        };
        let left = known.map(|at| self.left(parent, at, now));
        left.unwrap_or_default().min(self.remaining(ino, now))
    }

    /// Attributes of inodes that a listing of `directory` names, and how much longer they and
    /// their names may be used; `None` for one that must be asked for. What was asked for from
    /// `since` on is an answer to who reads the directory since.
    pub fn listed(
        &self,
        directory: Ino,
        inodes: impl Iterator<Item = Ino>,
        [since, now]: [Time; 2],
    ) -> Vec<Option<(Attr, Duration)>> {
        let listing = match self.nodes.get(&directory).map(|node| node.listing) {
            Some(Listing::Own) => TOLD,
            Some(Listing::Complete(Some(checked))) => self.left(directory, checked, now),
            _ => Duration::ZERO,
        };
        let known = |ino| {
            let (attr, left) = self.answered(ino, [since, now])?;
            Some((attr, left.min(listing)))
        };
        inodes.map(known).collect()
    }

    /// Attributes of `ino` for who asks `since` then, and how much longer they may be used.
    fn answered(&self, ino: Ino, [since, now]: [Time; 2]) -> Option<(Attr, Duration)> {
        let node = self.nodes.get(&ino)?;
        if node.pending > 0 {
            return Some((node.attr, TOLD));
        }
        let checked = node.checked?;
        let left = self.left(ino, checked, now);
        let is_answer = checked >= since && !self.session.has_changed(ino, checked);
        (left > Duration::ZERO || is_answer).then_some((node.attr, left))
    }

    /// The same without how long.
    pub fn attr_since(&self, ino: Ino, times: [Time; 2]) -> Option<Attr> {
        self.answered(ino, times).map(|(attr, _)| attr)
    }

    /// Who asked is told all that `directory` names, and for how long it may be used.
    pub fn tell(&mut self, directory: Ino, now: Time) {
        let Some(node) = self.nodes.get(&directory) else { return };
        let Listing::Complete(Some(checked)) = node.listing else { return };
        let left = self.left(directory, checked, now);
        if let Some(node) = self.nodes.get_mut(&directory) {
            node.told = Some([checked, Time(now.0 + left)]);
        }
    }

    /// True if all that `directory` names was told since it was asked for, and may be used still.
    pub fn is_told(&self, directory: Ino, now: Time) -> bool {
        let Some(node) = self.nodes.get(&directory) else { return false };
        let Listing::Complete(Some(checked)) = node.listing else { return false };
        let is_same = |listing| listing == checked && !self.session.has_changed(directory, checked);
        node.told.is_some_and(|[listing, until]| is_same(listing) && now < until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::cache::Promised;
    use crate::nouns::Kind;
    use crate::testing::attr;

    const LIFETIME: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_told_is_told_again_once_it_was_asked_for_again_or_is_stale() {
        let mut tree = Tree::new(100);
        tree.set_poll(LIFETIME);
        let attr = attr(7, Kind::Directory, 1);
        let at = |ms| Time(Duration::from_millis(ms));
        tree.tell(Ino(7), at(0));
        assert!(tree.install_listing(attr, Vec::new(), at(0)));
        assert!(!tree.is_told(Ino(7), at(10)));
        tree.tell(Ino(7), at(10));
        assert!(tree.is_told(Ino(7), at(10)) && !tree.is_told(Ino(7), at(1000)));
        assert!(tree.install_listing(attr, Vec::new(), at(500)));
        assert!(!tree.is_told(Ino(7), at(510)));
        tree.tell(Ino(7), at(510));
    }

    /// All was taken back as the lease was about to end. A directory that was read afterwards was
    /// listed as it was then, although the host had connected again.
    #[test]
    fn the_kernel_keeps_no_listing_that_nobody_takes_back() {
        let mut tree = Tree::new(100);
        tree.tell_for_long();
        let at = |seconds| Time(Duration::from_secs(seconds));
        tree.follow(1, at(0));
        assert!(tree.install_listing(attr(7, Kind::Directory, 1), Vec::new(), at(0)));
        let promised = Promised::unmarked(1, [Ino(7)]);
        tree.promised(&tree.as_of(Some(promised), [at(0); 2]));
        tree.follow(1, at(1));
        assert!(tree.may_keep_listing(Ino(7), at(10)));
        tree.take_told();
        assert!(!tree.may_keep_listing(Ino(7), at(10)), "it is being taken back");
        tree.told_is_taken(true);
        assert!(!tree.may_keep_listing(Ino(7), at(18)));
        assert!(tree.remaining(Ino(7), at(18)) > Duration::ZERO, "it is promised still");
        tree.follow(1, at(18));
        assert!(tree.may_keep_listing(Ino(7), at(18)));
    }

    /// A listing that is promised stays as it is for long, and was told again with each reading.
    #[test]
    fn what_was_told_of_a_promised_listing_need_not_be_told_again_within_the_lifetime() {
        let mut tree = Tree::new(100);
        tree.set_poll(LIFETIME);
        let at = |ms| Time(Duration::from_millis(ms));
        tree.follow(1, at(0));
        assert!(tree.install_listing(attr(7, Kind::Directory, 1), Vec::new(), at(0)));
        let promised = Promised::unmarked(1, [Ino(7)]);
        tree.promised(&tree.as_of(Some(promised), [at(0); 2]));
        tree.tell(Ino(7), at(5000));
        assert!(tree.is_told(Ino(7), at(5999)) && !tree.is_told(Ino(7), at(6000)));
        assert_eq!(tree.take_told(), []);
        assert!(!tree.is_told(Ino(7), at(5100)), "it was taken back");
        tree.tell(Ino(7), at(5100));
        assert!(tree.is_told(Ino(7), at(5200)));
        tree.broken(Ino(7), at(5500));
        assert!(!tree.is_told(Ino(7), at(5600)));
    }
}
