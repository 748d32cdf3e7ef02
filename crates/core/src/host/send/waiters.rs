//! Calls that wait for the outcomes of changes.
//!
//! A waiter *claims* a part of the outcome: it reports that part to the program that made the
//! change. An unclaimed conflict copy or refusal is kept for the user.

use std::collections::BTreeMap;

use crate::nouns::Outcome;

/// The part of an outcome that a waiter reports. Everything else is kept as without a waiter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Claim {
    /// Nothing: the waiter waits until changes of other programs are settled.
    Nothing,
    /// A refusal: the waiter closes or syncs a file that it wrote, and fails with the refusal. A
    /// conflict copy is no failure, and the waiter does not report it.
    IsRefused,
    /// Everything: the outcome is the answer to the call that made the change.
    Answers,
}

/// Number of a waiter, unique in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::host) struct WaiterId(u64);

/// All waiters, by the change whose outcome each awaits.
#[derive(Debug, Default)]
pub(in crate::host) struct Waiters {
    last: u64,
    waiting: BTreeMap<(u64, WaiterId), Claim>,
    told: BTreeMap<WaiterId, Outcome>,
}

impl Waiters {
    /// Adds a waiter for the outcome of change `seq`.
    pub(in crate::host) fn add(&mut self, seq: u64, claim: Claim) -> WaiterId {
        self.last += 1;
        let waiter = WaiterId(self.last);
        self.waiting.insert((seq, waiter), claim);
        waiter
    }

    /// Removes a waiter that gave up.
    pub(in crate::host) fn leave(&mut self, seq: u64, waiter: WaiterId) {
        self.waiting.remove(&(seq, waiter));
        self.told.remove(&waiter);
    }

    /// True if no call waits.
    pub(in crate::host) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The oldest change that a call waits for.
    pub(in crate::host) fn first(&self) -> Option<u64> {
        self.waiting.keys().next().map(|(seq, _)| *seq)
    }

    /// True if a call waits for change `seq`.
    pub(in crate::host) fn is_waited_for(&self, seq: u64) -> bool {
        self.of(seq).next().is_some()
    }

    /// True if a call waits for change `seq`, or for a later one, which may follow it.
    pub(in crate::host) fn is_awaited(&self, seq: u64) -> bool {
        self.waiting.range((seq, WaiterId(0))..).next().is_some()
    }

    /// The largest claim to the outcome of change `seq`.
    pub(in crate::host) fn claim(&self, seq: u64) -> Claim {
        self.of(seq).map(|(_, claim)| claim).max().unwrap_or(Claim::Nothing)
    }

    /// Tells the outcome of change `seq` to its waiters.
    pub(in crate::host) fn tell(&mut self, seq: u64, outcome: &Outcome) {
        let waiters: Vec<WaiterId> = self.of(seq).map(|(waiter, _)| waiter).collect();
        for waiter in waiters {
            self.waiting.remove(&(seq, waiter));
            self.told.insert(waiter, outcome.clone());
        }
    }

    /// True if a waiter was told an outcome.
    pub(in crate::host) fn is_told(&self, waiter: WaiterId) -> bool {
        self.told.contains_key(&waiter)
    }

    /// The outcome that a waiter was told. It is none any more then.
    pub(in crate::host) fn heard(&mut self, waiter: WaiterId) -> Option<Outcome> {
        self.told.remove(&waiter)
    }

    fn of(&self, seq: u64) -> impl Iterator<Item = (WaiterId, Claim)> {
        let waiting = self.waiting.range((seq, WaiterId(0))..=(seq, WaiterId(u64::MAX)));
        waiting.map(|((_, waiter), claim)| (*waiter, *claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_goes_to_its_waiters_and_the_largest_claim_counts() {
        let mut waiters = Waiters::default();
        assert_eq!((waiters.first(), waiters.claim(5)), (None, Claim::Nothing));
        let sync = waiters.add(5, Claim::Nothing);
        let close = waiters.add(5, Claim::IsRefused);
        let create = waiters.add(7, Claim::Answers);
        assert_eq!(waiters.claim(5), Claim::IsRefused);
        assert!(waiters.is_awaited(6) && !waiters.is_waited_for(6), "a later one waits");
        assert!(!waiters.is_awaited(8) && waiters.first() == Some(5));
        waiters.leave(5, close);
        assert_eq!(waiters.claim(5), Claim::Nothing);
        let done = Outcome::Done { touched: Vec::new() };
        waiters.tell(5, &done);
        assert_eq!((waiters.first(), waiters.claim(5)), (Some(7), Claim::Nothing));
        assert_eq!(
            [sync, close, create].map(|waiter| waiters.heard(waiter).is_some()),
            [true, false, false]
        );
        assert_eq!(waiters.heard(sync), None, "once");
        waiters.tell(7, &done);
        waiters.leave(7, create);
        assert_eq!(waiters.heard(create), None, "it gave up in between");
        assert!(waiters.is_empty());
    }
}
