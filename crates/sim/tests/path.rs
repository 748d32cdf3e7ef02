//! What the law of the transport makes of paths of many kinds, in simulated time.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use segue_sim::path::{
    Control, DrawnLink, Flow, LaneSpec, Outcome, PACKET, Pauses, Scenario, Verdict, percentile, run,
};

const KB: u64 = 1024;
fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lane(rate: u64, rtt: Duration) -> LaneSpec {
    LaneSpec {
        rates: vec![(Duration::ZERO, rate)],
        delays: vec![(Duration::ZERO, rtt / 2)],
        queue: rate.max(6 * PACKET),
        loss: 0,
        jitter: Duration::ZERO,
    }
}

fn sends(control: Control, from: Duration) -> Flow {
    Flow { control, up: Some(from), down: None, until: None }
}

fn is_long() -> bool {
    std::env::var_os("SEGUE_TEST_LONG").is_some_and(|value| value == "1")
}

/// Whether a path is tried: all are by `make test-long`. A fast link has ten times the packets.
fn is_tried(rate: u64, rtt: Duration) -> bool {
    is_long() || rate <= 1024 * KB || rtt == ms(40)
}

/// A sender that is never idle, from a second on, over such a lane and back.
fn bulk(lane: &LaneSpec, from: Duration, time: Duration) -> Outcome {
    let flows = vec![sends(Control::Segue, ms(1000))];
    let scenario =
        Scenario { up: lane.clone(), down: lane.clone(), flows, time, from, pauses: None };
    run(&scenario, 1).unwrap()
}

fn used(outcome: &Outcome) -> f64 {
    outcome.up.iter().sum::<u64>() as f64 / outcome.capacity[0] as f64
}

/// The time of so many packets on the link.
fn packets(count: u64, rate: u64) -> Duration {
    Duration::from_micros(count * PACKET * 1_000_000 / rate)
}

#[test]
fn a_question_waits_for_two_packets_and_20_ms_and_the_link_is_full() {
    for rate in [512 * KB, 1024 * KB, 10240 * KB] {
        for rtt in [1, 40, 200].map(ms).into_iter().filter(|rtt| is_tried(rate, *rtt)) {
            let outcome = bulk(&lane(rate, rtt), ms(10_000), ms(40_000));
            // The window is let out again after a drain, in which a short path has no time.
            let drained = if rtt < ms(10) { ms(12) } else { ms(0) };
            let limit = rtt + packets(2, rate) + ms(20) + drained;
            let worst = outcome.percentile(99);
            let (kb, used) = (rate / KB, used(&outcome));
            assert!(worst <= limit, "{kb} KB/s, {rtt:?}: {worst:?}, not {limit:?}");
            assert!(used >= 0.9, "{kb} KB/s, {rtt:?}: {used}");
        }
    }
}

/// A question takes the round trip, so many packets and 20 ms; messages use so much of the link.
fn expect(rate: u64, (most, least): (u64, f64)) {
    for rtt in [1, 40, 200].map(ms) {
        let outcome = bulk(&lane(rate, rtt), ms(30_000), ms(120_000));
        let limit = rtt + packets(most, rate) + ms(20);
        let worst = outcome.percentile(99);
        assert!(worst <= limit, "{rate} B/s, {rtt:?}: {worst:?}, not {limit:?}");
        assert!(used(&outcome) >= least, "{rate} B/s, {rtt:?}: {}", used(&outcome));
    }
}

#[test]
fn on_a_thin_link_packets_are_smaller_and_a_question_waits_for_two_full_ones_and_20_ms() {
    for rate in [1229, 3686, 8 * KB, 16 * KB, 32 * KB] {
        expect(rate, (2, 0.82));
    }
}

#[test]
fn on_a_slow_link_a_question_waits_for_three_packets_and_20_ms() {
    for rate in [64, 128, 256].map(|kb| kb * KB) {
        expect(rate, (3, 0.92));
    }
}

/// Links below 64 KB/s are another matter: smaller packets have more headers.
fn drawn(both: bool) -> Vec<(u64, Verdict)> {
    let links =
        (1..=if is_long() { 2000 } else { 12 }).map(|seed| (seed, DrawnLink::draw(seed, both)));
    let links = links.filter(|(_, link)| link.rate >= 64 * KB);
    links.map(|(seed, link)| (seed, link.judge(seed).unwrap())).collect()
}

/// At most so many of a hundred drawn links miss each promise.
fn expect_few_misses(verdicts: &[(u64, Verdict)], of_a_hundred: usize) {
    for keeps in [Verdict::is_quick, Verdict::is_full] {
        let misses: Vec<_> = verdicts.iter().filter(|(_, verdict)| !keeps(verdict)).collect();
        let text: String =
            misses.iter().map(|(seed, verdict)| format!("| {seed} {verdict}\n")).collect();
        let most = verdicts.len() * of_a_hundred / 100;
        assert!(misses.len() <= most.max(1), "{} of {}:\n{text}", misses.len(), verdicts.len());
    }
}

#[test]
fn of_drawn_links_95_in_100_keep_their_promises_in_one_direction() {
    expect_few_misses(&drawn(false), 5);
}

