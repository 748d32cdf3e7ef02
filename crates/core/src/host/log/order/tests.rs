use proptest::prelude::*;

use super::*;
use crate::host::log::DataChange;
use crate::nouns::{Base, Caller, ContainerId, NewNode, SetAttr, Timestamp, Version};

fn name(number: u8) -> Name {
    Name::new(format!("n{number}")).unwrap()
}

fn create(parent: u64, number: u8, ino: u64) -> Change {
    let (parent, name, ino) = (Ino(parent), name(number), Ino(ino));
    Change::Record(Record::Create {
        parent,
        name,
        ino,
        node: NewNode::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
    })
}

fn store(ino: u64) -> Change {
    Change::Data(DataChange {
        ino: Ino(ino),
        container: ContainerId::default(),
        base: Base::Version(Version::default()),
        cut: None,
        size: 0,
        ranges: Vec::new(),
        mtime: Timestamp::default(),
    })
}

fn chmod(ino: u64) -> Change {
    Change::Record(Record::SetAttr { ino: Ino(ino), set: SetAttr::default() })
}

fn rename((from, old): (u64, u8), ino: u64, (to, new): (u64, u8), over: Option<u64>) -> Change {
    Change::Record(Record::Rename {
        from_parent: Ino(from),
        from_name: name(old),
        ino: Ino(ino),
        to_parent: Ino(to),
        to_name: name(new),
        mode: RenameMode::Replace(over.map(Ino)),
        open: false,
    })
}

fn rmdir(parent: u64, number: u8, ino: u64) -> Change {
    Change::Record(Record::Rmdir { parent: Ino(parent), name: name(number), ino: Ino(ino) })
}

fn unlink(parent: u64, number: u8, ino: u64) -> Change {
    let (parent, name, ino) = (Ino(parent), name(number), Ino(ino));
    Change::Record(Record::Unlink { parent, name, ino, open: false })
}

/// Each by a process group of its own.
fn order(changes: impl IntoIterator<Item = Change>) -> Order {
    let mut order = Order::default();
    for (seq, change) in (1..).zip(changes) {
        order.push(&logged(seq, 100 + u32::try_from(seq).unwrap(), change), |ino| ino.0 < 10);
    }
    order
}

/// A change of a process group.
fn logged(seq: u64, process_group: u32, change: Change) -> Logged {
    let caller = Caller { process_group, ..Caller::default() };
    let time = Timestamp::default();
    Logged { seq, time, caller, operation: None, after: After::Nothing, known: None, change }
}

/// All that can go in one batch without what it `skips`.
fn batch(order: &Order, kind: Kind, skips: &[u64]) -> Vec<u64> {
    let mut pick = order.pick(kind);
    let mut taken = Vec::new();
    while let Some(seq) = pick.next() {
        if !skips.contains(&seq) {
            pick.take(seq);
            taken.push(seq);
        }
    }
    taken
}

fn free(order: &Order) -> Vec<u64> {
    let mut free: Vec<u64> = order.free.iter().flatten().copied().collect();
    free.sort_unstable();
    free
}

/// Proves S7.2, S7.5.
#[test]
fn metadata_pass_bulk_but_for_what_shows_it() {
    let mut order = order([
        create(1, 1, 20),
        store(20),
        chmod(20),
        rename((1, 1), 20, (1, 2), None),
        create(1, 3, 21),
        create(1, 2, 22),
    ]);
    assert_eq!(free(&order), [1, 5]);
    assert_eq!(batch(&order, Kind::Metadata, &[]), [1, 5]);
    assert!(batch(&order, Kind::Data, &[]).is_empty());
    order.settle(1);
    assert_eq!(batch(&order, Kind::Metadata, &[]), [5]);
    assert_eq!(batch(&order, Kind::Data, &[]), [2, 3, 4, 6]);
    assert_eq!(batch(&order, Kind::Any, &[]), [2, 3, 4, 5, 6]);
    assert_eq!(order.follows(6), [(3, 2), (4, 3), (6, 4)].into());
    assert_eq!(order.follows(4), [(3, 2), (4, 3)].into());
}

/// Proves S7.4.
#[test]
fn what_is_in_a_directory_comes_after_it_and_goes_before_it() {
    let mut order = order([
        create(1, 1, 2),
        create(2, 1, 20),
        store(20),
        unlink(2, 1, 20),
        rmdir(1, 1, 2),
        create(1, 1, 3),
    ]);
    for seq in 1..=6 {
        assert_eq!(free(&order), [seq]);
        order.settle(seq);
    }
}

