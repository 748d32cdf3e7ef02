//! The shell of the host: carries out its actions on the simulated disk.

use std::ops::Range;

use segue_core::host::action::{
    Action, Ask, CallId, Change, Done, Edit, Event, Fact, Now, Preserve, Reach, Undo, Undone,
};
use segue_core::host::cache::Scrap;
use segue_core::host::call::{Answer, Call, NameCall};
use segue_core::host::log::Entry;
use segue_core::nouns::{ContainerId, Dentry, Ino};

use super::change::Attempt;
use super::data::{bytes_of, index, put};
use super::{Mount, RAISED_EVERY, Stop, Tried};
use crate::Violation;

/// Of so many changes that are to become others, one batch is made before one has.
const SENT_MEANWHILE_EVERY: u64 = 3;

/// How an action ended.
type Ended = Result<Done, Undone>;

impl Mount {
    pub(super) fn moment(&self) -> Now {
        let link = if self.is_offline { Reach::Offline } else { Reach::Online };
        Now { time: self.now, wall: self.wall(), link }
    }

    /// Carries out a call that asks nothing. It may write `bytes`.
    pub(super) fn host_call(&mut self, call: Call, bytes: &[u8]) -> Tried<Answer> {
        match self.run(call, bytes)? {
            Ok(answer) => Ok(Ok(answer)),
            Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
            Err(stop) => Err(Violation(format!("a call that cannot wait: {stop:?}"))),
        }
    }

    /// Carries out a change of names or attributes. Returns the inode that it is about.
    pub(super) fn name_call(&mut self, call: NameCall) -> Attempt<Option<Ino>> {
        let ended = self.run(Call::Name(call, self.caller.clone()), &[])?;
        self.raise_newest();
        Ok(ended.map(|answer| answer.ino))
    }

    /// Carries out a call. One that has to wait for the server is given up, and begins again later.
    fn run(&mut self, call: Call, bytes: &[u8]) -> Attempt<Answer> {
        let id = CallId(0);
        let mut event = Event::Call { id, call };
        let mut seen_at = None;
        loop {
            self.core.handle(event, self.moment());
            let (mut answer, mut done) = (None, None);
            while let Some(action) = self.core.poll_action() {
                match action {
                    Action::Reply(_, result) => answer = Some(result),
                    Action::Ask(_, ask) => match self.find_out(ask) {
                        Ok(found) => done = Some(Ok(Done::Fact(found))),
                        Err(Stop::Refused(refusal)) => done = Some(Err(refusal.into())),
                        Err(stop) => {
                            self.core.handle(Event::Cancel(id), self.moment());
                            return Ok(Err(stop));
                        }
                    },
                    action => {
                        let is_unseen = hides(&action);
                        done = self.carry_out(action, bytes)?.or(done);
                        seen_at = seen_at.or(is_unseen.then_some(self.changed_at));
                    }
                }
            }
            // Cancelled changes are as they were seen before, and so is what follows from them.
            self.changed_at = seen_at.unwrap_or(self.changed_at);
            match (answer, done) {
                (Some(answer), _) => return Ok(answer.map_err(Stop::from)),
                (None, Some(done)) => event = Event::Done { id, done },
                (None, None) => return Err(Violation("a call that does not go on".into())),
            }
        }
    }

    /// Answers a question of a call.
    fn find_out(&mut self, ask: Ask) -> Result<Fact, Stop> {
        Ok(match ask {
            Ask::Name(Dentry { parent, name }) => Fact::Name(self.lookup(parent, &name)?),
            Ask::Attr(ino) => Fact::Attr(self.getattr(ino)?),
            Ask::IsEmpty(directory) => Fact::IsEmpty(self.list(directory)?.is_empty()),
            Ask::Number => Fact::Number(self.take_next_ino()?),
        })
    }

    /// Carries out a call up to its write, which is left to the caller. `None` if it ended before.
    pub(super) fn host_call_to_write(&mut self, call: Call) -> Result<Option<Edit>, Violation> {
        let id = CallId(0);
        let mut event = Event::Call { id, call };
        loop {
            self.core.handle(event, self.moment());
            let mut done = None;
            while let Some(action) = self.core.poll_action() {
                match action {
                    Action::Write(_, edit) => return Ok(Some(*edit)),
                    Action::Reply(..) => return Ok(None),
                    action => done = self.carry_out(action, &[])?.or(done),
                }
            }
            let Some(done) = done else { return Ok(None) };
            event = Event::Done { id, done };
        }
    }

    /// Carries out an action. Returns how it ended, if a call waits for that.
    fn carry_out(&mut self, action: Action, bytes: &[u8]) -> Result<Option<Ended>, Violation> {
        Ok(Some(match action {
            Action::Reserve(_) => {
                self.reserve_seqs();
                Ok(Done::Reserved(self.kept.seq_reserved))
            }
            Action::Load(_) => Ok(Done::Free(u64::MAX)),
            Action::Evict(_) => Ok(Done::Carried),
            Action::Preserve(_, part) => self.keep_preserved(&part),
            Action::Append(_, entry) => self.append_entry(*entry)?,
            Action::Write(_, edit) => self.write_edit(&edit, bytes)?,
            Action::Undo(_, undo) => self.undo(*undo)?,
            Action::Remove(scrap) => {
                self.remove(scrap);
                return Ok(None);
            }
            Action::Wake(_)
            | Action::Reply(..)
            | Action::Ask(..)
            | Action::Made(_)
            | Action::KeepBasis(..)
            | Action::BasisEmptied(..)
            | Action::ForgetData(_)
            | Action::ForgetAttributes(_) => return Ok(None),
        }))
    }

