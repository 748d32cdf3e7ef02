//! How soon changes must be with the server: [`Lm`] by file, directory and mount.

use std::ops::Range;
use std::time::Duration;

use crate::host::Host;
use crate::host::cache::FileData;
use crate::host::log::Change;
use crate::nouns::{Caller, Ino, Record, Time};
use crate::persist::Lm;

/// A file that is being rewritten is one change for this long.
const REWRITE: Duration = Duration::from_secs(60);
/// A program that writes on over a file does so no more after a pause this long.
const PAUSE: Duration = Duration::from_secs(5);
/// So many bytes, written one behind the other over a file, are a rewriting. Databases write less.
const RUN_MIN: u64 = 1 << 20;
/// Of what is overwritten so much is kept, from where it begins: a difference refers to no more.
const KEPT_MAX: u64 = 4 << 20;

/// Data of a file that are not sealed.
#[derive(Clone, Debug)]
pub(in crate::host) struct Unsealed {
    /// When the oldest of them were written.
    since: Time,
    /// The process that closed the file last and left them so.
    by: Option<Caller>,
    /// A large file was emptied, and is being written anew.
    is_rewrite: bool,
    /// Or it is being written over.
    run: Option<Run>,
}

/// Writes over a large file of which all is here and the server has the same, one behind the other.
/// So a program inserts bytes without emptying the file: it writes all that follows them anew.
#[derive(Clone, Debug)]
struct Run {
    range: Range<u64>,
    last: Time,
}

impl Run {
    /// True if it is to be one change for now.
    fn goes_on(&self, now: Time) -> bool {
        self.range.end - self.range.start >= RUN_MIN && now.since(self.last) < PAUSE
    }
}

impl Unsealed {
    /// Data that were written at `since`. `is_rewrite`: a large file was emptied by that.
    pub(in crate::host) fn at(since: Time, is_rewrite: bool) -> Unsealed {
        Unsealed { since, by: None, is_rewrite, run: None }
    }

    /// The first of the data are a write of `range` over a large file.
    pub(in crate::host) fn begin_run(&mut self, range: Range<u64>) {
        self.run = Some(Run { range, last: self.since });
    }

    /// The file is cut.
    pub(in crate::host) fn end_run(&mut self) {
        self.run = None;
    }

    /// More data are written, in `range`.
    pub(in crate::host) fn written(&mut self, range: &Range<u64>, now: Time) {
        match &mut self.run {
            Some(run) if run.range.end == range.start => {
                (run.range.end, run.last) = (range.end, now);
            }
            _ => self.end_run(),
        }
    }

    /// Data that `by` had closed, as if it had not.
    pub(in crate::host) fn reopened(since: Time, by: Caller) -> Unsealed {
        Unsealed { since, by: Some(by), is_rewrite: false, run: None }
    }
}

impl Host {
    /// When the oldest data of `ino` were written that are not sealed.
    pub fn unsealed_since(&self, ino: Ino) -> Option<Time> {
        self.unsealed.get(&ino).map(|unsealed| unsealed.since)
    }

    /// True if a write over `ino` that begins at `offset` is the first of a run, or goes on with
    /// one.
    pub(in crate::host) fn is_of_a_run(&self, ino: Ino, offset: u64) -> bool {
        match self.unsealed.get(&ino) {
            Some(unsealed) => unsealed.run.as_ref().is_some_and(|run| run.range.end == offset),
            None => {
                let size = self.tree.peek(ino).map_or(0, |attr| attr.size);
                offset < size && self.is_worth_writing_on(ino)
            }
        }
    }

    /// What of a write of `range` over `ino` is to be kept as the basis of its store: clean bytes
    /// that the server has, near the beginning of a run.
    pub(in crate::host) fn overwrites(&self, ino: Ino, range: &Range<u64>) -> Range<u64> {
        let run = self.unsealed.get(&ino).and_then(|unsealed| unsealed.run.as_ref());
        let first = run.map_or(range.start, |run| run.range.start);
        let end = range.end.min(first.saturating_add(KEPT_MAX)).max(range.start);
        let size = self.tree.peek(ino).map_or(0, |attr| attr.size);
        match self.is_of_a_run(ino, range.start) {
            true => range.start..end.min(size).max(range.start),
            false => range.start..range.start,
        }
    }

    /// True if a process is writing `ino` anew: that is to be one change.
    pub(in crate::host) fn is_rewritten(&self, ino: Ino, now: Time) -> bool {
        let is_new = |unsealed: &Unsealed| {
            let goes_on = unsealed.run.as_ref().is_some_and(|run| run.goes_on(now));
            (unsealed.is_rewrite || goes_on) && now.since(unsealed.since) < REWRITE
        };
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