#[test]
fn moves_of_directories_keep_their_order_and_those_of_files_need_not() {
    let moves = |ino| [rename((1, 1), ino, (3, 1), None), rename((4, 2), ino + 1, (5, 2), None)];
    assert_eq!(free(&order(moves(6))), [1]);
    assert_eq!(free(&order(moves(20))), [1, 2]);
}

#[test]
fn what_was_not_taken_may_be_sent_again() {
    let mut order = order([create(1, 1, 20), store(20)]);
    [1, 2].into_iter().for_each(|seq| order.take(seq));
    assert!(free(&order).is_empty());
    [1, 2].into_iter().for_each(|seq| order.put_back(seq));
    assert_eq!(free(&order), [1]);
    [1, 2].into_iter().for_each(|seq| order.take(seq));
    order.settle(1);
    assert!(free(&order).is_empty(), "the other one of the batch is still under way");
    order.settle(2);
    assert!(order.nodes.is_empty() && order.users.is_empty() && free(&order).is_empty());
}

/// A git commit: objects get their names, then the branch, whose log has a line more.
/// Proves S7.7.
#[test]
fn a_process_group_gives_and_takes_names_in_order() {
    let mut order = Order::default();
    let commit = [
        (7, create(1, 1, 20)),
        (7, store(20)),
        (7, rename((1, 1), 20, (2, 1), None)),
        (7, create(1, 2, 21)),
        (7, store(21)),
        (7, rename((1, 2), 21, (3, 1), None)),
        (7, store(22)),
        (8, unlink(4, 0, 23)),
        // Those that cannot be told are one.
        (0, unlink(4, 1, 24)),
        (0, unlink(4, 2, 25)),
    ];
    for (seq, (group, change)) in (1..).zip(commit) {
        order.push(&logged(seq, group, change), |ino| ino.0 < 10);
    }
    assert_eq!(free(&order), [1, 4, 8, 9]);
    [1, 4].into_iter().for_each(|seq| order.settle(seq));
    assert_eq!(free(&order), [2, 8, 9]);
    order.settle(2);
    order.settle(3);
    assert_eq!(free(&order), [5, 8, 9]);
    order.settle(5);
    assert_eq!(free(&order), [6, 8, 9]);
    order.settle(6);
    assert_eq!(free(&order), [7, 8, 9]);
}

/// Proves S7.6.
#[test]
fn what_a_sync_covers_comes_before_what_follows_it() {
    let mut order = order([store(20), store(21), create(1, 1, 22)]);
    assert_eq!(order.last_of(Ino(1)), [3]);
    order.push(&Logged { after: After::these([1]), ..logged(4, 0, store(23)) }, |_| false);
    order.push(&Logged { after: After::Everything, ..logged(5, 0, store(24)) }, |_| false);
    assert_eq!(free(&order), [1, 2, 3]);
    order.settle(1);
    assert_eq!(free(&order), [2, 3, 4]);
    [2, 3, 4].into_iter().for_each(|seq| order.settle(seq));
    assert_eq!(free(&order), [5]);
    order.push(&Logged { after: After::these([1]), ..logged(6, 0, store(25)) }, |_| false);
    assert_eq!(free(&order), [5, 6]);
}

fn change() -> impl Strategy<Value = Change> {
    let (directory, number, file) = (1..5_u64, 0..3_u8, 20..23_u64);
    let place = || (1..5_u64, 0..3_u8);
    prop_oneof![
        (directory.clone(), number.clone(), file.clone()).prop_map(|(d, n, f)| create(d, n, f)),
        (directory.clone(), number.clone(), 2..5_u64).prop_map(|(d, n, f)| create(d, n, f)),
        (directory.clone(), number.clone(), file.clone()).prop_map(|(d, n, f)| unlink(d, n, f)),
        (directory.clone(), number, 2..5_u64).prop_map(|(d, n, f)| rmdir(d, n, f)),
        file.clone().prop_map(store),
        file.clone().prop_map(store),
        prop_oneof![directory, file.clone()].prop_map(chmod),
        (place(), prop_oneof![2..5_u64, file.clone()], place(), prop::option::of(file))
            .prop_map(|(from, ino, to, over)| rename(from, ino, to, over)),
    ]
}

/// Whether the later one follows the earlier one.
fn follows(earlier: &Logged, later: &Logged) -> bool {
    let [earlier, later] = [earlier, later].map(|logged| uses(logged, |ino| ino.0 < 10));
    let both = |(thing, how): &(Thing, How)| {
        let with = later.iter().find(|with| with.0 == *thing);
        with.is_some_and(|with| *how == How::Alone || (*how, with.1) == (How::Together, How::Alone))
    };
    earlier.iter().any(both)
}

