//! The shell of the host: gives it the calls of programs, and carries out what it decides.
//!
//! A call that changes something takes the core's mutex once before its disk work and once after.
//! The log is locked from the first event to the last, so entries are appended in the order in
//! which they were decided. Only work that takes long and appends nothing unlocks it: questions to
//! the server and the index, deliveries, waits, the copying of bytes to preserve, and eviction. A
//! look leaves the log alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::host::action::{
    Action, Ask, Await, CallId, Deliver, Done, Event, Fact, Gap, Now, Query, Reach, TakenBack,
    Told, Undone,
};
use segue_core::host::cache::Sight;
use segue_core::host::call::{Answer, Call, EditCall, Look, Seen, What};
use segue_core::nouns::{Class, Ino, Outcome, Record};
use segue_core::refusal::Refusal;
use segue_core::wire::Resume;
use segue_rpc::Rpc;

use super::park::Parking;
use super::{Mount, Shared, lock};
use crate::rank::Held;
use crate::state::LogFile;

/// The answer to a call.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// The result of a look.
    pub(super) seen: Option<Box<Seen>>,
    /// Nothing was asked of the server.
    pub(super) is_cached: bool,
    /// A batch was sent.
    pub(super) has_sent: bool,
    /// The inode that a change of names is about.
    pub(super) ino: Option<Ino>,
    /// The change of names that was logged.
    pub(super) made: Option<Record>,
    /// The outcome of the change, if the call waited for that.
    pub(super) outcome: Option<Box<Outcome>>,
    /// It waits for an outcome.
    pub(super) rest: Option<Rest>,
    /// The update log is nearly full: the caller waits for so many bytes that it added.
    pub(super) slowed_by: Option<u64>,
}

/// How far a call came.
pub(super) enum Ran {
    /// To its end.
    Answered(Result<Changed, Refusal>),
    /// To a question.
    Asks(Asked),
}

/// Long work that a call waits for.
#[derive(Debug)]
pub(super) enum Asked {
    Query(Query),
    Number,
    Fetch(Gap),
    Pass(Sight),
    Await(Await),
    Evict,
    Pause(Duration),
    TakeBack(Box<TakenBack>),
    Resume(Box<Resume>),
    Renew,
    SyncDisk,
    Deliver(Deliver),
    Release(Vec<Ino>),
}

/// A call under way. When its future is dropped, the host forgets it.
pub(super) struct Running<'a> {
    mount: &'a Mount,
    pub(super) id: CallId,
    /// It may append to the log.
    changes: bool,
    /// It sends a batch.
    sends: bool,
    made: Option<Record>,
    /// Fates of changes that the call may still have to keep.
    pub(super) held: Vec<Parking<'a>>,
    is_over: bool,
}

/// A call of which the rest is to wait for an outcome. Dropping it ends the wait.
pub(crate) struct Rest {
    mount: Shared,
    id: CallId,
    awaited: Option<Await>,
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rest").field(&self.id).finish()
    }
}

impl Rest {
    async fn end(mut self) -> Result<Changed, Refusal> {
        let Some(awaited) = self.awaited.take() else { return Ok(Changed::default()) };
        let mount = &self.mount;
        let running = Running::of(mount, self.id);
        let done = mount.progressed(awaited).await.map_err(Undone::from);
        let event = Event::Done { id: running.id, done };
        mount.go_on(&Rpc::new(Class::Fetch), running, event).await
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if self.awaited.is_some() {
            drop(Running::of(&self.mount, self.id));
        }
    }
}

impl<'a> Running<'a> {
    pub(super) fn new(mount: &'a Mount, call: &Call) -> Running<'a> {
        let id = CallId(mount.calls.fetch_add(1, Ordering::Relaxed));
        let mut running = Running::of(mount, id);
        running.changes = call.may_append();
        running.sends = matches!(call, Call::Send(_) | Call::SendLast);
        running
    }

    /// A call that was begun, and is in nobody else's hands.
    fn of(mount: &'a Mount, id: CallId) -> Running<'a> {
        let (changes, sends, is_over) = (true, false, false);
        Running { mount, id, changes, sends, made: None, held: Vec::new(), is_over }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.mount.hand_in(Event::Cancel(self.id), self.sends);
        }
    }
}

/// The log while a call is carried out.
pub(super) type Log<'a> = Option<Held<'a, LogFile>>;

impl Mount {
    /// The moment of an event.
    fn moment(&self) -> Now {
        let link = match (self.remote.is_offline(), self.remote.is_silent()) {
            (true, _) => Reach::Offline,
            (false, true) => Reach::Silent,
            (false, false) => Reach::Online,
        };
        Now { time: self.now(), wall: self.wall(), link }
    }

    /// Carries out a call that asks nothing.
    pub(super) fn call(&self, call: Call) -> Result<Changed, Refusal> {
        let mut running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        match self.run(&mut running, event, &[]) {
            Ran::Answered(answer) => answer,
            Ran::Asks(ask) => Err(cannot_wait(&ask)),
        }
    }

