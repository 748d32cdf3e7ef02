//! Suspecting a connection before it is given up.
//!
//! QUIC repeats a question to a silent side, each time after twice as long. So after a link was
//! down for eight seconds, the connection may notice only eight seconds later that it is up. A host
//! without an answer for a second therefore dials beside the silent connection
//! ([`Link`](crate::Link)), and uses the first that speaks.
//!
//! Silence counts only after a packet that must be acknowledged. An idle connection, or one whose
//! server works on a reply, is not suspected. But a restarted server does not know of a pending
//! reply, and says so only when it is spoken to. So while a call waits, the connection is probed,
//! as often as a suspicion takes.

use std::time::{Duration, Instant};

/// How long an answer may take. A second is more than the round trip of usual links, and a wrong
/// suspicion costs one handshake.
const PATIENCE: Duration = Duration::from_secs(1);
/// On a thin link a packet may take a second, and a handshake beside it ten more. So an answer may
/// take so many round trips as they were of late.
const TRIPS: u32 = 3;

/// Counts of one connection; they only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Traffic {
    /// Frames sent that the other side must acknowledge.
    pub(crate) asked: u64,
    /// Acknowledgements received: other packets may come through while ours are lost.
    pub(crate) heard: u64,
    /// Whether a call has not got all of its reply.
    pub(crate) waits: bool,
    /// The round trip of late.
    pub(crate) trip: Duration,
}

/// The judgement of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// No suspicion.
    Well,
    /// It is time to ask for a sign of life.
    Probe,
    /// An answer is overdue.
    Silent,
}

/// Watches one connection's traffic.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    last: Traffic,
    /// When the first unanswered packet was sent; `None` if all are answered.
    since: Option<Instant>,
    /// Since when a call waits with nothing sent or heard.
    quiet: Option<Instant>,
}

impl Silence {
    /// Takes the counts at `now`.
    pub(crate) fn handle(&mut self, seen: Traffic, now: Instant) -> Verdict {
        let has_heard = seen.heard != self.last.heard;
        let has_asked = seen.asked != self.last.asked;
        if has_heard {
            self.since = None;
        } else if has_asked {
            self.since = self.since.or(Some(now));
        }
        if has_heard || has_asked || !seen.waits {
            self.quiet = None;
        }
        self.last = seen;
        let patience = PATIENCE.max(TRIPS * seen.trip);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= patience;
        if self.since.is_some_and(is_over) {
            return Verdict::Silent;
        }
        let quiet = seen.waits.then(|| *self.quiet.get_or_insert(now));
        // An unanswered packet is as good as a probe.
        if self.since.is_none() && quiet.is_some_and(is_over) {
            Verdict::Probe
        } else {
            Verdict::Well
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict at each (milliseconds, asked, heard).
    fn verdicts<const N: usize>(waits: bool, looks: [(u64, u64, u64); N]) -> [Verdict; N] {
        after(Duration::from_millis(300), waits, looks)
    }

    /// The same with such a round trip.
    fn after<const N: usize>(
        trip: Duration,
        waits: bool,
        looks: [(u64, u64, u64); N],
    ) -> [Verdict; N] {
        let start = Instant::now();
        let mut silence = Silence::default();
        looks.map(|(ms, asked, heard)| {
            silence.handle(Traffic { asked, heard, waits, trip }, start + Duration::from_millis(ms))
        })
    }

    /// Whether an answer is overdue at each (milliseconds, asked, heard).
    fn overdue<const N: usize>(looks: [(u64, u64, u64); N]) -> [bool; N] {
        verdicts(false, looks).map(|verdict| verdict == Verdict::Silent)
    }

    /// A call that the server had got before it was restarted waited for five seconds.
    #[test]
    fn a_connection_is_probed_while_a_call_waits_and_nothing_is_heard() {
        use Verdict::{Probe, Silent, Well};
        let probed = [(0, 1, 1), (500, 1, 1), (1_500, 1, 1), (1_750, 2, 1), (2_750, 2, 1)];
        assert_eq!(verdicts(true, probed), [Well, Well, Probe, Well, Silent]);
        let answered = [(0, 1, 1), (250, 1, 1), (1_250, 1, 1), (1_500, 2, 2), (2_250, 2, 2)];
        assert_eq!(verdicts(true, answered), [Well, Well, Probe, Well, Well]);
        assert_eq!(verdicts(false, probed)[..4], [Well; 4]);
    }

    /// Proves S11.1.
    #[test]
    fn answer_is_overdue_after_patience() {
        let looks = [(0, 1, 1), (250, 2, 1), (1_000, 3, 1), (1_249, 3, 1), (1_250, 3, 1)];
        assert_eq!(overdue(looks), [false, false, false, false, true]);
    }

    #[test]
    fn on_a_thin_link_an_answer_may_take_three_round_trips() {
        use Verdict::{Silent, Well};
        let looks = [(0, 1, 1), (250, 2, 1), (4_000, 2, 1), (4_750, 2, 1)];
        let verdicts = after(Duration::from_millis(1_500), false, looks);
        assert_eq!(verdicts, [Well, Well, Well, Silent]);
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
