mod cancel;

use proptest::prelude::*;

use super::*;
use crate::host::log::DataChange;
use crate::nouns::{Base, Caller, ContainerId, INLINE_MAX, Record, SetAttr, Timestamp, Version};

fn store_of(seq: u64, ino: u64, ranges: u64) -> Logged {
    let data = DataChange {
        ino: Ino(ino),
        container: ContainerId::default(),
        base: Base::Version(Version::default()),
        cut: None,
        size: 2 * ranges,
        ranges: (0..ranges).map(|n| 2 * n..2 * n + 1).collect(),
        mtime: Timestamp::default(),
    };
    data.logged(seq, Caller::default())
}

fn store(seq: u64, ranges: u64) -> Logged {
    store_of(seq, seq, ranges)
}

fn chmod(seq: u64, ino: u64) -> Logged {
    let change = Change::Record(Record::SetAttr { ino: Ino(ino), set: SetAttr::default() });
    Logged { change, ..store(seq, 0) }
}

fn seqs(batch: Vec<Logged>) -> Vec<u64> {
    batch.iter().map(|logged| logged.seq).collect()
}

fn queue(changes: impl IntoIterator<Item = Logged>) -> Queue {
    let mut queue = Queue::default();
    changes.into_iter().for_each(|logged| queue.push(logged, Time::default(), |_| true));
    queue
}

/// Proves S4.19.
#[test]
fn what_is_logged_in_a_time_goes_as_one_batch() {
    let mut queue = Queue::default();
    let (second, at) = (Duration::from_secs(1), |ms| Time(Duration::from_millis(ms)));
    for (seq, ms) in [(1, 0), (2, 900), (3, 1_000), (4, 1_500)] {
        queue.push(store(seq, 1), at(ms), |_| false);
        if seq != 4 {
            queue.hold(seq, at(ms), second);
        }
    }
    assert_eq!([1, 2, 3, 4].map(|seq| queue.is_held(seq)), [false, false, true, false]);
    assert_eq!(queue.next_release(), Some(at(2_000)));
    // One of a shorter time does not wait for those of a longer one, nor they less than it.
    queue.push(store(5, 1), at(1_500), |_| false);
    queue.hold(5, at(1_500), second / 10);
    assert_eq!(queue.next_release(), Some(at(1_600)));
    queue.release(at(1_600));
    assert_eq!([3, 5].map(|seq| queue.is_held(seq)), [true, false]);
    queue.settle(3);
    queue.release(at(2_000));
    assert_eq!(queue.next_release(), None);
}

#[test]
fn a_batch_ends_with_its_records_its_bytes_or_its_ranges() {
    let ranges = [4096, 4096, 1, 9000, 9000];
    let mut queue = queue((1..).zip(ranges).map(|(seq, n)| store(seq, n)));
    let batch = |queue: &Queue, records, bytes| seqs(queue.batch(records, bytes));
    assert_eq!(batch(&queue, 1, 1 << 20), [1]);
    assert_eq!(batch(&queue, 9, 5000), [1]);
    assert_eq!(batch(&queue, 9, 1 << 20), [1, 2]);
    (1..=3).for_each(|seq| drop(queue.settle(seq)));
    assert_eq!(batch(&queue, 9, 1), [4], "one is always sent");
}

#[test]
fn what_is_of_one_file_is_not_parted_by_the_number_of_records() {
    let of = [(1, 7), (2, 8), (4, 8), (5, 8), (6, 9)];
    let queue = queue(of.map(|(seq, ino)| chmod(seq, ino)));
    assert_eq!(seqs(queue.batch(1, 999)), [1]);
    assert_eq!(seqs(queue.batch(2, 999)), [1, 2, 4, 5]);
    let before = |logged: &Logged| if logged.seq < 5 { Fit::Takes(0) } else { Fit::Ends };
    assert_eq!(seqs(queue.batch_of(Lane::Metadata, 2, 999, before)), [1, 2, 4]);
}

/// Proves S7.1.
#[test]
fn the_lanes_part_when_there_is_bulk() {
    let mut bulk = store_of(2, 2, 1);
    let Change::Data(data) = &mut bulk.change else { panic!("data") };
    data.ranges = vec![0..INLINE_MAX as u64 + 1];
    let mut queue = queue([chmod(1, 1), bulk, chmod(3, 2), store(4, 1), chmod(5, 5)]);
    let lane = |queue: &Queue, lane| seqs(queue.batch_of(lane, 99, 1 << 20, |_| Fit::Takes(0)));
    assert_eq!(lane(&queue, Lane::Metadata), [1, 5]);
    assert_eq!(lane(&queue, Lane::Data), [2, 3, 4]);
    queue.take(2);
    assert_eq!((queue.stage(2), lane(&queue, Lane::Data)), (Some(Stage::Taken), vec![4]));
    queue.put_all_back();
    assert_eq!(lane(&queue, Lane::Data), [2, 3, 4]);
    queue.settle(2);
    assert_eq!(lane(&queue, Lane::Metadata), [1, 3, 4, 5]);
    assert!(lane(&queue, Lane::Data).is_empty());
}

