//! Syncs of programs: later changes of a process session follow the changes that its syncs covered.

use std::collections::BTreeSet;

use crate::host::log::{After, Change};
use crate::host::{Fault, Host};
use crate::nouns::{Caller, Ino};

/// More that a sync covered is not told apart.
pub(in crate::host) const COVERED_MAX: usize = 64;

impl Host {
    /// Notes process session `session` as a writer of `ino`.
    pub(in crate::host) fn note_writer(&mut self, ino: Ino, session: u32) {
        self.writers.entry(ino).or_default().insert(session);
    }

    /// Covers the changes of `ino` so far by a sync of process session `session`: all later changes
    /// of the session follow them.
    pub(in crate::host) fn cover(&mut self, session: u32, ino: Ino) {
        let last = self.queue.last_of(ino);
        if last.is_empty() || self.has_planted(Fault::ForgetsSyncs) {
            return;
        }
        let covered = self.covered.entry(session).or_default();
        // What follows all of these needs no more than its own number.
        let follows_all = |seq: &u64| match self.queue.after(*seq) {
            Some(After::Everything) => true,
            Some(After::These(seqs)) => covered.iter().all(|before| seqs.contains(before)),
            Some(After::Nothing) | None => covered.is_empty(),
        };
        if last.iter().any(follows_all) {
            covered.clear();
        }
        covered.extend(last);
        if covered.len() > COVERED_MAX {
            self.cover_all(session);
        }
    }

    /// The same for everything that was changed so far.
    pub(in crate::host) fn cover_all(&mut self, session: u32) {
        if !self.queue.is_empty() {
            self.covered.remove(&session);
            self.covered_all.insert(session);
        }
    }

    /// What the next change follows, which is by one of these sessions.
    pub(in crate::host) fn after(&self, sessions: &BTreeSet<u32>) -> After {
        if sessions.iter().any(|session| self.covered_all.contains(session)) {
            return After::Everything;
        }
        let covered = sessions.iter().filter_map(|session| self.covered.get(session));
        let seqs: BTreeSet<u64> = covered.flatten().copied().collect();
        After::these(seqs)
    }

    /// The process sessions that made a change, which comes next: of data those that wrote them,
    /// not whoever closes the file.
    pub(in crate::host) fn makers(&self, change: &Change, caller: &Caller) -> BTreeSet<u32> {
        let writers = match change {
            Change::Record(_) => None,
            Change::Data(data) => self.writers.get(&data.ino).cloned(),
        };
        writers.unwrap_or_else(|| BTreeSet::from([caller.session]))
    }

    /// Change `seq` is made: who had to wait for everything waits for it from now on.
    pub(in crate::host) fn made(&mut self, seq: u64, change: &Change, caller: &Caller) {
        for session in self.makers(change, caller) {
            if self.covered_all.remove(&session) {
                self.covered.insert(session, BTreeSet::from([seq]));
            }
        }
    }
}
