//! How soon changes must be with the server: [`Lm`] by file, directory and mount.

use std::time::Duration;

use crate::host::Host;
use crate::host::cache::FileData;
use crate::host::log::Change;
use crate::nouns::{Ino, Record, Time};
use crate::persist::Lm;

impl Host {
    /// That of `ino`: its own, or that of the nearest directory above it that has one, or the
    /// mount's.
    pub fn lm(&self, ino: Ino) -> Lm {
        self.tree.lm(ino).map_or(self.lm, |(lm, _)| lm)
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