/// Each change woke all lanes, and those without work held up the next call.
#[test]
fn a_lane_is_known_to_be_empty_without_a_batch() {
    let may_have = |queue: &Queue| Lane::ALL.map(|lane| queue.may_have(lane));
    assert_eq!(may_have(&queue([])), [false; 4]);
    let mut bulk = store_of(2, 2, 1);
    let Change::Data(data) = &mut bulk.change else { panic!("data") };
    data.ranges = vec![0..INLINE_MAX as u64 + 1];
    let mut queue = queue([chmod(1, 1)]);
    assert_eq!(may_have(&queue), [true, false, false, false]);
    queue.push(bulk, Time::default(), |_| false);
    assert_eq!(may_have(&queue), [true, false, false, true]);
    queue.raise(&BTreeSet::from([1]), &BTreeSet::new());
    assert_eq!(may_have(&queue), [true, false, true, true]);
    queue.pull(&BTreeSet::from([1]), &BTreeSet::new());
    assert_eq!(may_have(&queue), [true, true, false, true]);
    queue.settle(2);
    queue.settle(1);
    assert_eq!(may_have(&queue), [false; 4]);
}

/// What a user pushes may be under way at the class of write-back: then those calls are to be
/// raised, and no others once it is over.
#[test]
fn what_is_raised_on_its_way_is_known_until_it_is_over() {
    let late = |queue: &Queue, seq| queue.raised_late(&[seq]);
    let (none, ends): (_, [fn(&mut Queue); 3]) = (
        BTreeSet::new(),
        [|queue| queue.put_back(2), |queue| drop(queue.settle(2)), Queue::put_all_back],
    );
    for end in ends {
        let mut queue = queue((1..=4).map(|seq| chmod(seq, seq)));
        assert_eq!(queue.raise(&BTreeSet::from([1]), &none), BTreeSet::from([1]));
        assert_eq!(late(&queue, 1), None, "it goes in its own lane");
        queue.take(1);
        queue.take(2);
        queue.mark_sending(2, Time::default());
        let again = queue.raise(&BTreeSet::from([1, 2, 9]), &none);
        assert_eq!((again, late(&queue, 2)), (BTreeSet::from([2]), Some(Class::StoreFast)));
        queue.put_back(1);
        queue.pull(&BTreeSet::from([2]), &none);
        assert_eq!(late(&queue, 2), Some(Class::Fetch), "another host waits for it");
        assert_eq!(queue.raised_late(&[1, 3, 4]), None, "nobody waits for these");
        end(&mut queue);
        assert_eq!(late(&queue, 2), None);
    }
    let mut queue = queue((1..=4).map(|seq| chmod(seq, seq)));
    queue.raise(&BTreeSet::from([3]), &BTreeSet::from([3, 4]));
    assert_eq!(late(&queue, 3), Some(Class::StoreFast), "its data are on their way");
    queue.take(3);
    assert_eq!(late(&queue, 3), None);
}

proptest! {
    #[test]
    fn what_is_kept_says_what_looking_at_all_of_it_would(
        changes in prop::collection::vec((1u64..3, 1u64..9, 0u64..40, any::<bool>()), 0..60),
        settled in 0usize..60,
        through in 0u64..130,
    ) {
        let mut seq = 0;
        let changes: Vec<Logged> = changes.into_iter().map(|(gap, ino, ranges, is_data)| {
            seq += gap;
            if is_data { store_of(seq, ino, ranges) } else { chmod(seq, ino) }
        }).collect();
        let mut queue = queue(changes.clone());
        let settled = settled.min(changes.len());
        for logged in changes.iter().take(settled) {
            prop_assert_eq!(queue.settle(logged.seq), Some(logged.clone()));
        }
        let left = &changes[settled..];
        let bytes = |of: &[Logged]| of.iter().map(|logged| logged.change.bytes()).sum::<u64>();
        let upto: Vec<Logged> =
            left.iter().filter(|logged| logged.seq <= through).cloned().collect();
        prop_assert_eq!(queue.len(), left.len());
        prop_assert_eq!(queue.bytes(), bytes(left));
        let expected = (upto.len() as u64, bytes(&upto));
        prop_assert_eq!(queue.up_to(through), expected);
        prop_assert_eq!(queue.among(&(0..=through).collect()), expected);
        for ino in (0..10).map(Ino) {
            let of: Vec<&Logged> =
                left.iter().filter(|logged| logged.change.ino() == ino).collect();
            let newest = of.last().map(|logged| logged.seq);
            prop_assert_eq!(queue.newest_of(ino), newest);
            let has_data = of.iter().any(|logged| matches!(logged.change, Change::Data(_)));
            prop_assert_eq!(queue.has_data(ino), has_data);
        }
        let from = queue.iter_from(through + 1).count();
        prop_assert_eq!(from, left.len() - upto.len());
    }
}
