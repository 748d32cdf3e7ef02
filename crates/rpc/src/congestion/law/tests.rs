use std::collections::VecDeque;

use super::others::{Cubic, Others};
use super::*;

const PACKET: u64 = 1200;
const RATE: u64 = 120_000;
const TRIP: Duration = Duration::from_millis(40);

/// A path that carries a packet each 10 ms, and what the other side tells of it.
struct Path {
    law: Law,
    now: Instant,
    flight: VecDeque<Instant>,
}

impl Path {
    fn new() -> Path {
        let now = Instant::now();
        Path { law: Law::new(now, 1200), now, flight: VecDeque::new() }
    }

    /// Sends a packet, after 10 ms.
    fn step(&mut self, told: Option<u64>) {
        self.now += Duration::from_millis(10);
        self.law.handle_sent(self.now);
        self.flight.push_back(self.now);
        if let Some(sent) = self.flight.pop_front_if(|sent| *sent + TRIP <= self.now) {
            self.law.handle_ack(self.now, sent, PACKET);
        }
        if let Some(rate) = told {
            let echo = Echo { trip: TRIP, theirs: Duration::ZERO, rate: Some(rate) };
            self.law.handle_echo(self.now, echo);
        }
    }

    /// A path of known rate and round trip.
    fn known() -> Path {
        let mut path = Path::new();
        while !path.is_draining() {
            path.step(Some(RATE));
        }
        path
    }

    /// Drains, and finds a round trip of `millis` ten seconds later.
    fn finds(&mut self, why: Why, millis: u64) {
        self.law.drain(self.now, why);
        self.now += Duration::from_secs(10);
        let trip = Duration::from_millis(millis);
        let echo = Echo { trip, theirs: Duration::ZERO, rate: Some(RATE) };
        for _ in 0..PACKETS_DRAINED {
            self.law.handle_echo(self.now, echo);
        }
    }

    fn base(&self) -> u128 {
        self.law.base().unwrap_or_default().as_millis()
    }

    fn is_draining(&self) -> bool {
        matches!(self.law.phase, Phase::Drain { .. })
    }
}

#[test]
fn a_drain_ends_by_acknowledgements_if_echoes_end_in_it() {
    let mut path = Path::known();
    for _ in 0..200 {
        path.step(None);
    }
    assert!(!path.is_draining());
}

/// A connection that began anew lost packets before a rate was known: the time for its queue had no
/// end, and two packets at a time were sent for ever.
#[test]
fn a_drain_ends_though_no_rate_is_known() {
    let mut path = Path::known();
    path.law.handle_loss(path.now, path.now, PACKET, true);
    path.law.handle_loss(path.now, path.now, 10 * PACKET, false);
    assert!(path.is_draining());
    for _ in 0..20 {
        path.step(Some(RATE));
    }
    assert!(!path.is_draining());
}

/// At a low pace each packet makes a round, a few bytes shorter than the law's packet.
#[test]
fn a_packet_is_a_round_and_a_sign_of_life_is_none() {
    for (bytes, is_known) in [(PACKET - 10, true), (45, false)] {
        let mut path = Path::new();
        for _ in 0..10 {
            path.now += Duration::from_millis(200);
            path.law.handle_sent(path.now);
            path.law.handle_ack(path.now + Duration::from_millis(1), path.now, bytes);
        }
        assert_eq!(path.law.is_known, is_known, "{bytes} bytes");
    }
}

#[test]
fn a_rate_is_believed_up_to_four_times_what_is_acknowledged() {
    for told in [RATE, 100 * RATE, u64::MAX] {
        let mut path = Path::new();
        for _ in 0..1_000 {
            path.step(Some(told));
        }
        let pace = path.law.pace().unwrap();
        assert!(pace <= 4 * (RATE + RATE / 4), "{pace} of {told}");
        assert!(path.law.window() < 4 * RATE, "{} of {told}", path.law.window());
    }
}

