//! Round trips without the wait on the way back, and the rate of arrival.
//!
//! A round trip has two ways, and each may have a queue of its own. While both sides send all they
//! can, each would take the other's queue for its own and give way to it. So now and then a packet
//! carries its time of sending. The other side answers when it arrived, by its own clock. The
//! clocks need not agree: the least difference on the way back is the way without a queue (as in
//! LEDBAT, RFC 6817), and the excess over it is the echo's wait. What else a round trip takes
//! longer than before is our queue. The answer also has the number of bytes that have arrived,
//! which gives the rate of this way alone.
//!
//! ```text
//!   stamp (micros by my clock) ──▶ arrived − stamp = transit
//!   echo arrived (my clock) − stamp arrived (their clock) = back ──▶ back − least = theirs
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the least transit counts, and then once more as the earlier one. Within this time,
/// clocks that differ by a ten-thousandth drift 3 ms apart.
const LEAST_FOR: Duration = Duration::from_secs(30);
/// A shorter interval tells more about the scheduling of the other side than about the path.
const RATE_TIME: Micros = 40_000;
/// The rate is that of so many stamps at least.
const STAMPS_MIN: usize = 2;
/// And of so many at most.
const STAMPS_MAX: usize = 64;
const STAMP: u8 = 1;
const ECHO: u8 = 2;

/// A time of one side's clock in microseconds, or between two; it wraps each 71 minutes.
type Micros = u32;

/// The other side's answer to a stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// From the stamp to its echo.
    pub trip: Duration,
    /// How long the echo waited on its way back.
    pub theirs: Duration,
    /// Arrival in bytes a second by the last stamps.
    pub rate: Option<u64>,
}

/// Both directions of one connection.
#[derive(Debug)]
pub struct Stamps {
    origin: Instant,
    stamped: Option<Instant>,
    /// The other side's last stamp, its transit, and bytes received, until they are answered.
    arrived: Option<(Micros, Micros, u32)>,
    /// When the last stamps that were told arrived, by the other clock, and bytes received until
    /// then.
    told: VecDeque<(Micros, u32)>,
    back: Least,
}

/// The least transit of the way back, in the present and in the previous time.
#[derive(Debug)]
struct Least {
    least: [Option<Micros>; 2],
    since: Instant,
}

impl Stamps {
    /// Nothing is known yet.
    pub fn new(now: Instant) -> Stamps {
        Stamps {
            origin: now,
            stamped: None,
            arrived: None,
            told: VecDeque::new(),
            back: Least::new(now),
        }
    }

    /// Returns the datagram to send `now`, if a stamp is wanted each `period`, or never.
    pub fn next(&mut self, now: Instant, period: Option<Duration>) -> Option<Vec<u8>> {
        let is_due = |at: Instant| period.is_some_and(|period| now >= at + period);
        let is_due = self.stamped.map_or(period.is_some(), is_due);
        let arrived = self.arrived.take();
        if !is_due && arrived.is_none() {
            return None;
        }
        let mut bytes = vec![0];
        if is_due {
            self.stamped = Some(now);
            bytes[0] |= STAMP;
            bytes.extend(self.micros(now).to_le_bytes());
        }
        if let Some((stamp, transit, received)) = arrived {
            bytes[0] |= ECHO;
            bytes.extend(stamp.to_le_bytes());
            bytes.extend(transit.to_le_bytes());
            bytes.extend(received.to_le_bytes());
        }
        Some(bytes)
    }

    /// True if a stamp is in this datagram.
    pub(super) fn is_stamp(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|flags| flags & STAMP != 0)
    }

    /// Takes in a stamp or echo that arrived `now`, after so many bytes in all.
    pub fn take(&mut self, now: Instant, received: u64, bytes: &[u8]) -> Option<Echo> {
        let (flags, mut rest) = bytes.split_first()?;
        let mut time = || {
            let (time, left) = rest.split_first_chunk()?;
            rest = left;
            Some(Micros::from_le_bytes(*time))
        };
        if flags & STAMP != 0 {
            let stamp = time()?;
            let transit = self.micros(now).wrapping_sub(stamp);
            self.arrived = Some((stamp, transit, wrapped(received)));
        }
        if flags & ECHO == 0 {
            return None;
        }
        let (stamp, transit, received) = (time()?, time()?, time()?);
        let arrived = stamp.wrapping_add(transit);
        let back = self.micros(now).wrapping_sub(arrived);
        let trip = transit.wrapping_add(back);
        let rate = self.rate(trip, arrived, received);
        // By a clock of our own: nobody can say that it was longer.
        let theirs = self.back.take(now, back).min(trip);
        Some(Echo { trip: micros(trip), theirs: micros(theirs), rate })
    }

    /// Arrival in bytes a second over the last stamps, for a round trip at least.
    fn rate(&mut self, trip: Micros, at: Micros, received: u32) -> Option<u64> {
        // Else it came before one that was told.
        let is_later = |(before, _): &(Micros, u32)| at.wrapping_sub(*before) < Micros::MAX / 2;
        if !self.told.back().is_none_or(is_later) {
            return None;
        }
        let span = trip.max(RATE_TIME);
        let is_enough = |(before, _): &(Micros, u32)| at.wrapping_sub(*before) >= span;
        while self.told.len() > STAMPS_MIN && self.told.get(1).is_some_and(is_enough) {
            self.told.pop_front();
        }
        let rate = self.told.front().filter(|first| is_enough(first)).map(|(before, bytes)| {
            let (time, bytes) = (at.wrapping_sub(*before), received.wrapping_sub(*bytes));
            u64::from(bytes) * 1_000_000 / u64::from(time.max(1))
        });
        if self.told.len() >= STAMPS_MAX {
            self.told.pop_front();
        }
        self.told.push_back((at, received));
        rate
    }

    fn micros(&self, now: Instant) -> Micros {
        let micros = now.saturating_duration_since(self.origin).as_micros();
        Micros::try_from(micros % (1 << Micros::BITS)).unwrap_or(0)
    }
}

