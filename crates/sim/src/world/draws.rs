//! Who draws random numbers: each from numbers of its own, so that little else changes where
//! something is left out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::Event;
use crate::rng::Rng;

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Who {
    /// Operations of a host's thread.
    Thread(usize, usize),
    /// What becomes of messages of a host.
    Link(usize),
    /// Faults of a host, or of the server.
    Fault(Option<usize>),
}

/// Random numbers.
#[derive(Debug)]
pub(super) struct Draws {
    /// For all, if none has numbers of its own.
    shared: Rng,
    seed: Option<u64>,
    own: BTreeMap<Who, Rng>,
}

impl Draws {
    /// Numbers for each of its own, from `seed`, or `shared` ones for all.
    pub(super) fn new(shared: Rng, seed: Option<u64>) -> Draws {
        Draws { shared, seed, own: BTreeMap::new() }
    }

    pub(super) fn of(&mut self, who: Who) -> &mut Rng {
        let Some(seed) = self.seed else { return &mut self.shared };
        let number = match who {
            Who::Thread(host, thread) => 1 + (host * 8 + thread) as u64 * 3,
            Who::Link(host) => 2 + host as u64 * 3,
            Who::Fault(host) => 3 + host.map_or(0, |host| host as u64 + 1) * 3,
        };
        self.own.entry(who).or_insert_with(|| Rng::new(seed ^ number << 40))
    }

    pub(super) fn millis(&mut self, who: Who, range: Range<u64>) -> Duration {
        Duration::from_millis(self.of(who).between(range.start, range.end))
    }
}

impl Event {
    /// True for a fault that copies a disk.
    pub(super) fn is_of_copies(&self) -> bool {
        matches!(
            self,
            Event::PutBack(_) | Event::Clone(_) | Event::ServerSave | Event::ServerPutBack
        )
    }

    /// The host that a fault is of, if it is not the server's.
    pub(super) fn host(&self) -> Option<usize> {
        match self {
            Event::Part(client)
            | Event::Heal(client)
            | Event::Crash(client)
            | Event::Restart(client)
            | Event::Sleep(client)
            | Event::Wake(client)
            | Event::Jump(client)
            | Event::Fill(client)
            | Event::Empty(client)
            | Event::PutBack(client)
            | Event::Clone(client) => Some(*client),
            _ => None,
        }
    }
}
