//! What cancels out, and what does not.

use super::*;
use crate::host::log::After;
use crate::nouns::{Name, NewNode, RenameMode};

fn record(record: Record) -> Change {
    Change::Record(record)
}

fn create(name: &str, ino: u64) -> Change {
    let (parent, name, ino) = (Ino(1), Name::new(name).unwrap(), Ino(ino));
    let node = NewNode::File;
    record(Record::Create { parent, name, ino, node, mode: 0o644, uid: 0, gid: 0 })
}

fn link(name: &str, ino: u64) -> Change {
    record(Record::Link { parent: Ino(1), name: Name::new(name).unwrap(), ino: Ino(ino) })
}

fn unlink(name: &str, ino: u64) -> Change {
    let (parent, name, ino) = (Ino(1), Name::new(name).unwrap(), Ino(ino));
    record(Record::Unlink { parent, name, ino, open: false })
}

fn rename(from: &str, ino: u64, to: &str, over: Option<u64>) -> Change {
    record(Record::Rename {
        from_parent: Ino(1),
        from_name: Name::new(from).unwrap(),
        ino: Ino(ino),
        to_parent: Ino(1),
        to_name: Name::new(to).unwrap(),
        mode: RenameMode::Replace(over.map(Ino)),
        open: false,
    })
}

fn data(ino: u64) -> Change {
    store_of(1, ino, 1).change
}

/// One change after the other, each following what is said of it.
fn logged(changes: impl IntoIterator<Item = (Change, Vec<u64>)>) -> Queue {
    let logged = |(seq, (change, after))| {
        let after = After::these(after);
        Logged { change, after, ..store(seq, 0) }
    };
    queue((1..).zip(changes).map(logged))
}

fn plain(changes: impl IntoIterator<Item = Change>) -> Queue {
    logged(changes.into_iter().map(|change| (change, Vec::new())))
}

fn cancelled(queue: &Queue, ino: u64) -> Option<Vec<u64>> {
    queue.cancel_out(Ino(ino)).map(|seqs| seqs.into_iter().collect())
}

/// Proves S8.1.
#[test]
fn what_was_made_and_removed_cancels_out() {
    let queue =
        plain([create("a", 5), data(5), create("b", 6), chmod(4, 5).change, unlink("a", 5)]);
    assert_eq!(cancelled(&queue, 5), Some(vec![1, 2, 4, 5]));
    assert_eq!(cancelled(&queue, 6), None, "it is there");
    let named_twice = [create("a", 5), link("b", 5), rename("a", 5, "c", None), unlink("c", 5)];
    assert_eq!(cancelled(&plain(named_twice.clone()), 5), None);
    let queue = plain(named_twice.into_iter().chain([unlink("b", 5)]));
    assert_eq!(cancelled(&queue, 5), Some(vec![1, 2, 3, 4, 5]));
}

/// The store of each new file was taken back first, which was one more entry of the log.
#[test]
fn a_new_file_cancels_out_with_its_name_as_long_as_nothing_else_follows_it() {
    let makes = [create("a", 5), data(5), create("b", 6), chmod(4, 5).change];
    let mut queue = plain(makes.clone());
    assert!(queue.is_new_with_one_name(Ino(5)) && queue.is_new_with_one_name(Ino(6)));
    assert!(!queue.is_new_with_one_name(Ino(1)) && !queue.is_new_with_one_name(Ino(7)));
    queue.take(1);
    assert!(!queue.is_new_with_one_name(Ino(5)), "it is being sent");
    let other_names = [vec![link("c", 5)], vec![unlink("a", 5)]];
    for others in other_names {
        let queue = plain(makes.clone().into_iter().chain(others));
        assert!(!queue.is_new_with_one_name(Ino(5)));
    }
    assert!(!plain([data(5)]).is_new_with_one_name(Ino(5)), "the server has it");
    let nothing = Vec::new;
    let followed = [(create("a", 5), nothing()), (data(5), nothing()), (data(6), vec![2])];
    assert!(!logged(followed.clone()).is_new_with_one_name(Ino(5)));
    // As it would turn out.
    let removed = logged(followed.into_iter().chain([(unlink("a", 5), vec![3])]));
    assert_eq!(cancelled(&removed, 5), None);
}

