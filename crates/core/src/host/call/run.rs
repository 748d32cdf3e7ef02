//! How a call is carried out: attempted, continued when an action has ended, and answered.

use std::sync::Arc;

use super::{Answer, Call, Next, Running, Sealing, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Done, Event, Load, Now, Task, Undone};
use crate::host::log::{Change, Entry, Instead};
use crate::refusal::Refusal;

impl Host {
    /// Takes in what happened. Carry out all actions before the next event of the same call.
    pub fn handle(&mut self, event: Event, now: Now) {
        self.take(event, now);
        self.announce(now);
        for directory in self.tree.take_listed_anew() {
            if self.listings.drop_one(directory) {
                self.act(Action::ForgetListing(directory));
            }
        }
        for (at, is_directory) in self.tree.take_unlisted() {
            self.act(Action::forget_entry(at, is_directory));
        }
        if cfg!(debug_assertions) {
            self.check_in_turn();
        }
    }

    fn take(&mut self, event: Event, now: Now) {
        match event {
            Event::Call { id, call } => {
                assert!(!self.calls.contains_key(&id), "the number of a call is used once");
                if call.changes_files() && self.settings.is_read_only {
                    return self.reply(id, Err(Refusal::ReadOnly));
                }
                self.go_on(id, Box::new(Running::new(call)), now);
            }
            Event::Time => self.time_came(now),
            Event::Cancel(id) => {
                if let Some(running) = self.calls.remove(&id) {
                    self.end_call(&running);
                }
            }
            Event::Done { id, done } => {
                let running = self.calls.remove(&id);
                assert!(running.is_some(), "an action that ends was under way");
                let Some(mut running) = running else { return };
                match self.end(id, &mut running, done, now) {
                    Ok(()) if running.is_stepping() => drop(self.calls.insert(id, running)),
                    Ok(()) => self.go_on(id, running, now),
                    Err(refusal) => {
                        self.end_call(&running);
                        self.reply(id, Err(refusal));
                    }
                }
            }
        }
    }

