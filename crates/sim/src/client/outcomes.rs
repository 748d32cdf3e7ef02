//! Threads whose call is logged and waits for its outcome. To the model the operation is over then:
//! others come in between before the thread goes on.

use std::time::Duration;

use segue_core::host::action::{Await, CallId, Done, Event, Patience, Undone};
use segue_core::host::call::{Answer, Call};
use segue_core::nouns::{Ino, Time};
use segue_core::refusal::Refusal;

use super::shell::Ran;
use super::{Mount, Tried};
use crate::Violation;
use crate::work::Answered;

/// A call waits so long for a server that is out of reach.
const GRACE: Duration = Duration::from_secs(30);

/// A call of the host that waits for an outcome.
#[derive(Clone, Debug)]
pub(crate) struct Hearing {
    call: CallId,
    awaited: Await,
    since: Time,
}

impl Mount {
    pub(super) fn hearing(&self, call: CallId, awaited: Await) -> Hearing {
        Hearing { call, awaited, since: self.now }
    }

    /// Carries out a call that may write `bytes` up to its end, or until it waits for an outcome.
    pub(super) fn call_heard(&mut self, call: Call, bytes: &[u8]) -> Tried<Answer> {
        match self.start_call_with(call, bytes)? {
            Ran::Answered(answer) => Ok(answer),
            Ran::Hears(hearing) => {
                self.heard.push(*hearing);
                Ok(Ok(Answer::default()))
            }
            ran => Err(Violation(format!("a call that cannot wait: {ran:?}"))),
        }
    }

    /// The answer of a change of names that is logged, and waits for its outcome.
    pub(super) fn named_for_now(&mut self, thread: usize, hearing: Hearing) -> Answered {
        self.heard.push(hearing);
        self.raise_newest();
        self.threads[thread].changing = None;
        let newest = self.core.queue.newest_seq().and_then(|seq| self.core.queue.change(seq));
        Answered::Ino(newest.map_or(Ino::ROOT, |change| change.ino()))
    }

    /// Lets the calls of a thread go on that wait for outcomes. True if there were any.
    pub(super) fn hears_outcomes(&mut self, thread: usize) -> Result<bool, Violation> {
        let waited = !self.threads[thread].hearing.is_empty();
        for hearing in std::mem::take(&mut self.threads[thread].hearing) {
            match self.heard_of(&hearing)? {
                None => self.threads[thread].hearing.push(hearing),
                Some(Ran::Answered(Err(refusal))) if refusal != Refusal::Unreachable => {
                    self.refused += 1;
                }
                Some(Ran::Answered(_)) => {}
                Some(Ran::Hears(next)) => {
                    let hearing = Hearing { since: hearing.since, ..*next };
                    self.threads[thread].hearing.push(hearing);
                }
                Some(ran) => return Err(Violation(format!("behind an outcome: {ran:?}"))),
            }
        }
        Ok(waited)
    }

    /// Lets a call go on if something was settled, or it has waited for too long.
    pub(super) fn heard_of(&mut self, hearing: &Hearing) -> Result<Option<Ran>, Violation> {
        let Hearing { call, awaited, since } = hearing;
        let has_patience = awaited.patience == Patience::Ever || self.now.since(*since) < GRACE;
        let is_late = self.is_offline && !has_patience;
        if !is_late && self.core.progress() == awaited.since {
            return Ok(None);
        }
        let done = match is_late {
            true => Err(Undone::from(Refusal::Unreachable)),
            false => Ok(Done::Carried),
        };
        self.run(*call, Event::Done { id: *call, done }, &[]).map(Some)
    }
}
