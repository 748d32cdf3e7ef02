//! Mutexes that are taken in one order. A thread that holds one takes only those of a later rank,
//! so that no two threads wait for each other. Builds with debug assertions check that in `lock`.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When a mutex is taken: the earlier ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rank {
    /// Containers that the kernel reads.
    Behind,
    /// Containers that maps may write to.
    Mapped,
    /// Bytes of a file that are being written and noted as valid.
    Writing,
    /// The removal of clean data.
    Cleaning,
    /// The telling of the index.
    Noting,
    /// A sync of overwritten bytes of changes.
    Overwriting,
    /// A sync of the log.
    Syncing,
    /// What the index has of a file, on its way into memory or out of both.
    Loading,
    /// The update log.
    Log,
    /// A sync of containers, or of preserved bytes.
    SyncingData,
    /// A file of preserved bytes.
    Preserving,
    /// The table of containers.
    Containers,
    /// A container that maps may change.
    ByMap,
    /// A container that is synced.
    Trust,
    /// The room that a container takes.
    Room,
    /// The host.
    Core,
    /// Ranges that are read ahead.
    Ahead,
    /// Operations that wait, or had to.
    Waits,
    /// Any other: while it is held, no mutex is taken.
    Leaf,
}

const RANKS: usize = Rank::Leaf as usize + 1;

thread_local! {
    /// How many mutexes of each rank this thread holds.
    static HELD: Cell<[u8; RANKS]> = const { Cell::new([0; RANKS]) };
}

/// A mutex with a rank.
#[derive(Debug)]
pub(crate) struct Ranked<T> {
    rank: Rank,
    value: Mutex<T>,
}

/// A mutex that is held.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    value: MutexGuard<'a, T>,
    rank: Rank,
}

impl<T: Default> Default for Ranked<T> {
    fn default() -> Ranked<T> {
        Ranked::leaf(T::default())
    }
}

impl<T> Ranked<T> {
    /// A mutex while which is held no other is taken.
    pub(crate) fn leaf(value: T) -> Ranked<T> {
        Ranked::new(Rank::Leaf, value)
    }

    pub(crate) fn new(rank: Rank, value: T) -> Ranked<T> {
        Ranked { rank, value: Mutex::new(value) }
    }

    /// Waits for the mutex, and takes it. A panic of another thread changes nothing about that: it
    /// must not take the user's data with it.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        note_taken::<T>(self.rank);
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Held { value, rank: self.rank }
    }

    /// Takes the mutex if nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        let value = self.value.try_lock().ok()?;
        // It waits for nobody, so any order is right.
        count(self.rank, |held| held.saturating_add(1));
        Some(Held { value, rank: self.rank })
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        count(self.rank, |held| held.saturating_sub(1));
    }
}

fn count(rank: Rank, change: impl FnOnce(u8) -> u8) {
    if cfg!(debug_assertions) {
        let mut held = HELD.get();
        if let Some(count) = held.get_mut(rank as usize) {
            *count = change(*count);
        }
        HELD.set(held);
    }
}

fn note_taken<T>(rank: Rank) {
    if cfg!(debug_assertions) {
        let held = HELD.get();
        let later = held.iter().skip(rank as usize).any(|count| *count > 0);
        let what = std::any::type_name::<T>();
        assert!(
            !later,
            "{rank:?} is taken after a mutex of its rank or a later one: {what}, {held:?}"
        );
        count(rank, |held| held.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutexes_are_taken_in_the_order_of_their_ranks() {
        let (log, core) = (Ranked::new(Rank::Log, 1), Ranked::new(Rank::Core, 2));
        {
            let log = log.lock();
            let core = core.lock();
            // In any order they are let go.
            drop(log);
            assert_eq!(*core, 2);
        }
        let (_log, _core) = (log.lock(), core.lock());
    }

    #[test]
    #[should_panic(expected = "Log is taken after")]
    fn a_wrong_order_is_found() {
        let (log, core) = (Ranked::new(Rank::Log, ()), Ranked::new(Rank::Core, ()));
        let _core = core.lock();
        let _log = log.lock();
    }

    #[test]
    #[should_panic(expected = "Core is taken after")]
    fn no_mutex_is_taken_below_a_leaf() {
        let (leaf, core) = (Ranked::leaf(()), Ranked::new(Rank::Core, ()));
        let _leaf = leaf.lock();
        let _core = core.lock();
    }

    #[test]
    #[should_panic(expected = "Core is taken after")]
    fn a_mutex_is_not_taken_twice() {
        let core = Ranked::new(Rank::Core, ());
        let _core = core.lock();
        let _again = core.lock();
    }
}
