//! Calls that the host starts itself, and those of its connection. No thread waits for them.

use segue_core::host::action::{CallId, Done, Event, Undone};
use segue_core::host::call::Call;
use segue_core::nouns::Time;
use segue_core::refusal::Refusal;
use segue_core::wire::{Reply, Request};

use super::shell::{Asking, Keep, Ran};
use super::{Mount, Purpose};
use crate::Violation;
use crate::plan::Bug;
use crate::server::Answer;

/// Chores that no request is under way for.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    /// The host wants these begun.
    pub(super) to_start: Vec<Call>,
    /// These go on then.
    paused: Vec<(CallId, Time)>,
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
            let ran = self.run(id, Event::Done { id, done: Ok(Done::Carried) }, &[])?;
            self.chore_goes_on(id, ran)?;
        }
        self.start_chores()
    }

    /// Begins what the host wants begun.
    pub(super) fn start_chores(&mut self) -> Result<(), Violation> {
        for call in std::mem::take(&mut self.chores.to_start) {
            self.start_chore(call)?;
        }
        Ok(())
    }

    /// Begins a call for which no thread waits.
    pub(super) fn start_chore(&mut self, call: Call) -> Result<(), Violation> {
        let id = self.next_id();
        let ran = self.run(id, Event::Call { id, call }, &[])?;
        self.chore_goes_on(id, ran)
    }

    fn chore_goes_on(&mut self, id: CallId, ran: Ran) -> Result<(), Violation> {
        match ran {
            Ran::Waits(asking) => self.call(asking.request.clone(), Purpose::Chore(*asking)),
            Ran::Keeps(Keep::Renew) => self.call(Request::Renew(()), Purpose::Renew(id)),
            Ran::Keeps(Keep::Pause(time)) => self.chores.paused.push((id, Time(self.now.0 + time))),
            Ran::Answered(_) => {}
            ran => return Err(Violation(format!("a chore that waits: {ran:?}"))),
        }
        Ok(())
    }

    /// The answer to a question of a chore.
    pub(super) fn chore_answered(
        &mut self,
        asking: &Asking,
        answer: Answer,
        asked: Time,
    ) -> Result<(), Violation> {
        let ran = self.tell(asking.call, answer, &asking.request, asked)?;
        self.chore_goes_on(asking.call, ran)
    }

    /// The server says up to where it has told this session of changes.
    pub(super) fn renewed(&mut self, id: CallId, reply: &Reply) -> Result<(), Violation> {
        let done = match reply {
            Reply::Renewed(renewed) => Ok(self.session.renewed(renewed.commit)),
            _ => Err(Undone::from(Refusal::Protocol)),
        };
        let ran = self.run(id, Event::Done { id, done }, &[])?;
        self.chore_goes_on(id, ran)
    }

    /// The server has let this host in over a connection that begins with `commit`. Promises of the
    /// last one may count over it.
    pub(super) fn resume(&mut self, commit: u64) -> Result<(), Violation> {
        let id = self.next_id();
        let call = Call::Resume { epoch: 1, commit };
        let ran = self.run(id, Event::Call { id, call }, &[])?;
        self.resumes(id, ran)
    }

    fn resumes(&mut self, id: CallId, ran: Ran) -> Result<(), Violation> {
        match ran {
            Ran::Keeps(Keep::Resume(resume)) => {
                self.call(Request::Resume(*resume), Purpose::Resume(id))
            }
            Ran::Answered(_) => {
                self.welcomed();
                self.start_chores()?;
            }
            ran => return Err(Violation(format!("a connection that waits: {ran:?}"))),
        }
        Ok(())
    }

    pub(super) fn resumed(&mut self, id: CallId, reply: Reply) -> Result<(), Violation> {
        let done = match reply {
            Reply::Resumed(Some(mut resumed)) => {
                if self.bug == Some(Bug::ClientResumesAll) {
                    resumed.changed = Default::default();
                }
                Ok(Done::Resumed(resumed))
            }
            _ => Err(Undone::from(Refusal::Unreachable)),
        };
        let ran = self.run(id, Event::Done { id, done }, &[])?;
        self.resumes(id, ran)
    }
}