    /// Carries out a call, of which the [rest](Changed::rest) may be to wait for an outcome. It may
    /// write `bytes`.
    pub(super) fn begin(self: &Shared, mut call: Call, bytes: &[u8]) -> Result<Changed, Refusal> {
        let edited = if let Call::Edit(edit) = &call { Some(edit.ino) } else { None };
        let _writing = edited.map(|ino| self.containers.writing(ino));
        if let Call::Edit(EditCall { ino, what: What::Resize { is_backed, .. }, .. }) = &mut call {
            *is_backed = self.is_backed(*ino);
        }
        let mut running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        match self.run(&mut running, event, bytes) {
            Ran::Answered(answer) => answer,
            Ran::Asks(Asked::Await(awaited)) => {
                running.is_over = true;
                let (mount, id, awaited) = (Shared::clone(self), running.id, Some(awaited));
                let rest = Some(Rest { mount, id, awaited });
                Ok(Changed { rest, ..Changed::default() })
            }
            Ran::Asks(ask) => Err(cannot_wait(&ask)),
        }
    }

    /// Waits as long as a call asks for: for the outcome of a change, and for room in the log.
    pub(crate) async fn waited_for(&self, changed: Changed) -> Result<Changed, Refusal> {
        let changed = match changed.rest {
            Some(rest) => rest.end().await?,
            None => changed,
        };
        self.slow_down(changed.slowed_by).await;
        Ok(changed)
    }

    /// Looks at the cache only.
    pub(super) fn glance(&self, look: &Look) -> Option<Seen> {
        let now = self.moment();
        self.core().glance(look, now)
    }

    /// Looks, and asks the server if need be; and true if it was not asked.
    pub(super) async fn look(&self, look: Look) -> Result<(Seen, bool), Refusal> {
        match self.glance(&look) {
            Some(seen) => Ok((seen, true)),
            None => self.look_as(&Rpc::new(Class::Fetch), look).await,
        }
    }

    /// The same past the cache, with questions that go as `rpc`.
    pub(super) async fn look_as(&self, rpc: &Rpc, look: Look) -> Result<(Seen, bool), Refusal> {
        let looked = self.call_asking(rpc, Call::Look(look)).await?;
        Ok((*looked.seen.ok_or(Refusal::Io)?, looked.is_cached))
    }

    /// Carries out a call that may have to ask the server, with questions that go as `rpc`.
    pub(super) async fn call_asking(&self, rpc: &Rpc, call: Call) -> Result<Changed, Refusal> {
        let running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        self.go_on(rpc, running, event).await
    }

    /// Goes on with a call that was begun.
    async fn go_on(
        &self,
        rpc: &Rpc,
        mut running: Running<'_>,
        mut event: Event,
    ) -> Result<Changed, Refusal> {
        loop {
            match self.run(&mut running, event, &[]) {
                Ran::Answered(answer) => return answer,
                Ran::Asks(asked) => {
                    let done = self.answer(rpc, asked).await.map_err(Undone::from);
                    event = Event::Done { id: running.id, done };
                }
            }
        }
    }

    /// The server's answer, asked as `rpc`.
    pub(super) async fn answer(&self, rpc: &Rpc, asked: Asked) -> Result<Done, Refusal> {
        match asked {
            Asked::Query(query) => {
                self.query(rpc, query).await.map(|told| Done::Told(Box::new(told)))
            }
            Asked::Number => self.new_ino().await.map(Done::Number),
            Asked::Await(awaited) => self.progressed(awaited).await,
            Asked::Pause(time) => {
                match time {
                    Duration::ZERO => tokio::task::yield_now().await,
                    time => tokio::time::sleep(time).await,
                }
                Ok(Done::Carried)
            }
            Asked::TakeBack(taken) => {
                self.kernel.take_back(*taken).await;
                Ok(Done::Carried)
            }
            Asked::Renew => {
                let (session, commit) = self.remote.renew().await?;
                Ok(Done::Renewed { session, commit })
            }
            asked => {
                tracing::error!("a call asks for {asked:?} without reason");
                Err(Refusal::Io)
            }
        }
    }

    /// A number for a new inode, if one is left.
    fn number_at_hand(&self) -> Option<Ino> {
        lock(&self.numbers).take_ino().ok()?
    }

