//! The applications of a host: threads that begin operations on the files of a mount, and go on
//! with them when their calls are answered.

mod files;
mod looks;
mod operation;
mod outcomes;
mod torn;

use std::collections::VecDeque;

use segue_core::host::action::{CallId, Event};
use segue_core::host::call::Call;
use segue_core::nouns::{Caller, Ino, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::Request;

use crate::client::{Hearing, Mount, Ran};
use crate::disk::HostDisk;
use crate::plan::Bug;
use crate::remote::{Asking, Errand, Whose};
use crate::server::Answer;
use crate::work::{Answered, Op};
use crate::{Summary, Violation};

/// So often an operation may ask before it gives up.
const TRIES: u32 = 24;
/// One change in so many is sent at once, the others at the next tick.
const LINGERING: u64 = 4;
/// One change in so many goes before others.
const RAISED_EVERY: u64 = 11;

/// Why an operation does not go on.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Stop {
    /// It failed.
    Refused(Refusal),
    /// The server must answer this first.
    Ask(Box<Asking>),
    /// A violation.
    Broken(Violation),
    /// It must wait for an outcome that is on its way.
    Later,
}

/// A result that a disk may refuse, inside of one that must never fail.
pub(crate) type Tried<R> = Result<Result<R, Refusal>, Violation>;

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Stop {
        Stop::Broken(violation)
    }
}

/// An application's thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    op: Option<Op>,
    tries: u32,
    waits: bool,
    /// The file that it has opened.
    opened: Option<Ino>,
    /// Its last call is under way.
    changing: Option<Changing>,
    /// The answer to that.
    answered: Option<Result<Answered, Refusal>>,
    /// Its operation is over as far as others see it, and these calls of it wait for outcomes.
    hearing: Vec<Hearing>,
}

/// A file that a program has open.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) ino: Ino,
    /// The process that opened it. A close counts as its own, from any process.
    by: Caller,
    /// The number of its handle.
    handle: u64,
}

/// A thread's change of names that is under way.
#[derive(Clone, Copy, Debug)]
struct Changing {
    /// The inode that it is about if it changes nothing.
    ino: Option<Ino>,
    /// How many entries the log had when it began. The model does one operation after another: one
    /// that others came in between begins anew.
    since: u64,
}

/// How far a thread came.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Its operation is over.
    Over(Op, Result<Answered, Refusal>),
    /// It waits for a reply.
    Waits,
    /// It must be tried again after a while.
    Later,
}

/// Applications, and the mount that they use.
pub(crate) struct Apps {
    pub(crate) mount: Mount,
    threads: Vec<Thread>,
    /// Open files.
    pub(crate) handles: Vec<Open>,
    /// Files that the kernel reads by itself, of which the program has not closed yet.
    pub(super) readers: VecDeque<Open>,
    /// The thread, process group and session whose call is under way.
    caller: Caller,
    /// Calls of the operation under way that wait for outcomes.
    heard: Vec<Hearing>,
    /// Changes are sent a while later.
    pub(crate) lingers: bool,
    /// Threads are process groups and sessions of their own, and sync files.
    pub(crate) has_sessions: bool,
    /// Something was changed, and may be wanted at the server first.
    is_to_push: bool,
    /// Changes that were refused while a thread waited for their outcomes.
    refused: u64,
    bug: Option<Bug>,
}

impl Apps {
    /// So many threads with nothing to do.
    pub(crate) fn new(mount: Mount, threads: usize, bug: Option<Bug>) -> Apps {
        Apps {
            mount,
            threads: vec![Thread::default(); threads],
            handles: Vec::new(),
            readers: VecDeque::new(),
            caller: Caller::default(),
            heard: Vec::new(),
            lingers: false,
            has_sessions: false,
            is_to_push: false,
            refused: 0,
            bug,
        }
    }

    /// Gives `op` to an idle thread.
    pub(crate) fn begin(&mut self, thread: usize, op: Op) {
        self.threads[thread] = Thread { op: Some(op), ..Thread::default() };
    }

    /// True if `thread` has nothing to do.
    pub(crate) fn is_idle(&self, thread: usize) -> bool {
        self.threads[thread].op.is_none() && self.threads[thread].hearing.is_empty()
    }

    fn caller_of(&self, thread: usize) -> Caller {
        let number = u32::try_from(thread + 1).unwrap_or(u32::MAX);
        match self.has_sessions {
            true => Caller { process_group: number, session: number, ..Caller::default() },
            false => Caller::default(),
        }
    }

    fn act_for(&mut self, caller: Caller) {
        self.mount.disk.acknowledged.act_for((caller.session, caller.process_group));
        self.caller = caller;
        if self.bug == Some(Bug::ClientMixesGroups) {
            let next_seq = self.mount.core.next_seq();
            self.caller.process_group ^= u32::try_from(next_seq << 8).unwrap_or(0);
        }
    }

