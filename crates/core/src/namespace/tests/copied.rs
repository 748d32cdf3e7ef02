//! What a copy of a cache, or of a store, does to numbers.

use super::super::copied::{inherit, inherited, is_copied, retire};
use super::super::lives::{Start, admit_lost, begin, history};
use super::*;
use crate::nouns::{OpId, Version};

fn start(secs: i64) -> Start {
    Start { now: Timestamp { secs, nanos: 0 }, random: 5 }
}

fn latest(txn: &mut MapTxn, ino: Ino) -> Version {
    attr(txn, ino).data_version
}

fn next(tin: &Client, seq: u64) -> OpId {
    OpId { client: tin.id, incarnation: 1, seq }
}

/// Its next seq shows a copy that has sent less; what the other one's host has said it knows does
/// so, too.
#[test]
fn a_copy_is_known_by_its_next_seq() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    assert!(!is_copied(&mut txn, next(&tin, 1)).unwrap());
    tin.file(&mut txn, Ino::ROOT, "f");
    tin.file(&mut txn, Ino::ROOT, "g");
    assert!(is_copied(&mut txn, next(&tin, 2)).unwrap());
    assert!(!is_copied(&mut txn, next(&tin, 3)).unwrap());
    raise_floor(&mut txn, tin.id, 1, 3).unwrap();
    assert!(is_copied(&mut txn, next(&tin, 2)).unwrap());
    assert!(!is_copied(&mut txn, next(&tin, 3)).unwrap());
    assert!(!is_copied(&mut txn, OpId { incarnation: 2, ..next(&tin, 1) }).unwrap());
    retire(&mut txn, tin.id).unwrap();
    assert!(bind(&mut txn, tin.id, "identity", VOLUME, 1).unwrap().is_err());
}

/// A copy made files with the numbers that the other one used: they are other files, whatever
/// records name them by; one that is there already is not made again.
#[test]
fn numbers_that_the_other_copy_used_stand_for_other_inodes() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let directory = tin.directory(&mut txn, Ino::ROOT, "theirs");
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let mut copy = Client::new(&mut txn, 2, OWNER);
    inherit(&mut txn, next(&copy, 1), tin.id).unwrap();
    assert!(inherited(&mut txn, tin.id).unwrap().is_none());

    let free = tin.ino();
    copy.apply(&mut txn, copy.creation(Ino::ROOT, "free", free, NewNode::File));
    assert_eq!(named(&mut txn, Ino::ROOT, "free"), Some(free));

    let made = copy.stamp(copy.creation(Ino::ROOT, "ours", directory, NewNode::Directory));
    let ApplyResult::Outcome(Outcome::Conflict { parent, name, copy: ours, .. }) =
        copy.send(&mut txn, &made)
    else {
        panic!("it has the number of another one")
    };
    assert_eq!((parent, name), (Ino::ROOT, name_of("ours")));
    assert!(ours != directory);
    // Below it, and about it.
    let inside = copy.ino();
    copy.apply(&mut txn, copy.creation(directory, "inside", inside, NewNode::File));
    assert_eq!(named(&mut txn, ours, "inside"), Some(inside));
    assert_eq!(named(&mut txn, directory, "inside"), None);
    let moved =
        rename((Ino::ROOT, "ours"), directory, (Ino::ROOT, "moved"), RenameMode::Replace(None));
    copy.apply(&mut txn, moved);
    assert_eq!(named(&mut txn, Ino::ROOT, "moved"), Some(ours));
    assert_eq!(named(&mut txn, Ino::ROOT, "theirs"), Some(directory));

    // The other copy has sent this one already.
    let again = copy.stamp(copy.creation(Ino::ROOT, "file", file, NewNode::File));
    let result = copy.send(&mut txn, &again);
    assert!(matches!(result, ApplyResult::Outcome(Outcome::Done { .. })), "{result:?}");
    assert_eq!(named(&mut txn, Ino::ROOT, "file"), Some(file));

    // It did not send this one, which has its name and number by chance.
    let other = copy.stamp(copy.creation(Ino::ROOT, "file", file, NewNode::Directory));
    let result = copy.send(&mut txn, &other);
    assert!(matches!(result, ApplyResult::Outcome(Outcome::Conflict { .. })), "{result:?}");
    assert_eq!(named(&mut txn, Ino::ROOT, "file"), Some(file));

    // And now this one's number is in the way of the first.
    let clash = tin.stamp(tin.creation(Ino::ROOT, "clash", free, NewNode::File));
    assert_eq!(tin.send(&mut txn, &clash), ApplyResult::Cloned);
}

