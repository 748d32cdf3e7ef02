//! Events of the other side and the network for the law, in any order.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::tests::mutation::mutated;

/// An event on a connection, as the other side or the network can bring it about.
#[derive(Clone, Debug)]
enum Event {
    Datagram(Vec<u8>),
    Sent(u32),
    Acknowledged(u64, u32),
    Lost(u32, bool),
    PacketSize(u16),
}

fn event() -> impl Strategy<Value = Event> {
    let stamp = |flags: u8, words: usize| {
        let word = prop_oneof![Just(0), Just(u32::MAX), 0..100_000_u32, any::<u32>()];
        prop::collection::vec(word, words).prop_map(move |words| {
            let mut bytes = vec![flags];
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            Event::Datagram(bytes)
        })
    };
    prop_oneof![
        stamp(1, 1),
        stamp(2, 3),
        stamp(3, 4),
        mutated(vec![vec![3; 17], vec![1; 5], vec![2; 13]]).prop_map(Event::Datagram),
        (0..100_000_u32).prop_map(Event::Sent),
        (0..2_000_000_u64, 0..100_000_u32).prop_map(|(us, bytes)| Event::Acknowledged(us, bytes)),
        (0..100_000_u32, any::<bool>()).prop_map(|(bytes, all)| Event::Lost(bytes, all)),
        (1200..=65_000_u16).prop_map(Event::PacketSize),
    ]
}

proptest! {
    /// Stamps say what they like of times and rates: what may be in flight stays a number of
    /// bytes that somebody might send, and is never nothing.
    #[test]
    fn stamps_of_any_kind_leave_a_window(
        events in prop::collection::vec((event(), 0..3_000_000_u64), 0..200),
    ) {
        let mut now = Instant::now();
        let mut control: Box<dyn Controller> = Arc::new(Factory).build(now, 1200);
        let path = Shared::from(control.clone_box()).unwrap();
        let mut stamps = Stamps::new(now);
        for (event, micros) in events {
            now += Duration::from_micros(micros);
            match event {
                Event::Datagram(bytes) => {
                    if let Some(echo) = stamps.take(now, micros, &bytes) {
                        path.flight().handle_echo(now, echo);
                    }
                    let answer = stamps.next(now, path.flight().stamp_period());
                    prop_assert!(answer.is_none_or(|answer| answer.len() <= 17));
                }
                Event::Sent(bytes) => {
                    path.flight().handle_handed(u64::from(bytes), false);
                    control.on_sent(now, u64::from(bytes), 0);
                }
                Event::Acknowledged(trip, bytes) => {
                    let sent = now.checked_sub(Duration::from_micros(trip)).unwrap_or(now);
                    path.flight().handle_ack(now, sent, u64::from(bytes));
                    control.on_end_acks(now, u64::from(bytes), micros % 2 == 0, None);
                }
                Event::Lost(bytes, all) => {
                    control.on_congestion_event(now, now, all, u64::from(bytes));
                }
                Event::PacketSize(bytes) => control.on_mtu_update(bytes),
            }
            for is_awaited in [true, false] {
                let _ = path.flight().room(now, is_awaited);
            }
            prop_assert!(control.window() > 0);
        }
    }
}