    /// Lets a thread go on.
    pub(crate) fn go_on(&mut self, thread: usize) -> Result<Option<Turn>, Violation> {
        if self.hears_outcomes(thread)? {
            return Ok(Some(Turn::Later));
        }
        let state = &mut self.threads[thread];
        let Some(op) = state.op.clone().filter(|_| !state.waits) else { return Ok(None) };
        state.tries += 1;
        state.changing = None;
        let result = match (state.answered.take(), state.tries > TRIES) {
            (Some(answered), _) => answered.map_err(Stop::from),
            (None, true) => Err(Stop::Refused(Refusal::Changed)),
            (None, false) => {
                self.act_for(self.caller_of(thread));
                let result = self.attempt(thread, &op);
                self.act_for(Caller::default());
                result
            }
        };
        self.push_newest()?;
        if !self.lingers || self.mount.core.next_seq().is_multiple_of(LINGERING) {
            self.mount.send()?;
        }
        let turn = match result {
            Ok(answered) => Turn::Over(op, Ok(answered)),
            Err(Stop::Refused(refusal)) => Turn::Over(op, Err(refusal)),
            Err(Stop::Later) => return Ok(Some(Turn::Later)),
            Err(Stop::Broken(violation)) => return Err(violation),
            Err(Stop::Ask(asking)) => {
                self.ask(thread, *asking);
                return Ok(Some(Turn::Waits));
            }
        };
        let hearing = std::mem::take(&mut self.heard);
        self.threads[thread] = Thread { hearing, ..Thread::default() };
        Ok(Some(turn))
    }

    /// Asks the server for a thread, which waits.
    fn ask(&mut self, thread: usize, asking: Asking) {
        self.threads[thread].waits = true;
        self.mount.remote.ask(Whose::Thread(thread), asking, self.mount.now);
    }

    /// Takes in the answer to a request. Returns the thread that goes on.
    pub(crate) fn answered(
        &mut self,
        request: u64,
        answer: Answer,
    ) -> Result<Option<usize>, Violation> {
        let Mount { remote, core, now, .. } = &mut self.mount;
        let Some((errand, asked)) = remote.hear(core, request, *now) else { return Ok(None) };
        let Errand::Call(Whose::Thread(thread), asking) = errand else {
            self.mount.answered(errand, answer, asked)?;
            return Ok(None);
        };
        let goes_on = self.thread_answered(thread, &asking, answer, asked)?;
        self.push_newest()?;
        self.mount.take_turn()?;
        Ok(goes_on.then_some(thread))
    }

    /// Returns true if the thread goes on.
    fn thread_answered(
        &mut self,
        thread: usize,
        asking: &Asking,
        answer: Answer,
        asked: Time,
    ) -> Result<bool, Violation> {
        self.threads[thread].waits = false;
        let changing = self.threads[thread].changing;
        if changing.is_some_and(|changing| changing.since != self.mount.disk.changed_at) {
            self.end_call(asking.call);
            return Ok(true);
        }
        self.act_for(self.caller_of(thread));
        let ran = self.mount.tell(asking, answer, asked)?;
        let waits = matches!(ran, Ran::Asks(_));
        match ran {
            Ran::Asks(next) => self.ask(thread, *next),
            Ran::Answered(answer) if changing.is_some() => {
                let answered = self.named(thread, answer);
                self.threads[thread].answered = Some(answered);
            }
            Ran::Hears(hearing) => {
                let answered = self.named_for_now(thread, *hearing);
                self.threads[thread].answered = Some(Ok(answered));
            }
            // The name is looked up again.
            Ran::Answered(Err(Refusal::Stale)) | Ran::Later | Ran::Pauses(..) | Ran::Uploads => {}
            Ran::Answered(Err(_)) if !matches!(asking.request, Request::Getattr(_)) => {
                self.threads[thread].tries = TRIES;
            }
            // The result is in the cache, or will be.
            Ran::Answered(answer) => {
                self.threads[thread].opened = answer.ok().and_then(|answer| answer.ino);
            }
        }
        self.act_for(Caller::default());
        Ok(!waits)
    }

    fn end_call(&mut self, call: CallId) {
        self.mount.core.handle(Event::Cancel(call), self.mount.moment());
    }

    /// The connection broke. Returns the threads that go on without.
    pub(crate) fn lose_link(&mut self) -> Vec<usize> {
        let waiting = self.mount.lose_link();
        waiting.iter().for_each(|thread| self.threads[*thread].waits = false);
        waiting
    }

    /// Closes every file that is open, and has everything sent.
    pub(crate) fn close_all(&mut self) -> Result<(), Violation> {
        while !self.handles.is_empty() {
            self.close(0, false)?;
        }
        self.close_readers(0)?;
        self.mount.all_unmapped()?;
        self.mount.seal_all()
    }

    /// Counts of changes, of errors of the disk and of the host's names.
    pub(crate) fn counts(&self) -> Summary {
        let HostDisk { counts, failing, .. } = &self.mount.disk;
        let refused = counts.refused + self.refused;
        let mut counts = Summary { refused, disk_errors: failing.count, ..*counts };
        counts.add(&self.mount.remote.counts);
        counts
    }

    /// As if the user had asked for the newest change, without a draw that would make every run
    /// another one.
    fn push_newest(&mut self) -> Result<(), Violation> {
        if !std::mem::take(&mut self.is_to_push) {
            return Ok(());
        }
        let core = &self.mount.core;
        let newest = core.queue().newest_seq().filter(|seq| seq.is_multiple_of(RAISED_EVERY));
        let Some(change) = newest.and_then(|seq| core.queue().change(seq)) else { return Ok(()) };
        let path = core.tree().path_bytes(change.ino());
        // Files that cannot be sealed now are sealed later.
        self.mount.host_call(Call::Push(vec![path]))?.ok();
        Ok(())
    }
}