    /// Asks the server.
    async fn query(&self, rpc: &Rpc, Query { ask, is_known }: Query) -> Result<Told, Refusal> {
        let remote = if is_known { self.remote.to_refresh() } else { self.remote.clone() };
        // From here on it may change: the answer is as old as the question.
        let asked = self.now();
        let (fact, promised) = match ask {
            Ask::Attr(ino) => {
                let (node, promised) = remote.getattr(ino).await?;
                (Fact::Attr(node), promised)
            }
            Ask::Name(at) => {
                let (looked, promised) = remote.lookup(at.parent, &at.name).await?;
                (Fact::Name(looked), promised)
            }
            Ask::Page { directory, after, since, limit } => {
                let (page, promised) = remote.page(rpc, directory, (after, since), limit).await?;
                (Fact::Page(page), promised)
            }
            Ask::Same(files) => (Fact::Same(remote.compare(files.one, files.other).await?), None),
            Ask::Xattrs(ino) => {
                let xattrs = remote.xattrs(ino).await?;
                (Fact::Xattrs(xattrs.values.into_iter().collect()), None)
            }
        };
        Ok(Told { fact, promised, asked })
    }

    /// Carries out what follows from an event of a call, until that is answered or asks.
    pub(super) fn run<'a>(
        &'a self,
        running: &mut Running<'a>,
        mut event: Event,
        bytes: &[u8],
    ) -> Ran {
        let id = running.id;
        let mut log = running.changes.then(|| self.log.lock());
        loop {
            let (actions, answer) = self.apply(event, running.sends);
            if let Some(answer) = answer {
                running.is_over = true;
                for action in actions {
                    self.carry_out_action(running, action, bytes, &mut log);
                }
                let made = running.made.take();
                return Ran::Answered(answer.map(|answer| Changed { made, ..answer }));
            }
            let mut done = None;
            for action in actions {
                match action {
                    Action::Query(_, query) => return Ran::Asks(Asked::Query(query)),
                    Action::Fetch(_, gap) => return Ran::Asks(Asked::Fetch(gap)),
                    Action::Pass(_, sight) => return Ran::Asks(Asked::Pass(sight)),
                    Action::Await(_, awaited) => return Ran::Asks(Asked::Await(awaited)),
                    Action::Pause(_, time) => return Ran::Asks(Asked::Pause(time)),
                    Action::TakeBack(_, taken) => return Ran::Asks(Asked::TakeBack(taken)),
                    Action::Resume(_, resume) => return Ran::Asks(Asked::Resume(resume)),
                    Action::Renew(_) => return Ran::Asks(Asked::Renew),
                    Action::SyncDisk(_) => return Ran::Asks(Asked::SyncDisk),
                    Action::Deliver(_, delivery) => return Ran::Asks(Asked::Deliver(delivery)),
                    Action::Release(_, numbers) => return Ran::Asks(Asked::Release(numbers)),
                    // A writer holds the log. It waits for the disk only.
                    Action::Evict(_) if !running.changes => return Ran::Asks(Asked::Evict),
                    Action::Number(_) => match self.number_at_hand() {
                        Some(ino) => done = Some(Ok(Done::Number(ino))),
                        None => return Ran::Asks(Asked::Number),
                    },
                    Action::Made(record) => running.made = Some(record),
                    action => {
                        done = self.carry_out_action(running, action, bytes, &mut log).or(done);
                    }
                }
            }
            match done {
                Some(done) => event = Event::Done { id, done },
                None => {
                    tracing::error!("a call was neither answered nor continued");
                    return Ran::Answered(Err(Refusal::Io));
                }
            }
        }
    }

    /// Gives the core an event. Returns what follows from it: actions, and the answer to the call.
    fn apply(&self, event: Event, sends: bool) -> (Vec<Action>, Option<Result<Changed, Refusal>>) {
        let now = self.moment();
        let mut core = if sends { self.core_ahead() } else { self.core() };
        core.handle(event, now);
        let (mut actions, mut answer) = (Vec::new(), None);
        while let Some(action) = core.poll_action() {
            match action {
                Action::Reply(_, result) => {
                    answer = Some(result.map(|answer| {
                        let Answer { seen, is_cached, ino, outcome, slowed_by, has_sent, .. } =
                            answer;
                        let (made, rest) = (None, None);
                        Changed { seen, is_cached, has_sent, ino, outcome, slowed_by, made, rest }
                    }));
                }
                Action::Leave(ino) => {
                    if self.through.nodes.lock().moved(ino) {
                        actions.push(action);
                    }
                }
                Action::Renumber(ino) => self.through.nodes.lock().release(ino),
                action => actions.push(action),
            }
        }
        (actions, answer)
    }

    /// Gives the host an event that no call waits for.
    pub(super) fn hand_in(&self, event: Event, sends: bool) {
        let (actions, _) = self.apply(event, sends);
        actions.into_iter().for_each(|action| self.note_action(action));
    }

    /// Keeps the fate of change `seq`, of which no caller hears.
    pub(super) fn keep_held(&self, running: &Running<'_>, seq: u64) {
        if let Some(parking) = running.held.iter().find(|held| held.kept.logged.seq == seq) {
            // It fails with words, and the change is settled.
            self.keep(parking).ok();
            self.merges.new.notify_one();
        }
    }
}

fn cannot_wait(asked: &Asked) -> Refusal {
    tracing::error!("a call that cannot wait asks for {asked:?}");
    Refusal::Io
}
