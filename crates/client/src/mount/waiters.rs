//! Who waits for the outcomes of changes, and what need not be kept of an outcome because somebody
//! was told.

use std::collections::BTreeMap;

use segue_core::host::log::Logged;
use segue_core::nouns::Outcome;
use tokio::sync::oneshot;

use super::{Mount, lock};

/// What somebody who waits for an outcome passes on to whom it concerns. All else is kept as if
/// nobody had waited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Claim {
    /// Nothing: it waits until what others made is settled.
    Nothing,
    /// That it is refused: it closes or syncs what it wrote, which fails with that. That a file
    /// became a conflict copy is no failure, and not told by it.
    IsRefused,
    /// All of it: it is the answer to the call that made the change.
    Answers,
}

/// Who waits for an outcome.
#[derive(Debug)]
pub(super) struct Waiter {
    tell: oneshot::Sender<Outcome>,
    claim: Claim,
}

impl Mount {
    /// Asks to be told the outcome of change `seq`, as its maker. Call it while the core is locked.
    pub(super) fn await_outcome(&self, seq: u64) -> oneshot::Receiver<Outcome> {
        self.await_as(seq, Claim::Answers)
    }

    /// The same for others.
    pub(super) fn await_as(&self, seq: u64, claim: Claim) -> oneshot::Receiver<Outcome> {
        let (tell, told) = oneshot::channel();
        lock(&self.waiters).entry(seq).or_default().push(Waiter { tell, claim });
        self.lanes.wake();
        told
    }

    /// True if somebody waits for change `seq`, or for one that follows it.
    pub(super) fn is_awaited(&self, seq: u64) -> bool {
        let waiters = lock(&self.waiters);
        waiters.range(seq..).flat_map(|(_, who)| who).any(|who| !who.tell.is_closed())
    }

    /// What would be claimed of the outcome of change `seq` now.
    pub(super) fn claim(&self, seq: u64) -> Claim {
        let waiters = lock(&self.waiters);
        let listening = waiters.get(&seq).into_iter().flatten().filter(|who| !who.tell.is_closed());
        listening.map(|who| who.claim).max().unwrap_or(Claim::Nothing)
    }

    /// Tells outcomes to who waits for them; what was claimed of those that somebody took.
    pub(super) fn tell_waiters(&self, answered: &[(Logged, Outcome)]) -> BTreeMap<u64, Claim> {
        let mut claims = BTreeMap::new();
        let (mut waiters, mut whole) = (lock(&self.waiters), lock(&self.whole));
        for (logged, outcome) in answered {
            whole.remove(&logged.seq);
            for Waiter { tell, claim } in waiters.remove(&logged.seq).unwrap_or_default() {
                if tell.send(outcome.clone()).is_ok() {
                    let most = claims.entry(logged.seq).or_insert(claim);
                    *most = claim.max(*most);
                }
            }
        }
        claims
    }
}
