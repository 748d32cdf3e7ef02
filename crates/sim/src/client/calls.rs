//! Calls to the server, and the application threads that wait for them.

use segue_core::host::action::{CallId, Event};
use segue_core::host::log::Lane;
use segue_core::nouns::{Caller, Ino, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Hello, Reply, Request};

use super::drain::Sent;
use super::shell::{Asking, Ran};
use super::{Mount, Stop, Thread};
use crate::Violation;
use crate::plan::Bug;
use crate::server::Answer;
use crate::work::{Answered, Op};

/// So often an operation may ask before it gives up.
const TRIES: u32 = 24;

/// What a call is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// A new connection.
    Hello(Hello),
    /// That what was promised before counts over it.
    Resume(CallId),
    /// A batch, or what is fetched for it.
    Drain(Request, Sent),
    /// An application's thread.
    Thread(usize, Asking),
    /// What two hosts made under one name.
    Merge(Asking),
    /// How much a quota has left.
    Room(Option<Ino>),
    /// Data for which nobody waits.
    Ahead(Request),
    /// That the server keeps its promises.
    Renew(CallId),
    /// A question of a call that no thread waits for.
    Chore(Asking),
    /// That others have heard of what is committed.
    Visible,
}

/// How far a thread came.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its operation is over.
    Over(Op, Result<Answered, Refusal>),
    /// It waits for a reply.
    Waits,
    /// It must be tried again after a while.
    Later,
}

impl Mount {
    pub(super) fn call(&mut self, request: Request, purpose: Purpose) {
        self.calls.insert(self.next_call, purpose);
        self.asks(self.next_call);
        let body = self.chunks.take_body(&request);
        self.outbox.push((self.next_call, request, body));
        self.next_call += 1;
    }

    /// True if `call` is not answered.
    pub(crate) fn awaits(&self, call: u64) -> bool {
        self.calls.contains_key(&call)
    }

    /// True if what became of changes is not known here, and may be known to the server.
    pub(crate) fn awaits_outcomes(&self) -> bool {
        self.unsettled || Lane::ALL.into_iter().any(|lane| self.is_draining(lane))
    }

    /// True if changes of `lane` are under way.
    pub(super) fn is_draining(&self, lane: Lane) -> bool {
        let is_it =
            |call: &Purpose| matches!(call, Purpose::Drain(_, sent) if sent.batch.lane == lane);
        self.calls.values().any(is_it)
    }

    /// Makes another connection, unless there is one, or one is being made: an earlier process may
    /// have waited for this.
    pub(crate) fn reconnect(&mut self) {
        let is_greeting =
            |purpose: &Purpose| matches!(purpose, Purpose::Hello(_) | Purpose::Resume(..));
        if self.is_offline && !self.calls.values().any(is_greeting) {
            self.take_stock();
            self.say_hello();
        }
    }

    /// The connection broke: nothing that was asked will be answered. Returns the threads
    /// that go on without.
    pub(crate) fn lose_link(&mut self) -> Vec<usize> {
        self.is_offline = true;
        self.forget_calls();
        self.core.put_all_back();
        self.outbox.clear();
        let mut waiting = Vec::new();
        for purpose in std::mem::take(&mut self.calls).into_values() {
            match &purpose {
                Purpose::Merge(asking) => self.stop_merging(asking),
                Purpose::Chore(Asking { call, .. })
                | Purpose::Renew(call)
                | Purpose::Resume(call) => {
                    self.core.handle(Event::Cancel(*call), self.moment());
                }
                Purpose::Drain(_, sent) => {
                    self.core.handle(Event::Cancel(sent.call), self.moment());
                }
                _ => {}
            }
            if let Purpose::Thread(thread, asking) = purpose {
                self.core.handle(Event::Cancel(asking.call), self.moment());
                self.threads[thread].waits = false;
                waiting.push(thread);
            }
        }
        waiting
    }

