//! What a host has committed and others may not have heard of, as far as the server has said.

use std::time::Duration;

use super::TERM;
use crate::nouns::Time;

/// No host relies for longer on what was before a commit: the server gives up whoever has not
/// answered after a term, and what it had promised counts for a lease at most.
const RELIED_ON: Duration = TERM.saturating_mul(2);

/// What others may not have heard of: the server's answers that said so.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// How many there were.
    answers: u64,
    /// So many of them are out of date.
    over: u64,
    /// When the last came.
    last: Time,
}

impl Unseen {
    /// The server has committed changes, and says whether all that is committed is `visible`.
    pub fn answered(&mut self, visible: bool, now: Time) {
        match visible {
            true => self.over = self.answers,
            false => (self.answers, self.last) = (self.answers + 1, now),
        }
    }

    /// The last answer, unless it is out of date.
    pub fn pending(&self, now: Time) -> Option<u64> {
        let is_over = self.over == self.answers || now.since(self.last) >= RELIED_ON;
        (!is_over).then_some(self.answers)
    }

    /// Others have heard of what was committed before that answer.
    pub fn seen(&mut self, answer: u64) {
        self.over = self.over.max(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_meanwhile_is_waited_for_by_itself() {
        let at = |secs| Time(Duration::from_secs(secs));
        let mut unseen = Unseen::default();
        unseen.answered(true, at(1));
        assert_eq!(unseen.pending(at(1)), None);
        unseen.answered(false, at(2));
        let first = unseen.pending(at(2)).unwrap();
        unseen.answered(false, at(3));
        unseen.seen(first);
        assert!(unseen.pending(at(42)).is_some());
        assert_eq!(unseen.pending(at(43)), None, "nobody relies on it for so long");
        unseen.answered(true, at(4));
        assert_eq!(unseen.pending(at(4)), None);
    }
}
