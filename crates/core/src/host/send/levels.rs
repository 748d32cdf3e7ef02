//! How soon changes must be with the server: [`Lm`] by file, directory and mount.

use std::time::Duration;

use crate::host::Host;
use crate::host::cache::FileData;
use crate::host::log::Change;
use crate::nouns::{Caller, Ino, Record, Time};
use crate::persist::Lm;

/// A file that is being rewritten is one change for this long.
const REWRITE: Duration = Duration::from_secs(60);

/// Data of a file that are not sealed.
#[derive(Clone, Debug)]
pub(in crate::host) struct Unsealed {
    /// When the oldest of them were written.
    since: Time,
    /// The process that closed the file last and left them so.
    by: Option<Caller>,
    /// A large file was emptied, and is being written anew.
    is_rewrite: bool,
}

impl Unsealed {
    /// Data that were written at `since`. `is_rewrite`: a large file was emptied by that.
    pub(in crate::host) fn at(since: Time, is_rewrite: bool) -> Unsealed {
        Unsealed { since, by: None, is_rewrite }
    }

    /// Data that `by` had closed, as if it had not.
    pub(in crate::host) fn reopened(since: Time, by: Caller) -> Unsealed {
        Unsealed { since, by: Some(by), is_rewrite: false }
    }
}

impl Host {
    /// When the oldest data of `ino` were written that are not sealed.
    pub fn unsealed_since(&self, ino: Ino) -> Option<Time> {
        self.unsealed.get(&ino).map(|unsealed| unsealed.since)
    }

    /// True if a process is writing `ino` anew: that is to be one change.
    pub(in crate::host) fn is_rewritten(&self, ino: Ino, now: Time) -> bool {
        let is_new =
            |unsealed: &Unsealed| unsealed.is_rewrite && now.since(unsealed.since) < REWRITE;
        self.unsealed.get(&ino).is_some_and(is_new)
            && !self.is_near_bound()
            && self.handles.writer(ino).is_some()
    }

    /// True if the data of `ino` that are not sealed have time.
    pub(in crate::host) fn is_kept_back(&self, ino: Ino, now: Time) -> bool {
        if self.is_near_bound() && !self.awaits_verdict(ino) {
            return false;
        }
        self.unsealed_since(ino).is_some_and(|since| self.is_delayed(ino, since, now))
    }

    /// Notes that `by` closed `ino` and left its data unsealed.
    pub(in crate::host) fn close_unsealed(&mut self, ino: Ino, by: Caller) {
        if let Some(unsealed) = self.unsealed.get_mut(&ino) {
            unsealed.by = Some(by);
        }
    }

    /// The process in whose name the data of `ino` are sealed, if its own close does not do so: a
    /// writer, or the process that closed the file last.
    pub fn sealer(&self, ino: Ino) -> Option<Caller> {
        let by = || self.unsealed.get(&ino).and_then(|unsealed| unsealed.by.as_ref());
        self.handles.writer(ino).or_else(by).cloned()
    }

    /// Files whose data are to be sealed now. Data of removed files are forgotten.
    pub(in crate::host) fn due_to_seal(&mut self, now: Time) -> Vec<Ino> {
        let unsealed = self.unsealed();
        self.unsealed.retain(|ino, _| unsealed.contains(ino));
        let is_due = |ino: &Ino| !self.is_kept_back(*ino, now) && !self.is_rewritten(*ino, now);
        unsealed.into_iter().filter(is_due).collect()
    }

    /// Files whose data are sealed when the mount ends, before their time; and those that wait
    /// until the server has said that nobody needs them.
    pub fn to_seal_at_end(&self) -> (Vec<Ino>, Vec<Ino>) {
        self.unsealed().into_iter().partition(|ino| !self.awaits_verdict(*ino))
    }

    /// That of `ino`: its own, or that of the nearest directory above it that has one, or the
    /// mount's.
    pub fn lm(&self, ino: Ino) -> Lm {
        self.tree.lm(ino).map_or(self.settings.lm, |(lm, _)| lm)
    }

    /// That of a change of names or attributes: names are the directory's.
    pub fn lm_of(&self, record: &Record) -> Lm {
        self.lm(match record {
            Record::Create { parent, .. }
            | Record::Link { parent, .. }
            | Record::Unlink { parent, .. }
            | Record::Rmdir { parent, .. } => *parent,
            Record::Rename { to_parent, .. } => *to_parent,
            _ => record.ino(),
        })
    }

    /// True if something was written to `ino`, the oldest of it at `since`, and is kept back: also
    /// where its last name was removed, until the server has said that this was the last.
    pub fn is_delayed(&self, ino: Ino, since: Time, now: Time) -> bool {
        if !self.files.get(&ino).is_some_and(FileData::has_dirty) {
            return false;
        }
        self.awaits_verdict(ino)
            || self.lm(ino).delay().is_some_and(|delay| now.since(since) < delay)
    }

    /// True if the last name of `ino`, which nobody has open, was removed here, and the server has
    /// still to say whether it was the last.
    pub fn awaits_verdict(&self, ino: Ino) -> bool {
        let is_nameless = self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0);
        is_nameless && !self.is_open(ino) && self.queue.newest_of(ino).is_some()
    }

    /// The server let go of the last name of `ino`, which it keeps until it is released: what was
    /// written and kept back goes nowhere. True if that is to be logged.
    pub(in crate::host) fn ends_unsent(&mut self, ino: Ino) -> bool {
        let is_named = self.tree.peek(ino).is_some_and(|attr| attr.nlink > 0);
        if is_named || self.is_open(ino) || self.ends_with_release(ino) {
            return false;
        }
        self.drop_dirty(ino);
        true
    }

    /// True if the last change of `ino` that waits releases it.
    pub(in crate::host) fn ends_with_release(&self, ino: Ino) -> bool {
        let is_release = |seq: &u64| {
            matches!(self.queue.change(*seq), Some(Change::Record(Record::Release { .. })))
        };
        self.queue.last_of(ino).iter().any(is_release)
    }

    /// How long a change, which was just made, waits for company, if it does.
    pub(in crate::host) fn company(&self, change: &Change) -> Option<Duration> {
        let lm = match change {
            Change::Record(record) => self.lm_of(record),
            Change::Data(data) => self.lm(data.ino),
        };
        if let Lm::Log(every) = lm { Some(every) } else { None }
    }
}