    /// Takes in the answer to `call`. Returns the thread that goes on.
    pub(crate) fn answered(
        &mut self,
        call: u64,
        (reply, body): Answer,
    ) -> Result<Option<usize>, Violation> {
        let Some(purpose) = self.calls.remove(&call) else { return Ok(None) };
        let asked = self.hears(call);
        self.follow();
        let goes_on = match purpose {
            Purpose::Hello(hello) => {
                self.greeted(&hello, reply)?;
                None
            }
            Purpose::Resume(call) => {
                self.resumed(call, reply)?;
                None
            }
            Purpose::Drain(request, sent) => {
                if !self.batch_answered(&request, &sent, (reply, body), asked)? {
                    return Ok(None);
                }
                None
            }
            Purpose::Thread(thread, asking) => {
                self.thread_answered(thread, asking, (reply, body), asked)?
            }
            Purpose::Room(quota) => {
                if let Reply::Space(space) = reply {
                    self.core.room.told(quota, &space, self.now);
                }
                None
            }
            Purpose::Merge(asking) => {
                self.merge_answered(&asking, (reply, body), asked)?;
                None
            }
            Purpose::Visible => None,
            Purpose::Ahead(request) => {
                self.take_data(&request, (reply, body), asked);
                None
            }
            Purpose::Renew(call) => {
                self.renewed(call, &reply)?;
                None
            }
            Purpose::Chore(asking) => {
                self.chore_answered(&asking, (reply, body), asked)?;
                None
            }
        };
        self.start_chores()?;
        self.send()?;
        Ok(goes_on)
    }

    /// Returns the thread, if it goes on.
    fn thread_answered(
        &mut self,
        thread: usize,
        asking: Asking,
        (reply, body): Answer,
        asked: Time,
    ) -> Result<Option<usize>, Violation> {
        self.threads[thread].waits = false;
        let call = asking.call;
        let changing = self.threads[thread].changing;
        if changing.is_some_and(|changing| changing.since != self.disk.changed_at) {
            self.core.handle(Event::Cancel(call), self.moment());
            return Ok(Some(thread));
        }
        self.act_for(self.caller_of(thread));
        let ran = self.tell(call, (reply, body), &asking.request, asked)?;
        match ran {
            Ran::Waits(next) => {
                self.threads[thread].waits = true;
                self.call(next.request.clone(), Purpose::Thread(thread, *next));
                self.act_for(Caller::default());
                return Ok(None);
            }
            Ran::Answered(answer) if changing.is_some() => {
                let answered = self.named(thread, answer);
                self.threads[thread].answered = Some(answered);
            }
            Ran::Hears(hearing) => {
                let answered = self.named_for_now(thread, *hearing);
                self.threads[thread].answered = Some(Ok(answered));
            }
            // The name is looked up again.
            Ran::Answered(Err(Refusal::Stale)) | Ran::Later | Ran::Delivers(_) | Ran::Keeps(_) => {}
            Ran::Answered(Err(_)) if !matches!(asking.request, Request::Getattr(_)) => {
                self.threads[thread].tries = TRIES;
            }
            // The result is in the cache, or will be.
            Ran::Answered(answer) => {
                self.threads[thread].opened = answer.ok().and_then(|answer| answer.ino);
            }
        }
        self.act_for(Caller::default());
        Ok(Some(thread))
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
        self.disk.acknowledged.act_for((caller.session, caller.process_group));
        self.caller = caller;
        if self.bug == Some(Bug::ClientMixesGroups) {
            self.caller.process_group ^= u32::try_from(self.core.next_seq() << 8).unwrap_or(0);
        }
    }

    /// Lets a thread go on.
    pub(crate) fn go_on(&mut self, thread: usize) -> Result<Option<Ended>, Violation> {
        if self.hears_outcomes(thread)? {
            return Ok(Some(Ended::Later));
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
                let result = self.attempt(thread, &op)?;
                self.act_for(Caller::default());
                result
            }
        };
        self.send_unless_lingering()?;
        let ended = match result {
            Ok(answered) => Ended::Over(op, Ok(answered)),
            Err(Stop::Refused(refusal)) => Ended::Over(op, Err(refusal)),
            Err(Stop::Later) => return Ok(Some(Ended::Later)),
            Err(Stop::Broken(violation)) => return Err(violation),
            Err(Stop::Ask(asking)) => {
                self.threads[thread].waits = true;
                self.call(asking.request.clone(), Purpose::Thread(thread, *asking));
                return Ok(Some(Ended::Waits));
            }
        };
        let hearing = std::mem::take(&mut self.heard);
        self.threads[thread] = Thread { hearing, ..Thread::default() };
        Ok(Some(ended))
    }
}
