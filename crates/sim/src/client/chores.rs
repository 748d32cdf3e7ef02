//! Calls that no thread waits for: those that the host starts itself, batches, and the connection.

use segue_core::host::action::{CallId, Done, Event, Undone};
use segue_core::host::call::{Answer, Call, Ended};
use segue_core::host::log::Lane;
use segue_core::nouns::{Ino, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Hello, Reply, Request};

use super::Mount;
use super::shell::{Hearing, Ran};
use crate::Violation;
use crate::plan::Bug;
use crate::remote::{Asking, Errand, Sent, UploadId, Waits, Whose};
use crate::server::Answer as Answered;

/// Chores that no request is under way for.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    /// The host wants these begun.
    pub(super) to_start: Vec<Call>,
    /// These go on then.
    paused: Vec<(CallId, Time)>,
    /// These wait until something is settled, because another host waits.
    pulling: Vec<(u64, Hearing)>,
    /// What these wait for is sent, as far as it goes.
    pub(crate) pulled: Vec<(u64, bool)>,
    /// It is known how much quotas have left.
    pub(super) knows_room: bool,
}

impl Mount {
    /// Tells the host of time, and continues the calls that waited for it.
    pub(super) fn time_comes(&mut self) -> Result<(), Violation> {
        self.core.handle(Event::Time, self.moment());
        while let Some(action) = self.core.poll_action() {
            self.carry_out(action, &[])?;
        }
        let now = self.now;
        let due = self.chores.paused.extract_if(.., |(_, at)| *at <= now);
        for (id, _) in due.collect::<Vec<_>>() {
            let ran = self.go_on_with(id, Ok(Done::Carried))?;
            self.goes_on(Whose::Chore, ran)?;
        }
        self.go_on_pulling()?;
        self.start_chores()
    }

    /// Another host opens `ino`.
    pub(crate) fn pull(&mut self, ino: Ino, number: u64) -> Result<(), Violation> {
        if self.bug == Some(Bug::ClientPullsNothing) {
            self.chores.pulled.push((number, true));
            return Ok(());
        }
        self.start_as(Whose::Pull(number), Call::Pull(ino))?;
        self.take_turn()
    }

    /// Goes on with what other hosts wait for, where something is settled.
    fn go_on_pulling(&mut self) -> Result<(), Violation> {
        for (number, hearing) in std::mem::take(&mut self.chores.pulling) {
            match self.heard_of(&hearing)? {
                Some(Ran::Hears(next)) => {
                    self.chores.pulling.push((number, next.after(&hearing)));
                }
                Some(ran) => self.goes_on(Whose::Pull(number), ran)?,
                None => self.chores.pulling.push((number, hearing)),
            }
        }
        Ok(())
    }

    /// Begins the calls that the host wants begun.
    fn start_chores(&mut self) -> Result<(), Violation> {
        for call in std::mem::take(&mut self.chores.to_start) {
            self.start_as(Whose::Chore, call)?;
        }
        Ok(())
    }

    /// Begins a call for which no thread waits.
    pub(super) fn start_as(&mut self, whose: Whose, call: Call) -> Result<(), Violation> {
        let ran = self.start_call(call, &[])?;
        self.goes_on(whose, ran)
    }