#[test]
fn of_drawn_links_90_in_100_keep_their_promises_in_both_directions() {
    expect_few_misses(&drawn(true), 10);
}

#[test]
fn with_both_directions_full_neither_starves() {
    for rate in [64, 256, 512, 1024, 10240].map(|kb| kb * KB) {
        for rtt in [1, 40, 200].map(ms).into_iter().filter(|rtt| is_tried(rate, *rtt)) {
            let lane = lane(rate, rtt);
            let from = Some(ms(1000));
            let flows = vec![Flow { control: Control::Segue, up: from, down: from, until: None }];
            let (up, down) = (lane.clone(), lane);
            let scenario =
                Scenario { up, down, flows, time: ms(40_000), from: ms(10_000), pauses: None };
            let outcome = run(&scenario, 1).unwrap();
            let worst = outcome.percentile(99);
            let limit = rtt + packets(4, rate) + ms(30);
            assert!(worst <= limit, "{rate} B/s, {rtt:?}: {worst:?}, not {limit:?}");
            let least = if rate > 64 * KB { 0.9 } else { 0.85 };
            for (bytes, capacity) in [&outcome.up, &outcome.down].iter().zip(outcome.capacity) {
                let share = bytes[0] as f64 / capacity as f64;
                assert!(share > least, "{rate} B/s, {rtt:?}: {share}");
            }
        }
    }
}

#[test]
fn halving_is_followed_within_a_second_and_doubling_within_a_few() {
    let (fast, slow) = (1024 * KB, 512 * KB);
    for rtt in [1, 40, 200].map(ms) {
        let mut lane = lane(fast, rtt);
        lane.rates = vec![(ms(12_500), fast), (ms(10_000), slow), (Duration::ZERO, fast)];
        let outcome = bulk(&lane, ms(5_000), ms(40_000));
        let limit = rtt + packets(2, slow) + ms(20);
        let calm = |(at, _): &&(Duration, Duration)| *at > ms(14_000) && *at < ms(22_000);
        let late = outcome.timed.iter().filter(calm).filter(|(_, trip)| *trip > limit).count();
        assert!(late <= 4, "{rtt:?}: {late} questions after the halving");
        let after = |second: usize| outcome.seconds[second][0] as f64;
        assert!(after(27) > 0.85 * fast as f64, "{rtt:?}: {}", after(27));
        assert!(used(&outcome) > 0.87, "{rtt:?}: {}", used(&outcome));
    }
}

#[test]
fn chance_loses_packets_and_not_the_rate() {
    for loss in [10, 50] {
        for rtt in [1, 40, 200].map(ms) {
            let mut lane = lane(512 * KB, rtt);
            lane.loss = loss;
            let outcome = bulk(&lane, ms(10_000), ms(40_000));
            let share = used(&outcome);
            assert!(share > 0.9 - loss as f64 / 500.0, "{loss}, {rtt:?}: {share}");
        }
    }
}

#[test]
fn a_path_that_becomes_longer_is_learnt() {
    let mut lane = lane(1024 * KB, ms(2));
    lane.delays = vec![(Duration::ZERO, ms(1)), (ms(15_000), ms(60))];
    let outcome = bulk(&lane, ms(20_000), ms(40_000));
    assert!(used(&outcome) > 0.85, "{}", used(&outcome));
    assert!(outcome.percentile(95) < ms(120 + 40), "{:?}", outcome.percentile(95));
}

#[test]
fn beside_tcp_nobody_starves_who_came_first_or_last() {
    let rate = 1024 * KB;
    let share = |queue: u64, trip: u64, (ours, theirs): (u64, u64)| {
        let lane = LaneSpec { queue: rate * queue / 1000, ..lane(rate, ms(trip)) };
        let flows = vec![sends(Control::Segue, ms(ours)), sends(Control::Cubic, ms(theirs))];
        let (up, down) = (lane.clone(), lane);
        let scenario =
            Scenario { up, down, flows, time: ms(130_000), from: ms(10_000), pauses: None };
        let outcome = run(&scenario, 1).unwrap();
        outcome.up[0] as f64 / outcome.up.iter().sum::<u64>() as f64
    };
    for (queue, first, last) in [(100, 0.3, 0.3), (400, 0.25, 0.25), (2000, 0.05, 0.02)] {
        for (begin, least) in [((1000, 5000), first), ((5000, 1000), last)] {
            // In a queue of 2 s losses are rare, and chance decides much.
            let trips: &[u64] = if queue == 2000 { &[38, 40, 42] } else { &[40] };
            let mut shares: Vec<_> = trips.iter().map(|trip| share(queue, *trip, begin)).collect();
            shares.sort_by(f64::total_cmp);
            let share = shares[shares.len() / 2];
            assert!((least..0.75).contains(&share), "{queue} ms, {begin:?}: {shares:?}");
        }
    }
}

