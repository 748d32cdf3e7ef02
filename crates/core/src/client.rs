//! The client's core: owns the cached tree, the files' data states and the queue of changes,
//! and routes between them.
//!
//! Every change goes through three steps: a `draft_*` makes its log entry and changes nothing,
//! the shell writes the entry to the log, [`ClientCore::admit`] makes it part of this host's
//! view. So what cannot be logged never happened. When the server's outcome is known,
//! [`ClientCore::settle`] takes the change out again.

mod clean;
mod room;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use crate::cache::{FileData, Touched, Tree};
use crate::modlog::{Change, DataChange, Entry, Logged, NewNode, Queue, Record, SetAttr};
use crate::namespace::mode_after_write;
use crate::types::{Attr, Caller, Ino, Kind, Name, Time, Timestamp, Version};

pub use room::{Growth, Quota, Room};

/// State of one mount.
#[derive(Debug)]
pub struct ClientCore {
    /// Names and attributes.
    pub tree: Tree,
    /// Files with data here or handles open.
    pub files: BTreeMap<Ino, FileData>,
    /// What the server lacks.
    pub queue: Queue,
    /// What quotas have left.
    pub room: Room,
    open: BTreeMap<Ino, u32>,
    /// Files whose containers are being changed, and by how many threads. The log and `files`
    /// hear of that only afterwards.
    changing: BTreeMap<Ino, u32>,
    /// Inodes that lost their last name here and that the kernel still knows: somebody may be
    /// about to open one, or have it as working directory. What bounds them is what bounds the
    /// kernel: its memory.
    held: BTreeSet<Ino>,
    next_seq: u64,
    seq_reserved: u64,
}

/// A file that is wholly on this host, and shorter, is copied there sooner than a server answers.
const CLONE_MIN: u64 = 1 << 20;

/// Bytes to copy from a place in one file to a place in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// First byte in the one.
    pub from: u64,
    /// Where it goes in the other.
    pub to: u64,
    /// How many.
    pub len: u64,
}

/// How the set-id bits of a file go that was written by somebody who may not keep them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetIds {
    /// The server takes them when the data are stored in their writer's name.
    GoWithTheStore,
    /// Root, in whose name the data are stored, keeps them: they have to be taken.
    GoByChmod(SetAttr),
}

/// What a settled change asks the shell to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The container of this file holds another version than the server's: replace it, and
    /// have the kernel drop its pages.
    Replace(Ino),
    /// Our version now stands beside the server's.
    Conflict {
        /// The file.
        ino: Ino,
        /// Directory of the copy.
        parent: Ino,
        /// Name of the copy.
        name: Name,
    },
    /// The change was refused: keep it for the user.
    Refused {
        /// Why.
        refusal: crate::refusal::Refusal,
    },
}

impl ClientCore {
    /// An empty core whose changes are numbered from `next_seq`.
    pub fn new(lifetime: Duration, node_limit: usize, next_seq: u64) -> ClientCore {
        ClientCore {
            tree: Tree::new(lifetime, node_limit),
            files: BTreeMap::new(),
            queue: Queue::default(),
            room: Room::default(),
            open: BTreeMap::new(),
            changing: BTreeMap::new(),
            held: BTreeSet::new(),
            next_seq,
            seq_reserved: next_seq,
        }
    }

    /// Numbers below `through` may be used: they are durably reserved.
    pub fn reserve_seqs(&mut self, through: u64) {
        self.seq_reserved = self.seq_reserved.max(through);
    }

    /// How many numbers are left before more must be reserved.
    pub fn seqs_left(&self) -> u64 {
        self.seq_reserved - self.next_seq
    }

    /// All changes below this seq are settled. The server needs to keep no outcome of them once
    /// that is durable here.
    pub fn acked_below(&self) -> u64 {
        self.queue.oldest_seq().unwrap_or(self.next_seq)
    }

