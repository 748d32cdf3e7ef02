use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn packet(number: u16) -> Vec<u8> {
    let mut packet = vec![0; 1000];
    packet[..2].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Polls `lane` at each of its deadlines up to `end`; arrivals as (time, number).
fn drain(lane: &mut RelayQueue, end: Duration) -> Vec<(Duration, u16)> {
    let mut arrived = Vec::new();
    while let Some(now) = lane.next_deadline().filter(|now| *now <= end) {
        while let Some(packet) = lane.poll(now) {
            arrived.push((now, u16::from_be_bytes([packet[0], packet[1]])));
        }
    }
    arrived
}

fn pushed(link: LinkSpec, packets: u16) -> RelayQueue {
    let mut lane = RelayQueue::new(link, 7);
    (0..packets).for_each(|number| lane.push(packet(number), Duration::ZERO));
    lane
}

#[test]
fn a_rate_spaces_packets_and_a_delay_shifts_them() {
    let delay = Duration::from_millis(50);
    let mut lane = pushed(LinkSpec { rate: Some(10_000), delay, ..LinkSpec::default() }, 5);
    let arrived = drain(&mut lane, SECOND);
    let expected: Vec<_> =
        (1..=5u16).map(|i| (Duration::from_millis(100 * u64::from(i)) + delay, i - 1)).collect();
    assert_eq!(arrived, expected);
}

#[test]
fn a_full_queue_drops_the_newest() {
    let link = LinkSpec { rate: Some(1_000), queue: Some(3_000), ..LinkSpec::default() };
    let mut lane = pushed(link, 10);
    let numbers: Vec<_> = drain(&mut lane, 60 * SECOND).into_iter().map(|(_, n)| n).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn a_change_of_rate_holds_for_what_is_queued() {
    let mut lane = pushed(LinkSpec { rate: Some(1_000), ..LinkSpec::default() }, 2);
    lane.set_link(LinkSpec { rate: Some(100_000), ..LinkSpec::default() }, SECOND / 2);
    let arrived = drain(&mut lane, 60 * SECOND);
    let times: Vec<_> = arrived.iter().map(|(time, _)| time.as_millis()).collect();
    assert_eq!(times, [505, 515]);
}

#[test]
fn a_trace_repeats_and_may_stand_still() {
    let trace = vec![(SECOND, 1_000), (SECOND, 0)];
    let mut lane = pushed(LinkSpec { trace, ..LinkSpec::default() }, 3);
    let times: Vec<_> = drain(&mut lane, 60 * SECOND).iter().map(|(t, _)| t.as_secs()).collect();
    assert_eq!(times, [1, 3, 5]);
}

#[test]
fn jitter_alone_keeps_the_order_and_reordering_breaks_it() {
    let jitter = Duration::from_millis(30);
    let ordered = drain(&mut pushed(LinkSpec { jitter, ..LinkSpec::default() }, 500), SECOND);
    assert_eq!(ordered.len(), 500);
    assert!(ordered.windows(2).all(|pair| pair[0].1 < pair[1].1));

    let mixed = drain(&mut pushed(LinkSpec { reorder: 0.1, ..LinkSpec::default() }, 500), SECOND);
    assert_eq!(mixed.len(), 500);
    assert!(mixed.windows(2).any(|pair| pair[0].1 > pair[1].1));
}

#[test]
fn loss_takes_about_its_share_and_the_seed_decides_which() {
    let link = LinkSpec { loss: 0.2, ..LinkSpec::default() };
    let first = drain(&mut pushed(link.clone(), 1000), SECOND);
    let again = drain(&mut pushed(link, 1000), SECOND);
    assert!((700..900).contains(&first.len()), "{} of 1000 arrived", first.len());
    assert_eq!(first, again);
}

#[test]
fn a_link_that_is_down_loses_what_is_on_it_and_what_comes() {
    let mut lane = pushed(LinkSpec { delay: SECOND, ..LinkSpec::default() }, 3);
    lane.set_down(true);
    lane.push(packet(3), SECOND);
    lane.set_down(false);
    lane.push(packet(4), SECOND);
    assert_eq!(drain(&mut lane, 10 * SECOND), [(2 * SECOND, 4)]);
}

#[test]
fn what_was_carried_is_what_the_link_had_time_for() {
    // A second sends one packet, the queue has room for two more, and chance loses all.
    let link = LinkSpec { rate: Some(1_000), queue: Some(3_000), loss: 1.0, ..LinkSpec::default() };
    let mut lane = pushed(link, 10);
    assert_eq!([0, 1, 2, 60].map(|second| lane.carried(second * SECOND)), [0, 1000, 2000, 3000]);
    assert_eq!(lane.poll(60 * SECOND), None);
}