/// The part of a sender in the background of what arrives in half a minute, and of the link.
fn in_the_background(lane: &LaneSpec, others: &[Flow], from: Duration) -> (f64, f64) {
    let background = sends(Control::Background, ms(3000));
    let flows = [&[background], others].concat();
    let (up, down) = (lane.clone(), lane.clone());
    let scenario = Scenario { up, down, flows, time: from + ms(30_000), from, pauses: None };
    let outcome = run(&scenario, 1).unwrap();
    let share = outcome.up[0] as f64 / outcome.up.iter().sum::<u64>() as f64;
    (share, used(&outcome))
}

#[test]
fn a_sender_in_the_background_leaves_the_link_to_tcp_and_fills_it_alone() {
    for queue in [100, 400, 2000] {
        let mut lane = lane(1024 * KB, ms(40));
        lane.queue = 1024 * KB * queue / 1000;
        for from in [1000, 10_000] {
            let tcp = sends(Control::Cubic, ms(from));
            let (share, used) = in_the_background(&lane, &[tcp], ms(60_000));
            assert!(share < 0.1 && used > 0.9, "{queue} ms, {from} ms: {share} of {used}");
            let ends = Flow { until: Some(ms(40_000)), ..tcp };
            let (share, used) = in_the_background(&lane, &[ends], ms(60_000));
            assert!(share > 0.99 && used > 0.9, "{queue} ms, {from} ms: {used} after TCP");
        }
    }
}

#[test]
fn a_sender_in_the_background_learns_a_longer_path() {
    let mut lane = lane(1024 * KB, ms(40));
    lane.delays = vec![(Duration::ZERO, ms(20)), (ms(10_000), ms(100))];
    // The way back counts as the other side's queue for up to a minute.
    let (_, used) = in_the_background(&lane, &[], ms(120_000));
    assert!(used > 0.85, "{used}");
}

#[test]
fn a_latecomer_gets_its_share_and_leaves_others_theirs() {
    let lane = lane(1024 * KB, ms(40));
    let flows = vec![sends(Control::Segue, ms(1000)), sends(Control::Segue, ms(8000))];
    let (up, down) = (lane.clone(), lane);
    let scenario = Scenario { up, down, flows, time: ms(130_000), from: ms(40_000), pauses: None };
    let outcome = run(&scenario, 1).unwrap();
    let share = outcome.up[0] as f64 / outcome.up.iter().sum::<u64>() as f64;
    assert!((0.2..0.8).contains(&share), "{share}");
    assert!(outcome.percentile(95) < ms(40 + 100), "{:?}", outcome.percentile(95));
}

#[test]
fn bulk_to_one_server_does_not_delay_questions_to_another_behind_the_same_link() {
    for (rate, rtt) in [(256 * KB, ms(40)), (1024 * KB, ms(40)), (1024 * KB, ms(200))] {
        let asks = Flow { control: Control::Segue, up: None, down: None, until: None };
        let flows = vec![asks, sends(Control::Segue, ms(1000)), sends(Control::Segue, ms(3000))];
        let (up, down) = (lane(rate, rtt), lane(rate, rtt));
        let scenario =
            Scenario { up, down, flows, time: ms(60_000), from: ms(20_000), pauses: None };
        let outcome = run(&scenario, 1).unwrap();
        // Each of the two others keeps a short queue of its own.
        let limit = rtt + 2 * (packets(2, rate) + ms(20));
        let worst = outcome.percentile(99);
        assert!(worst <= limit, "{} KB/s, {rtt:?}: {worst:?}, not {limit:?}", rate / KB);
        assert!(used(&outcome) >= 0.9, "{} KB/s, {rtt:?}: {}", rate / KB, used(&outcome));
    }
}

#[test]
fn a_busy_host_makes_no_storm_when_both_directions_are_full() {
    let all = [(1024 * KB, 1), (1024 * KB, 40), (10240 * KB, 40), (10240 * KB, 200)];
    for (rate, rtt) in all {
        let fast = [100, 20, 300].into_iter().take(if is_tried(rate, ms(0)) { 3 } else { 1 });
        for pause in fast.filter(|_| is_tried(rate, ms(rtt))) {
            let (lane, rtt) = (LaneSpec { queue: 2 * rate, ..lane(rate, ms(rtt)) }, ms(rtt));
            let from = Some(ms(1000));
            let flows = vec![Flow { control: Control::Segue, up: from, down: from, until: None }];
            let pauses = Some(Pauses { each: ms(1700), time: ms(pause) });
            let (up, down) = (lane.clone(), lane);
            let (time, from) = (ms(40_000), ms(10_000));
            let scenario = Scenario { up, down, flows, time, from, pauses };
            let outcome = run(&scenario, 1).unwrap();
            // A pause holds up a question, and what came meanwhile once more.
            let limit = rtt + packets(6, rate) + ms(70) + 2 * ms(pause);
            let (worst, queue) = (outcome.percentile(100), percentile(&outcome.queue, 100));
            let name = format!("{} KB/s, {rtt:?}, pauses of {pause} ms", rate / KB);
            assert!(worst <= limit, "{name}: {worst:?}, not {limit:?}");
            assert!(queue <= ms(150), "{name}: a queue of {queue:?}");
        }
    }
}
