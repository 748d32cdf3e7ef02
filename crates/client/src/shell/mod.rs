//! The shell of the host: gives it the calls of programs, and carries out what it decides.
//!
//! A call that changes something takes the core's mutex once before its disk work and once after.
//! The log is locked from the first event to the last, so entries are appended in the order in
//! which they were decided. Only work that takes long and appends nothing unlocks it: questions to
//! the server and the index, deliveries, waits, the copying of bytes to preserve, and eviction. A
//! look leaves the log alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use segue_core::host::action::{
    Action, Await, CallId, Deliver, Done, Event, Gap, Query, TakenBack, Undone,
};
use segue_core::host::cache::Sight;
use segue_core::host::call::{Answer, Call, Look, Seen};
use segue_core::nouns::{Attr, Class, Ino, Record};
use segue_core::promise::Unseen;
use segue_core::refusal::Refusal;
use segue_core::wire::{Dirty, Resume};
use segue_rpc::Rpc;
use tokio::sync::Semaphore;

use crate::disk::CacheDisk;
use crate::disk::park::Parking;
use crate::host::SharedHost;
use crate::kernel::KernelView;
use crate::kernel::through::Behind;
use crate::net::{Fetcher, Remote};
use crate::rank::Ranked;
use crate::volume::Volume;
use crate::waits::waits;
use crate::wakes::Wakes;

mod bound;
mod carry;
mod fetch;
mod handles;
mod healing;
mod levels;
mod lost;
mod maps;
pub(crate) mod promises;
pub(crate) mod told;
mod visible;

pub(crate) use bound::Slowed;

/// What an operation that pauses waits for.
const PAUSE: &str = "a host that is away, and has changed the file";

/// Gives the host events, and carries out its actions.
pub(crate) struct Shell {
    pub(crate) host: Arc<SharedHost>,
    pub(crate) disk: Arc<CacheDisk>,
    pub(crate) kernel: Arc<KernelView>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) remote: Remote,
    pub(crate) volume: Arc<Volume>,
    /// The number of the next call.
    pub(crate) calls: AtomicU64,
    pub(crate) slowed: Slowed,
    pub(crate) unseen: Ranked<Unseen>,
    /// Places for what other hosts wait for.
    pub(crate) pulls: Semaphore,
}

/// The answer to a call.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// The host's answer.
    pub(crate) answer: Answer,
    /// The change of names that was logged.
    pub(crate) made: Option<Box<Record>>,
    /// It waits for an outcome.
    pub(crate) rest: Option<Rest>,
}

/// How far a call came.
pub(crate) enum Ran {
    /// To its end.
    Answered(Result<Changed, Refusal>),
    /// To a question.
    Asks(Asked),
}

/// Long work that a call waits for.
#[derive(Debug)]
pub(crate) enum Asked {
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
    Announce(Box<Dirty>),
    SyncDisk,
    Deliver(Deliver),
    Release(Vec<Ino>),
}

/// A call under way. When its future is dropped, the host forgets it.
pub(crate) struct Running<'a> {
    shell: &'a Shell,
    pub(crate) id: CallId,
    /// It may append to the log.
    changes: bool,
    /// It sends a batch.
    sends: bool,
    made: Option<Box<Record>>,
    /// It opens a handle, and the lock of the kernel's containers is held meanwhile.
    pub(crate) opening: Option<OpeningHandle>,
    /// Fates of changes that the call may still have to keep.
    pub(crate) held: Vec<Parking<'a>>,
    is_over: bool,
}

/// Changes of the containers that the kernel reads, made once a handle is open.
#[derive(Default)]
pub(crate) struct OpeningHandle {
    /// The kernel reads this one now.
    pub(crate) backed: Option<Behind>,
    /// It reads none of these any more.
    pub(crate) ended: Vec<Ino>,
}

/// A call of which the rest is to wait for an outcome. Dropping it ends the wait.
pub(crate) struct Rest {
    shell: Arc<Shell>,
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
        let shell = &self.shell;
        let running = Running::of(shell, self.id);
        shell.go_on_with(&Rpc::new(Class::Fetch), running, Asked::Await(awaited)).await
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if self.awaited.is_some() {
            drop(Running::of(&self.shell, self.id));
        }
    }
}

