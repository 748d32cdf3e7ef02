//! The shell of the host: carries out its actions on the simulated disk.

use std::ops::Range;
use std::time::Duration;

use segue_core::host::action::{
    Action, Ask, CallId, Change, Deliver, Done, Edit, Event, Fact, Gap, Load, Now, Patience,
    Preserve, Reach, Task, Told, Undo, Undone,
};
use segue_core::host::cache::Scrap;
use segue_core::host::call::{Answer, Call, KeptAs, Look, Seen};
use segue_core::host::log::{Entry, Instead, Replaced};
use segue_core::nouns::{Attr, ContainerId, Dentry, Ino, Name, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Lookup, Readdir, Reply, Request, Resume};

use super::outcomes::Hearing;
use super::{Mount, RAISED_EVERY, Stop, Tried};
use crate::Violation;
use crate::disk::{bytes_of, place, put};
use crate::plan::Bug;
use crate::server::Answer as Answered;

/// Of so many changes that are to become others, one batch is made before one has.
const SENT_MEANWHILE_EVERY: u64 = 3;

/// A request that something waits for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Asking {
    pub(crate) request: Request,
    /// The call of the host that asks.
    pub(crate) call: CallId,
}

/// How far a call came.
#[derive(Debug)]
pub(super) enum Ran {
    Answered(Result<Answer, Refusal>),
    Waits(Box<Asking>),
    /// A batch of it goes to the server.
    Delivers(Box<Deliver>),
    /// Its change is logged, and it waits for the outcome.
    Hears(Box<Hearing>),
    /// It waits for the keeping of promises.
    Keeps(Keep),
    /// It waits for what is on its way, and was ended.
    Later,
}

/// What keeps promises, or waits to.
#[derive(Debug)]
pub(super) enum Keep {
    /// The server says which go on over a new connection.
    Resume(Box<Resume>),
    /// The server is asked for its lease.
    Renew,
    /// The call goes on after so long.
    Pause(Duration),
}

/// How an action ended.
type Ended = Result<Done, Undone>;

impl Mount {
    pub(super) fn moment(&self) -> Now {
        let link = if self.is_offline { Reach::Offline } else { Reach::Online };
        Now { time: self.now, wall: self.wall(), link }
    }

    /// Carries out a call that asks nothing and waits for nothing.
    pub(super) fn host_call(&mut self, call: Call) -> Tried<Answer> {
        match self.start_call(call)? {
            Ran::Answered(answer) => Ok(answer),
            ran => Err(Violation(format!("a call that cannot wait: {ran:?}"))),
        }
    }

    /// Carries out a call until it is answered or waits.
    pub(super) fn start_call(&mut self, call: Call) -> Result<Ran, Violation> {
        self.start_call_with(call, &[])
    }

    /// The same of one that may write `bytes`.
    pub(super) fn start_call_with(&mut self, call: Call, bytes: &[u8]) -> Result<Ran, Violation> {
        let id = self.next_id();
        self.run(id, Event::Call { id, call }, bytes)
    }

    pub(super) fn next_id(&mut self) -> CallId {
        self.host_calls += 1;
        CallId(self.host_calls)
    }

    /// Goes on with a call that asked the server.
    pub(super) fn tell(
        &mut self,
        call: CallId,
        (reply, body): Answered,
        asking: &Request,
        asked: Time,
    ) -> Result<Ran, Violation> {
        let promised = self.promised(&reply);
        if let Request::Fetch(ask) = asking {
            let done = match reply {
                Reply::Fetched(fetched) => self.fill(ask, &fetched, &body),
                Reply::Refused(refused) => Err(refused.refusal),
                _ => Err(Refusal::Protocol),
            };
            let done = done.map(|()| Done::Carried).map_err(Undone::from);
            return self.run(call, Event::Done { id: call, done }, &[]);
        }
        let fact = match reply {
            Reply::Node(found) => Ok(Fact::Attr(found.node)),
            Reply::Looked(looked) => Ok(Fact::Name(looked)),
            Reply::Page(page) => Ok(Fact::Page(page)),
            Reply::Compared(is_same) => Ok(Fact::Same(is_same)),
            Reply::Xattrs(xattrs) => Ok(Fact::Xattrs(xattrs.values.into_iter().collect())),
            Reply::Refused(refused) => Err(refused.refusal),
            _ => Err(Refusal::Protocol),
        };
        let told = fact.map(|fact| Done::Told(Box::new(Told { fact, promised, asked })));
        self.run(call, Event::Done { id: call, done: told.map_err(Undone::from) }, &[])
    }

    /// Looks, or stops at a question to the server. Then the operation begins anew.
    pub(super) fn look(&mut self, look: Look) -> Result<Seen, Stop> {
        if let Some(seen) = self.core.glance(&look, self.moment()) {
            return Ok(seen);
        }
        match self.start_call(Call::Look(look)) {
            Ok(Ran::Answered(answer)) => Ok(*answer?.seen.ok_or(Refusal::Io)?),
            Ok(Ran::Waits(asking)) => Err(Stop::Ask(asking)),
            Ok(_) => Err(Stop::Later),
            Err(violation) => Err(Stop::Broken(violation)),
        }
    }

