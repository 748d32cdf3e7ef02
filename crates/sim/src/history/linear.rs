//! Whether each file was like one on a single host: every save and every read took effect at one
//! moment between its call and its return.
//!
//! As no two saves have the same state, that can be told without trying orders. The saves and reads
//! of one state are a cluster. Its zone is the time between the first return and the last call in
//! it. If the first return is the earlier one, the file surely had the state for that time: the
//! zone is forward. Else all of the cluster can be at one moment of its zone, which is backward. A
//! file is linearizable exactly if no read returns before its save is called, no two forward zones
//! overlap, and no backward zone lies within a forward one (Gibbons and Korach, Testing Shared
//! Memories, 1997, section 4.2).

use std::collections::{BTreeMap, BTreeSet};

use super::{Did, Event, Moment, State, saves, unsaved, words};

/// The zone of a state.
#[derive(Clone, Copy, Debug)]
struct Zone {
    state: State,
    first_return: Moment,
    last_call: Moment,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_return < self.last_call
    }

    /// True if neither can be wholly before the other: both are forward.
    fn overlaps(&self, other: &Zone) -> bool {
        self.first_return < other.last_call && other.first_return < self.last_call
    }

    /// True if this backward zone is within a forward one.
    fn is_within(&self, other: &Zone) -> bool {
        other.first_return < self.last_call && self.first_return < other.last_call
    }
}

/// The first fault, in words.
pub fn fault(history: &[Event]) -> Option<String> {
    let files: BTreeSet<usize> = history.iter().map(|event| event.file).collect();
    files.into_iter().find_map(|file| fault_of(history, file))
}

