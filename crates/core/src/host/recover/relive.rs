//! The index says what was known at one place in the log, the log what came after it.
//!
//! What stands before that place and is not settled is pending, and part of what is noted; what
//! stands behind it is taken in again as it was then. Names and attributes of the past are
//! stale; what is pending stays this host's own truth until the server has it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::host::Host;
use crate::host::cache::{FileData, FileNote};
use crate::host::log::{Change, Covered, DataChange, Entry, Logged, replay};
use crate::host::planted::Fault;
use crate::nouns::{ContainerId, Ino, Name, NewNode, Record, Time};

/// What of the index has to be in memory before the log is taken in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::host) struct Needs {
    /// Inodes.
    pub inodes: BTreeSet<Ino>,
    /// Names in directories.
    pub names: BTreeSet<(Ino, Name)>,
}

/// What [`Host::take_in_log`] needs of the index for these entries, of which the index has the
/// first `noted`.
pub(in crate::host) fn needs(entries: &[Entry], noted: usize) -> Needs {
    let (before, after) = entries.split_at(noted.min(entries.len()));
    let left = replay(before);
    let mut needs = Needs::default();
    needs.inodes.extend(left.unsealed.iter().map(|data| data.ino));
    let changes = left.changes.iter().chain(after.iter().filter_map(Entry::change));
    for touched in changes.map(|logged| logged.change.touched()) {
        needs.inodes.extend(touched.inodes);
        needs.names.extend(touched.names);
    }
    needs.inodes.extend(after.iter().filter_map(Entry::file));
    needs.inodes.extend(after.iter().filter_map(Entry::source));
    needs
}

/// True if a log has all bytes of these ranges of a container.
fn has_all(
    covered: &Covered,
    key: (Ino, ContainerId),
    mut ranges: impl Iterator<Item = Range<u64>>,
) -> bool {
    let covered = covered.get(&key);
    ranges.all(|range| covered.is_some_and(|covered| covered.contains(range)))
}

impl Host {
    /// Forgets data that cannot be relied on. `is_there` tells which containers exist; the log may
    /// have all bytes of one that does not (`covered`), because small new files are in memory at
    /// first. Data of another version than the file's were given up without a word in the log. If
    /// the host went `down`, containers may lack anything, or have what nobody logged: what is
    /// ahead of the server is fetched anew once it is not.
    pub(in crate::host) fn check_data(
        &mut self,
        down: bool,
        covered: &Covered,
        is_there: impl Fn(Ino, ContainerId) -> bool,
    ) {
        let down = down && !self.has_planted(Fault::TrustsDoubtful);
        let tree = &self.tree;
        self.files.retain(|ino, file| {
            let version = tree.peek(*ino).map(|attr| attr.data_version);
            let key = (*ino, file.container());
            let is_here = || is_there(key.0, key.1) || has_all(covered, key, file.valid().iter());
            file.is_ahead() || !down && version == Some(file.version()) && is_here()
        });
        self.files.values_mut().filter(|_| down).for_each(FileData::doubted);
    }

    /// What was written to a file that nobody could reach any more went with it, and its container,
    /// but not from the log if the disk was full. Takes out of `unsealed` what is neither there nor
    /// `covered`, and returns that.
    pub(in crate::host) fn drop_lost(
        &mut self,
        unsealed: &mut Vec<DataChange>,
        covered: &Covered,
        is_there: impl Fn(Ino, ContainerId) -> bool,
    ) -> Vec<DataChange> {
        let is_lost = |data: &mut DataChange| {
            let key = (data.ino, data.container);
            !is_there(key.0, key.1) && !has_all(covered, key, data.ranges.iter().cloned())
        };
        let lost: Vec<DataChange> = unsealed.extract_if(.., is_lost).collect();
        for data in &lost {
            self.drop_dirty(data.ino);
            self.files.remove(&data.ino);
        }
        lost
    }

    /// True as long as there are files of which only this process knows that the host went down
    /// under them: the next one has to be told so, too.
    pub fn is_in_doubt(&self) -> bool {
        self.files.values().any(FileData::is_doubted)
    }