    pub(crate) fn getattr(&mut self, ino: Ino) -> Result<Attr, Stop> {
        match self.look(Look::Attr(ino))? {
            Seen::Attr(attr) => Ok(attr),
            _ => Err(Refusal::Io.into()),
        }
    }

    pub(crate) fn lookup(&mut self, parent: Ino, name: &Name) -> Result<Option<Attr>, Stop> {
        match self.look(Look::Name(Dentry { parent, name: name.clone() }))? {
            Seen::Name(attr) => Ok(attr),
            _ => Err(Refusal::Io.into()),
        }
    }

    pub(crate) fn list(&mut self, directory: Ino) -> Result<Vec<(Name, Ino)>, Stop> {
        match self.look(Look::Names(directory))? {
            Seen::Names(names) => Ok(names),
            _ => Err(Refusal::Io.into()),
        }
    }

    pub(super) fn run(
        &mut self,
        id: CallId,
        mut event: Event,
        bytes: &[u8],
    ) -> Result<Ran, Violation> {
        let mut seen_at = None;
        loop {
            self.core.handle(event, self.moment());
            let (mut answer, mut done) = (None, None);
            while let Some(action) = self.core.poll_action() {
                match action {
                    Action::Reply(_, result) => answer = Some(result),
                    Action::Query(..) | Action::Fetch(..) | Action::Renew(_) if self.is_offline => {
                        done = Some(Err(Refusal::Unreachable.into()));
                    }
                    Action::Fetch(_, gap) => {
                        let asking = Asking { request: fetch(gap), call: id };
                        return Ok(Ran::Waits(Box::new(asking)));
                    }
                    Action::Await(_, awaited)
                        if awaited.data.is_none()
                            && !matches!(awaited.patience, Patience::AtMost(_)) =>
                    {
                        return Ok(Ran::Hears(Box::new(self.hearing(id, awaited))));
                    }
                    Action::Await(..) => {
                        self.core.handle(Event::Cancel(id), self.moment());
                        return Ok(Ran::Later);
                    }
                    Action::Resume(_, resume) => return Ok(Ran::Keeps(Keep::Resume(resume))),
                    Action::Renew(_) => return Ok(Ran::Keeps(Keep::Renew)),
                    Action::Pause(_, time) if !time.is_zero() => {
                        return Ok(Ran::Keeps(Keep::Pause(time)));
                    }
                    Action::Deliver(_, batch) => return Ok(Ran::Delivers(Box::new(batch))),
                    Action::Query(_, query) => {
                        let asking = Asking { request: request(query.ask), call: id };
                        return Ok(Ran::Waits(Box::new(asking)));
                    }
                    action => {
                        if let Action::Append(_, entry) = &action {
                            self.check_merge(id, entry)?;
                        }
                        let is_unseen = hides(&action);
                        done = self.carry_out(action, bytes)?.or(done);
                        seen_at = seen_at.or(is_unseen.then_some(self.changed_at));
                    }
                }
            }
            // Cancelled changes are as they were seen before, and so is what follows from them.
            self.changed_at = seen_at.unwrap_or(self.changed_at);
            match (answer, done) {
                (Some(answer), _) => return Ok(Ran::Answered(answer)),
                (None, Some(done)) => event = Event::Done { id, done },
                (None, None) => return Err(Violation("a call that does not go on".into())),
            }
        }
    }