    /// A call for which no thread waits came so far.
    pub(super) fn goes_on(&mut self, whose: Whose, ran: Ran) -> Result<(), Violation> {
        match (whose, ran) {
            (whose, Ran::Asks(asking)) => self.remote.ask(whose, *asking, self.now),
            (Whose::Lane(_), Ran::Uploads) => {}
            (Whose::Merge, ran) => return self.merge_goes_on(ran),
            (Whose::Lane(lane), Ran::Answered(answer)) => return self.sent(lane, answer),
            (Whose::Chore, Ran::Answered(_)) => {}
            (Whose::Pull(number), Ran::Answered(answer)) => {
                let is_sent = answer.is_ok_and(|answer| answer.is_settled);
                self.chores.pulled.push((number, is_sent));
            }
            (Whose::Pull(number), Ran::Hears(hearing)) => {
                self.chores.pulling.push((number, *hearing));
            }
            (Whose::Chore, Ran::Pauses(id, time)) => {
                self.chores.paused.push((id, Time(self.now.0 + time)));
            }
            (Whose::Connection, Ran::Answered(_)) => {
                self.remote.begin_session(&mut self.core, self.now);
                self.start_chores()?;
            }
            (whose, ran) => return Err(Violation(format!("{whose:?} waits: {ran:?}"))),
        }
        Ok(())
    }

    /// Uploads ahead what is worth it, and sends the next batch of each lane, if there is one and
    /// none is under way.
    pub(crate) fn send(&mut self) -> Result<(), Violation> {
        let places = (&mut self.core, &mut self.disk);
        self.remote.upload_ahead(places, self.now)?;
        for lane in Lane::ALL {
            if !self.remote.is_offline && !self.remote.is_draining(lane) {
                self.start_as(Whose::Lane(lane), Call::Send(lane))?;
            }
        }
        Ok(())
    }

    /// A call that sends a batch is over.
    fn sent(&mut self, lane: Lane, answer: Result<Answer, Refusal>) -> Result<(), Violation> {
        match answer {
            Err(Refusal::Protocol) => return Err(Violation("an answer to no batch".into())),
            // It is sent again, and answered the same.
            Err(Refusal::NoSpace | Refusal::Io) => drop(self.remote.unsettled.insert(lane)),
            Err(_) => {}
            Ok(answer) => {
                if answer.has_sent || self.core.queue().is_empty() {
                    self.remote.unsettled.remove(&lane);
                }
                self.disk.tidy_log(&mut self.core, self.now);
            }
        }
        Ok(())
    }

    /// Goes on with a call that asked the server.
    pub(crate) fn tell(
        &mut self,
        asking: &Asking,
        answer: Answered,
        asked: Time,
    ) -> Result<Ran, Violation> {
        let places = (&mut self.core, &mut self.disk);
        let done = self.remote.done(places, asking, answer, [asked, self.now])?;
        self.go_on_with(asking.call, done)
    }

    /// Takes in the answer to a request for which no thread waits.
    pub(crate) fn answered(
        &mut self,
        errand: Errand,
        (reply, body): Answered,
        asked: Time,
    ) -> Result<(), Violation> {
        match errand {
            Errand::Hello(hello) => self.greeted(&hello, reply)?,
            Errand::Call(whose, asking) => {
                if self.call_answered(whose, &asking, (reply, body), asked)? {
                    return Ok(());
                }
            }
            Errand::Upload(id, waits) => {
                if self.upload_answered(id, (waits, (reply, body)), asked)? {
                    return Ok(());
                }
            }
            Errand::Room(quota) => {
                if let Reply::Space(space) = reply {
                    self.core.told_space(quota, &space, self.now);
                }
            }
            Errand::Ahead(request) => {
                let places = (&mut self.core, &mut self.disk);
                self.remote.take_data(places, &request, (reply, body), [asked, self.now]);
            }
            Errand::Visible => {}
        }
        self.take_turn()
    }

    /// Begins the calls that an answer makes room for.
    pub(crate) fn take_turn(&mut self) -> Result<(), Violation> {
        self.go_on_pulling()?;
        self.start_chores()?;
        self.send()
    }

