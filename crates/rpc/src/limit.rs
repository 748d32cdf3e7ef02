//! A user's limit on the bytes that one side sends to the other.
//!
//! It is a bucket that fills at the limit's rate. It acts beside the path's own pace, above QUIC.
//! So held bytes wait in the scheduler, where more urgent ones overtake them:
//!
//! ```text
//!   scheduler ──▶ bucket and path have room ──▶ QUIC ──▶ wire
//!                    ▲                                    │
//!                    └──── bytes of packets, headers ─────┘
//! ```
//!
//! Packets count as they left, with acknowledgements, retransmissions and all headers. The bytes
//! that QUIC has not sent yet are estimated, and known at the next look.
//!
//! Bytes with a waiter go at once and are charged: bulk waits for longer then. So over any second
//! the rate is the limit and a quarter at most, and over a longer time ever less above it. QUIC
//! acknowledges received packets unasked. That is charged too, up to a second's worth. The limit is
//! exceeded only where acknowledgements alone exceed it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::congestion::Room;

/// The burst that may be sent at once: longer than timers are late, and a small part of a second.
const BURSTS_PER_SECOND: u64 = 50;
/// The least burst, in packets.
const BURST_PACKETS: u64 = 2;
/// Bytes with a waiter go ahead by at most this part of a second.
const AHEAD_PER_SECOND: u64 = 4;
/// They may go ahead by at least so many packets.
const AHEAD_PACKETS: u64 = 4;
/// A quantum is at most this part of a second of the limit.
const QUANTA_PER_SECOND: u64 = 100;

/// Bytes that QUIC has not begun to send for so long are gone, with a stream that was reset.
/// Otherwise the path holds them back, and has no room for more.
const STALL: Duration = Duration::from_millis(50);

/// Headers of UDP, and of IP without options.
const UDP: u64 = 8;
const IPV4: u64 = 20;
const IPV6: u64 = 40;

/// The packets that a connection has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sent {
    /// UDP payload.
    pub(crate) bytes: u64,
    /// Packets.
    pub(crate) packets: u64,
}

/// Bytes of the headers below QUIC, for each packet to that address.
pub(crate) fn header(to: IpAddr) -> u64 {
    UDP + if to.to_canonical().is_ipv4() { IPV4 } else { IPV6 }
}

/// Millionths of bytes: a limit of a byte a second gives one in a microsecond.
type MicroBytes = i128;

/// A limit and its remaining credit.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: u64,
    /// Bytes of a packet beside its UDP payload.
    header: u64,
    /// The bytes that may be sent; negative after bytes went ahead.
    credit: MicroBytes,
    at: Instant,
    counted: Sent,
    /// The bytes that QUIC was given and has not sent, and since when they have not changed.
    unsent: (u64, Instant),
}

impl Limit {
    /// `rate` bytes a second from `now` on, on a connection that has sent so much.
    pub(crate) fn new(rate: u64, header: u64, now: Instant, counted: Sent) -> Limit {
        Limit { rate: rate.max(1), header, credit: 0, at: now, counted, unsent: (0, now) }
    }