    pub(super) fn remove(&mut self, scrap: Scrap) {
        match scrap {
            Scrap::Container(ino, id) => drop(self.kept.containers.remove(&(ino, id))),
            Scrap::Preserved(seq) => drop(self.kept.preserved.remove(&seq)),
        }
    }

    fn keep_preserved(&mut self, part: &Preserve) -> Ended {
        self.failing.try_read()?;
        let key = (part.ino, part.container);
        let container = self.kept.containers.entry(key).or_default();
        let bytes = bytes_of(&container.bytes, &part.range);
        let kept = self.kept.preserved.entry(part.seq).or_default();
        kept.keep((part.range.start..).zip(bytes));
        Ok(Done::Preserved(Vec::new()))
    }

    fn append_entry(&mut self, entry: Entry) -> Result<Ended, Violation> {
        self.meanwhile(&entry)?;
        if let Err(refusal) = self.failing.try_write() {
            return Ok(Err(refusal.into()));
        }
        let changed_at = self.changed_at;
        self.append(entry.clone())?;
        match &entry {
            Entry::Amended { .. } => self.amended += 1,
            Entry::Unsealed { .. } => self.taken_back += 1,
            Entry::Cancelled { ino, seqs } => {
                self.cancelled += seqs.len() as u64;
                self.forgotten_by_kernel(*ino);
                self.changed_at = changed_at;
            }
            Entry::Superseded { ino, seqs, .. } => {
                self.superseded += seqs.len() as u64;
                self.forgotten_by_kernel(*ino);
                self.changed_at = changed_at;
            }
            _ => {}
        }
        Ok(Ok(Done::Carried))
    }

    /// The kernel lets go of files that have no name.
    fn forgotten_by_kernel(&mut self, ino: Ino) {
        self.core.let_go(ino);
    }

    /// Some changes are taken, and not yet what they will be: the drain looks for a batch.
    fn meanwhile(&mut self, entry: &Entry) -> Result<(), Violation> {
        let seq = match entry {
            Entry::Amended { seq, .. } | Entry::Unsealed { seq } => *seq,
            Entry::Cancelled { seqs, .. } => seqs.last().copied().unwrap_or(1),
            Entry::Superseded { by, .. } => by.seq,
            _ => return Ok(()),
        };
        if seq.is_multiple_of(SENT_MEANWHILE_EVERY) { self.send() } else { Ok(()) }
    }

    /// As if the user had asked for the newest change, without a draw that would make every run
    /// another one.
    pub(super) fn raise_newest(&mut self) {
        let newest = self.core.queue.newest_seq().filter(|seq| seq.is_multiple_of(RAISED_EVERY));
        self.core.queue.raise(&newest.into_iter().collect(), &Default::default());
    }

    fn write_edit(&mut self, edit: &Edit, bytes: &[u8]) -> Result<Ended, Violation> {
        let (ino, key) = (edit.ino, (edit.ino, edit.container));
        let old_size = self.core.tree.peek(ino).map_or(0, |attr| attr.size);
        // A full disk takes bytes that overwrite others. What the log has got is taken back.
        if let Err((refusal, written)) = self.failing.try_change(bytes.len(), edit.logs_bytes) {
            if let Change::Bytes(offset) = edit.change {
                put(self.bytes_of_container(key), offset, &bytes[..written]);
            }
            return Ok(Err(Undone { refusal, is_logged: true }));
        }
        self.append(self.entry_of(edit, bytes))?;
        if !matches!(edit.change, Change::Nothing) {
            self.kept.unsynced.insert(key);
        }
        match &edit.change {
            Change::Bytes(offset) => {
                put(self.bytes_of_container(key), *offset, bytes);
                self.acknowledged.wrote(ino, *offset, bytes, old_size);
            }
            Change::Zeros(Range { start, end }) => {
                let zeros = vec![0; index(end - start)];
                put(self.bytes_of_container(key), *start, &zeros);
                self.acknowledged.wrote(ino, *start, &zeros, old_size);
            }
            Change::Size(size) => {
                self.bytes_of_container(key).resize(index(*size), 0);
                self.acknowledged.resized(ino, *size, old_size);
            }
            Change::Nothing => self.acknowledged.resized(ino, 0, old_size),
        }
        Ok(Ok(Done::Carried))
    }

    fn bytes_of_container(&mut self, key: (Ino, ContainerId)) -> &mut Vec<u8> {
        &mut self.kept.containers.entry(key).or_default().bytes
    }

    /// There is room for the word of what failed where the change stood in the log.
    fn undo(&mut self, undo: Undo) -> Result<Ended, Violation> {
        self.append(undo.entry)?;
        self.bytes_of_container((undo.ino, undo.container)).truncate(index(undo.size));
        Ok(Ok(Done::Carried))
    }
}

/// True for an entry after which everything is as it was seen before.
fn hides(action: &Action) -> bool {
    let Action::Append(_, entry) = action else { return false };
    matches!(**entry, Entry::Cancelled { .. } | Entry::Superseded { .. })
}
