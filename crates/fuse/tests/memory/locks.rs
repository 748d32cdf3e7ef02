//! The locks of one file: record locks and flock(2)'s side by side.
//!
//! What tells locks apart is their owner. A process owns its POSIX locks, an open file its OFD
//! locks; the two kinds are in each other's way, and flock(2)'s are not in theirs.

use segue_fuse::Lock;
use segue_fuse::abi::FileLock;

const READ: u32 = libc::F_RDLCK as u32;
const WRITE: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;

#[derive(Default)]
pub(crate) struct Locks(Vec<Lock>);

fn same_holder(one: &Lock, other: &Lock) -> bool {
    one.owner == other.owner && one.is_flock == other.is_flock
}

impl Locks {
    /// The first that is in the way of `wanted`.
    pub(crate) fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.conflicts(wanted).min_by_key(|held| held.lock.start)
    }

    /// The owners of all that are in its way.
    pub(crate) fn blockers(&self, wanted: &Lock) -> impl Iterator<Item = u64> {
        self.conflicts(wanted).map(|held| held.owner)
    }

    fn conflicts(&self, wanted: &Lock) -> impl Iterator<Item = &Lock> {
        self.0.iter().filter(|held| {
            let (a, b) = (held.lock, wanted.lock);
            let overlap = a.start <= b.end && b.start <= a.end;
            let exclude = a.kind == WRITE && b.kind == READ || b.kind == WRITE;
            let other = held.is_flock == wanted.is_flock && held.owner != wanted.owner;
            overlap && exclude && other
        })
    }

    /// Takes or releases, whatever was in the way.
    pub(crate) fn set(&mut self, new: &Lock) {
        let (start, end) = (new.lock.start, new.lock.end);
        let mut kept = Vec::new();
        let mut joined = *new;
        for held in self.0.drain(..) {
            let FileLock { start: from, end: to, kind, .. } = held.lock;
            let touches = from <= end.saturating_add(1) && start <= to.saturating_add(1);
            if !same_holder(&held, new) || !touches {
                kept.push(held);
            } else if kind == new.lock.kind {
                joined.lock.start = joined.lock.start.min(from);
                joined.lock.end = joined.lock.end.max(to);
            } else {
                let part = |start, end| Lock { lock: FileLock { start, end, ..held.lock }, ..held };
                kept.extend((from < start).then(|| part(from, to.min(start - 1))));
                kept.extend((to > end).then(|| part(from.max(end + 1), to)));
            }
        }
        if new.lock.kind != UNLOCK {
            kept.push(joined);
        }
        self.0 = kept;
    }

    /// Releases what `matches`. False: there was nothing.
    pub(crate) fn release(&mut self, matches: impl Fn(&Lock) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|held| !matches(held));
        self.0.len() < before
    }

    /// The kind of flock(2) that `owner` holds.
    pub(crate) fn flock_of(&self, owner: u64) -> Option<u32> {
        self.0.iter().find(|held| held.is_flock && held.owner == owner).map(|held| held.lock.kind)
    }
}

#[cfg(test)]
fn lock(owner: u64, kind: u32, start: u64, end: u64) -> Lock {
    Lock { handle: owner, owner, lock: FileLock { start, end, kind, pid: 1 }, is_flock: false }
}

#[test]
fn a_lock_is_split_and_joined_by_its_owner() {
    let mut locks = Locks::default();
    locks.set(&lock(1, WRITE, 0, u64::MAX >> 1));
    locks.set(&lock(1, UNLOCK, 10, 19));
    assert!(locks.conflict(&lock(2, WRITE, 10, 19)).is_none());
    assert_eq!(locks.conflict(&lock(2, READ, 10, 20)).unwrap().lock.start, 20);
    assert_eq!(locks.conflict(&lock(2, READ, 0, 99)).unwrap().lock.end, 9);
    locks.set(&lock(1, WRITE, 10, 19));
    assert_eq!(locks.0.len(), 1);
    locks.set(&lock(1, READ, 5, 5));
    let kinds: Vec<_> = locks.0.iter().map(|held| (held.lock.start, held.lock.kind)).collect();
    assert_eq!(kinds, [(0, WRITE), (6, WRITE), (5, READ)]);
    assert!(locks.conflict(&lock(2, READ, 5, 5)).is_none());
    assert!(locks.conflict(&lock(2, WRITE, 5, 5)).is_some());
    assert!(locks.release(|held| held.owner == 1));
    assert!(locks.conflict(&lock(2, WRITE, 0, 99)).is_none());
}
