//! Threads whose call is logged and waits for its outcome. To the model the operation is over then:
//! others come in between before the thread goes on.

use segue_core::host::call::{Answer, Call};
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;

use super::Apps;
use super::Tried;
use crate::Violation;
use crate::client::{Hearing, Ran};
use crate::work::Answered;

impl Apps {
    /// Carries out a call that may write `bytes` up to its end, or until it waits for an outcome.
    pub(super) fn call_heard(&mut self, call: Call, bytes: &[u8]) -> Tried<Answer> {
        match self.mount.start_call(call, bytes)? {
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
        self.is_to_push = true;
        self.threads[thread].changing = None;
        let queue = &self.mount.core.queue();
        let newest = queue.newest_seq().and_then(|seq| queue.change(seq));
        Answered::Ino(newest.map_or(Ino::ROOT, |change| change.ino()))
    }

    /// Lets the calls of a thread go on that wait for outcomes. True if there were any.
    pub(super) fn hears_outcomes(&mut self, thread: usize) -> Result<bool, Violation> {
        let waited = !self.threads[thread].hearing.is_empty();
        for hearing in std::mem::take(&mut self.threads[thread].hearing) {
            match self.mount.heard_of(&hearing)? {
                None => self.threads[thread].hearing.push(hearing),
                Some(Ran::Answered(Err(refusal))) if refusal != Refusal::Unreachable => {
                    self.refused += 1;
                }
                Some(Ran::Answered(_)) => {}
                Some(Ran::Hears(next)) => {
                    self.threads[thread].hearing.push(next.after(&hearing));
                }
                Some(ran) => return Err(Violation(format!("behind an outcome: {ran:?}"))),
            }
        }
        Ok(waited)
    }
}
