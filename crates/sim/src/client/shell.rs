//! The shell of the host: gives it events, and carries out its actions until a call waits.

use std::time::Duration;

use segue_core::host::action::{
    Action, Await, CallId, Deliver, Done, Event, Now, Patience, Reach, Task, Undone,
};
use segue_core::host::call::{Answer, Call};
use segue_core::host::log::{Entry, Instead};
use segue_core::nouns::{Time, Timestamp};
use segue_core::refusal::Refusal;

use super::{EPOCH_SECS, Mount};
use crate::Violation;
use crate::apps::Tried;
use crate::disk::Carried;
use crate::remote::{Asking, Sent};

/// Of so many changes that are to become others, one batch is made before one has.
const SENT_MEANWHILE_EVERY: u64 = 3;
/// A call waits so long for a server that is out of reach.
const GRACE: Duration = Duration::from_secs(30);

/// How far a call came.
#[derive(Debug)]
pub(crate) enum Ran {
    Answered(Result<Answer, Refusal>),
    /// To a question that the server must answer.
    Asks(Box<Asking>),
    /// Its change is logged, and it waits for the outcome.
    Hears(Box<Hearing>),
    /// The stores of its batch are being made.
    Uploads,
    /// It goes on after so long.
    Pauses(CallId, Duration),
    /// It waited for data that are on their way, and was ended.
    Later,
}

impl Ran {
    fn asks(asking: Asking) -> Result<Ran, Violation> {
        Ok(Ran::Asks(Box::new(asking)))
    }
}

/// A call of the host that waits for an outcome.
#[derive(Clone, Debug)]
pub(crate) struct Hearing {
    call: CallId,
    awaited: Await,
    since: Time,
}

impl Hearing {
    /// The next wait of the same call, whose patience began with the first one.
    pub(crate) fn after(self, first: &Hearing) -> Hearing {
        Hearing { since: first.since, ..self }
    }
}

impl Mount {
    pub(crate) fn moment(&self) -> Now {
        let link = if self.remote.is_offline { Reach::Offline } else { Reach::Online };
        let secs = i64::try_from(self.now.0.as_secs()).unwrap_or(0);
        let secs = EPOCH_SECS + secs + self.ahead;
        let wall = Timestamp { secs, nanos: self.now.0.subsec_nanos() };
        Now { time: self.now, wall, link }
    }

    /// Carries out a call that asks nothing and waits for nothing.
    pub(crate) fn host_call(&mut self, call: Call) -> Tried<Answer> {
        match self.start_call(call, &[])? {
            Ran::Answered(answer) => Ok(answer),
            ran => Err(Violation(format!("a call that cannot wait: {ran:?}"))),
        }
    }

    /// Carries out a call, which may write `bytes`, until it is answered or waits.
    pub(crate) fn start_call(&mut self, call: Call, bytes: &[u8]) -> Result<Ran, Violation> {
        let id = self.next_id();
        self.run(id, Event::Call { id, call }, bytes)
    }

    pub(crate) fn next_id(&mut self) -> CallId {
        self.host_calls += 1;
        CallId(self.host_calls)
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
                    Action::Query(..)
                    | Action::Fetch(..)
                    | Action::Renew(_)
                    | Action::Announce(..)
                        if self.remote.is_offline =>
                    {
                        done = Some(Err(Refusal::Unreachable.into()));
                    }
                    Action::Query(_, query) => return Ran::asks(Asking::query(id, query.ask)),
                    Action::Fetch(_, gap) => return Ran::asks(Asking::fetch(id, gap)),
                    Action::Renew(_) => return Ran::asks(Asking::renew(id)),
                    Action::Announce(_, dirty) => return Ran::asks(Asking::announce(id, *dirty)),
                    Action::Resume(_, resume) => return Ran::asks(Asking::resume(id, *resume)),
                    Action::Deliver(_, batch) => return self.deliver(id, batch),
                    Action::Await(_, awaited) => return Ok(self.awaits(id, awaited)),
                    Action::Pause(_, time) if !time.is_zero() => return Ok(Ran::Pauses(id, time)),
                    action => {
                        if let Action::Append(_, entry) = &action {
                            self.merging.compared.check(&self.core, id, entry)?;
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

    /// Goes on with a call whose action has ended.
    pub(super) fn go_on_with(&mut self, id: CallId, done: Carried) -> Result<Ran, Violation> {
        self.run(id, Event::Done { id, done }, &[])
    }

    fn deliver(&mut self, id: CallId, batch: Deliver) -> Result<Ran, Violation> {
        let places = (&mut self.core, &mut self.disk);
        let sent = self.remote.deliver(places, (id, batch), self.now)?;
        self.batch_goes_on(id, sent)
    }

    /// A batch came so far.
    pub(super) fn batch_goes_on(&mut self, id: CallId, sent: Sent) -> Result<Ran, Violation> {
        match sent {
            Sent::Uploads | Sent::Ahead => Ok(Ran::Uploads),
            Sent::Asks(asking) => Ran::asks(asking),
            Sent::Ended(done) => self.go_on_with(id, done),
        }
    }

    /// A call waits for an outcome. It does not wait for others' data, nor for a clone.
    fn awaits(&mut self, id: CallId, awaited: Await) -> Ran {
        if awaited.data.is_some() || matches!(awaited.patience, Patience::AtMost(_)) {
            self.core.handle(Event::Cancel(id), self.moment());
            return Ran::Later;
        }
        Ran::Hears(Box::new(Hearing { call: id, awaited, since: self.now }))
    }

    /// Lets a call go on if something was settled, or it has waited for too long.
    pub(crate) fn heard_of(&mut self, hearing: &Hearing) -> Result<Option<Ran>, Violation> {
        let Hearing { call, awaited, since } = hearing;
        let has_patience = awaited.patience == Patience::Ever || self.now.since(*since) < GRACE;
        let is_late = self.remote.is_offline && !has_patience;
        if !is_late && self.core.progress() == awaited.since {
            return Ok(None);
        }
        let done = match is_late {
            true => Err(Undone::from(Refusal::Unreachable)),
            false => Ok(Done::Carried),
        };
        self.go_on_with(*call, done).map(Some)
    }

    /// Carries out an action. Returns how it ended, if a call waits for that.
    pub(crate) fn carry_out(
        &mut self,
        action: Action,
        bytes: &[u8],
    ) -> Result<Option<Carried>, Violation> {
        self.kernel.forget(&action);
        match action {
            Action::LogMaps(_, only) => {
                let logged = self.log_maps(only)?;
                return Ok(Some(logged.map(|()| Done::Carried).map_err(Undone::from)));
            }
            Action::WatchMaps(_, ino, container) => {
                self.disk.watch_maps(&mut self.core, (ino, container), self.now);
            }
            Action::Back(..) => {
                if let Err(refusal) = self.disk.failing.try_read() {
                    return Ok(Some(Err(refusal.into())));
                }
                self.disk.counts.passed_through += 1;
            }
            // The kernel's, and of time.
            Action::Hold(..) | Action::Release(..) | Action::Pause(..) | Action::TakeBack(..) => {}
            Action::Start(call) => {
                self.chores.to_start.push(call);
                return Ok(None);
            }
            Action::Wake(Task::Quotas) => {
                self.chores.knows_room = false;
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
}

/// True for an entry after which everything is as it was seen before.
fn hides(action: &Action) -> bool {
    let Action::Append(_, entry) = action else { return false };
    let Entry::Replaced(replaced) = &**entry else { return false };
    matches!(replaced.by, Instead::Nothing(_) | Instead::Rename(..))
}
