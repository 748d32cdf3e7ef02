//! As of when an answer is: of each inode that it tells of as of when it came, if changes of that
//! are promised, else as of when it was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::promised::Promise;
use super::tree::Tree;
use crate::nouns::{Ino, Outcome, Time};
use crate::sharing::Marked;

/// What the server has promised with an answer: to tell when one of these changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promised {
    /// To which session of this host.
    pub session: u64,
    /// Of which inodes of the answer.
    pub inodes: BTreeSet<Ino>,
    /// Which inodes of the answer another host has changed, so that an open asks before.
    pub marked: Marked,
}

/// As of when something is known of inodes.
pub trait When: Copy {
    /// As of when of `ino`, and of names in it.
    fn of(&self, ino: Ino) -> Time;
}

impl When for Time {
    fn of(&self, _: Ino) -> Time {
        *self
    }
}

/// As of when an answer is, and what of the promises that came with it counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AsOf {
    asked: Time,
    came: Time,
    session: u64,
    /// Shared: one answer may hold the outcomes of many changes.
    promised: Arc<BTreeSet<Ino>>,
    marked: Arc<Marked>,
}

impl AsOf {
    /// The same answer, if what is not promised of it may be as old as `asked`.
    #[must_use]
    pub fn asked_at(&self, asked: Time) -> AsOf {
        AsOf { asked: asked.min(self.asked), ..self.clone() }
    }

    /// When it came.
    pub fn came(&self) -> Time {
        self.came
    }

    /// True if the server tells when `ino` changes.
    pub fn is_promised(&self, ino: Ino) -> bool {
        self.promised.contains(&ino)
    }

    /// Of what an outcome in the answer tells, that of which changes are not told.
    pub fn unpromised(&self, outcome: &Outcome) -> Vec<Ino> {
        let touched = outcome.touched().iter().map(|attr| attr.ino);
        touched.filter(|ino| !self.is_promised(*ino)).collect()
    }
}

impl When for &AsOf {
    fn of(&self, ino: Ino) -> Time {
        if self.is_promised(ino) { self.came } else { self.asked }
    }
}

impl Promised {
    /// Changes of `inodes` are told to `session`, and no other host has marked one.
    pub fn unmarked(session: u64, inodes: impl IntoIterator<Item = Ino>) -> Promised {
        let inodes = inodes.into_iter().collect();
        Promised { session, inodes, marked: Marked::new() }
    }

    /// What is promised with either answer.
    #[must_use]
    pub fn and(mut self, other: Option<Promised>) -> Promised {
        let other = other.filter(|other| other.session == self.session);
        if let Some(other) = other {
            self.inodes.extend(other.inodes);
            self.marked.extend(other.marked);
        }
        self
    }
}

impl Tree {
    /// As of when an answer is that was asked for and came then: what is promised of it, and has
    /// not changed since it was asked for, is as of now.
    pub fn as_of(&self, promised: Option<Promised>, [asked, came]: [Time; 2]) -> AsOf {
        let session = self.session.number;
        let promised = promised.filter(|promised| promised.session == session);
        let promised = promised.map(|promised| (promised.inodes, promised.marked));
        let (mut inodes, marked) = promised.unwrap_or_default();
        inodes.retain(|ino| !self.session.may_have_changed(*ino, asked));
        let (promised, marked) = (Arc::new(inodes), Arc::new(marked));
        AsOf { asked, came, session, promised, marked }
    }

    /// An answer was taken in that is `as_of` then: what was promised with it counts.
    pub fn promised(&mut self, as_of: &AsOf) {
        as_of.promised.iter().for_each(|ino| self.promised_of(*ino, as_of));
    }

    /// The same, for what it says of `ino`.
    pub(super) fn promised_of(&mut self, ino: Ino, as_of: &AsOf) {
        let (session, since) = (as_of.session, as_of.came);
        let is_over = session != self.session.number || self.session.may_have_changed(ino, since);
        if is_over || !as_of.is_promised(ino) {
            return;
        }
        self.session.is_used = true;
        let mark = as_of.marked.get(&ino).copied();
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        match &mut node.promise {
            Some(held) if !self.session.replaces(*held, since) => held.mark = mark,
            promise => *promise = Some(Promise { session, since, mark }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::nouns::Kind;
    use crate::testing::attr;

    /// The kernel was told of all that a change touched.
    #[test]
    fn what_an_outcome_does_not_promise_is_taken_back() {
        let at = |ms| Time(Duration::from_millis(ms));
        let mut tree = Tree::new(100);
        tree.follow(1, at(0));
        let promised = Promised::unmarked(1, [Ino(5), Ino(6)]);
        tree.broken(Ino(6), at(10));
        let as_of = tree.as_of(Some(promised), [at(5), at(20)]);
        let touched = [5, 6, 7].map(|ino| attr(ino, Kind::File, 1)).to_vec();
        assert_eq!(as_of.unpromised(&Outcome::Done { touched }), [Ino(6), Ino(7)]);
    }
}