impl<'a> Running<'a> {
    pub(crate) fn new(shell: &'a Shell, call: &Call) -> Running<'a> {
        let id = CallId(shell.calls.fetch_add(1, Ordering::Relaxed));
        let mut running = Running::of(shell, id);
        running.changes = call.may_append();
        running.sends = matches!(call, Call::Send(_) | Call::SendLast);
        running
    }

    /// A call that was begun, and is in nobody else's hands.
    fn of(shell: &'a Shell, id: CallId) -> Running<'a> {
        let (changes, sends, is_over) = (true, false, false);
        let (made, held, opening) = Default::default();
        Running { shell, id, changes, sends, made, opening, held, is_over }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shell.hand_in(Event::Cancel(self.id), self.sends);
        }
    }
}

fn cannot_wait(asked: &Asked) -> Refusal {
    tracing::error!("a call that cannot wait asks for {asked:?}");
    Refusal::Io
}

impl Shell {
    async fn new_ino(&self) -> Result<Ino, Refusal> {
        loop {
            let taken = self.disk.numbers.lock().take_ino();
            match taken.map_err(|error| self.disk.disk_refusal("state.json", &error))? {
                Some(ino) => return Ok(ino),
                None => {
                    let grant = self.remote.grant().await?;
                    let added = self.disk.numbers.lock().add_grant(grant);
                    added.map_err(|error| self.disk.disk_refusal("state.json", &error))?;
                }
            }
        }
    }

    /// Attributes of `ino` from the server, unless this host is ahead of it.
    pub(crate) async fn ask_attr(&self, ino: Ino) -> Result<Attr, Refusal> {
        match self.look(Look::AttrAnew(ino)).await? {
            (Seen::Attr(attr), _) => Ok(attr),
            _ => Err(Refusal::Io),
        }
    }

    /// Carries out a call that asks nothing.
    pub(crate) fn call(&self, call: Call) -> Result<Changed, Refusal> {
        let mut running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        match self.run(&mut running, event, &[]) {
            Ran::Answered(answer) => answer,
            Ran::Asks(ask) => Err(cannot_wait(&ask)),
        }
    }

    /// Carries out a call, of which the [rest](Changed::rest) may be to wait for an outcome. It may
    /// write `bytes`.
    pub(crate) fn begin(self: &Arc<Self>, call: Call, bytes: &[u8]) -> Result<Changed, Refusal> {
        let edited = if let Call::Edit(edit) = &call { Some(edit.ino) } else { None };
        let _writing = edited.map(|ino| self.disk.containers.writing(ino));
        let mut running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        match self.run(&mut running, event, bytes) {
            Ran::Answered(answer) => answer,
            Ran::Asks(Asked::Await(awaited)) => {
                running.is_over = true;
                let (shell, id, awaited) = (Arc::clone(self), running.id, Some(awaited));
                let rest = Some(Rest { shell, id, awaited });
                Ok(Changed { rest, ..Changed::default() })
            }
            Ran::Asks(ask) => Err(cannot_wait(&ask)),
        }
    }

    /// Looks at the cache only.
    pub(crate) fn glance(&self, look: &Look) -> Option<Seen> {
        let now = self.host.moment();
        self.host.lock().glance(look, now)
    }

    /// Looks, and asks the server if need be; and true if it was not asked.
    pub(crate) async fn look(&self, look: Look) -> Result<(Seen, bool), Refusal> {
        match self.glance(&look) {
            Some(seen) => Ok((seen, true)),
            // Boxed, as all that may wait: few calls do, and each would bring the room for it.
            None => Box::pin(self.look_further(look)).await,
        }
    }

    async fn look_further(&self, look: Look) -> Result<(Seen, bool), Refusal> {
        self.look_as(&Rpc::new(Class::Fetch), look).await
    }

    /// The same past the cache, with questions that go as `rpc`.
    pub(crate) async fn look_as(&self, rpc: &Rpc, look: Look) -> Result<(Seen, bool), Refusal> {
        let looked = self.call_asking_as(rpc, Call::Look(look)).await?;
        Ok((*looked.answer.seen.ok_or(Refusal::Io)?, looked.answer.is_cached))
    }

    /// Carries out a call that may have to ask the server.
    pub(crate) async fn call_asking(&self, call: Call) -> Result<Changed, Refusal> {
        match self.start(call) {
            (_, Ran::Answered(answer)) => answer,
            (running, Ran::Asks(asked)) => {
                let rest = async { self.go_on_with(&Rpc::new(Class::Fetch), running, asked).await };
                Box::pin(rest).await
            }
        }
    }

    /// The same with questions that go as `rpc`.
    pub(crate) async fn call_asking_as(&self, rpc: &Rpc, call: Call) -> Result<Changed, Refusal> {
        match self.start(call) {
            (_, Ran::Answered(answer)) => answer,
            (running, Ran::Asks(asked)) => Box::pin(self.go_on_with(rpc, running, asked)).await,
        }
    }