fn fault_of(history: &[Event], file: usize) -> Option<String> {
    let saves = saves(history, file);
    let zone = |(&state, save): (&State, &super::Save)| {
        (state, Zone { state, first_return: save.ended, last_call: save.began })
    };
    let mut zones: BTreeMap<State, Zone> = saves.iter().map(zone).collect();
    let mut is_read = BTreeSet::from([0]);
    for event in history.iter().filter(|event| event.file == file) {
        let Did::Read(state) = event.did else { continue };
        if let Some(fault) = unsaved(event, state, &saves) {
            return Some(fault);
        }
        is_read.insert(state);
        if let Some(zone) = zones.get_mut(&state) {
            zone.first_return = zone.first_return.min(event.ended);
            zone.last_call = zone.last_call.max(event.began);
        }
    }
    // A save that may never have happened, and that nobody saw, need not have.
    zones.retain(|state, _| is_read.contains(state) || saves[state].ended < Moment::MAX);
    let mut forward: Vec<Zone> = zones.values().copied().filter(Zone::is_forward).collect();
    forward.sort_by_key(|zone| zone.first_return);
    let told = |one: &Zone, other: &Zone| {
        let of = |zone: &Zone| {
            let of_state = |event: &&Event| event.file == file && event.did.state() == zone.state;
            history.iter().filter(of_state).map(words).collect::<Vec<_>>().join("; ")
        };
        format!("{}; while {} was there: {}", of(one), other.state, of(other))
    };
    for pair in forward.windows(2) {
        if let [one, other] = pair
            && one.overlaps(other)
        {
            return Some(told(one, other));
        }
    }
    for backward in zones.values().filter(|zone| !zone.is_forward()) {
        if let Some(around) = forward.iter().find(|forward| backward.is_within(forward)) {
            return Some(told(around, backward));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::samples::{other, perhaps, read, saved};
    use super::*;

    fn is_faulty(history: &[Event]) -> bool {
        fault(history).is_some()
    }

    #[test]
    fn a_read_after_a_save_reads_it() {
        assert!(!is_faulty(&[saved(0, (1, 3), 1), read(1, (4, 5), 1)]));
        assert!(is_faulty(&[saved(0, (1, 3), 1), read(1, (4, 5), 0)]));
        assert!(!is_faulty(&[saved(0, (1, 3), 1), read(1, (2, 5), 0)]), "they are concurrent");
        assert!(!is_faulty(&[perhaps(saved(0, (1, 3), 1)), read(1, (4, 5), 0)]));
    }

    #[test]
    fn nobody_reads_what_is_not_saved() {
        assert!(is_faulty(&[read(1, (4, 5), 7)]));
        assert!(is_faulty(&[read(1, (4, 5), 1), saved(0, (6, 7), 1)]));
    }

    #[test]
    fn what_was_read_is_there_until_the_next_save() {
        let save = saved(0, (1, 9), 1);
        assert!(is_faulty(&[save, read(1, (2, 3), 1), read(2, (4, 5), 0)]));
        assert!(!is_faulty(&[save, read(1, (2, 5), 1), read(2, (4, 6), 0)]));
        let may_be = perhaps(save);
        assert!(is_faulty(&[may_be, read(1, (10, 11), 1), read(2, (12, 13), 0)]));
        assert!(!is_faulty(&[may_be, read(1, (10, 11), 0), read(2, (12, 13), 1)]));
    }

    /// Two concurrent saves: all hosts see them in one order.
    #[test]
    fn concurrent_saves_have_one_order() {
        let both = [saved(0, (1, 5), 1), saved(1, (1, 5), 2)];
        let seen = |states: [State; 3]| {
            let times = [(6, 7), (8, 9), (10, 11)];
            let reads = states.into_iter().zip(times).map(|(state, at)| read(2, at, state));
            both.into_iter().chain(reads).collect::<Vec<_>>()
        };
        assert!(!is_faulty(&seen([1, 1, 1])) && !is_faulty(&seen([2, 2, 2])));
        assert!(is_faulty(&seen([1, 2, 1])) && is_faulty(&seen([2, 1, 1])));
        let during = [read(2, (2, 3), 1), read(2, (4, 6), 2)];
        assert!(!is_faulty(&[both.as_slice(), &during].concat()));
    }

    /// A save that nobody read was over while the file had another state.
    #[test]
    fn a_save_within_the_time_of_another_state_is_lost() {
        let around = [saved(0, (1, 2), 1), read(1, (8, 9), 1)];
        assert!(is_faulty(&[around[0], saved(1, (4, 5), 2), around[1]]));
        assert!(!is_faulty(&[around[0], perhaps(saved(1, (4, 5), 2)), around[1]]));
        assert!(!is_faulty(&[around[0], saved(1, (1, 5), 2), around[1]]), "it was before 1");
    }

    /// True if some order of these has each read find the last save before it.
    fn has_order(left: &[Event], now: State) -> bool {
        let may_stay = |event: &Event| matches!(event.did, Did::Saved { surely: false, .. });
        let may_be_next =
            |next: &&Event| left.iter().all(|event| may_stay(event) || event.ended >= next.began);
        left.iter().all(may_stay)
            || left.iter().filter(may_be_next).any(|next| {
                let after = match next.did {
                    Did::Saved { state, .. } => state,
                    Did::Read(state) if state == now => now,
                    Did::Read(_) => return false,
                };
                let rest: Vec<Event> =
                    left.iter().filter(|event| *event != next).copied().collect();
                has_order(&rest, after)
            })
    }

    #[test]
    fn zones_say_the_same_as_all_orders_that_are_tried() {
        let mut rng = crate::rng::Rng::new(7);
        let mut found = [0, 0];
        for _ in 0..20_000 {
            let events = 2 + rng.below(5);
            let history: Vec<Event> = (0..events)
                .map(|number| {
                    let began = 1 + rng.below(12);
                    let at = (began, began + rng.below(6));
                    match rng.below(5) {
                        0 => perhaps(saved(0, at, number + 1)),
                        1 | 2 => saved(0, at, number + 1),
                        _ => read(usize::try_from(number).unwrap(), at, rng.below(events)),
                    }
                })
                .collect();
            let is_linear = has_order(&history, 0);
            assert_eq!(!is_faulty(&history), is_linear, "{history:?}");
            found[usize::from(is_linear)] += 1;
        }
        assert!(found.iter().all(|count| *count > 2_000), "{found:?}");
    }

    #[test]
    fn files_are_apart() {
        assert!(!is_faulty(&[saved(0, (1, 3), 1), other(read(1, (4, 5), 0))]));
        assert!(is_faulty(&[other(saved(0, (1, 3), 1)), other(read(1, (4, 5), 0))]));
    }
}
