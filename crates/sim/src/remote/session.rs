//! The session with the server: its number, and the times of its questions.

use std::collections::BTreeMap;

use segue_core::host::Host;
use segue_core::host::action::{Done, Undone};
use segue_core::host::cache::Promised;
use segue_core::nouns::Time;
use segue_core::refusal::Refusal;
use segue_core::wire::Reply;

use crate::disk::Carried;
use crate::plan::Bug;

/// A simulated client's session, if the server promises anything.
#[derive(Debug, Default)]
pub(crate) struct SimSession {
    /// The server promises things.
    pub(crate) has_promises: bool,
    /// Grows with each connection.
    number: u64,
    /// The connection that there is, or that is being made: messages belong to one.
    pub(crate) connection: u64,
    /// When the last question was put that was answered.
    answered: Time,
    /// When questions were put that are not answered.
    asked: BTreeMap<u64, Time>,
    bug: Option<Bug>,
}

impl SimSession {
    /// The first of a process whose requests are numbered from `next_request`: so no connection has
    /// the number of one of an earlier process, of which messages may be under way.
    pub(super) fn start(next_request: u64, bug: Option<Bug>) -> SimSession {
        SimSession { connection: next_request, bug, ..SimSession::default() }
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn number(&self) -> u64 {
        if self.has_bug(Bug::ClientKeepsPromises) { 1 } else { self.number }
    }

    /// Which of the server's promises count.
    pub(super) fn follow(&self, core: &mut Host, is_offline: bool, now: Time) {
        if !self.has_promises {
            return;
        }
        let keeps = self.has_bug(Bug::ClientKeepsPromises);
        let number = if is_offline && !keeps { 0 } else { self.number() };
        core.follow_session(number, if keeps { now } else { self.answered });
    }

    /// A question is put.
    pub(super) fn asks(&mut self, request: u64, now: Time) {
        self.asked.insert(request, now);
    }

    /// A question was answered: when was it put?
    pub(super) fn hears(&mut self, request: u64, now: Time) -> Time {
        let asked = self.asked.remove(&request).unwrap_or(now);
        self.answered = self.answered.max(asked);
        // Without promises a run is what it was before there were any, and so are the kept seeds.
        match self.has_promises && !self.has_bug(Bug::ClientForgetsBreaks) {
            true => asked,
            false => now,
        }
    }

    /// No question will be answered.
    pub(super) fn forget_questions(&mut self) {
        self.asked.clear();
    }

    /// There is a session over the new connection.
    pub(super) fn begin(&mut self) {
        self.number += 1;
    }

    /// The promises in a reply.
    pub(super) fn promised(&self, reply: &Reply) -> Option<Promised> {
        let session = self.number();
        reply.promised().map(|(inodes, marked)| Promised { session, inodes, marked })
    }

    /// The server says up to where it has told this session of changes.
    pub(super) fn renewed(&self, reply: &Reply) -> Carried {
        match reply {
            Reply::Renewed(renewed) => {
                Ok(Done::Renewed { session: self.number, commit: renewed.commit })
            }
            _ => Err(Undone::from(Refusal::Protocol)),
        }
    }

    /// The server says which promises of the last session go on.
    pub(super) fn resumed(&self, reply: Reply) -> Carried {
        let Reply::Resumed(Some(mut resumed)) = reply else {
            return Err(Undone::from(Refusal::Unreachable));
        };
        if self.has_bug(Bug::ClientResumesAll) {
            resumed.changed = Default::default();
        }
        Ok(Done::Resumed(resumed))
    }
}
