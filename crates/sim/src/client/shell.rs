//! The shell of the host: carries out its actions on the simulated disk.

use std::time::Duration;

use segue_core::host::action::{
    Action, Ask, CallId, Deliver, Done, Edit, Event, Fact, Gap, Now, Patience, Reach, Task, Told,
    Undone,
};
use segue_core::host::call::{Answer, Call, Look, Seen};
use segue_core::host::log::{Entry, Instead};
use segue_core::nouns::{Attr, Dentry, Ino, Name, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Lookup, Readdir, Reply, Request, Resume};

use super::outcomes::Hearing;
use super::{Mount, RAISED_EVERY, Stop, Tried};
use crate::Violation;
use crate::disk::Carried;
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
                        seen_at = seen_at.or(is_unseen.then_some(self.disk.changed_at));
                    }
                }
            }
            // Cancelled changes are as they were seen before, and so is what follows from them.
            self.disk.changed_at = seen_at.unwrap_or(self.disk.changed_at);
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
    ) -> Result<Option<Carried>, Violation> {
        match action {
            Action::FollowMoved(_) => drop(self.core.follow_moved()),
            // The kernel's, and of time.
            Action::Hold(..) | Action::Release(..) | Action::Pause(..) | Action::TakeBack(..) => {}
            Action::Start(call) => {
                self.chores.to_start.push(call);
                return Ok(None);
            }
            Action::Wake(Task::Quotas) => {
                self.wants_room = true;
                return Ok(None);
            }
            action => {
                if let Action::Append(_, entry) = &action {
                    self.meanwhile(entry)?;
                }
                return self.disk.carry_out(&mut self.core, action, bytes);
            }
        }
        Ok(Some(Ok(Done::Carried)))
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
