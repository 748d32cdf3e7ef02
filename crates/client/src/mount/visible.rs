//! Waiting until what this host has committed is *visible*: until no other host relies on what was
//! before (DESIGN.md 6). That is what a close waits for that promises something to others.

use std::time::Duration;

use segue_core::refusal::Refusal;
use segue_core::types::Time;

use super::{Mount, Shared, lock};

/// No host relies for longer on what was before a commit: after 20 seconds the server gives up
/// whoever has not answered, and what it had promised counts for a lease at most.
const RELIED_ON: Duration = Duration::from_secs(40);

/// What others may not have heard of: the server's answers that said so.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// How many there were.
    answers: u64,
    /// So many of them are out of date.
    over: u64,
    /// When the last came.
    last: Time,
}

impl Unseen {
    /// The server has committed changes, and says whether all that is committed is `visible`.
    pub(super) fn answered(&mut self, visible: bool, now: Time) {
        match visible {
            true => self.over = self.answers,
            false => (self.answers, self.last) = (self.answers + 1, now),
        }
    }

    /// The last answer, unless it is out of date.
    fn pending(&self, now: Time) -> Option<u64> {
        let is_over = self.over == self.answers || now.since(self.last) >= RELIED_ON;
        (!is_over).then_some(self.answers)
    }

    /// Others have heard of what was committed before that answer.
    fn seen(&mut self, answer: u64) {
        self.over = self.over.max(answer);
    }
}

impl Mount {
    /// True if other hosts may rely on what was before a change that is committed.
    pub(super) fn is_unseen(&self) -> bool {
        lock(&self.unseen).pending(self.now()).is_some()
    }

    /// Waits until no other host relies on what was before a change that is committed. One that is
    /// silent is waited for until the server gives it up, after 20 seconds.
    pub(super) async fn visible(&self) -> Result<(), Refusal> {
        let pending = lock(&self.unseen).pending(self.now());
        let Some(answer) = pending else { return Ok(()) };
        self.remote.visible().await?;
        lock(&self.unseen).seen(answer);
        Ok(())
    }

    /// The same, where somebody looks from time to time whether it is so.
    pub(super) fn make_visible(self: &Shared) -> tokio::task::JoinHandle<()> {
        let mount = Shared::clone(self);
        tokio::spawn(async move {
            match mount.visible().await {
                // Who looks looks again when something is settled.
                Ok(()) => mount.settled.send_modify(|_| ()),
                Err(refusal) => tracing::debug!("others may not have heard: {refusal}"),
            }
        })
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
