//! Taking in entries that are in the log: what was drafted becomes part of this host's view.

use std::ops::Range;

use crate::host::Host;
use crate::host::action::Task;
use crate::host::cache::FileData;
use crate::host::call::Growth;
use crate::host::log::{Change, Entry, WritePlace};
use crate::host::send::Unsealed;
use crate::nouns::{Ino, Kind, NewNode, Record, Time, Timestamp};

impl Host {
    /// Takes in an entry that was drafted last and is in the log now.
    pub fn admit(&mut self, entry: Entry, now: Time) {
        match entry {
            Entry::Change(logged) => {
                assert!(logged.seq == self.next_seq, "an entry is admitted before the next draft");
                assert!(self.seqs_left() > 0, "numbers are reserved before they are used");
                self.next_seq += 1;
                self.made(logged.seq, &logged.change, &logged.caller);
                match &logged.change {
                    Change::Record(record) => {
                        if let Some(growth) = self.growth_of(record) {
                            self.room.changed(logged.seq, growth);
                        }
                        self.apply(logged.seq, record, logged.time);
                    }
                    Change::Data(data) => self.sealed(logged.seq, data.ino),
                }
                let (tree, seq, company) = (&self.tree, logged.seq, self.company(&logged.change));
                self.queue.push(logged, now, |ino| tree.may_be_directory(ino));
                if let Some(every) = company {
                    let before = self.queue.next_release();
                    self.queue.hold(seq, now, every);
                    if self.queue.next_release() != before {
                        self.wake(Task::Time);
                    }
                }
            }
            Entry::Written { place, offset, data } => {
                let range = offset..offset.saturating_add(data.len());
                let size = place.old_size.max(range.end);
                self.note_growth(place.ino, size, data.len());
                self.note_written(place.ino, &range, now);
                self.change_data(&place, size, |file| file.write(range, place.old_size));
            }
            Entry::Resized { place, size } => {
                self.note_growth(place.ino, size, 0);
                let is_rewrite = size == 0 && self.is_worth_a_basis(place.ino);
                let unsealed = || Unsealed::at(now, is_rewrite);
                self.unsealed.entry(place.ino).or_insert_with(unsealed).end_run();
                self.change_data(&place, size, |file| file.truncate(size, place.old_size));
            }
            Entry::Preserved { seq, range, .. } => {
                self.preserved.entry(seq).or_default().insert(range);
            }
            Entry::Replaced(replaced) => drop(self.replace(&replaced, now)),
            Entry::Nameless(entry) => {
                let ino = entry.file();
                self.admit(*entry, now);
                // Its data go nowhere, so they do not wait for anything.
                ino.and_then(|ino| self.unsealed.remove(&ino));
            }
            Entry::Spoiled { ino, container, range } => {
                let file = self.files.get_mut(&ino);
                if let Some(file) = file.filter(|file| file.container() == container) {
                    file.spoiled(range);
                }
            }
            Entry::Forgot(history) => drop(self.forget_lost(&history)),
            Entry::Settled { .. } | Entry::Synced => {}
        }
    }

    /// What was written to `ino` is change `seq`, or part of it.
    pub(super) fn sealed(&mut self, seq: u64, ino: Ino) {
        self.room.sealed(seq, ino);
        self.writers.remove(&ino);
        self.unsealed.remove(&ino);
        if let Some(file) = self.files.get_mut(&ino) {
            file.seal(seq);
        }
        self.tree.stir(ino);
    }

    fn note_written(&mut self, ino: Ino, range: &Range<u64>, now: Time) {
        let begins = !self.unsealed.contains_key(&ino) && self.is_of_a_run(ino, range.start);
        let unsealed = self.unsealed.entry(ino).or_insert_with(|| Unsealed::at(now, false));
        match begins {
            true => unsealed.begin_run(range.clone()),
            false => unsealed.written(range, now),
        }
    }

    /// What a write of `range` surely adds to the quotas of `ino`; `None` if nothing.
    pub fn growth_by(&self, ino: Ino, range: &Range<u64>) -> Option<Growth> {
        let size = self.tree.peek(ino)?.size.max(range.start);
        let growth = self.growth(ino, i64::try_from(range.end.saturating_sub(size)).ok()?, 0)?;
        (growth.bytes > 0 && !self.is_nameless(ino)).then_some(growth)
    }

    /// What something new in `directory` adds to its quotas.
    pub fn growth_in(&self, directory: Ino) -> Option<Growth> {
        self.growth(directory, 0, 1)
    }

    fn growth(&self, ino: Ino, bytes: i64, inodes: i64) -> Option<Growth> {
        Some(Growth { quota: self.tree.peek(ino)?.quota, bytes, inodes })
    }

    /// What a record adds to the quotas of what it is about, before it is applied.
    fn growth_of(&self, record: &Record) -> Option<Growth> {
        if let Record::Create { parent, .. } = record {
            return self.growth_in(*parent);
        }
        let gone = record.removed()?;
        let attr = self.tree.peek(gone)?;
        let is_last = attr.kind == Kind::Directory || attr.nlink < 2;
        let bytes = i64::try_from(attr.allocated).unwrap_or(i64::MAX);
        if is_last { self.growth(gone, -bytes, -1) } else { None }
    }

    /// A file becomes `size` long, by `len` bytes that are written or by none.
    fn note_growth(&mut self, ino: Ino, size: u64, len: u64) {
        let Some(before) = self.tree.peek(ino).map(|attr| attr.size) else { return };
        let bytes = match size < before {
            true => i64::try_from(before - size).map_or(-i64::MAX, |less| -less),
            false => i64::try_from((size - before).min(len)).unwrap_or(i64::MAX),
        };
        if let Some(growth) = self.growth(ino, bytes, 0).filter(|_| !self.is_nameless(ino)) {
            self.room.wrote(ino, growth);
        }
    }

    fn apply(&mut self, seq: u64, record: &Record, time: Timestamp) {
        self.tree.apply(record, time);
        match record {
            Record::Create { ino, node: NewNode::File, .. } => {
                let container = self.fresh_container();
                self.files.insert(*ino, FileData::created(seq, container));
            }
            Record::Clone { ino, .. } => {
                // What the log says of the old one is over: it would be done again, with zeros
                // where the other file's data were fetched to.
                let fresh = self.fresh_container();
                if let Some(file) = self.file(*ino) {
                    let old = file.container();
                    file.cloned(seq, fresh);
                    self.abandon(*ino, old);
                }
            }
            _ => {}
        }
        if let Some(ino) = record.removed()
            && self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0)
        {
            self.held.insert(ino);
        }
    }

    fn change_data(&mut self, place: &WritePlace, size: u64, change: impl FnOnce(&mut FileData)) {
        let (ino, time) = (place.ino, place.time);
        let Some(file) = self.files.get_mut(&ino) else { return };
        let was_clean = !file.has_dirty();
        let (dirty, container) = (file.dirty_bytes(), file.container());
        change(file);
        file.move_to(place.container);
        // What is written may be allocated already. Until the server says how much is, that is
        // not known, but it is never more than the file is long.
        let more = file.dirty_bytes().saturating_sub(dirty);
        let before = self.tree.peek(ino).map_or(0, |attr| attr.allocated);
        self.tree.data_changed(ino, size, before + more, time);
        if was_clean {
            // One unsettled change stands for everything until the seal takes it over.
            self.tree.mark(ino);
        }
        if container != place.container {
            self.abandon(ino, container);
        }
    }
}