    /// The next action to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Calls that are not answered.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    fn go_on(&mut self, id: CallId, mut running: Box<Running>, now: Now) {
        match self.attempt(id, &mut running, now) {
            Ok(Next::Step) => {
                assert!(running.is_stepping(), "a call that goes on waits for an action");
                self.calls.insert(id, running);
            }
            Ok(Next::Reply(answer)) => {
                self.end_call(&running);
                self.reply(id, Ok(answer));
            }
            Err(refusal) => {
                self.end_call(&running);
                self.reply(id, Err(refusal));
            }
        }
    }

    /// A call is over, or cancelled: it gives back changes and waiters.
    fn end_call(&mut self, call: &Running) {
        call.inner.iter().for_each(|inner| self.end_call(inner));
        self.stop_hearing(&call.so_far);
        self.stop_merging(&call.so_far.merging);
        self.end_sending(&call.so_far.sending);
        self.end_handling(call);
        if call.call == Call::Renew {
            self.end_renewing();
        }
        if call.call == Call::Announce {
            self.end_announcing();
        }
        self.end_taking_back(call);
        if let Some(Step::Fetch(gap)) = &call.step {
            self.fetch_ended(gap.ino, gap.range.clone());
            self.wake(Task::Fetched);
        }
    }

    fn attempt(&mut self, id: CallId, call: &mut Running, now: Now) -> Result<Next, Refusal> {
        match &call.call {
            Call::Edit(_) => self.attempt_edit(id, call, now),
            Call::Seal { .. } => self.attempt_seal(id, call),
            Call::SealAtClose { .. } => self.attempt_seal_at_close(id, call, now),
            Call::SealAll(_) => self.attempt_seal_all(id, call, now),
            Call::Push(_) => self.attempt_push(id, call, now),
            Call::Change { .. } => self.attempt_change(id, call, now),
            Call::Look(_) => self.attempt_look(id, call, now),
            Call::Name(..) => self.attempt_name(id, call, now),
            Call::Open(_) => self.attempt_open(id, call, now),
            Call::OpenHandle(_) => self.attempt_open_handle(id, call),
            Call::Close(_) => self.attempt_close(id, call, now),
            Call::Flush(_) => self.attempt_flush(id, call, now),
            Call::Sync(_) => self.attempt_sync(id, call),
            Call::SyncDirectory { .. } => self.attempt_sync_directory(id, call, now),
            Call::SyncAll { .. } => self.attempt_sync_all(id, call, now),
            Call::Fetch(_) => self.attempt_fetch(id, call, now),
            Call::Settle(settle) => {
                let settle = Arc::clone(settle);
                self.attempt_settle(id, call, &settle, now)
            }
            Call::Send(_) | Call::SendLast => self.attempt_send(id, call, now),
            Call::Merge(_) => self.attempt_merge(id, call, now),
            Call::Committed(_) => self.attempt_committed(id, call),
            Call::Forget(_) => self.attempt_forget(id, call),
            Call::TakeBack(_) => Ok(self.attempt_take_back(id, call, now)),
            Call::Follow(ino) => {
                let ino = *ino;
                self.attempt_follow(id, call, ino, now)
            }
            Call::Resume { .. } => Ok(self.attempt_resume(id, call)),
            Call::Renew => Ok(self.attempt_renew(id, call, now)),
            Call::Announce => Ok(self.attempt_announce(id, call, now)),
            Call::Pull(ino) => {
                let ino = *ino;
                Ok(self.attempt_pull(id, call, ino, now))
            }
            Call::KeepRemoved(_) => Ok(self.attempt_keep_removed(id, call, now)),
            Call::Clone { .. } => self.attempt_clone(id, call, now),
            Call::Mapped { ino, container } => {
                let place = (*ino, *container);
                self.attempt_mapped(id, call, place, now)
            }
        }
    }

    /// Begins another call as a part of `call`.
    pub(super) fn begin_inner(
        &mut self,
        id: CallId,
        call: &mut Running,
        inner: Call,
        now: Now,
    ) -> Result<Option<Answer>, Refusal> {
        assert!(call.inner.is_none(), "a call has one part at a time");
        let mut inner = Running::new(inner);
        inner.so_far.is_inner = true;
        call.inner = Some(Box::new(inner));
        self.go_on_inner(id, call, now)
    }

    /// Goes on with the call that is a part of `call`. `None` if an action of it is under way, or
    /// there is none.
    pub(super) fn go_on_inner(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Option<Answer>, Refusal> {
        if let Some(refusal) = call.so_far.inner_failed.take() {
            return Err(refusal);
        }
        let Some(mut running) = call.inner.take() else { return Ok(None) };
        let answer = match self.attempt(id, &mut running, now) {
            Ok(Next::Step) => {
                call.inner = Some(running);
                return Ok(None);
            }
            Ok(Next::Reply(answer)) => Ok(Some(answer)),
            Err(refusal) => Err(refusal),
        };
        self.end_call(&running);
        answer
    }

    /// Takes in the end of the action that a call waits for, or a call in it does.
    fn end(
        &mut self,
        id: CallId,
        call: &mut Running,
        done: Result<Done, Undone>,
        now: Now,
    ) -> Result<(), Refusal> {
        if let Some(mut inner) = call.inner.take() {
            match self.end(id, &mut inner, done, now) {
                Ok(()) => call.inner = Some(inner),
                Err(refusal) => {
                    self.end_call(&inner);
                    call.so_far.inner_failed = Some(refusal);
                }
            }
            return Ok(());
        }
        let step = call.step.take();
        assert!(step.is_some(), "an action that ends was under way");
        match step {
            Some(step) => self.end_step(id, call, step, done, now),
            None => Ok(()),
        }
    }

    fn reply(&mut self, id: CallId, answer: Result<Answer, Refusal>) {
        self.act(Action::Reply(id, answer));
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(in crate::host) fn wake(&mut self, task: Task) {
        self.progress += u64::from(task == Task::Settled);
        self.act(Action::Wake(task));
    }

    pub(super) fn append(&mut self, id: CallId, call: &mut Running, entry: Entry) -> Next {
        self.append_seal(id, call, entry, Sealing::Must)
    }

    pub(super) fn append_seal(
        &mut self,
        id: CallId,
        call: &mut Running,
        entry: Entry,
        sealing: Sealing,
    ) -> Next {
        let entry = Box::new(entry);
        call.step = Some(Step::Append(entry.clone(), sealing));
        self.act(Action::Append(id, entry));
        Next::Step
    }

    /// Reserves numbers if none is left for another change. True if that is under way.
    pub(super) fn reserves(&mut self, id: CallId, call: &mut Running) -> bool {
        let is_none_left = self.seqs_left() == 0;
        if is_none_left {
            call.step = Some(Step::Reserve);
            self.act(Action::Reserve(id, self.next_seq));
        }
        is_none_left
    }

    /// Takes in the end of an action. An error is the answer to the call.
    fn end_step(
        &mut self,
        id: CallId,
        call: &mut Running,
        step: Step,
        done: Result<Done, Undone>,
        now: Now,
    ) -> Result<(), Refusal> {
        match (step, done) {
            (Step::Reserve, Ok(Done::Reserved(through))) => self.reserve_seqs(through),
            (Step::Load(_), Ok(Done::Free(bytes))) => self.space.told(bytes, now.time),
            (Step::Load(Load::Data(_)), Ok(Done::Carried)) => {}
            (Step::Load(load), Ok(Done::Noted(noted))) => self.noted_was(call, load, noted),
            (Step::Query, done) => {
                let told = match done {
                    Ok(Done::Told(told)) => Ok(*told),
                    Ok(_) => Err(Refusal::Protocol),
                    Err(undone) => Err(undone.refusal),
                };
                self.answered(call, told, now);
                if self.tree.has_moved() {
                    call.step = Some(Step::Follow);
                    self.act(Action::LogMaps(id, None));
                }
            }
            (Step::Number, Ok(Done::Number(ino))) => call.so_far.facts.number = Some(ino),
            // Writes of a map that cannot be logged are kept for the user.
            (Step::Follow, _) => self.follow_moved(),
            (Step::LogMaps, done) => Host::maps_logged(call, done),
            (Step::Keep, Ok(Done::Carried)) => {}
            (Step::Settle(settle), Ok(Done::Carried)) => self.settled(call, &settle, now),
            (Step::SyncDisk, done) => Host::disk_synced(call, done),
            (Step::SyncMaps, done) => Host::synced_maps(call, done)?,
            (Step::Deliver, done) => self.delivered(call, done, now),
            // Pages that the kernel still has are refused after the release, and who wrote to a map
            // that is closed is told by the log.
            (Step::Release | Step::Pause | Step::CloseMaps, _) => {}
            (Step::Back, done) => self.backed(call, done.is_ok()),
            (Step::WatchMaps, Ok(Done::Carried)) => Host::watched(call),
            (Step::TakeBack, Ok(Done::Carried)) => call.so_far.is_carried = true,
            (Step::Renew(asked), Ok(Done::Renewed { session, commit })) => {
                self.tree.heard_through(session, commit, asked);
                call.so_far.is_carried = true;
            }
            (Step::Announce, done) => self.announced(call, done.err(), now),
            (Step::Resume(held), done) => {
                let resumed = match done {
                    Ok(Done::Resumed(resumed)) => Some(resumed),
                    _ => None,
                };
                self.resumed(call, &held, resumed, now);
            }
            (Step::Forget(by), Ok(Done::Carried)) => self.forgotten(id, call, by),
            (Step::Fetch(gap), done) => self.fetched(call, gap, done.map(drop))?,
            (Step::Pass(sight), done) => Host::passed(call, sight, done.map(drop))?,
            (Step::Await, done) => call.so_far.is_late = done.is_err(),
            (Step::Evict, done) => {
                self.space.forget();
                call.so_far.has_evicted = true;
                done.map_err(|undone| undone.refusal)?;
            }
            (Step::Preserve(part), Ok(Done::Preserved(sums))) => {
                self.log_preserved(id, call, part, sums);
            }
            (Step::Append(entry, _), Ok(Done::Carried)) => self.appended(call, *entry, now),
            (Step::Append(entry, sealing), Err(undone)) => {
                match self.not_appended(call, *entry, undone.refusal) {
                    Err(_) if sealing == Sealing::May => call.so_far.is_seal_put_off = true,
                    ended => ended?,
                }
            }
            (Step::Write(edit), done) => self.written(id, call, *edit, done, now)?,
            (Step::Undo(entry, refusal), _) => {
                self.admit(*entry, now.time);
                return Err(refusal);
            }
            (_, Err(undone)) => return Err(undone.refusal),
            (step, Ok(done)) => unreachable!("{done:?} is no result of {step:?}"),
        }
        Ok(())
    }

    /// An entry is in the log.
    fn appended(&mut self, call: &mut Running, entry: Entry, now: Now) {
        match entry {
            Entry::Replaced(replaced) => {
                let gone = self.replace(&replaced, now.time);
                self.replaced(call, &replaced.by, &gone, now);
            }
            entry => {
                call.so_far.is_edited |= entry.place().is_some();
                if let Entry::Change(logged) = &entry {
                    match &logged.change {
                        Change::Data(_) => call.so_far.sealed = Some(logged.seq),
                        Change::Record(_) => {
                            // Times of directories follow the change itself.
                            call.so_far.logged.get_or_insert(logged.seq);
                            call.so_far.added += logged.change.weight();
                            self.pending.more(logged.change.weight());
                        }
                    }
                }
                self.wake_senders(&entry);
                self.admit(entry, now.time);
            }
        }
    }

    fn wake_senders(&mut self, entry: &Entry) {
        let bytes = match entry {
            Entry::Change(logged) => logged.change.bytes(),
            _ => return,
        };
        self.wake(Task::Drain);
        if bytes > self.settings.inline_max {
            self.wake(Task::Upload);
        }
    }

    /// An entry could not be logged, so its change did not happen.
    fn not_appended(
        &mut self,
        call: &mut Running,
        entry: Entry,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        match entry {
            Entry::Replaced(replaced) => {
                self.send_after_all(&replaced);
                self.wake(Task::Drain);
                if let Instead::Nothing(_) | Instead::Rename(..) = replaced.by {
                    // The call itself is done. All of it is sent.
                    return Ok(());
                }
            }
            // The time of a directory is lost.
            Entry::Change(_) if call.so_far.is_cancelled => return Ok(()),
            _ => {}
        }
        Err(refusal)
    }
}