#[test]
fn losses_of_one_queue_reduce_a_competing_window_once() {
    let mut path = Path::new();
    let (before, longer) = (path.now, Trip { time: TRIP, bytes: 0 });
    path.law.window = 100 * PACKET;
    path.law.compete_from(before, Cubic::at(before, 0), Others { longer, at: before, found: 0 });
    let at = |millis| before + Duration::from_millis(millis);
    for (lost, sent, window) in [(50, 10, 70), (60, 20, 70), (70, 50, 70), (130, 60, 49)] {
        path.law.handle_loss(at(lost), at(sent), PACKET, false);
        assert_eq!(path.law.window, window * PACKET, "lost after {lost} ms");
    }
}

/// A sender that knew the link had a quarter of it beside one of TCP's kind for half a minute: it
/// lost most when the other one began.
#[test]
fn who_knows_the_link_grows_to_half_of_it_after_the_first_losses() {
    for (found, least) in [(0, 60), (1, 10)] {
        let mut path = Path::known();
        let longer = Trip { time: Duration::from_secs(1), bytes: 0 };
        let (began, others) = (path.now, Others { longer, at: path.now, found });
        path.law.window = 10 * PACKET;
        path.law.peak = RATE * 2;
        path.law.waited = Some(longer.time);
        path.law.compete_from(began, Cubic::STEEP, others);
        path.law.handle_loss(began, began, PACKET, false);
        for _ in 0..10 {
            path.now += Duration::from_millis(500);
            let Phase::Compete(competition) = path.law.phase else { panic!("it competes") };
            path.law.waited = Some(longer.time);
            let mut round = Round::new(path.now, path.now, false);
            round.delivered = path.law.window;
            path.law.compete(path.now, round, competition);
        }
        let packets = path.law.window / PACKET;
        assert!(packets >= least && packets < 3 * least, "{packets} packets, found {found}");
    }
}

/// Before others were found twice the path may only be longer, and is filled.
#[test]
fn beside_others_the_window_grows_to_five_eighths_of_the_link() {
    for (found, part, grows) in [(1, 50, true), (1, 70, false), (0, 70, true)] {
        let mut path = Path::known();
        path.law.peak = 2 * RATE;
        path.law.rates = [2 * RATE * part / 100; 3];
        path.law.pace = Pace::default();
        let longer = Trip { time: Duration::from_secs(1), bytes: 0 };
        let others = Others { longer, at: path.now, found };
        path.law.compete_from(path.now, Cubic::STEEP, others);
        let Phase::Compete(competition) = path.law.phase else { panic!("it competes") };
        let before = path.law.window;
        let mut round = Round::new(path.now, path.now, false);
        round.delivered = before;
        path.law.compete(path.now, round, competition);
        assert_eq!(path.law.window > before, grows, "{part} % of the link, found {found}");
    }
}

#[test]
fn a_drain_raises_the_base_by_8_ms_at_most() {
    let mut path = Path::known();
    for (millis, base) in [(46, 46), (57, 54), (57, 57)] {
        path.finds(Why::Period, millis);
        assert_eq!(path.base(), base);
    }
}

/// A full packet lasts 10 ms at this rate. It would explain a wait of 20 ms, and a small one does
/// not.
#[test]
fn a_queue_that_outlasts_a_drain_is_no_part_of_the_path() {
    for why in [Why::Start, Why::Period] {
        let mut path = Path::known();
        path.finds(why, 60);
        assert_eq!(path.base(), 40);
        assert_eq!(path.is_draining(), why == Why::Start);
        assert_eq!(matches!(path.law.phase, Phase::Compete(_)), why == Why::Period);
    }
}

#[test]
fn what_drains_beside_others_find_twice_is_the_path_if_time_went_by() {
    let longer = Trip { time: Duration::from_millis(200), bytes: 0 };
    for (ago, millis, base) in [(0, 200, 40), (2, 200, 200), (2, 240, 40)] {
        let mut path = Path::known();
        let at = path.now + Duration::from_secs(10) - Duration::from_secs(ago);
        let others = Others { longer, at, found: 0 };
        path.finds(Why::Others { window: PACKET, others }, millis);
        assert_eq!(path.base(), base, "{millis} ms, {ago} s after 200");
        assert_eq!(matches!(path.law.phase, Phase::Compete(_)), base == 40);
    }
}
