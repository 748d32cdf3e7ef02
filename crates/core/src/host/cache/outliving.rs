//! How long the kernel may use promised state: longer than the lease, as long as all of that is
//! taken back before the lease ends.
//!
//! ```text
//!              an answered question                   little is left of the lease
//!   taken back ─────────────────────▶ outliving the lease ─────────▶ being taken back
//!       ▲                                                                   │
//!       └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A new session and a sleep have everything taken back, too. Meanwhile no answer outlives the
//! lease.
//!
//! Invariant: while the process runs, the kernel uses no state whose lease is over. A process that
//! is stopped takes nothing back, and only [`LONG`] bounds what its kernel uses.

use std::time::Duration;

/// The lifetime of promised names and attributes in the kernel. It is also the longest time for
/// which the kernel of a stopped process shows an old state.
pub const LONG: Duration = Duration::from_secs(600);
/// Taking back begins so long before the lease ends, for a busy machine and for locked directories.
const MARGIN: Duration = Duration::from_secs(3);
/// And so much earlier for each inode that the kernel knows: several times the measured time.
const EACH: Duration = Duration::from_micros(10);
/// If it had to begin earlier than this, no answer outlives the lease: half a million inodes.
const RESERVE_MAX: Duration = Duration::from_secs(8);

/// What the kernel may have that outlives the lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Outliving {
    /// The kernel can be told at any time that nothing counts any more.
    is_possible: bool,
    /// It may have such state.
    may_be: bool,
    /// All of it is being taken back so many times.
    ending: u32,
    /// Inodes that the kernel knows.
    known: usize,
}

impl Outliving {
    pub(super) fn allow(&mut self) {
        self.is_possible = true;
    }

    pub(super) fn set_known(&mut self, known: usize) {
        self.known = known;
    }

    /// The lease was renewed.
    pub(super) fn renewed(&mut self) {
        let may_be = self.is_possible && self.ending == 0 && self.reserve() <= RESERVE_MAX;
        self.may_be |= may_be;
    }

    /// The lifetime of promised state if so much is `left` of the lease, unless it ends with that.
    pub(super) fn lifetime(&self, left: Duration) -> Option<Duration> {
        let reserve = self.reserve();
        let is_early = left > reserve && reserve <= RESERVE_MAX;
        (self.may_be && self.ending == 0 && is_early).then_some(LONG)
    }

    /// True if the kernel may use state when the lease is over.
    pub(super) fn may_be(&self) -> bool {
        self.may_be
    }

    /// So long before the end of the lease all is to be taken back, if anything is.
    pub(super) fn reserve_to_end(&self) -> Option<Duration> {
        (self.may_be && self.ending == 0).then(|| self.reserve())
    }

    fn reserve(&self) -> Duration {
        MARGIN + EACH.saturating_mul(u32::try_from(self.known).unwrap_or(u32::MAX))
    }

    pub(super) fn begin_end(&mut self) {
        self.ending += 1;
    }

    /// All `is_taken_back`, or that failed.
    pub(super) fn ended(&mut self, is_taken_back: bool) {
        self.ending = self.ending.saturating_sub(1);
        self.may_be &= !(is_taken_back && self.ending == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn outliving() -> Outliving {
        let mut outliving = Outliving::default();
        outliving.allow();
        outliving.renewed();
        outliving
    }

    #[test]
    fn nothing_outlives_a_lease_that_cannot_be_taken_back_or_was_not_renewed() {
        let mut outliving = Outliving::default();
        outliving.renewed();
        assert_eq!((outliving.lifetime(seconds(19)), outliving.may_be()), (None, false));
        outliving.allow();
        assert_eq!(outliving.lifetime(seconds(19)), None);
        outliving.renewed();
        assert_eq!(outliving.lifetime(seconds(19)), Some(LONG));
        assert_eq!([3, 4].map(|left| outliving.lifetime(seconds(left))), [None, Some(LONG)]);
    }

    /// Proves S6.11.
    #[test]
    fn taking_back_begins_early_enough_for_all_inodes() {
        let mut outliving = outliving();
        assert_eq!(outliving.reserve_to_end(), Some(seconds(3)));
        outliving.set_known(400_000);
        assert_eq!(outliving.reserve_to_end(), Some(seconds(7)));
        assert_eq!([7, 8].map(|left| outliving.lifetime(seconds(left))), [None, Some(LONG)]);
        outliving.set_known(600_000);
        assert_eq!(outliving.lifetime(seconds(19)), None, "it would take too long");
        assert_eq!(outliving.reserve_to_end(), Some(seconds(9)), "of what was told before");
        outliving.begin_end();
        outliving.ended(true);
        outliving.renewed();
        assert_eq!(outliving.reserve_to_end(), None);
        outliving.set_known(1000);
        outliving.renewed();
        assert!(outliving.may_be());
    }

    #[test]
    fn nothing_outlives_the_lease_while_all_is_taken_back() {
        let mut outliving = outliving();
        (0..2).for_each(|_| outliving.begin_end());
        outliving.renewed();
        assert_eq!((outliving.lifetime(seconds(19)), outliving.reserve_to_end()), (None, None));
        outliving.ended(true);
        outliving.renewed();
        assert_eq!(outliving.lifetime(seconds(19)), None, "the other one is under way");
        outliving.ended(true);
        assert_eq!((outliving.may_be(), outliving.lifetime(seconds(19))), (false, None));
        outliving.renewed();
        assert_eq!(outliving.lifetime(seconds(19)), Some(LONG));
    }

    #[test]
    fn what_could_not_be_taken_back_is_taken_back_again() {
        let mut outliving = outliving();
        outliving.begin_end();
        outliving.ended(false);
        assert_eq!(outliving.reserve_to_end(), Some(seconds(3)));
    }
}