#[test]
fn what_the_server_may_have_or_what_is_about_others_too_does_not() {
    assert_eq!(cancelled(&plain([data(5), unlink("a", 5)]), 5), None);
    let replaces = [create("a", 5), rename("a", 5, "b", Some(7)), unlink("b", 5)];
    assert_eq!(cancelled(&plain(replaces), 5), None);
    let replaced = [create("a", 5), create("b", 6), rename("b", 6, "a", Some(5))];
    assert_eq!(cancelled(&plain(replaced), 5), None);
    let mut queue = plain([create("a", 5), data(5), unlink("a", 5)]);
    queue.take(1);
    assert_eq!(cancelled(&queue, 5), None, "it is in a batch");
    queue.put_back(1);
    assert!(cancelled(&queue, 5).is_some());
    queue.take(1);
    queue.mark_sending(1, Time::default());
    queue.put_back(1);
    assert_eq!(cancelled(&queue, 5), None, "it was sent once");
}

/// A database and its journal: the server never has the database without the journal.
/// Proves S8.5.
#[test]
fn nothing_cancels_out_around_what_has_to_go_in_between() {
    let journal = |after: [Vec<u64>; 2]| {
        let [database, removal] = after;
        let changes = [create("j", 5), data(5), data(6), unlink("j", 5)];
        logged(changes.into_iter().zip([vec![], vec![], database, removal]))
    };
    assert_eq!(cancelled(&journal([vec![2], vec![3]]), 5), None);
    // A sync before the removal alone, or behind what was written alone, parts nothing.
    assert_eq!(cancelled(&journal([vec![2], vec![]]), 5), Some(vec![1, 2, 4]));
    assert_eq!(cancelled(&journal([vec![], vec![3]]), 5), Some(vec![1, 2, 4]));
    // Nor may there be somebody between whom the other two know only by a third.
    let by_way = [create("j", 5), data(5), data(6), data(7), unlink("j", 5)];
    let queue = logged(by_way.into_iter().zip([vec![], vec![], vec![2], vec![3], vec![4]]));
    assert_eq!(cancelled(&queue, 5), None);
}

/// What lies between and is not sent either is nothing.
/// Proves S8.1.
#[test]
fn a_tree_cancels_out_from_its_leaves() {
    let mkdir = |parent: u64, name: &str, ino: u64| {
        let (parent, name, ino) = (Ino(parent), Name::new(name).unwrap(), Ino(ino));
        let node = NewNode::Directory;
        record(Record::Create { parent, name, ino, node, mode: 0o755, uid: 0, gid: 0 })
    };
    let rmdir = |parent: u64, name: &str, ino: u64| {
        let (parent, name, ino) = (Ino(parent), Name::new(name).unwrap(), Ino(ino));
        record(Record::Rmdir { parent, name, ino })
    };
    let tree = [mkdir(1, "d", 2), mkdir(2, "e", 3), rmdir(2, "e", 3), rmdir(1, "d", 2)];
    let mut queue = plain(tree);
    assert_eq!(cancelled(&queue, 2), None);
    for (ino, expected) in [(3, vec![2, 3]), (2, vec![1, 4])] {
        let seqs = cancelled(&queue, ino).unwrap();
        assert_eq!(seqs, expected);
        seqs.into_iter().for_each(|seq| drop(queue.cancel(seq)));
    }
    assert!(queue.is_empty() && queue.take_ended().len() == 4);
}