    /// Takes in a log that was left behind. The index has what its first `noted` entries did, of
    /// which `files` is what it says of data; what is [needed](needs) of its tree has been
    /// installed. Returns what was written and never sealed: draft, log and admit it
    /// ([`Host::draft_leftover`]).
    pub(in crate::host) fn take_in_log(
        &mut self,
        entries: Vec<Entry>,
        noted: usize,
        files: &BTreeMap<Ino, FileNote>,
        now: Time,
    ) -> Vec<DataChange> {
        let left = replay(&entries);
        // Those below may have been used, and lost with the end of the log.
        let first = self.next_seq.max(left.newest_seq + 1);
        let mut entries = entries;
        let after = entries.split_off(noted.min(entries.len()));
        self.resume(&entries, files, now);
        for entry in after {
            self.relive(entry, files, now);
        }
        let goes_on: BTreeSet<Ino> = left.unsealed.iter().map(|data| data.ino).collect();
        for ino in self.unsealed() {
            // Of files that nobody can reach any more.
            if !goes_on.contains(&ino) {
                self.drop_dirty(ino);
                self.files.get_mut(&ino).map(FileData::forget_valid);
            }
        }
        self.queue.mark_sent();
        self.tree.expire_all();
        self.next_seq = first;
        self.seq_reserved = self.seq_reserved.max(self.next_seq);
        left.unsealed
    }

    /// What was pending when the index was written.
    fn resume(&mut self, entries: &[Entry], files: &BTreeMap<Ino, FileNote>, now: Time) {
        let left = replay(entries);
        self.preserved = left.preserved;
        // The last change of a name says what it means.
        for logged in left.changes.iter().rev() {
            if let Change::Record(record) = &logged.change {
                self.tree.recall_names(record);
            }
        }
        for logged in left.changes {
            self.tree.mark_all(&logged.change.touched());
            self.resume_data(&logged, files);
            self.next_seq = self.next_seq.max(logged.seq + 1);
            self.seq_reserved = self.seq_reserved.max(self.next_seq);
            let tree = &self.tree;
            self.queue.push(logged, now, |ino| tree.may_be_directory(ino));
        }
        for data in &left.unsealed {
            self.tree.mark(data.ino);
            self.tree.note_left(data.ino, data.size);
            self.kept_file(data, files).left_unsealed(data);
        }
    }

    fn resume_data(&mut self, logged: &Logged, files: &BTreeMap<Ino, FileNote>) {
        match &logged.change {
            Change::Data(data) => {
                self.tree.note_left(data.ino, data.size);
                self.kept_file(data, files).requeued(logged.seq, data);
            }
            Change::Record(Record::Create { ino, node: NewNode::File, .. }) => {
                let container = self.fresh_container();
                let mut file = match files.get(ino) {
                    Some(note) => FileData::restored(note.clone()),
                    None => FileData::created(logged.seq, container),
                };
                file.requeue_made(logged.seq);
                self.files.insert(*ino, file);
            }
            Change::Record(Record::Create { ino, node: NewNode::Directory, .. }) => {
                self.tree.mark_own(*ino);
            }
            Change::Record(Record::Clone { ino, .. }) => {
                if let Some(note) = files.get(ino) {
                    let file = || FileData::restored(note.clone());
                    self.files.entry(*ino).or_insert_with(file);
                }
                // Nothing may be noted of its data: it was empty.
                if let Some(file) = self.file(*ino) {
                    file.cloned(logged.seq, file.container());
                }
                self.tree.clone_goes_on(*ino);
            }
            Change::Record(_) => {}
        }
    }

    fn kept_file(&mut self, data: &DataChange, files: &BTreeMap<Ino, FileNote>) -> &mut FileData {
        let kept = files.get(&data.ino);
        let file = self.files.entry(data.ino).or_insert_with(|| match kept {
            Some(note) => FileData::restored(note.clone()),
            None => FileData::new(Default::default(), data.container),
        });
        file.rebase(data.base);
        if kept.is_none() {
            file.move_to(data.container);
        }
        file
    }

    /// Takes in an entry that came after the index was written.
    fn relive(&mut self, entry: Entry, files: &BTreeMap<Ino, FileNote>, now: Time) {
        if let Some(place) = entry.place() {
            let (ino, container, base) = (place.ino, place.container, place.base);
            let emptied = matches!(entry, Entry::Resized { size: 0, .. });
            let file = self.files.entry(ino).or_insert_with(|| match files.get(&ino) {
                Some(note) => FileData::restored(note.clone()),
                None => FileData::new(Default::default(), container),
            });
            file.rebase(base);
            if !emptied {
                file.move_to(container);
            }
        }
        if let Entry::Spoiled { ino, .. } = &entry
            && let Some(note) = files.get(ino)
        {
            self.files.entry(*ino).or_insert_with(|| FileData::restored(note.clone()));
        }
        match entry {
            Entry::Settled { seq, outcome } => {
                drop(self.settle(seq, &outcome, &self.tree.as_of(None, [now; 2])))
            }
            Entry::Change(logged) => {
                self.next_seq = logged.seq;
                self.seq_reserved = self.seq_reserved.max(logged.seq + 1);
                self.admit(Entry::Change(logged), now);
            }
            entry => self.admit(entry, now),
        }
    }
}
