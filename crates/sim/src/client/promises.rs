//! The session with the server and what it was promised, as `segue-client`'s mount/promises.rs has
//! it.

use std::collections::BTreeMap;

use segue_core::host::cache::Promised;
use segue_core::nouns::{Ino, Time};
use segue_core::promise::Inodes;
use segue_core::wire::{Reply, Request};

use super::{Mount, Purpose};
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

    /// The server has let this host in over a connection that begins with `commit`: what was
    /// promised over the last one may count still.
    pub(super) fn resume(&mut self, commit: u64) {
        match self.core.tree.to_resume(1) {
            Some(resume) => {
                let held = resume.held.clone();
                self.call(Request::Resume(resume), Purpose::Resume(held, commit));
            }
            None => {
                self.core.tree.begin_connection(1, commit);
                self.welcomed();
            }
        }
    }

    pub(super) fn resumed(&mut self, held: &Inodes, commit: u64, reply: Reply) {
        match reply {
            Reply::Resumed(Some(mut resumed)) => {
                if self.bug == Some(Bug::ClientResumesAll) {
                    resumed.changed = Inodes::default();
                }
                self.core.tree.resume(held, &resumed, self.now);
            }
            _ => self.core.tree.begin_connection(1, commit),
        }
        self.welcomed();
    }

    fn welcomed(&mut self) {
        self.is_offline = false;
        self.session.number += 1;
        self.follow();
    }

    /// The server has told this session of all that was promised to it, up to `commit`.
    pub(super) fn renewed(&mut self, commit: u64, asked: Time) {
        self.core.tree.heard_through(self.session.number, commit, asked);
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
    pub(crate) fn broken(&mut self, inodes: &[Ino]) {
        inodes.iter().for_each(|ino| self.core.tree.broken(*ino, self.now));
    }

    /// Has the server keep its promises.
    pub(super) fn renew_lease(&mut self) {
        self.core.tree.forget_breaks(self.now);
        if self.core.tree.wants_lease(self.now) && !self.is_offline {
            self.call(Request::Renew(()), Purpose::Renew);
        }
    }
}