/// A large directory, all of whose files were made and removed.
#[test]
fn what_was_cancelled_is_looked_through() {
    let files = 10..3_010_u64;
    let name = |ino: u64| Name::new(format!("f{ino}")).unwrap();
    let (parent, directory) = (Ino(2), Name::new("d").unwrap());
    let node = NewNode::Directory;
    let (ino, mode) = (parent, 0o755);
    let made =
        Record::Create { parent: Ino(1), name: directory.clone(), ino, node, mode, uid: 0, gid: 0 };
    let node = NewNode::File;
    let create = |ino| {
        let (name, node, ino) = (name(ino), node.clone(), Ino(ino));
        record(Record::Create { parent, name, ino, node, mode: 0o644, uid: 0, gid: 0 })
    };
    let unlink = |ino| {
        let (name, ino) = (name(ino), Ino(ino));
        record(Record::Unlink { parent, name, ino, open: false })
    };
    let gone = record(Record::Rmdir { parent: Ino(1), name: directory, ino });
    let within = files.clone().map(create).chain(files.clone().map(unlink));
    let mut queue = plain([record(made)].into_iter().chain(within).chain([gone]));
    for ino in files.chain([2]) {
        let seqs = queue.cancel_out(Ino(ino)).unwrap();
        seqs.into_iter().for_each(|seq| drop(queue.cancel(seq)));
    }
    assert!(queue.is_empty());
}

#[test]
fn data_are_part_of_what_waits_unless_something_lies_between() {
    let amends = |changes: Vec<(Change, Vec<u64>)>, after: &[u64]| {
        let after = After::these(after.iter().copied());
        logged(changes).to_amend(Ino(5), &Caller::default(), &after)
    };
    let none = Vec::new;
    assert_eq!(amends(vec![(data(5), none())], &[]), Some(1));
    assert_eq!(amends(vec![(data(5), none())], &[1]), Some(1), "a sync of what it was");
    assert_eq!(amends(vec![(data(5), none()), (data(6), vec![1])], &[1]), Some(1));
    // It comes after a sync of something that came after.
    assert_eq!(amends(vec![(data(5), none()), (data(6), none())], &[2]), None);
    assert_eq!(amends(vec![(data(6), none()), (data(5), none())], &[1]), None);
    assert_eq!(amends(vec![(data(6), none()), (data(5), vec![1])], &[1]), Some(2));
    // Others use the file, or its process group has given a name since.
    assert_eq!(amends(vec![(data(5), none()), (chmod(2, 5).change, none())], &[]), None);
    assert_eq!(amends(vec![(data(5), none()), (unlink("b", 7), none())], &[]), None);
    assert_eq!(amends(vec![(create("a", 5), none())], &[]), None);
    let left = Logged { change: data(5), known: Some(Base::Result(0)), ..store(1, 0) };
    assert_eq!(queue([left]).to_amend(Ino(5), &Caller::default(), &After::Nothing), None);
    let mut queue = plain([data(5)]);
    let other = Caller { uid: 7, ..Caller::default() };
    assert_eq!(queue.to_amend(Ino(5), &other, &After::Nothing), None);
    queue.take(1);
    queue.mark_sending(1, Time::default());
    queue.put_back(1);
    assert_eq!(queue.to_amend(Ino(5), &Caller::default(), &After::Nothing), None);
}

#[test]
fn what_is_part_of_a_change_is_counted_with_it() {
    let mut queue = plain([data(5)]);
    let Change::Data(mut later) = data(5) else { panic!("data") };
    later.ranges = vec![0..INLINE_MAX as u64 + 1];
    let before = queue.amend(1, Timestamp::default(), &later).unwrap();
    assert_eq!((before.ranges.len(), queue.bytes()), (1, INLINE_MAX as u64 + 1));
    assert_eq!(seqs(queue.batch_of(Lane::Data, 9, 1 << 20, |_| Fit::Takes(0))), [1]);
    queue.settle(1);
    assert_eq!(queue.bytes(), 0);
}

