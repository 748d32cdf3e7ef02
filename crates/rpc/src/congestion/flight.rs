//! The bytes in flight, and how many more may be handed to QUIC now.
//!
//! QUIC gets no more than it can send at once. All other bytes wait in our queue, where more urgent
//! messages overtake them, and raised ones too:
//!
//! ```text
//!   scheduler ──hand──▶ unsent ──QUIC sends──▶ in flight ──acknowledged──▶
//!                         ▲                        │
//!                         └───────── lost ─────────┘
//! ```
//!
//! QUIC does not say which of its bytes have left. `unsent` is estimated from the sizes of the
//! packets. Each batch of acknowledgements gives the exact bytes in flight, so a wrong estimate
//! lasts until the next batch.

use std::time::{Duration, Instant};

use super::law::{Law, bytes_in, time_for};
use super::stamps::{Echo, Stamps};

/// Bytes of headers and seal in a packet: at most 9 of QUIC's, 16 of AEAD, and 15 of a stream, one
/// of the first 2^28.
const OVERHEAD: u64 = 40;
/// Bytes of an acknowledgement.
const ACK: u64 = 28;
/// Extra packets that may be in flight for messages with a waiter.
const HEADROOM: u64 = 2;

/// A burst that the pace allows at once: longer than timers are late.
const BURST: Duration = Duration::from_millis(4);
/// And at least so many packets.
const BURST_PACKETS: u64 = 2;

/// How often a stamp goes along at most.
const STAMP_PERIOD: Duration = Duration::from_millis(10);
/// At the start, where the first queue is looked for, one goes along with so many packets.
const STAMP_PACKETS_START: u64 = 2;

/// Whether something can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// So many bytes of messages, now.
    Now(u64),
    /// Not before then, because of the pace.
    At(Instant),
    /// Not before something was acknowledged.
    Later,
}

/// One direction of one path.
#[derive(Debug)]
pub struct Flight {
    law: Law,
    in_flight: u64,
    unsent: u64,
    /// Bytes that are not messages' and go into the next packet.
    aside: u64,
    /// Bytes sent since the last stamp.
    unstamped: u64,
    /// The pace holds back what could be sent.
    is_paced: bool,
    /// Bytes that may be sent at once, and as of when. Messages with a waiter need no credit, and
    /// use up none: endless questions would stop all others.
    credit: u64,
    credited: Instant,
}

impl Flight {
    pub(super) fn new(law: Law, now: Instant) -> Flight {
        let (in_flight, unsent, aside, unstamped, credit) = Default::default();
        Flight { law, in_flight, unsent, aside, unstamped, is_paced: false, credit, credited: now }
    }

    pub(super) fn law(&mut self) -> &mut Law {
        &mut self.law
    }

    /// From now on all other senders on this path go first, or not.
    pub fn set_background(&mut self, now: Instant, is_background: bool) {
        self.law.set_background(now, is_background);
    }

    /// The window of QUIC itself, in bytes. It never holds QUIC back, except for retransmissions:
    /// [`room`](Flight::room) does.
    pub fn window(&self) -> u64 {
        self.law.ceiling() + 2 * HEADROOM * self.law.packet()
    }

    /// Bytes of messages that QUIC can send `now`, in whole packets.
    pub fn room(&mut self, now: Instant, is_awaited: bool) -> Room {
        let taken = self.in_flight + self.unsent;
        if is_awaited {
            let window = self.law.ceiling() + HEADROOM * self.law.packet();
            return self.whole(window.saturating_sub(taken));
        }
        // Half a packet more or less: windows of slow links are few packets.
        let free = (self.law.window() + self.law.packet() / 2).saturating_sub(taken);
        let Some(pace) = self.law.pace() else { return self.whole(free) };
        self.refill(now, pace);
        let packet = self.law.packet();
        self.is_paced = free >= packet && self.credit < packet;
        if self.is_paced {
            let missing = packet - self.credit;
            return Room::At(
                now + Duration::from_micros((missing * 1_000_000).div_ceil(pace.max(1)) + 1),
            );
        }
        self.whole(free.min(self.credit))
    }