    /// Carries out a call up to its write, which is left to the caller. `None` if it ended before.
    pub(super) fn host_call_to_write(&mut self, call: Call) -> Result<Option<Edit>, Violation> {
        let id = self.next_id();
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
    pub(super) fn carry_out(
        &mut self,
        action: Action,
        bytes: &[u8],
    ) -> Result<Option<Ended>, Violation> {
        Ok(Some(match action {
            Action::Reserve(_, first) => Ok(Done::Reserved(self.kept.reserve_seqs(first))),
            Action::Load(_, Load::FreeSpace) => Ok(Done::Free(u64::MAX)),
            Action::Load(_, Load::Data(ino)) => {
                self.load(ino).map(|()| Done::Carried).map_err(Undone::from)
            }
            Action::Load(_, load) => Ok(Done::Noted(self.kept.index.noted_for(&load))),
            Action::Number(_) => self.take_next_ino().map(Done::Number).map_err(Undone::from),
            Action::SyncDisk(_) => {
                if self.bug != Some(Bug::ClientSendsRewritten) {
                    self.sync_disk();
                }
                Ok(Done::Carried)
            }
            Action::FollowMoved(_) => {
                self.core.follow_moved();
                Ok(Done::Carried)
            }
            // The rest is of the kernel, of a disk with room, and of time.
            Action::Evict(_)
            | Action::Hold(..)
            | Action::Release(..)
            | Action::Pause(..)
            | Action::TakeBack(..) => Ok(Done::Carried),
            Action::Preserve(_, part) => self.keep_preserved(&part),
            Action::Append(_, entry) => self.append_entry(*entry)?,
            Action::AppendAll(_, entries) => self.append_settled(entries)?,
            Action::Keep(_, kept) => {
                match kept.to {
                    KeptAs::Copy { duplicate, .. } => {
                        self.kept.keep_duplicate(duplicate.map(|duplicate| *duplicate));
                        self.conflicts += 1;
                    }
                    KeptAs::Refused(_) => self.refused += 1,
                }
                Ok(Done::Carried)
            }
            Action::Write(_, edit) => self.write_edit(&edit, bytes)?,
            Action::Undo(_, undo) => self.undo(*undo)?,
            Action::ForgetNotes(_, lost) => {
                self.forget_notes(&lost);
                Ok(Done::Carried)
            }
            action => {
                self.note_action(action);
                return Ok(None);
            }
        }))
    }

    /// Carries out an action that no call waits for. The rest is the kernel's, or taken before.
    fn note_action(&mut self, action: Action) {
        match action {
            Action::Remove(scrap) => self.remove(scrap),
            Action::Start(call) => self.chores.to_start.push(call),
            Action::Wake(Task::Quotas) => self.wants_room = true,
            _ => {}
        }
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
        if let Entry::Replaced(Replaced { seqs, by }) = &entry {
            self.note_replaced(seqs, by, changed_at);
        }
        Ok(Ok(Done::Carried))
    }

    fn note_replaced(&mut self, seqs: &[u64], by: &Instead, changed_at: u64) {
        let count = seqs.len() as u64;
        let ino = match by {
            Instead::More { .. } => {
                self.amended += 1;
                return;
            }
            Instead::Unsealed => {
                self.taken_back += 1;
                return;
            }
            Instead::Nothing(ino) => {
                self.cancelled += count;
                ino
            }
            Instead::Rename(ino, _) => {
                self.superseded += count;
                ino
            }
        };
        self.forgotten_by_kernel(*ino);
        self.changed_at = changed_at;
    }

    fn append_settled(&mut self, entries: Vec<Entry>) -> Result<Ended, Violation> {
        if let Err(refusal) = self.failing.try_write() {
            return Ok(Err(refusal.into()));
        }
        if self.bug != Some(Bug::ClientForgetsSettled) {
            entries.into_iter().try_for_each(|entry| self.append(entry))?;
        }
        Ok(Ok(Done::Carried))
    }

    /// The kernel lets go of files that have no name.
    fn forgotten_by_kernel(&mut self, ino: Ino) {
        self.core.let_go(ino);
    }

    /// Some changes are taken, and not yet what they will be: the drain looks for a batch.
    fn meanwhile(&mut self, entry: &Entry) -> Result<(), Violation> {
        let Entry::Replaced(replaced) = entry else { return Ok(()) };
        let seq = replaced.taken().last().unwrap_or(1);
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
        self.edits += 1;
        if !matches!(edit.change, Change::Nothing) {
            self.kept.unsynced.insert(key);
        }
        match &edit.change {
            Change::Bytes(offset) => {
                put(self.bytes_of_container(key), *offset, bytes);
                self.acknowledged.wrote(ino, *offset, bytes, old_size);
            }
            Change::Zeros(Range { start, end }) => {
                let zeros = vec![0; place(end - start)];
                put(self.bytes_of_container(key), *start, &zeros);
                self.acknowledged.wrote(ino, *start, &zeros, old_size);
            }
            Change::Size(size) => {
                self.bytes_of_container(key).resize(place(*size), 0);
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
        self.bytes_of_container((undo.ino, undo.container)).truncate(place(undo.size));
        Ok(Ok(Done::Carried))
    }
}

/// The request for what is missing of a file.
pub(super) fn fetch(Gap { ino, version, range }: Gap) -> Request {
    let (offset, len) = (range.start, range.end - range.start);
    Request::Fetch(Fetch { ino, version, offset, len })
}

fn request(ask: Ask) -> Request {
    match ask {
        Ask::Attr(ino) => Request::Getattr(ino),
        Ask::Name(Dentry { parent, name }) => Request::Lookup(Lookup { parent, name }),
        Ask::Page { directory, after, since, limit } => {
            Request::Readdir(Readdir { ino: directory, after, since, limit })
        }
        Ask::Xattrs(ino) => Request::Xattrs(ino),
        Ask::Same(files) => Request::Compare(files),
    }
}

/// True for an entry after which everything is as it was seen before.
fn hides(action: &Action) -> bool {
    let Action::Append(_, entry) = action else { return false };
    let Entry::Replaced(replaced) = &**entry else { return false };
    matches!(replaced.by, Instead::Nothing(_) | Instead::Rename(..))
}