#[test]
fn a_store_that_something_follows_is_not_taken_back() {
    assert_eq!(plain([create("a", 5), data(5)]).to_unseal(Ino(5)), Some(2));
    assert_eq!(plain([create("a", 5)]).to_unseal(Ino(5)), None);
    assert_eq!(plain([data(5), rename("a", 5, "b", None)]).to_unseal(Ino(5)), None);
    let synced = logged([(data(5), vec![]), (data(6), vec![1])]);
    assert_eq!((synced.to_unseal(Ino(5)), synced.to_unseal(Ino(6))), (None, Some(2)));
}

/// As part of a later store the server would take it for a change that nothing can outdate.
#[test]
fn a_store_that_may_be_outdated_is_not_taken_back() {
    let mut queue = Queue::default();
    let known = Some(Base::Version(Version::default()));
    let Change::Data(store) = data(5) else { panic!("data") };
    let store = Logged { known, ..store.logged(1, Caller::default()) };
    queue.push(store, Time::default(), |_| false);
    assert_eq!(queue.to_unseal(Ino(5)), None);
}

#[test]
fn what_follows_what_was_cancelled_follows_what_that_followed() {
    let changes = [data(7), create("a", 5), unlink("a", 5), data(8)];
    let mut queue = logged(changes.into_iter().zip([vec![], vec![], vec![1], vec![3]]));
    let seqs = cancelled(&queue, 5).unwrap();
    assert_eq!(seqs, [2, 3]);
    for seq in seqs {
        assert_eq!(queue.cancel(seq).map(|logged| logged.seq), Some(seq));
        assert_eq!(queue.stage(seq), None);
    }
    assert_eq!((queue.len(), queue.newest_of(Ino(5))), (2, None));
    assert!(queue.is_cancelled(3) && !queue.is_cancelled(2));
    assert_eq!(queue.take_ended(), [2]);
    assert_eq!(seqs_of(&queue), [1, 4], "in this order, in one batch");
    queue.take(1);
    assert!(seqs_of(&queue).is_empty());
    queue.settle(1);
    assert_eq!((seqs_of(&queue), queue.take_ended()), (vec![4], vec![3]));
}

fn seqs_of(queue: &Queue) -> Vec<u64> {
    seqs(queue.batch(99, 1 << 20))
}

/// What is left of many files is one time of their directory.
/// Proves S8.4.
#[test]
fn a_directory_has_one_time_of_what_was_cancelled() {
    let when = |secs| {
        let mtime = Some(Timestamp { secs, nanos: 0 });
        let set = SetAttr { mtime, times_now: true, ..SetAttr::default() };
        record(Record::SetAttr { ino: Ino(1), set })
    };
    let mut queue = plain([create("a", 5), create("b", 6), when(1), unlink("b", 6)]);
    assert_eq!(cancelled(&queue, 6), Some(vec![2, 3, 4]));
    queue.take(3);
    queue.mark_sending(3, Time::default());
    assert_eq!(cancelled(&queue, 6), None, "it may be there");
    let queue = plain([create("b", 6), when(1), create("kept", 7), unlink("b", 6)]);
    assert_eq!(cancelled(&queue, 6), None, "the time comes before what was made then");
}

/// What was written last was missing on the server: a batch that took what the store follows took
/// the store, too, as it was before it was amended.
#[test]
fn what_is_being_amended_goes_in_no_batch_with_what_it_follows() {
    let mut queue = plain([create("a", 5), data(5), chmod(3, 5).change]);
    queue.take(2);
    assert_eq!(seqs(queue.batch(9, 999)), [1]);
    queue.put_back(2);
    assert_eq!(seqs(queue.batch(9, 999)), [1, 2, 3]);
}

/// All later batches went before other classes for as long as the process lived.
#[test]
fn what_cancelled_out_is_not_on_its_way_when_it_is_pushed() {
    let mut queue = plain([create("a", 5), data(5), chmod(3, 5).change]);
    queue.cancel(2);
    let raised = queue.raise(&BTreeSet::from([3]), &BTreeSet::new());
    assert_eq!((raised, queue.raised_late(&[1, 2, 3])), (BTreeSet::from([1, 2, 3]), None));
    queue.check_invariants();
}
