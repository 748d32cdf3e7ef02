//! After a restart a server does not know what it had promised. Until every client that it had
//! promised anything has come back, or believes none of it any more, nobody changes anything
//! (DESIGN.md 6).

use std::collections::BTreeSet;
use std::time::Duration;

use super::TERM;
use crate::nouns::{ClientId, Time};

/// The time after a restart.
#[derive(Clone, Debug)]
pub struct Grace {
    absent: BTreeSet<ClientId>,
    until: Time,
}

impl Grace {
    /// It begins, and these were connected to the server before.
    pub fn new(absent: BTreeSet<ClientId>, now: Time) -> Grace {
        Grace { absent, until: Time(now.0 + TERM) }
    }

    /// `client` has come back: it believes nothing any more that it was promised before.
    pub fn came_back(&mut self, client: ClientId) {
        self.absent.remove(&client);
    }

    /// How much longer nothing may be changed, if nobody comes back.
    pub fn left(&self, now: Time) -> Option<Duration> {
        let left = self.until.since(now);
        (!self.absent.is_empty() && left > Duration::ZERO).then_some(left)
    }

    /// Who has not come back.
    pub fn absent(&self) -> &BTreeSet<ClientId> {
        &self.absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S6.15.
    #[test]
    fn it_ends_with_the_last_who_comes_back_or_with_the_term() {
        let at = |secs| Time(Duration::from_secs(secs));
        let [a, b] = [1, 2].map(|byte| ClientId([byte; 16]));
        assert_eq!(Grace::new(BTreeSet::new(), at(5)).left(at(5)), None);
        let mut grace = Grace::new(BTreeSet::from([a, b]), at(5));
        grace.came_back(a);
        grace.came_back(ClientId([3; 16]));
        assert_eq!(grace.left(at(24)), Some(Duration::from_secs(1)));
        assert_eq!((grace.left(at(25)), grace.absent().len()), (None, 1));
        grace.came_back(b);
        assert_eq!(grace.left(at(6)), None);
    }
}
