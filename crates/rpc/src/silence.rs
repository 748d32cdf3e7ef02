//! Suspecting a connection before it is given up.
//!
//! QUIC asks an other side that does not answer again and again, each time after twice as
//! long. So when a link was down for eight seconds it may be eight more until the connection
//! notices that it is up. A host that is not answered for a second therefore dials beside the
//! silent connection ([`Link`](crate::Link)); whichever speaks first is used.
//!
//! Silence counts only after something that must be answered was sent: an idle connection, or
//! one whose server works on a reply, is not suspected.

use std::time::{Duration, Instant};

/// How long an answer may take: a second is more than the round trip of any link that people
/// use, and a suspicion that was wrong costs one handshake.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts of one connection; they only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Traffic {
    /// Frames sent that the other side must acknowledge.
    pub(crate) asked: u64,
    /// Acknowledgements received: other packets may come through while ours are lost.
    pub(crate) heard: u64,
}

/// Watches one connection's traffic.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    last: Traffic,
    /// When the first was sent that is unanswered; `None` if nothing is.
    since: Option<Instant>,
}

impl Silence {
    /// Takes the counts at `now`; true if an answer is overdue.
    pub(crate) fn handle(&mut self, seen: Traffic, now: Instant) -> bool {
        if seen.heard != self.last.heard {
            self.since = None;
        } else if seen.asked != self.last.asked {
            self.since = self.since.or(Some(now));
        }
        self.last = seen;
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an answer is overdue at each (milliseconds, asked, heard).
    fn overdue<const N: usize>(looks: [(u64, u64, u64); N]) -> [bool; N] {
        let start = Instant::now();
        let mut silence = Silence::default();
        looks.map(|(ms, asked, heard)| {
            silence.handle(Traffic { asked, heard }, start + Duration::from_millis(ms))
        })
    }

    #[test]
    fn answer_is_overdue_after_patience() {
        let looks = [(0, 1, 1), (250, 2, 1), (1_000, 3, 1), (1_249, 3, 1), (1_250, 3, 1)];
        assert_eq!(overdue(looks), [false, false, false, false, true]);
    }

    #[test]
    fn nothing_is_overdue_that_was_not_asked() {
        assert_eq!(overdue([(0, 1, 1), (250, 1, 2), (60_000, 1, 2)]), [false; 3]);
    }

    #[test]
    fn whatever_is_heard_ends_the_suspicion() {
        let looks = [(0, 1, 0), (2_000, 2, 0), (3_000, 2, 0), (3_250, 3, 1), (9_000, 3, 1)];
        assert_eq!(overdue(looks), [false, true, true, false, false]);
    }
}