    /// Sets another rate. Bytes that went ahead stay charged.
    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
    }

    /// Returns how many bytes of messages may go `now`, with `payload` of them in a packet of so
    /// many bytes. So much was `sent`, and QUIC was given `unsent` bytes of packets more.
    pub(crate) fn room(
        &mut self,
        now: Instant,
        (sent, unsent): (Sent, u64),
        (packet, payload): (u64, u64),
        is_awaited: bool,
    ) -> Room {
        let whole = packet + self.header;
        let ahead = match is_awaited {
            true => (self.rate / AHEAD_PER_SECOND).max(AHEAD_PACKETS * whole),
            false => 0,
        };
        let pending = self.pending(now, sent, unsent);
        let pending = pending + pending.div_ceil(packet.max(1)) * self.header;
        self.count(now, sent, whole);
        let free = self.credit + micro(ahead) - micro(pending);
        match u64::try_from(free / micro(whole)).unwrap_or(0) {
            0 => Room::At(now + self.time_for(micro(whole) - free)),
            packets => {
                let quantum = (self.rate / QUANTA_PER_SECOND).max(payload);
                Room::Now(packets.saturating_mul(payload).min(quantum))
            }
        }
    }

    /// Returns the part of `unsent` that will still be sent.
    fn pending(&mut self, now: Instant, sent: Sent, unsent: u64) -> u64 {
        let (before, since) = self.unsent;
        if (unsent, sent) != (before, self.counted) {
            self.unsent = (unsent, now);
        } else if now.saturating_duration_since(since) >= STALL {
            return 0;
        }
        unsent
    }

    fn count(&mut self, now: Instant, sent: Sent, whole: u64) {
        let time = now.saturating_duration_since(self.at);
        let most = micro((self.rate / BURSTS_PER_SECOND).max(BURST_PACKETS * whole));
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let more = MicroBytes::from(self.rate) * MicroBytes::from(micros);
        self.credit = (self.credit + more).min(most);
        // The rest below a microsecond counts the next time.
        self.at += Duration::from_micros(micros);
        let before = std::mem::replace(&mut self.counted, sent);
        let packets = sent.packets.saturating_sub(before.packets);
        let bytes = sent.bytes.saturating_sub(before.bytes) + packets * self.header;
        // Nothing of this host's goes further ahead than that, so the rest are acknowledgements and
        // repeats: who waits for an answer does not pay for all of them.
        let least = -micro(self.rate.max(AHEAD_PACKETS * whole));
        self.credit = (self.credit - micro(bytes)).max(least);
    }

    fn time_for(&self, bytes: MicroBytes) -> Duration {
        let micros = bytes / MicroBytes::from(self.rate) + 1;
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

fn micro(bytes: u64) -> MicroBytes {
    MicroBytes::from(bytes) * 1_000_000
}

/// The lesser room of the path and of a limit.
pub(crate) fn lesser(path: Room, limit: Room) -> Room {
    match (path, limit) {
        (Room::Now(one), Room::Now(other)) => Room::Now(one.min(other)),
        (Room::At(one), Room::At(other)) => Room::At(one.max(other)),
        (Room::Now(_), wait) | (wait, Room::Now(_)) => wait,
        // An acknowledgement will come; then the writer asks again.
        (Room::Later, _) | (_, Room::Later) => Room::Later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1200;
    const PAYLOAD: u64 = 1156;
    const HEADER: u64 = UDP + IPV4;

    /// A sender that takes all it may, and how long QUIC needs for it.
    struct Sender {
        limit: Limit,
        now: Instant,
        sent: Sent,
        unsent: u64,
    }

    impl Sender {
        fn new(rate: u64) -> Sender {
            let now = Instant::now();
            let limit = Limit::new(rate, HEADER, now, Sent::default());
            Sender { limit, now, sent: Sent::default(), unsent: 0 }
        }

        fn room(&mut self, is_awaited: bool) -> Room {
            let sizes = (PACKET, PAYLOAD);
            self.limit.room(self.now, (self.sent, self.unsent), sizes, is_awaited)
        }

        /// QUIC sends all its bytes.
        fn send(&mut self, bytes: u64) {
            let packets = bytes.div_ceil(PAYLOAD);
            self.sent.packets += packets;
            self.sent.bytes += packets * PACKET;
        }

        /// Sends for so long; bytes on the wire.
        fn run(&mut self, time: Duration, is_awaited: bool) -> u64 {
            let (end, before) = (self.now + time, self.wire());
            while self.now < end {
                match self.room(is_awaited) {
                    Room::Now(bytes) => self.send(bytes),
                    // Timers are late.
                    Room::At(at) => self.now = at.max(self.now + Duration::from_millis(1)),
                    Room::Later => panic!("a limit waits for nobody"),
                }
            }
            self.wire() - before
        }

        fn wire(&self) -> u64 {
            self.sent.bytes + self.sent.packets * HEADER
        }
    }

    const RATES: [u64; 4] = [1 << 10, 30_000, 500 << 10, 20 << 20];
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bulk_keeps_the_limit_in_any_second_and_uses_it() {
        for rate in RATES {
            let mut sender = Sender::new(rate);
            for _ in 0..5 {
                let most = rate + (rate / 50).max(BURST_PACKETS * (PACKET + HEADER)) + PACKET;
                let bytes = sender.run(SECOND, false);
                assert!(bytes <= most, "{bytes} at {rate}");
            }
            let bytes = sender.run(20 * SECOND, false) / 20;
            assert!(bytes <= rate + PACKET && bytes >= rate * 9 / 10, "{bytes} at {rate}");
        }
    }

    #[test]
    fn what_is_awaited_goes_at_once_and_is_charged() {
        let mut sender = Sender::new(500 << 10);
        sender.run(SECOND, false);
        while let Room::Now(bytes) = sender.room(false) {
            sender.send(bytes);
        }
        assert!(matches!(sender.room(true), Room::Now(_)));
        let ahead = sender.run(Duration::from_millis(10), true);
        assert!(ahead > 100 << 10, "{ahead}");
        assert_eq!(sender.run(Duration::from_millis(200), false), 0);
        // Endless questions keep the limit too, except for the bytes that go ahead.
        let bytes = sender.run(10 * SECOND, true);
        assert!(bytes <= (5_000 << 10) + (128 << 10) + PACKET, "{bytes}");
    }

    #[test]
    fn what_quic_has_not_sent_counts_as_sent() {
        let mut sender = Sender::new(500 << 10);
        sender.now += SECOND;
        let Room::Now(bytes) = sender.room(false) else { panic!("there is none") };
        sender.unsent = 9 * PACKET;
        assert!(bytes > 0 && matches!(sender.room(false), Room::At(_)));
        // It was lost with its stream, and will not go.
        sender.now += STALL;
        assert!(matches!(sender.room(false), Room::Now(_)));
    }

    #[test]
    fn acknowledgements_are_charged_whoever_asked_for_them() {
        let mut sender = Sender::new(500 << 10);
        sender.now += SECOND;
        sender.sent = Sent { bytes: 250 << 10, packets: 1000 };
        assert!(matches!(sender.room(false), Room::At(at) if at > sender.now + SECOND / 4));
        // However many they were, it goes on after a second, and questions before.
        sender.sent = Sent { bytes: 100 << 20, packets: 1_000_000 };
        assert!(matches!(sender.room(false), Room::At(at) if at > sender.now + SECOND / 2));
        sender.now += SECOND;
        assert!(matches!(sender.room(true), Room::Now(_)));
        sender.now += SECOND / 20;
        assert!(matches!(sender.room(false), Room::Now(_)));
    }

    #[test]
    fn another_rate_counts_at_once() {
        let mut sender = Sender::new(10 << 10);
        sender.run(SECOND, false);
        sender.limit.set_rate(1 << 20);
        let bytes = sender.run(SECOND, false);
        assert!(bytes > 900 << 10, "{bytes}");
    }

    #[test]
    fn silence_saves_nothing_up() {
        let mut sender = Sender::new(500 << 10);
        sender.now += 100 * SECOND;
        let bytes = sender.run(SECOND, false);
        assert!(bytes <= (512 << 10) * 51 / 50, "{bytes}");
    }

    #[test]
    fn the_later_and_the_less_counts() {
        let now = Instant::now();
        assert_eq!(lesser(Room::Now(3), Room::Now(2)), Room::Now(2));
        assert_eq!(lesser(Room::At(now), Room::Now(2)), Room::At(now));
        assert_eq!(lesser(Room::Now(3), Room::At(now)), Room::At(now));
        assert_eq!(lesser(Room::Later, Room::At(now)), Room::Later);
    }

    #[test]
    fn headers_are_those_of_the_address() {
        assert_eq!(header([10, 0, 0, 1].into()), 28);
        assert_eq!(header("::ffff:10.0.0.1".parse().unwrap()), 28);
        assert_eq!(header("fd00::1".parse().unwrap()), 48);
    }
}
