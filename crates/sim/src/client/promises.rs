//! The session with the server and what it was promised, as `segue-client`'s mount/promises.rs has
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use segue_core::types::{Ino, Time};
use segue_core::wire::{Reply, Request};

use super::{Mount, Purpose};
use crate::plan::Bug;

/// As the real client's.
const LEASE: Duration = Duration::from_millis(19_600);

/// A session, if the server promises anything.
#[derive(Debug, Default)]
pub(crate) struct Session {
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

impl Mount {
    /// Which of the server's promises count.
    pub(crate) fn follow(&mut self) {
        if !self.session.has_promises {
            return;
        }
        let mut lease = Time(self.session.answered.0 + LEASE);
        if self.bug == Some(Bug::ClientKeepsPromises) {
            lease = Time(self.now.0 + LEASE);
        }
        let is_gone = self.is_offline && self.bug != Some(Bug::ClientKeepsPromises);
        let number = if is_gone { 0 } else { self.number() };
        self.core.tree.follow(number, lease);
    }

    pub(super) fn asks(&mut self, call: u64) {
        self.session.asked.insert(call, self.now);
    }

    /// `call` was answered: when was it asked?
    pub(super) fn hears(&mut self, call: u64) -> Time {
        let asked = self.session.asked.remove(&call).unwrap_or(self.now);
        self.session.answered = self.session.answered.max(asked);
        match self.session.has_promises {
            true => asked,
            false => self.now,
        }
    }

    pub(super) fn welcomed(&mut self) {
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

    /// As of when a reply is, and the inodes that it promises something of.
    pub(super) fn as_of(&self, reply: &Reply, asked: Time) -> (Time, Vec<Ino>) {
        let inodes = reply.inodes();
        let counts = self.core.tree.is_as_of_now(&inodes, self.number(), asked);
        match reply.is_promised() && counts {
            true => (self.now, inodes),
            false => (asked, Vec::new()),
        }
    }

    /// Takes in what was promised with a reply that is installed.
    pub(super) fn take_promise(&mut self, inodes: &[Ino], as_of: Time) {
        self.core.tree.promised(inodes, self.number(), as_of);
    }

    /// These have changed on the server.
    pub(crate) fn broken(&mut self, inodes: &[Ino]) {
        inodes.iter().for_each(|ino| self.core.tree.broken(*ino, self.now));
        if self.bug == Some(Bug::ClientForgetsBreaks) {
            self.core.tree.forget_breaks(Time(self.now.0 + LEASE * 2));
        }
    }

    /// Has the server keep its promises.
    pub(super) fn renew_lease(&mut self) {
        self.core.tree.forget_breaks(self.now);
        if self.core.tree.is_promised_any() && !self.is_offline {
            self.call(Request::Getattr(Ino::ROOT), Purpose::Renew);
        }
    }
}