/// A client names its own file by the number of another inode until it says that this is over.
/// Then it names the other inode, as does a later copy of it, which knows nothing of that file.
#[test]
fn a_number_that_was_released_is_the_other_inodes() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let theirs = tin.file(&mut txn, Ino::ROOT, "theirs");
    let mut copy = Client::new(&mut txn, 2, OWNER);
    inherit(&mut txn, next(&copy, 1), tin.id).unwrap();
    let made = copy.stamp(copy.creation(Ino::ROOT, "ours", theirs, NewNode::File));
    let result = copy.send(&mut txn, &made);
    assert!(matches!(result, ApplyResult::Outcome(Outcome::Conflict { .. })), "{result:?}");
    let ours = named(&mut txn, Ino::ROOT, "ours").unwrap();
    assert_eq!(named_by(&mut copy, &mut txn, theirs), ours);

    let chmod = |client: &mut Client, txn: &mut MapTxn, seq| {
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let chmod = client.stamp(Record::SetAttr { ino: theirs, set });
        let ApplyResult::Outcome(outcome) = client.send(txn, &Stamped { seq, ..chmod }) else {
            panic!("it has an outcome")
        };
        outcome.touched()[0].ino
    };
    let mut later = Client::new(&mut txn, 3, OWNER);
    inherit(&mut txn, next(&later, 50), copy.id).unwrap();
    assert_eq!(chmod(&mut later, &mut txn, 49), ours);
    assert_eq!(chmod(&mut later, &mut txn, 50), theirs);

    copy.apply(&mut txn, Record::Release { ino: theirs });
    assert_eq!(named_by(&mut copy, &mut txn, theirs), theirs);
    assert_eq!(attr(&mut txn, ours).nlink, 1);
}

/// Nobody inherits from somebody else's host.
#[test]
fn numbers_of_another_identity_are_not_inherited() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let mut thief = Client::new(&mut txn, 2, OWNER);
    let other = ClientId([3; 16]);
    bind(&mut txn, other, "another identity", VOLUME, 1).unwrap().unwrap();
    inherit(&mut txn, OpId { client: other, ..next(&tin, 1) }, tin.id).unwrap();
    assert!(inherited(&mut txn, other).unwrap().is_none());
    assert_gets_another(&mut txn, &mut thief, tin.ino());
    let made = tin.file(&mut txn, Ino::ROOT, "mine");
    assert_eq!(named(&mut txn, Ino::ROOT, "mine"), Some(made), "the number was still free");
}

/// `client` makes a file under a number that it was not granted, and gets another one.
fn assert_gets_another(txn: &mut MapTxn, client: &mut Client, number: Ino) {
    let stolen = client.stamp(client.creation(Ino::ROOT, "f", number, NewNode::File));
    let result = client.send(txn, &stolen);
    let ApplyResult::Outcome(Outcome::Conflict { copy, .. }) = result else {
        panic!("{result:?}");
    };
    assert_ne!(copy, number);
    assert_eq!((named(txn, Ino::ROOT, "f"), named_by(client, txn, number)), (Some(copy), copy));
}

/// The inode that the size of `number` is of, as `client` calls it.
fn named_by(client: &mut Client, txn: &mut MapTxn, number: Ino) -> Ino {
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let outcome = client.apply(txn, Record::SetAttr { ino: number, set });
    outcome.touched().first().unwrap().ino
}

/// A server that was put back knows nothing of the grant from which a host made a file. The file
/// had become a refused change.
#[test]
fn a_number_of_which_the_server_knows_nothing_stands_for_another() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    assert_gets_another(&mut txn, &mut tin, Ino(1 << 40));
}

/// Whatever is put back, and however often: no version is given twice, and each host is told which
/// ones there are.
#[test]
fn versions_of_a_store_that_was_put_back_are_given_once() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let old = latest(&mut txn, f);
    let copy = txn.clone();
    let mut given = vec![old];
    for secs in [1_800_000_000, 1_800_000_007, 1_800_000_900] {
        let mut txn = copy.clone();
        begin(&mut txn, start(secs)).unwrap();
        let mut tin = Client::new(&mut txn, 9, OWNER);
        for name in ["g", "h"] {
            let made = tin.file(&mut txn, Ino::ROOT, name);
            let version = latest(&mut txn, made);
            assert!(!given.contains(&version), "{version} twice");
            assert_eq!(history(&mut txn, VOLUME, version).unwrap(), None);
            given.push(version);
        }
        assert_eq!(history(&mut txn, VOLUME, old).unwrap(), None);
        for version in given.iter().filter(|version| version.counter > old.counter) {
            let told = history(&mut txn, VOLUME, *version).unwrap();
            let is_own = given.iter().rev().take(2).any(|own| own == version);
            assert_eq!(told.is_none(), is_own, "{version}");
            if let Some(told) = told {
                assert!(told.has(old) && !told.has(*version) && told.has(Version::default()));
                let before = volume(&mut txn, VOLUME).unwrap().unwrap().lost.len();
                admit_lost(&mut txn, VOLUME, *version).unwrap();
                admit_lost(&mut txn, VOLUME, *version).unwrap();
                let after = volume(&mut txn, VOLUME).unwrap().unwrap().lost.len();
                assert!(after <= before + 1);
            }
        }
    }
    // Of a restored volume, whose epoch is another one.
    let told = history(&mut txn, VOLUME, Version { epoch: 2, counter: 1 }).unwrap();
    assert!(told.is_some());
}