    /// The seq that the next change gets.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// A handle of `ino` was opened.
    pub fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
    }

    /// A handle of `ino` was closed; true if it was the last.
    pub fn closed(&mut self, ino: Ino) -> bool {
        let Some(count) = self.open.get_mut(&ino) else { return false };
        *count -= 1;
        if *count == 0 {
            self.open.remove(&ino);
            if self.tree.is_orphan(ino) {
                self.drop_dirty(ino);
            }
            return true;
        }
        false
    }

    /// True for a file that is only there because it is open here: what is written to it needs
    /// to go nowhere. One that is not open and is changed is changed by a name.
    ///
    /// Only the server can say that this host removed the last name. That it was the last one
    /// known here proves nothing: another host may have moved it, or made a further one, before
    /// the server hears of the removal. What is written until then is logged and stored.
    fn is_nameless(&self, ino: Ino) -> bool {
        self.is_open(ino) && self.tree.is_orphan(ino)
    }

    /// What was written to a file that nobody can reach any more goes nowhere.
    fn drop_dirty(&mut self, ino: Ino) {
        self.room.dropped(ino);
        if self.files.get_mut(&ino).is_some_and(FileData::drop_dirty) {
            self.tree.undo(&Touched { inodes: vec![ino], names: Vec::new() });
        }
    }

    /// True if some handle of `ino` is open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.open.contains_key(&ino)
    }

    /// True if the kernel may still ask about `ino`, which lost its last name here: what is
    /// known of it stays.
    pub fn is_held(&self, ino: Ino) -> bool {
        self.held.contains(&ino)
    }

    /// True if the last name of `ino` was removed here, as far as this host can tell.
    pub fn is_removed(&self, ino: Ino) -> bool {
        self.is_held(ino) && self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0)
    }

    /// True for a file that was removed here while nobody had it open: who opens it now looked
    /// its name up before.
    pub fn is_closed_for_good(&self, ino: Ino) -> bool {
        self.is_removed(ino) && !self.is_open(ino) && !self.tree.is_orphan(ino)
    }

    /// The kernel has let go of `ino`, or never knew it.
    pub fn let_go(&mut self, ino: Ino) -> bool {
        self.held.remove(&ino)
    }

    /// True if nobody can reach `ino` any more, so that what is here of it may go.
    pub fn is_gone(&self, ino: Ino) -> bool {
        let nameless = self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0);
        nameless && !self.is_open(ino) && !self.is_held(ino) && !self.tree.is_pending(ino)
    }

    /// The data state of `ino`, made on first use from its attributes.
    pub fn file(&mut self, ino: Ino) -> Option<&mut FileData> {
        if !self.files.contains_key(&ino) {
            let version = self.tree.peek(ino)?.data_version;
            self.files.insert(ino, FileData::new(version));
        }
        self.files.get_mut(&ino)
    }

    /// The entry for a change of names or attributes.
    pub fn draft_change(&self, record: Record, caller: Caller, time: Timestamp) -> Entry {
        self.draft(Change::Record(record), caller, time)
    }

    /// How the set-id bits of `ino` go, if it has any; `opener` is in whose name it is stored.
    pub fn set_ids_after_write(&self, ino: Ino, opener: &Caller) -> Option<SetIds> {
        let mode = self.tree.peek(ino)?.mode;
        let after = mode_after_write(mode);
        let go = match opener.uid {
            0 => SetIds::GoByChmod(SetAttr { mode: Some(after), ..SetAttr::default() }),
            _ => SetIds::GoWithTheStore,
        };
        (after != mode).then_some(go)
    }

    /// The file that must be sealed before `record` is logged, if there is one: it loses a
    /// name, perhaps the last, and nobody has it open. Stored afterwards, what was changed
    /// would find no file and become a conflict copy of what was removed here on purpose.
    pub fn seal_first(&self, record: &Record) -> Option<Ino> {
        let ino = record.unnamed()?;
        let has_dirty = self.files.get(&ino).is_some_and(FileData::has_dirty);
        (has_dirty && !self.is_open(ino)).then_some(ino)
    }

    /// What lets the server copy as `asked`, if that is all of a file into one that is empty,
    /// neither has changes that the server lacks, and it is worth it.
    pub fn clone_of(&mut self, from: Ino, ino: Ino, asked: Copied) -> Option<Record> {
        let (source, target) = (*self.tree.peek(from)?, *self.tree.peek(ino)?);
        let Attr { size, data_version: version, .. } = source;
        let is_all = asked.from == 0 && asked.to == 0 && size > 0 && asked.len >= size;
        let is_file = source.kind == Kind::File && target.kind == Kind::File;
        if !is_all || !is_file || from == ino || target.size > 0 || self.is_ahead(from) {
            return None;
        }
        let is_here = self.file(from)?.is_valid(0..size, size);
        let file = self.file(ino)?;
        let is_empty = !file.has_dirty() && !file.is_cloning();
        let is_worth = size >= CLONE_MIN || !is_here;
        let record = Record::Clone { ino, base: file.base(), from, version };
        (is_empty && is_worth).then_some(record)
    }

    /// True while the server has not said whether `ino` got another file's data.
    pub fn is_cloning(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(FileData::is_cloning)
    }

    fn draft(&self, change: Change, caller: Caller, time: Timestamp) -> Entry {
        Entry::Change(Logged { seq: self.next_seq, time, caller, operation: None, change })
    }

    /// The entry for bytes written into the container of `ino`; `None` if it is not known.
    pub fn draft_write(&mut self, ino: Ino, range: Range<u64>, time: Timestamp) -> Option<Entry> {
        let old_size = self.tree.peek(ino)?.size;
        let base = self.file(ino)?.base();
        let (offset, len) = (range.start, range.end - range.start);
        let entry = Entry::Written { ino, base, offset, len, old_size, time };
        Some(if self.is_nameless(ino) { Entry::Nameless(Box::new(entry)) } else { entry })
    }

    /// The entry for a new size of the container of `ino`; `None` if it is not known.
    pub fn draft_resize(&mut self, ino: Ino, size: u64, time: Timestamp) -> Option<Entry> {
        let old_size = self.tree.peek(ino)?.size;
        let base = self.file(ino)?.base();
        let entry = Entry::Resized { ino, base, old_size, size, time };
        Some(if self.is_nameless(ino) { Entry::Nameless(Box::new(entry)) } else { entry })
    }

    /// The entry that closes what was written to `ino` since the last seal into one change;
    /// `None` if there is nothing.
    ///
    /// An open file that has no name anywhere is not stored: nobody else will ever read it.
    ///
    /// The change is of the moment that this host shows as the file's last: so the times stay
    /// as they are when it is settled.
    pub fn draft_seal(&self, ino: Ino, caller: Caller) -> Option<Entry> {
        let attr = self.tree.peek(ino)?;
        if self.is_nameless(ino) {
            return None;
        }
        let unsealed = self.files.get(&ino)?.unsealed()?;
        let change = Change::Data(DataChange {
            ino,
            base: unsealed.base,
            cut: unsealed.cut,
            size: attr.size,
            ranges: unsealed.ranges,
            mtime: attr.mtime,
        });
        Some(self.draft(change, caller, attr.ctime))
    }

    /// Takes in an entry that was drafted last and is in the log now.
    pub fn admit(&mut self, entry: Entry, now: Time) {
        match entry {
            Entry::Change(logged) => {
                assert!(logged.seq == self.next_seq, "an entry is admitted before the next draft");
                assert!(self.seqs_left() > 0, "numbers are reserved before they are used");
                self.next_seq += 1;
                match &logged.change {
                    Change::Record(record) => {
                        if let Some(growth) = self.growth_of(record) {
                            self.room.changed(logged.seq, growth);
                        }
                        self.apply(logged.seq, record, logged.time);
                    }
                    Change::Data(data) => {
                        self.room.sealed(logged.seq, data.ino);
                        if let Some(file) = self.files.get_mut(&data.ino) {
                            file.seal(logged.seq);
                        }
                    }
                }
                self.queue.push(logged, now);
            }
            Entry::Written { ino, offset, len, old_size, time, .. } => {
                let range = offset..offset + len;
                let size = old_size.max(range.end);
                self.note_growth(ino, size, len);
                self.change_data(ino, size, time, |file| file.write(range, old_size));
            }
            Entry::Resized { ino, old_size, size, time, .. } => {
                self.note_growth(ino, size, 0);
                self.change_data(ino, size, time, |file| file.truncate(size, old_size));
            }
            Entry::Nameless(entry) => self.admit(*entry, now),
            Entry::Settled { .. } => {}
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
                self.files.insert(*ino, FileData::created(seq));
            }
            Record::Clone { ino, .. } => {
                if let Some(file) = self.files.get_mut(ino) {
                    file.cloned(seq);
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

    fn change_data(
        &mut self,
        ino: Ino,
        size: u64,
        time: Timestamp,
        change: impl FnOnce(&mut FileData),
    ) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let was_clean = !file.has_dirty();
        let dirty = file.dirty_bytes();
        change(file);
        // What is written may be allocated already. Until the server says how much is, that is
        // not known, but it is never more than the file is long.
        let more = file.dirty_bytes().saturating_sub(dirty);
        let before = self.tree.peek(ino).map_or(0, |attr| attr.allocated);
        self.tree.data_changed(ino, size, before + more, time);
        if was_clean {
            // One unsettled change stands for everything until the seal takes it over.
            self.tree.mark(ino);
        }
    }

    /// Puts a change that an earlier life of the client left into the queue.
    pub fn requeue(&mut self, logged: Logged, now: Time) {
        self.next_seq = self.next_seq.max(logged.seq + 1);
        self.queue.push(logged, now);
    }

    /// Entries that say the same as the log so far, in less.
    pub fn log_entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.queue.iter().map(|(logged, _)| Entry::Change(logged.clone())).collect();
        for (ino, file) in &self.files {
            let (Some(unsealed), Some(attr)) = (file.unsealed(), self.tree.peek(*ino)) else {
                continue;
            };
            if self.is_nameless(*ino) {
                continue;
            }
            let (ino, base, time) = (*ino, unsealed.base, attr.mtime);
            if let Some(cut) = unsealed.cut {
                entries.push(Entry::Resized { ino, base, old_size: u64::MAX, size: cut, time });
            }
            for range in unsealed.ranges {
                let (offset, len) = (range.start, range.end - range.start);
                let old_size = attr.size;
                entries.push(Entry::Written { ino, base, offset, len, old_size, time });
            }
            let size = attr.size;
            entries.push(Entry::Resized { ino, base, old_size: size, size, time });
        }
        entries
    }

    /// True if this host has data of `ino` that the server lacks.
    pub fn is_ahead(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(FileData::is_ahead)
    }

    /// True if data of `ino` are in the queue. That is all that is known of those which an
    /// earlier life of the client left.
    fn is_queued(&self, ino: Ino) -> bool {
        self.queue.has_data(ino)
    }

    /// Bytes of file data that the server lacks.
    pub fn unsafe_bytes(&self) -> u64 {
        self.queue.bytes() + self.files.values().map(FileData::dirty_bytes).sum::<u64>()
    }

    /// True if some file has changes that are not sealed.
    pub fn has_unsealed(&self) -> bool {
        self.files.values().any(FileData::has_dirty)
    }

    /// Files with changes that are not sealed.
    pub fn unsealed(&self) -> Vec<Ino> {
        self.files.iter().filter(|(_, file)| file.has_dirty()).map(|(ino, _)| *ino).collect()
    }

    /// The server's data of `ino` are `version`; true if what is here must be replaced.
    ///
    /// Data follow only where the attributes did: a write made on the new data with the old
    /// size would cut off what another host wrote.
    pub fn observe(&mut self, ino: Ino, version: Version) -> bool {
        let known = self.tree.peek(ino);
        if known.is_some_and(|attr| attr.data_version != version) {
            return false;
        }
        let epoch = known.map_or(version.epoch, |attr| attr.change.epoch);
        if !self.files.contains_key(&ino) || self.is_queued(ino) {
            return false;
        }
        self.files.get_mut(&ino).is_some_and(|file| file.observe(version, epoch))
    }

    /// Drops what is neither open, nor ahead of the server, nor worth its memory.
    pub fn shrink(&mut self, now: Time) {
        let (open, held, files) = (&self.open, &self.held, &self.files);
        self.tree.shrink(now, |ino| {
            open.contains_key(&ino)
                || held.contains(&ino)
                || files.get(&ino).is_some_and(FileData::is_ahead)
        });
    }
}

#[cfg(test)]
mod tests;