impl Least {
    fn new(now: Instant) -> Least {
        Least { least: [None; 2], since: now }
    }

    /// The excess of a transit over the least one.
    fn take(&mut self, now: Instant, transit: Micros) -> Micros {
        if now.saturating_duration_since(self.since) >= LEAST_FOR {
            self.least = [None, self.least[0]];
            self.since = now;
        }
        let [present, before] = self.least;
        let present = present.map_or(transit, |least| lesser(least, transit));
        self.least[0] = Some(present);
        let least = before.map_or(present, |before| lesser(before, present));
        transit.wrapping_sub(least)
    }
}

fn micros(micros: Micros) -> Duration {
    Duration::from_micros(micros.into())
}

fn wrapped(count: u64) -> u32 {
    u32::try_from(count % (1 << u32::BITS)).unwrap_or(0)
}

/// The lesser of two differences between clocks, which may have wrapped.
fn lesser(one: Micros, other: Micros) -> Micros {
    if one.wrapping_sub(other) > Micros::MAX / 2 { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Option<Duration> = Some(Duration::from_millis(10));

    /// Two sides with clocks `apart`; the round trips and waits of echoes that took so long back.
    fn waits<const N: usize>(apart: Duration, backs: [u64; N]) -> [(u64, u64); N] {
        let start = Instant::now();
        let (mut here, mut there) = (Stamps::new(start + apart), Stamps::new(start));
        let mut now = start + 2 * apart;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        backs.map(|back| {
            now += Duration::from_millis(50);
            let stamp = here.next(now, PERIOD).unwrap();
            let arrived = now + Duration::from_millis(5);
            assert_eq!(there.take(arrived, 0, &stamp), None);
            let echo = there.next(arrived, None).unwrap();
            let echo = here.take(arrived + Duration::from_millis(back), 0, &echo).unwrap();
            (millis(echo.trip), millis(echo.theirs))
        })
    }

    const WAITS: [(u64, u64); 4] = [(14, 0), (9, 0), (35, 26), (9, 0)];

    #[test]
    fn a_wait_is_what_an_echo_took_longer_than_the_least() {
        assert_eq!(waits(Duration::ZERO, [9, 4, 30, 4]), WAITS);
    }

    #[test]
    fn clocks_may_differ_and_wrap() {
        for minutes in [1, 40, 71, 72, 500] {
            let apart = Duration::from_secs(60 * minutes);
            assert_eq!(waits(apart, [9, 4, 30, 4]), WAITS, "{minutes}");
        }
    }

    #[test]
    fn the_other_side_counts_the_rate() {
        let start = Instant::now();
        let (mut here, mut there) = (Stamps::new(start), Stamps::new(start));
        let rates = [(0, 0), (100, 50_000), (350, 50_000), (360, 51_000)].map(|(millis, bytes)| {
            let now = start + Duration::from_millis(millis);
            let stamp = here.next(now, PERIOD).unwrap();
            // The count wraps.
            there.take(now, u64::from(u32::MAX) - 10 + bytes, &stamp);
            let echo = there.next(now, None).unwrap();
            here.take(now, 0, &echo).unwrap().rate
        });
        // The last three: 50,000 bytes in 350 ms, and 1,000 in 260.
        assert_eq!(rates, [None, Some(500_000), Some(142_857), Some(3_846)]);
    }

    #[test]
    fn a_stamp_goes_once_a_period_and_an_echo_at_once() {
        let start = Instant::now();
        let mut stamps = Stamps::new(start);
        assert!(stamps.next(start, None).is_none());
        let stamp = stamps.next(start, PERIOD).unwrap();
        assert!(stamps.next(start + Duration::from_millis(9), PERIOD).is_none());
        stamps.take(start + Duration::from_millis(9), 0, &stamp);
        let echo = stamps.next(start + Duration::from_millis(9), PERIOD).unwrap();
        assert_eq!(echo[0], ECHO);
        assert!(stamps.next(start + Duration::from_millis(10), PERIOD).is_some());
    }

    #[test]
    fn nobody_can_say_that_an_echo_waited_longer_than_it_took() {
        let now = Instant::now();
        let mut stamps = Stamps::new(now);
        let echo = |arrived: Micros| {
            let words = [0, arrived, 0].map(Micros::to_le_bytes).concat();
            [vec![ECHO], words].concat()
        };
        let trip = Duration::from_millis(30);
        for arrived in [5_000, 4_000_000_000, 2_000_000_000, 3] {
            let echo = stamps.take(now + trip, 0, &echo(arrived)).unwrap();
            assert_eq!(echo.trip, trip);
            assert!(echo.theirs <= trip, "{echo:?}");
        }
    }

    #[test]
    fn nonsense_is_no_echo() {
        let now = Instant::now();
        let mut stamps = Stamps::new(now);
        for bytes in [&[][..], &[3], &[1, 0, 0], &[2, 1, 2, 3, 4, 5], &[255; 40]] {
            let before = stamps.back.least;
            if stamps.take(now, 0, bytes).is_none() {
                assert_eq!(stamps.back.least, before);
            }
        }
    }
}