/// A number that a host was granted before the store was put back is its own still, and those that
/// are granted from then on are others.
#[test]
fn inode_numbers_of_a_lost_history_are_nobody_elses() {
    let mut txn = store();
    Client::new(&mut txn, 1, OWNER);
    let mut copy = txn.clone();
    let mut lost = Client::new(&mut txn, 2, OWNER);
    let f = lost.file(&mut txn, Ino::ROOT, "f");
    let known = latest(&mut txn, f);
    begin(&mut copy, start(1_800_000_000)).unwrap();
    let mut new = Client::new(&mut copy, 3, OWNER);
    let g = new.file(&mut copy, Ino::ROOT, "g");
    bind(&mut copy, lost.id, "identity", VOLUME, 1).unwrap().unwrap();
    let g2 = lost.ino();
    assert!(g != f && g != g2);
    let create = lost.stamp(lost.creation(Ino::ROOT, "kept", g2, NewNode::File));
    admit_lost(&mut copy, VOLUME, known).unwrap();
    let result = lost.send(&mut copy, &create);
    assert!(matches!(result, ApplyResult::Outcome(Outcome::Done { .. })), "{result:?}");
}

/// A directory that was stopped is copied, serves, is put back, and serves: both lives granted the
/// same numbers (seed 450 with copies). Those of the lost life are its host's own still.
#[test]
fn lives_of_two_copies_grant_different_inode_numbers() {
    let mut txn = store();
    Client::new(&mut txn, 1, OWNER);
    let mut copy = txn.clone();
    let mut known = Version::default();
    let mut hosts = Vec::new();
    for (number, secs) in [(2, 1_800_000_000), (3, 1_800_000_100)] {
        begin(&mut txn, start(secs)).unwrap();
        let mut lost = Client::new(&mut txn, number, OWNER);
        let f = lost.file(&mut txn, Ino::ROOT, &format!("f{number}"));
        known = latest(&mut txn, f);
        hosts.push(lost);
    }
    begin(&mut copy, start(1_800_000_200)).unwrap();
    let mut new = Client::new(&mut copy, 4, OWNER);
    let first = new.ino();
    for (at, lost) in hosts.iter_mut().enumerate() {
        let ino = lost.ino();
        assert!(ino < first, "{ino} is granted again");
        bind(&mut copy, lost.id, "identity", VOLUME, 1).unwrap().unwrap();
        admit_lost(&mut copy, VOLUME, known).unwrap();
        let create = lost.stamp(lost.creation(Ino::ROOT, &format!("kept{at}"), ino, NewNode::File));
        let result = lost.send(&mut copy, &create);
        assert!(matches!(result, ApplyResult::Outcome(Outcome::Done { .. })), "{result:?}");
    }
}

/// Both copies of a host made a file under a number that the server has forgotten to have granted
/// (seed 3000869 with copies).
#[test]
fn a_forgotten_number_that_two_copies_use_is_two_files() {
    let mut txn = store();
    Client::new(&mut txn, 1, OWNER);
    let mut put_back = txn.clone();
    begin(&mut txn, start(1_800_000_000)).unwrap();
    let mut tin = Client::new(&mut txn, 2, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let known = latest(&mut txn, f);
    begin(&mut put_back, start(1_800_000_100)).unwrap();
    let mut copy = Client::new(&mut put_back, 3, OWNER);
    bind(&mut put_back, tin.id, "identity", VOLUME, 1).unwrap().unwrap();
    admit_lost(&mut put_back, VOLUME, known).unwrap();
    let ino = tin.ino();
    let first = tin.stamp(tin.creation(Ino::ROOT, "g", ino, NewNode::File));
    let result = tin.send(&mut put_back, &first);
    assert!(matches!(result, ApplyResult::Outcome(Outcome::Done { .. })), "{result:?}");
    let second = copy.stamp(copy.creation(Ino::ROOT, "h", ino, NewNode::File));
    let ApplyResult::Outcome(Outcome::Conflict { copy: other, name, .. }) =
        copy.send(&mut put_back, &second)
    else {
        panic!("the number is another file's");
    };
    assert_eq!((name, named(&mut put_back, Ino::ROOT, "h")), (name_of("h"), Some(other)));
    // A further copy of that one sends the same again, and is told the same number.
    let third = Client::new(&mut put_back, 4, OWNER);
    inherit(&mut put_back, next(&third, 2), copy.id).unwrap();
    let mut third = third;
    let again = third.stamp(third.creation(Ino::ROOT, "h", ino, NewNode::File));
    let ApplyResult::Outcome(Outcome::Conflict { copy: told, .. }) =
        third.send(&mut put_back, &again)
    else {
        panic!("it is told the other number");
    };
    assert_eq!(told, other);
}
