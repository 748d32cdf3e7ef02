//! The session with the server: its number, and the times of its questions.

use std::collections::BTreeMap;

use segue_core::host::action::Done;
use segue_core::host::cache::Promised;
use segue_core::host::call::{Call, Ended};
use segue_core::nouns::{Ino, Time};
use segue_core::wire::Reply;

use super::Mount;
use crate::Violation;
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
}

impl SimSession {
    /// The first of a process whose calls are numbered from `next_call`: so no connection has the
    /// number of one of an earlier process, of which messages may be under way.
    pub(super) fn start(next_call: u64) -> SimSession {
        SimSession { connection: next_call, ..SimSession::default() }
    }

    /// It was told of all that was promised to it, up to `commit`.
    pub(super) fn renewed(&self, commit: u64) -> Done {
        Done::Renewed { session: self.number, commit }
    }
}

impl Mount {
    /// Which of the server's promises count.
    pub(crate) fn follow(&mut self) {
        if !self.session.has_promises {
            return;
        }
        let keeps = self.bug == Some(Bug::ClientKeepsPromises);
        let number = if self.is_offline && !keeps { 0 } else { self.number() };
        let answered = if keeps { self.now } else { self.session.answered };
        self.core.tree.follow(number, answered);
    }

    pub(super) fn asks(&mut self, call: u64) {
        self.session.asked.insert(call, self.now);
    }

    /// `call` was answered: when was it asked?
    pub(super) fn hears(&mut self, call: u64) -> Time {
        let asked = self.session.asked.remove(&call).unwrap_or(self.now);
        self.session.answered = self.session.answered.max(asked);
        // Without promises a run is what it was before there were any, and so are the kept seeds.
        match self.session.has_promises && self.bug != Some(Bug::ClientForgetsBreaks) {
            true => asked,
            false => self.now,
        }
    }

    /// The connection is there.
    pub(super) fn welcomed(&mut self) {
        self.is_offline = false;
        self.session.number += 1;
        self.follow();
    }

    pub(super) fn forget_calls(&mut self) {
        self.session.asked.clear();
        self.follow();
    }

    fn number(&self) -> u64 {
        match self.bug {
            Some(Bug::ClientKeepsPromises) => 1,
            _ => self.session.number,
        }
    }

    /// What is promised with a reply.
    pub(super) fn promised(&self, reply: &Reply) -> Option<Promised> {
        let session = self.number();
        reply.promised().map(|inodes| Promised { session, inodes })
    }

    /// These have changed on the server.
    pub(crate) fn broken(&mut self, inodes: Vec<Ino>) -> Result<(), Violation> {
        self.start_chore(Call::TakeBack(Ended::Broken(inodes)))?;
        self.start_chores()
    }
}
