//! Requests that wait for a lock.

use segue_fuse::{Answer, Errno, Lock, Outcome, PendingCall, Reply};

use crate::files::State;

struct Waiter {
    unique: u64,
    node: u64,
    lock: Lock,
    reply: Option<Reply>,
    waiting: Option<PendingCall>,
}

/// They, in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiters(Vec<Waiter>);

impl Waiters {
    /// `reply` is for request `unique`, which waits since a moment ago.
    pub(crate) fn reply(&mut self, unique: u64, reply: Reply) {
        if let Some(waiter) = self.0.iter_mut().find(|waiter| waiter.unique == unique) {
            waiter.reply = Some(reply);
        }
    }

    /// `waiting` lasts as long as request `unique` waits, which may have ended.
    pub(crate) fn interruptible(&mut self, unique: u64, waiting: PendingCall) {
        if let Some(waiter) = self.0.iter_mut().find(|waiter| waiter.unique == unique) {
            waiter.waiting = Some(waiting);
        }
    }

    pub(crate) fn give_up(&mut self, unique: u64) -> Option<Reply> {
        let at = self.0.iter().position(|waiter| waiter.unique == unique)?;
        self.0.remove(at).reply
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

impl State {
    /// Takes or releases a lock. The outcome and who else got his meanwhile; none: request
    /// `waits` waits.
    pub(crate) fn set_lock(
        &mut self,
        node: u64,
        lock: Lock,
        waits: Option<u64>,
    ) -> Option<(Outcome, Vec<Reply>)> {
        let Ok(file) = self.tree.node(node) else {
            return Some((Err(Errno::new(libc::ESTALE)), Vec::new()));
        };
        let mut freed = Vec::new();
        // flock(2) lets go of what it has before it asks for more.
        if lock.is_flock
            && file.locks.flock_of(lock.owner).is_some_and(|held| held != lock.lock.kind)
        {
            freed = self.release_locks(node, |held| held.is_flock && held.owner == lock.owner);
        }
        let file = self.tree.node(node).ok()?;
        if file.locks.conflict(&lock).is_none() {
            file.locks.set(&lock);
            freed.extend(self.retry(node));
            return Some((Ok(Answer::Empty), freed));
        }
        let Some(unique) = waits else {
            return Some((Err(Errno::new(libc::EAGAIN)), freed));
        };
        if !lock.is_flock && self.would_deadlock(node, &lock) {
            return Some((Err(Errno::new(libc::EDEADLK)), freed));
        }
        self.waiters.0.push(Waiter { unique, node, lock, reply: None, waiting: None });
        // Its reply is not here yet, so it cannot be among those that got theirs; whoever did
        // is told now.
        freed.into_iter().for_each(|reply| reply.send(Ok(Answer::Empty)));
        None
    }

    /// Whoever is in the way of `lock` waits, over however many others, for its owner.
    fn would_deadlock(&mut self, node: u64, lock: &Lock) -> bool {
        let Ok(file) = self.tree.node(node) else { return false };
        let mut blocking: Vec<u64> = file.locks.blockers(lock).collect();
        let mut seen = Vec::new();
        while let Some(owner) = blocking.pop() {
            if owner == lock.owner {
                return true;
            }
            if seen.contains(&owner) {
                continue;
            }
            seen.push(owner);
            let theirs = |waiter: &&Waiter| waiter.lock.owner == owner && !waiter.lock.is_flock;
            for waiter in self.waiters.0.iter().filter(theirs) {
                if let Ok(file) = self.tree.node(waiter.node) {
                    blocking.extend(file.locks.blockers(&waiter.lock));
                }
            }
        }
        false
    }

    /// Releases the locks of `node` that `matches`; returns who got his by that.
    pub(crate) fn release_locks(
        &mut self,
        node: u64,
        matches: impl Fn(&Lock) -> bool,
    ) -> Vec<Reply> {
        let released = self.tree.node(node).is_ok_and(|file| file.locks.release(matches));
        if released { self.retry(node) } else { Vec::new() }
    }

    /// Gives the locks of `node` to those who wait and can have them now.
    fn retry(&mut self, node: u64) -> Vec<Reply> {
        let Ok(file) = self.tree.node(node) else { return Vec::new() };
        let mut freed = Vec::new();
        for mut waiter in std::mem::take(&mut self.waiters.0) {
            if waiter.node == node && file.locks.conflict(&waiter.lock).is_none() {
                file.locks.set(&waiter.lock);
                freed.extend(waiter.reply.take());
            } else {
                self.waiters.0.push(waiter);
            }
        }
        freed
    }
}