proptest! {
    /// A change is free when no earlier one that it would collide with is left, and goes in a
    /// batch when all of those do, whatever was settled or skipped before. What is raised goes by
    /// itself, with all that it follows. What was cancelled is never free, and passes on what it
    /// follows. What somebody has, whether it was free or not, is in no batch.
    #[test]
    fn links_say_what_looking_at_all_would(
        changes in prop::collection::vec((change(), 0..3_u32), 1..30),
        choices in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..40),
        skips in prop::collection::btree_set(1..30_u64, 0..10),
        awaited in prop::collection::btree_set(1_u64..30, 0..2),
        wanted in prop::collection::btree_set(1..30_u64, 0..3),
        cancelled in prop::collection::btree_set(1..30_u64, 0..8),
        had in prop::collection::btree_set(1..30_u64, 0..4),
    ) {
        let changes: Vec<Logged> =
            (1..).zip(changes).map(|(seq, (change, group))| logged(seq, group, change)).collect();
        let mut order = Order::default();
        changes.iter().for_each(|logged| order.push(logged, |ino| ino.0 < 10));
        let mut left: BTreeSet<u64> = (1..=changes.len() as u64).collect();
        let change = |seq: u64| &changes[usize::try_from(seq).unwrap() - 1];
        let before = |left: &BTreeSet<u64>, seq: u64| -> Vec<u64> {
            let earlier = left.range(..seq).copied();
            earlier.filter(|before| follows(change(*before), change(seq))).collect()
        };
        let with_followed = |wanted: &BTreeSet<u64>| {
            let mut with: BTreeSet<u64> = wanted.intersection(&left).copied().collect();
            let mut todo: Vec<u64> = with.iter().copied().collect();
            while let Some(seq) = todo.pop() {
                todo.extend(before(&left, seq).into_iter().filter(|before| with.insert(*before)));
            }
            with
        };
        let (mut raised, pulled) = (with_followed(&wanted), with_followed(&awaited));
        prop_assert_eq!(order.raise(&wanted), raised.clone());
        prop_assert_eq!(order.pull(&awaited), pulled.clone());
        raised.extend(&pulled);
        prop_assert_eq!((order.raised(), order.pulled()), (&raised, &pulled));
        let cancelled: BTreeSet<u64> = cancelled.intersection(&left).copied().collect();
        cancelled.iter().for_each(|seq| order.cancel(*seq));
        let had: BTreeSet<u64> = had.difference(&cancelled).copied().collect();
        had.iter().for_each(|seq| order.take(*seq));
        let end_cancelled = |left: &mut BTreeSet<u64>| {
            // What it follows is older: one pass is enough.
            for seq in &cancelled {
                if before(left, *seq).is_empty() {
                    left.remove(seq);
                }
            }
        };
        end_cancelled(&mut left);
        for (choice, is_settled) in choices {
            let is_sent = |seq: &u64| !cancelled.contains(seq);
            let is_free = |seq: &u64| {
                is_sent(seq) && !had.contains(seq) && before(&left, *seq).is_empty()
            };
            let expected: Vec<u64> = left.iter().copied().filter(is_free).collect();
            prop_assert_eq!(&free(&order), &expected);
            for kind in [Kind::Any, Kind::Metadata, Kind::Data, Kind::Raised, Kind::Pulled] {
                let mut taken: Vec<u64> = Vec::new();
                for seq in left.iter().copied().filter(|seq| {
                    !skips.contains(seq) && !had.contains(seq) || !is_sent(seq)
                }) {
                    let before = before(&left, seq);
                    let is_data = matches!(change(seq).change, Change::Data(_));
                    let is_of = match kind {
                        Kind::Any => true,
                        Kind::Metadata => !is_data,
                        Kind::Data => (is_data || !before.is_empty()) && !raised.contains(&seq),
                        Kind::Raised => raised.contains(&seq) && !pulled.contains(&seq),
                        Kind::Pulled => pulled.contains(&seq),
                    };
                    if (is_of || !is_sent(&seq))
                        && before.iter().all(|before| taken.contains(before))
                    {
                        taken.push(seq);
                    }
                }
                taken.retain(is_sent);
                let skips: Vec<u64> = skips.iter().copied().collect();
                prop_assert_eq!(batch(&order, kind, &skips), taken);
            }
            let choice = choice.index(expected.len().max(1));
            let Some(seq) = expected.get(choice).copied() else { break };
            order.take(seq);
            if is_settled {
                order.settle(seq);
                left.remove(&seq);
                end_cancelled(&mut left);
            } else {
                order.put_back(seq);
            }
        }
    }
}
