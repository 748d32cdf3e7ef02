//! The send scheduler: which bytes go on the wire next [MFS 2.2].
//!
//! Strict priority between classes, first in first out within a class, one quantum at a time.
//! A message that becomes urgent therefore waits for at most one quantum of anything less
//! urgent. Strict priority can starve write-back. That is the point: it should not move while
//! a user waits for a page. What bounds the wait is the record's own deadline, which raises
//! its class; the scheduler does not guess.
//!
//! ```text
//!  open ──▶ waiting ──offer──▶ ready ──sent all──▶ waiting ..  ──close and sent all──▶ gone
//!                               │ ▲
//!                          hold ▼ │ resume          cancel, from anywhere ──▶ gone
//!                               held
//! ```
//!
//! A message is eligible when it has something to send (bytes, or the end that closes it) and
//! is not held. One without is passed over, so that a slow producer or a receiver that does
//! not read delays nobody else.
//!
//! Other [disciplines](Discipline) are there to be measured against.
//!
//! Invariant: `ready` holds exactly the eligible messages, and `queued` is the sum of their
//! and everybody else's unsent bytes, for each class.

mod discipline;

use std::collections::{BTreeMap, BTreeSet};

pub use discipline::{Discipline, Modes, UnknownDiscipline};

use crate::nouns::Class;

/// A message in one direction of one connection, never reused there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub u64);

/// The scheduler holds as many messages as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many messages are waiting to be sent")]
pub struct Full;

/// What to send next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantum {
    /// Whose bytes.
    pub id: MessageId,
    /// How many; 0 only when nothing but the message's end is left.
    pub bytes: usize,
    /// These are the message's last.
    pub last: bool,
}

#[derive(Debug)]
struct Message {
    class: Class,
    /// When it joined its class, as a count.
    place: u64,
    unsent: usize,
    held: bool,
    closed: bool,
}

impl Message {
    fn is_eligible(&self) -> bool {
        !self.held && (self.unsent > 0 || self.closed)
    }
}

/// Every message that one side has begun and not wholly handed over.
#[derive(Debug)]
pub struct Scheduler {
    discipline: Discipline,
    /// The least urgent class that is sent now.
    least: Class,
    limit: usize,
    places: u64,
    messages: BTreeMap<MessageId, Message>,
    /// Ordered by class, then by arrival in it.
    ready: BTreeSet<(Class, u64, MessageId)>,
    queued: [u64; Class::ALL.len()],
}

impl Scheduler {
    /// Without messages, and never with more than `limit` of them.
    pub fn new(discipline: Discipline, limit: usize) -> Scheduler {
        Scheduler {
            least: discipline.least(0),
            discipline,
            limit,
            places: 0,
            messages: BTreeMap::new(),
            ready: BTreeSet::new(),
            queued: [0; Class::ALL.len()],
        }
    }

    /// Begins a message, which joins `class` behind all that are there.
    ///
    /// # Panics
    ///
    /// If `id` was opened before and is not gone.
    pub fn open(&mut self, id: MessageId, class: Class) -> Result<(), Full> {
        if self.messages.len() >= self.limit {
            return Err(Full);
        }
        let place = self.take_place();
        let class = self.discipline.class(class);
        let message = Message { class, place, unsent: 0, held: false, closed: false };
        assert!(self.messages.insert(id, message).is_none(), "{id:?} is open already");
        Ok(())
    }

    /// `bytes` more of a message can be sent. A message that is gone takes none.
    ///
    /// # Panics
    ///
    /// If the message was closed.
    pub fn offer(&mut self, id: MessageId, bytes: usize) {
        self.change(id, |message| {
            assert!(!message.closed, "{id:?} grows after its end");
            message.unsent += bytes;
        });
    }

    /// No bytes will follow those offered.
    pub fn close(&mut self, id: MessageId) {
        self.change(id, |message| message.closed = true);
    }

    /// The receiver takes no bytes of this message now: others go.
    pub fn hold(&mut self, id: MessageId) {
        self.change(id, |message| message.held = true);
    }

    /// The receiver may take bytes of this message again.
    pub fn resume(&mut self, id: MessageId) {
        self.change(id, |message| message.held = false);
    }

    /// Moves what is unsent of a message to `class`, behind all that are there. One that is as
    /// urgent already stays where it is.
    pub fn raise(&mut self, id: MessageId, class: Class) {
        let class = self.discipline.class(class);
        let place = self.take_place();
        self.change(id, |message| {
            if class < message.class {
                message.class = class;
                message.place = place;
            }
        });
    }

    /// So many bytes a second can be sent, as far as is known: of interest to modes only.
    pub fn handle_rate(&mut self, rate: u64) {
        self.least = self.discipline.least(rate);
    }

    /// Forgets a message and what is unsent of it.
    pub fn cancel(&mut self, id: MessageId) {
        if let Some(message) = self.messages.remove(&id) {
            self.ready.remove(&(message.class, message.place, id));
            self.queued[message.class as usize] -= message.unsent as u64;
        }
    }

    /// What should be sent next, at most `quantum` bytes of it. Changes nothing; say what was
    /// really sent with [`sent`](Scheduler::sent).
    pub fn next(&self, quantum: usize) -> Option<Quantum> {
        let (_, _, id) = self.ready.first().filter(|(class, ..)| *class <= self.least)?;
        let message = self.messages.get(id)?;
        let bytes = message.unsent.min(quantum);
        Some(Quantum { id: *id, bytes, last: message.closed && bytes == message.unsent })
    }

    /// `bytes` of a message were sent, 0 for its bare end. True if it is complete, and gone.
    ///
    /// # Panics
    ///
    /// If more was sent than offered.
    pub fn sent(&mut self, id: MessageId, bytes: usize) -> bool {
        let mut complete = false;
        self.change(id, |message| {
            assert!(bytes <= message.unsent, "{id:?} sent bytes that it does not have");
            message.unsent -= bytes;
            complete = message.closed && message.unsent == 0;
        });
        if complete {
            self.cancel(id);
        }
        complete
    }

    /// The class of a message that is not gone.
    pub fn class(&self, id: MessageId) -> Option<Class> {
        self.messages.get(&id).map(|message| message.class)
    }

    /// Unsent bytes of each class, in the order of [`Class::ALL`].
    pub fn queued(&self) -> [u64; Class::ALL.len()] {
        self.queued
    }

    /// Messages that are not gone.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True without messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn take_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Changes one message and whatever is derived from it.
    fn change(&mut self, id: MessageId, change: impl FnOnce(&mut Message)) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        self.ready.remove(&(message.class, message.place, id));
        self.queued[message.class as usize] -= message.unsent as u64;
        change(message);
        self.queued[message.class as usize] += message.unsent as u64;
        if message.is_eligible() {
            self.ready.insert((message.class, message.place, id));
        }
    }
}

#[cfg(test)]
mod tests;