    fn whole(&self, free: u64) -> Room {
        match free / self.law.packet() {
            0 => Room::Later,
            packets => Room::Now((packets * self.payload()).saturating_sub(self.aside).max(1)),
        }
    }

    fn refill(&mut self, now: Instant, pace: u64) {
        let time = now.saturating_duration_since(self.credited);
        let most = bytes_in(pace, BURST).max(BURST_PACKETS * self.law.packet());
        let more = bytes_in(pace, time);
        if more > 0 {
            self.credit = self.credit.saturating_add(more).min(most);
            self.credited = now;
        }
    }

    /// Bytes of messages in a full packet.
    pub fn payload(&self) -> u64 {
        self.law.packet().saturating_sub(OVERHEAD).max(1)
    }

    /// Bytes a second that the path delivered when it was busy last; 0 before that.
    pub fn rate(&self) -> u64 {
        self.law.rate()
    }

    /// The round trip of the empty path, as far as it is known.
    pub fn base(&self) -> Option<Duration> {
        self.law.base()
    }

    /// True while little is known of the path. Its earlier rate tells more then.
    pub(crate) fn is_learning(&self) -> bool {
        self.law.is_learning()
    }

    /// Bytes of packets that QUIC was given and has not sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// The size of a full packet, bytes.
    pub(crate) fn packet(&self) -> u64 {
        self.law.packet()
    }

    /// The largest packet that the path is known to carry, bytes.
    pub(crate) fn packet_max(&self) -> u64 {
        self.law.packet_max()
    }

    /// QUIC was given so many bytes of messages.
    pub fn handle_handed(&mut self, bytes: u64, is_awaited: bool) {
        let aside = std::mem::take(&mut self.aside);
        let bytes = self.packed(bytes + aside);
        self.unsent += bytes;
        if !is_awaited {
            self.credit = self.credit.saturating_sub(bytes);
        }
    }

    /// Returns the wanted period of stamps; `None` while nothing is in flight, nor waits for its
    /// turn: at a low pace each packet has arrived before the next one leaves.
    pub fn stamp_period(&self) -> Option<Duration> {
        if self.in_flight == 0 && !self.is_paced || self.law.rate() == 0 {
            return None;
        }
        // Before much was sent the rate is that of a few bytes.
        let at_start = STAMP_PACKETS_START * self.law.packet();
        let bytes = if self.law.is_learning() { at_start } else { self.law.stamped() };
        match self.unstamped >= bytes {
            true => Some(STAMP_PERIOD),
            false => Some(stamp_period(self.law.stamped(), self.law.rate())),
        }
    }

    /// Something was received: its acknowledgement will go along.
    pub fn handle_acks_aside(&mut self) {
        self.aside = self.aside.max(ACK);
    }

    /// A stamp, an echo or both will go along.
    pub fn handle_stamp(&mut self, bytes: &[u8]) {
        self.aside += bytes.len() as u64;
        if Stamps::is_stamp(bytes) {
            self.unstamped = 0;
        }
    }

    /// The other side answered a stamp.
    pub fn handle_echo(&mut self, now: Instant, echo: Echo) {
        self.law.handle_echo(now, echo);
    }

    /// Nothing is left to hand over.
    pub fn handle_idle(&mut self) {
        self.is_paced = false;
        self.law.handle_idle();
    }

    /// Nothing happened for a while although there was no room. If nothing is in flight, QUIC's
    /// unsent bytes are gone with a stream that was reset.
    pub fn handle_stall(&mut self) {
        if self.in_flight == 0 {
            self.unsent = 0;
        }
    }