    /// Goes on with the call that waits for this answer. Returns true if nothing else goes on.
    fn call_answered(
        &mut self,
        whose: Whose,
        asking: &Asking,
        answer: Answered,
        asked: Time,
    ) -> Result<bool, Violation> {
        if let (Whose::Merge, Request::Compare(files), Reply::Compared(true)) =
            (whose, &asking.request, &answer.0)
        {
            self.merging.compared.add(files.one);
        }
        let is_unseen = matches!(&answer.0, Reply::Applied(applied) if !applied.visible);
        let places = (&mut self.core, &mut self.disk);
        let done = self.remote.done(places, asking, answer, [asked, self.now])?;
        let is_full = asking.is_of_batch()
            && matches!(
                done,
                Ok(Done::NoChunks(_)) | Err(Undone { refusal: Refusal::NoSpace, .. })
            );
        let ran = self.go_on_with(asking.call, done)?;
        self.goes_on(whose, ran)?;
        if is_unseen {
            self.remote.ask_for_visibility(self.now);
        }
        // Unless a batch that was sent twice is done the second time.
        if let (Whose::Lane(lane), true) = (whose, is_full) {
            self.remote.unsettled.insert(lane);
        }
        Ok(is_full || asking.is_of_batch() && self.remote.door.is_shut_out)
    }

    /// Goes on with the upload that waits for this answer. Returns true if nothing else goes on.
    fn upload_answered(
        &mut self,
        id: UploadId,
        heard: (Waits, Answered),
        asked: Time,
    ) -> Result<bool, Violation> {
        let lane = self.remote.lane_of(id);
        let places = (&mut self.core, &mut self.disk);
        let sent = self.remote.uploads(places, id, heard, [asked, self.now])?;
        let (UploadId::Batch(call), Some(lane), Some(sent)) = (id, lane, sent) else {
            return Ok(false);
        };
        let is_full = matches!(sent, Sent::Ended(Ok(Done::NoChunks(_))));
        let ran = self.batch_goes_on(call, sent)?;
        self.goes_on(Whose::Lane(lane), ran)?;
        Ok(is_full)
    }

    /// Takes in the answer to `hello`. Then promises of the last connection may count over the new
    /// one.
    fn greeted(&mut self, hello: &Hello, reply: Reply) -> Result<(), Violation> {
        let places = (&mut self.core, &mut self.disk);
        let Some(welcome) = self.remote.greeted(places, hello, reply, self.now)? else {
            return Ok(());
        };
        if let Some(history) = &welcome.history
            && self.bug != Some(Bug::ClientBelievesForgotten)
            && self.host_call(Call::Forget(history.clone()))?.is_err()
        {
            // The next connection tells it again.
            self.remote.door.is_shut_out = true;
            return Ok(());
        }
        self.remote.let_in(&mut self.disk, welcome.grants);
        self.start_as(Whose::Connection, Call::Resume { epoch: 1, commit: welcome.commit })
    }

    /// The kernel is to forget all that it was told.
    pub(crate) fn take_told(&mut self, ended: Ended) -> Result<(), Violation> {
        self.start_as(Whose::Chore, Call::TakeBack(ended))
    }

    /// The lease may be about to end. Returns when it is, unless it is renewed.
    pub(crate) fn lease_ends(&mut self) -> Result<Option<Time>, Violation> {
        let end = self.core.tree().end_of_lease();
        if end.is_none_or(|end| end > self.now) {
            return Ok(end);
        }
        self.time_comes()?;
        Ok(self.core.tree().end_of_lease())
    }

    /// These have changed on the server.
    pub(crate) fn broken(&mut self, inodes: Vec<Ino>) -> Result<(), Violation> {
        self.start_as(Whose::Chore, Call::TakeBack(Ended::Broken(inodes)))?;
        self.start_chores()
    }

    /// The connection broke. Returns the threads that go on without.
    pub(crate) fn lose_link(&mut self) -> Vec<usize> {
        let mut waiting = Vec::new();
        for (whose, call) in self.remote.lose_link(&mut self.core, self.now) {
            self.core.handle(Event::Cancel(call), self.moment());
            match whose {
                Whose::Thread(thread) => waiting.push(thread),
                Whose::Merge => self.merging.stop(),
                _ => {}
            }
        }
        waiting
    }
}