    /// Begins a call, and goes on until it is answered or asks.
    pub(crate) fn start(&self, call: Call) -> (Running<'_>, Ran) {
        let mut running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        let ran = self.run(&mut running, event, &[]);
        (running, ran)
    }

    /// Goes on with a call that asks.
    async fn go_on_with(
        &self,
        rpc: &Rpc,
        mut running: Running<'_>,
        mut asked: Asked,
    ) -> Result<Changed, Refusal> {
        loop {
            let done = self.answer(rpc, asked).await.map_err(Undone::from);
            let event = Event::Done { id: running.id, done };
            match self.run(&mut running, event, &[]) {
                Ran::Answered(answer) => return answer,
                Ran::Asks(next) => asked = next,
            }
        }
    }

    /// The server's answer, asked as `rpc`.
    pub(crate) async fn answer(&self, rpc: &Rpc, asked: Asked) -> Result<Done, Refusal> {
        match asked {
            Asked::Query(query) => {
                self.remote.query(rpc, query).await.map(|told| Done::Told(Box::new(told)))
            }
            Asked::Number => self.new_ino().await.map(Done::Number),
            Asked::Await(awaited) => self.progressed(awaited).await,
            Asked::Pause(time) => {
                match time {
                    Duration::ZERO => tokio::task::yield_now().await,
                    time => waits(|| PAUSE.to_owned(), tokio::time::sleep(time)).await,
                }
                Ok(Done::Carried)
            }
            Asked::TakeBack(taken) => {
                self.kernel.cache.take_back(*taken).await;
                Ok(Done::Carried)
            }
            Asked::SyncDisk => self.disk.sync_disk().await.map(|()| Done::Carried),
            Asked::Announce(dirty) => self.remote.announce(*dirty).await.map(|()| Done::Carried),
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

    /// Carries out what follows from an event of a call, until that is answered or asks.
    pub(crate) fn run<'a>(
        &'a self,
        running: &mut Running<'a>,
        mut event: Event,
        bytes: &[u8],
    ) -> Ran {
        let id = running.id;
        let mut log = running.changes.then(|| self.disk.log.lock());
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
                    // A call that cannot wait lets others in that wait for the log.
                    Action::Pause(_, Duration::ZERO) if !running.sends => {
                        self.unlocked(&mut log, std::thread::yield_now);
                        done = Some(Ok(Done::Carried));
                    }
                    Action::Pause(_, time) => return Ran::Asks(Asked::Pause(time)),
                    Action::TakeBack(_, taken) => return Ran::Asks(Asked::TakeBack(taken)),
                    Action::Resume(_, resume) => return Ran::Asks(Asked::Resume(resume)),
                    Action::Renew(_) => return Ran::Asks(Asked::Renew),
                    Action::Announce(_, dirty) => return Ran::Asks(Asked::Announce(dirty)),
                    Action::SyncDisk(_) => return Ran::Asks(Asked::SyncDisk),
                    Action::Deliver(_, delivery) => return Ran::Asks(Asked::Deliver(delivery)),
                    Action::Release(_, numbers) => return Ran::Asks(Asked::Release(numbers)),
                    // A writer holds the log. It waits for the disk only.
                    Action::Evict(_) if !running.changes => return Ran::Asks(Asked::Evict),
                    Action::Number(_) => match self.disk.number_at_hand() {
                        Some(ino) => done = Some(Ok(Done::Number(ino))),
                        None => return Ran::Asks(Asked::Number),
                    },
                    Action::Made(record) => running.made = Some(Box::new(record)),
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
        let now = self.host.moment();
        let mut core = if sends { self.host.lock_ahead() } else { self.host.lock() };
        core.handle(event, now);
        let (mut actions, mut answer) = (Vec::new(), None);
        self.kernel.note_released(core.nodes());
        while let Some(action) = core.poll_action() {
            match action {
                Action::Reply(_, result) => {
                    let changed = |answer| Changed { answer, ..Changed::default() };
                    answer = Some(result.map(changed));
                }
                action => actions.push(action),
            }
        }
        (actions, answer)
    }

    /// Gives the host an event that no call waits for.
    fn hand_in(&self, event: Event, sends: bool) {
        let (actions, _) = self.apply(event, sends);
        actions.into_iter().for_each(|action| self.note_action(action));
    }

    /// Keeps the fate of change `seq`, of which no caller hears.
    fn keep_held(&self, running: &Running<'_>, seq: u64) {
        if let Some(parking) = running.held.iter().find(|held| held.kept.logged.seq == seq) {
            // It fails with words, and the change is settled.
            self.keep(parking).ok();
        }
    }
}