    pub(super) fn handle_sent(&mut self, now: Instant, bytes: u64) {
        self.law.handle_sent(now);
        // Bare acknowledgements are sent too, and do not count as in flight.
        let ours = bytes.min(self.unsent);
        self.unsent -= ours;
        self.in_flight += ours;
        self.unstamped += ours;
    }

    pub(super) fn handle_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.law.handle_ack(now, sent, bytes);
    }

    pub(super) fn handle_acks_end(&mut self, in_flight: u64, is_idle: bool) {
        self.in_flight = in_flight;
        if is_idle {
            self.unsent = 0;
        }
    }

    pub(super) fn handle_loss(&mut self, now: Instant, sent: Instant, bytes: u64, all: bool) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.unsent += bytes;
        self.law.handle_loss(now, sent, bytes, all);
    }

    /// Bytes of packets that carry so many bytes of messages.
    fn packed(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.payload()) * OVERHEAD
    }
}

/// How often a stamp goes along at such a rate, if one does with so many bytes.
pub(super) fn stamp_period(bytes: u64, rate: u64) -> Duration {
    time_for(bytes, rate).max(STAMP_PERIOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u16 = 1200;
    const PAYLOAD: u64 = 1200 - OVERHEAD;

    fn flight(now: Instant) -> Flight {
        Flight::new(Law::new(now, PACKET), now)
    }

    fn bytes(room: Room) -> u64 {
        match room {
            Room::Now(bytes) => bytes,
            Room::At(_) | Room::Later => 0,
        }
    }

    #[test]
    fn quic_is_given_what_it_can_send_and_no_more() {
        let now = Instant::now();
        let mut flight = flight(now);
        assert_eq!(bytes(flight.room(now, false)), 10 * PAYLOAD);
        flight.handle_handed(10 * PAYLOAD, false);
        assert_eq!(flight.room(now, false), Room::Later);
        assert_eq!(bytes(flight.room(now, true)), HEADROOM * PAYLOAD);
        flight.handle_sent(now, 12_000);
        assert_eq!(flight.room(now, false), Room::Later);
        flight.handle_ack(now + Duration::from_millis(5), now, 2_400);
        assert_eq!(bytes(flight.room(now + Duration::from_millis(5), false)), 2 * PAYLOAD);
    }

    #[test]
    fn what_is_lost_waits_in_quic_to_be_sent_again() {
        let now = Instant::now();
        let mut flight = flight(now);
        flight.handle_handed(10 * PAYLOAD, false);
        flight.handle_sent(now, 12_000);
        flight.handle_loss(now, now, 2_400, false);
        assert_eq!(flight.room(now, false), Room::Later);
    }

    #[test]
    fn acknowledgements_of_our_own_are_not_in_flight() {
        let now = Instant::now();
        let mut flight = flight(now);
        for _ in 0..1000 {
            flight.handle_sent(now, 40);
        }
        assert_eq!(bytes(flight.room(now, false)), 10 * PAYLOAD);
    }

    #[test]
    fn questions_without_end_do_not_stop_the_rest() {
        let mut now = Instant::now();
        let mut flight = flight(now);
        let mut bulk = 0;
        for _ in 0..1000 {
            flight.handle_handed(100, true);
            if let Room::Now(bytes) = flight.room(now, false) {
                let bytes = bytes.min(PAYLOAD);
                flight.handle_handed(bytes, false);
                bulk += bytes;
            }
            let sent = now;
            flight.handle_sent(sent, 2_000);
            now += Duration::from_millis(200);
            flight.handle_ack(now, sent, 2_000);
            flight.handle_acks_end(0, false);
        }
        assert!(bulk > 100 * PAYLOAD, "{bulk}");
    }

    #[test]
    fn signs_of_life_are_no_rate_by_which_a_packet_waits() {
        let mut now = Instant::now();
        let mut flight = flight(now);
        let trip = Duration::from_millis(1);
        for _ in 0..20 {
            // The other side's are acknowledged, between ours.
            now += Duration::from_millis(1_500);
            flight.handle_sent(now, 40);
            now += Duration::from_millis(1_500);
            flight.handle_handed(1, true);
            flight.handle_sent(now, 45);
            flight.handle_ack(now + trip, now, 45);
            flight.handle_acks_end(0, true);
        }
        for _ in 0..20 {
            match flight.room(now, false) {
                Room::Now(_) => flight.handle_handed(PAYLOAD, false),
                Room::At(at) => panic!("waits for {:?}", at - now),
                Room::Later => return,
            }
        }
        panic!("there is room without end");
    }

    /// Of a host that sends a little less than the link carries nothing queues up, and a window
    /// that grew each round for that became one that fills the link for a while when it was used.
    #[test]
    fn a_rate_that_stays_allows_a_quarter_more_at_most() {
        let mut now = Instant::now();
        let mut flight = flight(now);
        for _ in 0..100 {
            flight.handle_handed(2 * PAYLOAD, false);
            flight.handle_sent(now, 2_400);
            flight.handle_ack(now + Duration::from_millis(4), now, 2_400);
            flight.handle_acks_end(0, false);
            now += Duration::from_millis(6);
        }
        // 10 ms of the rate and two packets: the round trip is the time of these packets.
        let needed = 400 * 10 + 2_400;
        let window = flight.law().window();
        assert!((needed..needed + needed / 4).contains(&window), "{window}, {needed} are needed");
    }

    /// A link came back after a minute, and so its rate was taken for 3 KB/s. Then each packet made
    /// a round of its own, and as a few bytes shorter than the law's was taken for a sign of life.
    #[test]
    fn a_rate_of_a_packet_at_a_time_grows_where_the_link_carries_more() {
        let mut now = Instant::now();
        let mut flight = flight(now);
        for _ in 0..20 {
            flight.handle_handed(2 * PAYLOAD, false);
            flight.handle_sent(now, 2_400);
            now += Duration::from_millis(800);
            flight.handle_ack(now, now - Duration::from_millis(800), 2_400);
            let trip = Duration::from_millis(800);
            flight.handle_echo(now, Echo { trip, theirs: Duration::ZERO, rate: Some(3_000) });
            flight.handle_acks_end(0, false);
        }
        assert!(flight.rate() < 4_000, "{}", flight.rate());
        let (end, mut bulk) = (now + Duration::from_secs(20), 0);
        let (mut here, mut there) = (Stamps::new(now), Stamps::new(now));
        while now < end {
            if let Room::At(at) = flight.room(now, false) {
                now = at;
            }
            let stamp = here.next(now, flight.stamp_period());
            if let Some(stamp) = &stamp {
                flight.handle_stamp(stamp);
            }
            let Room::Now(bytes) = flight.room(now, false) else { panic!("nothing is in flight") };
            let (bytes, sent) = (bytes.min(flight.payload()), now);
            flight.handle_handed(bytes, false);
            flight.handle_sent(sent, bytes + OVERHEAD - 10);
            bulk += bytes;
            now += Duration::from_millis(1);
            let echo = stamp.and_then(|stamp| {
                there.take(now, bulk, &stamp);
                there.next(now, None).and_then(|echo| here.take(now, 0, &echo))
            });
            flight.handle_ack(now, sent, bytes + OVERHEAD - 10);
            flight.handle_acks_end(0, true);
            if let Some(echo) = echo {
                flight.handle_echo(now, echo);
            }
        }
        assert!(bulk > 1_000_000, "{bulk}");
    }

    #[test]
    fn what_quic_lost_with_its_stream_is_not_waited_for() {
        let now = Instant::now();
        let mut flight = flight(now);
        flight.handle_handed(10 * PAYLOAD, false);
        flight.handle_stall();
        assert_eq!(bytes(flight.room(now, false)), 10 * PAYLOAD);
    }
}
