//! Nothing that two hosts did is lost.

use super::*;
use crate::namespace::rows::OutcomeRow;
use crate::nouns::Version;

/// Two owners' hosts on one volume.
fn two() -> (MapTxn, Client, Client) {
    let mut txn = store();
    let (a, b) = (Client::new(&mut txn, 1, OWNER), Client::new(&mut txn, 2, OWNER));
    (txn, a, b)
}

fn copy_of(outcome: Outcome) -> (Ino, String, Ino) {
    match outcome {
        Outcome::Conflict { parent, name, copy, touched } => {
            assert!(touched.iter().any(|attr| attr.ino == copy));
            (parent, name.to_string(), copy)
        }
        other => panic!("{other:?}"),
    }
}

/// Proves S9.7.
#[test]
fn a_create_under_a_taken_name_stands_beside_it() {
    let (mut txn, mut a, mut b) = two();
    let first = a.file(&mut txn, Ino::ROOT, "f");
    for node in [NewNode::File, NewNode::Directory, NewNode::Symlink(b"x".to_vec())] {
        let ino = b.ino();
        let record = b.creation(Ino::ROOT, "f", ino, node);
        let (parent, name, copy) = copy_of(b.apply(&mut txn, record));
        assert_eq!((parent, copy), (Ino::ROOT, ino));
        assert!(name.starts_with("f.conflict-tin-20261121-0840"), "{name}");
        assert_eq!(named(&mut txn, Ino::ROOT, &name), Some(ino));
    }
    assert_eq!(named(&mut txn, Ino::ROOT, "f"), Some(first));
}

#[test]
fn copies_of_one_second_have_different_names() {
    let (mut txn, mut a, mut b) = two();
    a.file(&mut txn, Ino::ROOT, "f");
    let names: Vec<_> = (0..3)
        .map(|_| {
            let ino = b.ino();
            let mut stamped = b.stamp(b.creation(Ino::ROOT, "f", ino, NewNode::File));
            stamped.time = Timestamp::default();
            match b.send(&mut txn, &stamped) {
                ApplyResult::Outcome(outcome) => copy_of(outcome).1,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let name = "f.conflict-tin-19700101-000000";
    assert_eq!(names, [name.to_owned(), format!("{name}-2"), format!("{name}-3")]);
}

/// Proves S9.12.
#[test]
fn a_rename_onto_somebody_elses_file_keeps_both() {
    let (mut txn, mut a, mut b) = two();
    let ours = b.file(&mut txn, Ino::ROOT, "new");
    let theirs = a.file(&mut txn, Ino::ROOT, "f");
    let record = rename((Ino::ROOT, "new"), ours, (Ino::ROOT, "f"), RenameMode::Replace(None));
    let (_, name, copy) = copy_of(b.apply(&mut txn, record));
    assert_eq!(copy, ours);
    assert_eq!(named(&mut txn, Ino::ROOT, &name), Some(ours));
    assert_eq!(named(&mut txn, Ino::ROOT, "f"), Some(theirs));
    assert_eq!(named(&mut txn, Ino::ROOT, "new"), None);
}

/// A rename replaces what its host knew, or has made itself, as a store does.
/// Proves S9.12.
#[test]
fn a_rename_replaces_no_data_that_its_host_has_not_seen() {
    let (mut txn, mut a, mut b) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    let old = version(&mut txn, f);
    a.apply(&mut txn, whole(f, old, b"theirs"));
    let now = version(&mut txn, f);
    let mut replace = |txn: &mut MapTxn, known| {
        let new = b.file(txn, Ino::ROOT, "new");
        let mode = RenameMode::Replace(Some(f));
        let record = rename((Ino::ROOT, "new"), new, (Ino::ROOT, "f"), mode);
        (new, b.apply_knowing(txn, record, known))
    };
    let (new, outcome) = replace(&mut txn, old);
    let (parent, name, copy) = copy_of(outcome);
    assert!((parent, copy) == (Ino::ROOT, new) && name.starts_with("f.conflict-tin-"), "{name}");
    assert_eq!(
        (named(&mut txn, Ino::ROOT, "f"), named(&mut txn, Ino::ROOT, "new")),
        (Some(f), None)
    );
    assert_eq!(content(&mut txn, f), b"theirs");
    let (new, outcome) = replace(&mut txn, now);
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    assert_eq!(named(&mut txn, Ino::ROOT, "f"), Some(new));
}

/// Who removes a file while he is apart means what he has seen of it.
/// Proves S9.9, S9.10.
#[test]
fn a_file_that_was_changed_meanwhile_is_not_removed() {
    let (mut txn, mut a, mut b) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    let old = version(&mut txn, f);
    a.apply(&mut txn, whole(f, old, b"theirs"));
    let remove = || unlink(Ino::ROOT, "f", f, false);
    let kept = b.apply_knowing(&mut txn, remove(), old);
    assert_eq!(kept, refused(Refusal::Changed));
    assert_eq!(content(&mut txn, f), b"theirs");
    // Another name of it is no loss.
    a.apply(&mut txn, Record::Link { ino: f, parent: Ino::ROOT, name: name_of("g") });
    let gone = b.apply_knowing(&mut txn, unlink(Ino::ROOT, "g", f, false), old);
    assert!(matches!(gone, Outcome::Done { .. }), "{gone:?}");
    // What he has written himself he has seen.
    let base = version(&mut txn, f);
    b.apply(&mut txn, whole(f, base, b"ours"));
    let seq = b.seq;
    let gone = b.apply_knowing(&mut txn, remove(), Base::Result(seq));
    assert!(matches!(gone, Outcome::Done { .. }), "{gone:?}");
    assert_eq!(named(&mut txn, Ino::ROOT, "f"), None);
}

/// Proves S9.15.
#[test]
fn what_is_made_in_a_directory_that_is_gone_is_kept() {
    let (mut txn, mut a, mut b) = two();
    let d = a.directory(&mut txn, Ino::ROOT, "d");
    a.apply(&mut txn, Record::Rmdir { parent: Ino::ROOT, name: name_of("d"), ino: d });
    let (file, sub) = (b.ino(), b.ino());
    let (shelter, name, copy) = {
        let record = b.creation(d, "f", file, NewNode::File);
        copy_of(b.apply(&mut txn, record))
    };
    assert!(copy == file && name.starts_with("f.conflict-tin-"), "{name}");
    let all = named(&mut txn, Ino::ROOT, ".segue-conflicts").unwrap();
    assert_eq!(named(&mut txn, all, "tin"), Some(shelter));
    let seq = b.seq;
    let stored = b.apply(&mut txn, whole(file, Base::Result(seq), b"ours"));
    assert!(matches!(stored, Outcome::Done { .. }), "{stored:?}");
    assert_eq!(content(&mut txn, file), b"ours");
    // What is in it stays in it.
    let record = b.creation(d, "sub", sub, NewNode::Directory);
    copy_of(b.apply(&mut txn, record));
    let inner = b.file(&mut txn, sub, "inner");
    assert_eq!(named(&mut txn, sub, "inner"), Some(inner));
}

#[test]
fn a_name_that_means_something_else_is_not_removed() {
    let (mut txn, mut a, mut b) = two();
    let old = a.file(&mut txn, Ino::ROOT, "f");
    a.apply(&mut txn, unlink(Ino::ROOT, "f", old, false));
    let gone = b.apply(&mut txn, unlink(Ino::ROOT, "f", old, false));
    assert!(matches!(gone, Outcome::Done { touched } if touched[0].ino == Ino::ROOT));
    let new = a.file(&mut txn, Ino::ROOT, "f");
    assert_eq!(b.apply(&mut txn, unlink(Ino::ROOT, "f", old, false)), refused(Refusal::Changed));
    assert_eq!(named(&mut txn, Ino::ROOT, "f"), Some(new));
}

/// Proves S9.2, S9.5.
#[test]
fn stores_from_one_state_keep_both_and_later_ones_follow_the_copy() {
    let (mut txn, mut a, mut b) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, f);
    a.apply(&mut txn, whole(f, base, b"theirs"));
    assert_eq!(b.apply(&mut txn, splice(f, base, 0, b"o", 1)), Outcome::NeedsWhole);
    let (parent, name, copy) = copy_of(b.apply(&mut txn, whole(f, base, b"ours")));
    assert_eq!(
        (content(&mut txn, f), content(&mut txn, copy)),
        (b"theirs".to_vec(), b"ours".to_vec())
    );
    assert_eq!(named(&mut txn, parent, &name), Some(copy));
    assert_eq!(attr(&mut txn, copy).mode, attr(&mut txn, f).mode);

    let seq = b.seq;
    raise_floor(&mut txn, b.id, 1, seq + 1).unwrap();
    b.apply(&mut txn, splice(f, Base::Result(seq), 4, b"!", 5));
    raise_floor(&mut txn, b.id, 1, seq + 2).unwrap();
    b.apply(&mut txn, splice(f, Base::Result(seq + 1), 5, b"!", 6));
    assert_eq!(content(&mut txn, copy), b"ours!!");
    assert_eq!(content(&mut txn, f), b"theirs");
}

#[test]
fn pipelined_stores_do_not_conflict_with_each_other() {
    let (mut txn, mut a, _) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    for at in 0..5u64 {
        let record = splice(f, Base::Result(a.seq), at, &[b'0' + at as u8], at + 1);
        assert!(matches!(a.apply(&mut txn, record), Outcome::Done { .. }));
        // The outcome of a base may be forgotten before the store that was made from it comes.
        raise_floor(&mut txn, a.id, 1, a.seq + 1).unwrap();
    }
    assert_eq!(content(&mut txn, f), b"01234");
}

/// What two hosts did alike is no conflict, whatever it was made from and however it was cut; and
/// each of them goes on from it.
/// Proves S9.6.
#[test]
fn who_stores_what_is_there_already_is_in_no_conflict() {
    let (mut txn, mut a, mut b) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, f);
    a.apply(&mut txn, splice(f, base, 0, b"sa", 2));
    a.apply(&mut txn, splice(f, Base::Result(a.seq), 2, b"me", 4));
    let (theirs, theirs_seq) = (version(&mut txn, f), a.seq);
    assert_eq!(b.apply(&mut txn, splice(f, base, 0, b"same", 4)), Outcome::NeedsWhole);
    let other = copy_of(b.apply(&mut txn, whole(f, base, b"sane"))).1;
    assert!(other.starts_with("f.conflict-tin-"));
    let same = b.apply(&mut txn, whole(f, base, b"same"));
    let seq = b.seq;
    let Outcome::Done { touched } = same else { panic!("{same:?}") };
    assert_eq!((touched.len(), touched[0].ino), (1, f));
    assert_eq!(version(&mut txn, f), theirs, "nobody has to fetch it again");
    // Either goes on from what both made, and who comes second is in conflict then.
    let both = txn.clone();
    let went_on = b.apply(&mut txn, splice(f, Base::Result(seq), 4, b"!", 5));
    assert!(matches!(went_on, Outcome::Done { .. }), "{went_on:?}");
    assert_eq!(content(&mut txn, f), b"same!");
    let mut txn = both;
    let went_on = a.apply(&mut txn, splice(f, Base::Result(theirs_seq), 4, b"?", 5));
    assert!(matches!(went_on, Outcome::Done { .. }), "{went_on:?}");
    assert_eq!(content(&mut txn, f), b"same?");
}

/// Proves S6.19, S9.13.
#[test]
fn a_store_to_a_removed_file_is_kept() {
    let (mut txn, mut a, mut b) = two();
    let d = a.directory(&mut txn, Ino::ROOT, "d");
    let f = a.file(&mut txn, d, "f");
    let base = version(&mut txn, f);
    a.apply(&mut txn, unlink(d, "f", f, true));
    assert_eq!(b.apply(&mut txn, splice(f, base, 0, b"o", 1)), Outcome::NeedsWhole);
    let (parent, name, copy) = copy_of(b.apply(&mut txn, whole(f, base, b"ours")));
    assert_eq!((parent, name.starts_with("f.conflict-tin-")), (d, true));
    assert_eq!(content(&mut txn, copy), b"ours");

    a.apply(&mut txn, Record::Release { ino: f });
    let (parent, name, copy) = copy_of(b.apply(&mut txn, whole(f, base, b"ours again")));
    let shelter = named(&mut txn, Ino::ROOT, ".segue-conflicts").unwrap();
    assert_eq!(named(&mut txn, shelter, "tin"), Some(parent));
    assert!(name.starts_with(&format!("removed-{f}.conflict-tin-")), "{name}");
    assert_eq!(content(&mut txn, copy), b"ours again");
}

/// Proves S9.13.
#[test]
fn a_copy_goes_to_the_shelter_where_its_writer_may_not_create() {
    let mut txn = store();
    let mut owner = Client::new(&mut txn, 1, OWNER);
    let f = owner.file(&mut txn, Ino::ROOT, "f");
    let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    owner.apply(&mut txn, Record::SetAttr { ino: f, set });
    let base = version(&mut txn, f);
    owner.apply(&mut txn, whole(f, base, b"theirs"));
    let mut alice = Client::new(&mut txn, 2, HOST);
    let (parent, name, copy) = copy_of(alice.apply(&mut txn, whole(f, base, b"ours")));
    let shelter = named(&mut txn, Ino::ROOT, ".segue-conflicts").unwrap();
    assert_eq!(named(&mut txn, shelter, "tin"), Some(parent));
    assert!(name.starts_with("f.conflict-tin-"));
    assert_eq!(content(&mut txn, copy), b"ours");
}

/// It stood beside the name that the file had been made under, which was gone.
#[test]
fn a_copy_of_a_linked_file_stands_beside_a_name_that_is_there() {
    let (mut txn, mut a, mut b) = two();
    let f = a.file(&mut txn, Ino::ROOT, "tmp");
    let base = version(&mut txn, f);
    a.apply(&mut txn, Record::Link { ino: f, parent: Ino::ROOT, name: name_of("final") });
    a.apply(&mut txn, unlink(Ino::ROOT, "tmp", f, false));
    a.apply(&mut txn, whole(f, base, b"theirs"));
    let (parent, name, _) = copy_of(b.apply(&mut txn, whole(f, base, b"ours")));
    assert!(parent == Ino::ROOT && name.starts_with("final.conflict-tin-"), "{name}");
}

/// What a loss of power left of a change that was sent whole, before it was lost, is not in
/// conflict with that. Proves S13.5.
#[test]
fn what_its_own_host_did_later_is_newer() {
    let (mut txn, mut a, mut b) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    let old = version(&mut txn, f);
    a.apply(&mut txn, whole(f, old, b"first"));
    let (first, middle) = (Base::Result(a.seq), version(&mut txn, f));
    a.apply(&mut txn, whole(f, first, b"second"));
    let nothing = Outcome::Done { touched: Vec::new() };
    for base in [old, middle, first] {
        let left = splice(f, base, 0, b"sec", 3);
        assert_eq!(a.apply_knowing(&mut txn, left.clone(), base), nothing, "{base:?}");
        assert_eq!(content(&mut txn, f), b"second");
        // Of a host that knows what it did, or that did nothing, the same is a change.
        assert_eq!(a.apply(&mut txn, left.clone()), Outcome::NeedsWhole);
        assert_eq!(b.apply_knowing(&mut txn, left, base), Outcome::NeedsWhole);
    }
    // It was not in the backup from which the server was restored.
    let later = Base::Version(Version { epoch: 1, counter: 1 << 20 });
    let left = splice(f, later, 0, b"third", 5);
    assert_eq!(a.apply_knowing(&mut txn, left, later), Outcome::NeedsWhole);
    // What was newer stands beside what another host wrote.
    let now = version(&mut txn, f);
    b.apply(&mut txn, whole(f, now, b"theirs"));
    copy_of(a.apply(&mut txn, whole(f, middle, b"ours, second")));
    let left = splice(f, middle, 0, b"ours", 4);
    assert_eq!(a.apply_knowing(&mut txn, left, middle), nothing);
}

/// Proves S13.5.
#[test]
fn what_its_own_host_removed_later_does_not_come_back() {
    let (mut txn, mut a, mut b) = two();
    let nothing = Outcome::Done { touched: Vec::new() };
    let gone = |txn: &mut MapTxn, a: &mut Client, open| {
        let f = a.file(txn, Ino::ROOT, "f");
        let base = version(txn, f);
        // It was taken back when the file was removed, and what said so is lost.
        let store = a.stamp(whole(f, base, b"ours"));
        a.apply(txn, unlink(Ino::ROOT, "f", f, open));
        if open {
            a.apply(txn, Record::Release { ino: f });
        }
        (f, base, store)
    };
    for open in [false, true] {
        let (f, base, store) = gone(&mut txn, &mut a, open);
        assert_eq!(a.send(&mut txn, &store), ApplyResult::Outcome(nothing.clone()));
        assert_eq!(a.apply_knowing(&mut txn, splice(f, base, 0, b"o", 1), base), nothing);
        assert_eq!(
            b.apply_knowing(&mut txn, splice(f, base, 0, b"o", 1), base),
            Outcome::NeedsWhole
        );
        assert_eq!(a.apply(&mut txn, splice(f, base, 0, b"o", 1)), Outcome::NeedsWhole);
    }
    // A file that was renamed over went, too; and one that another host removed did not.
    let (f, g) = (a.file(&mut txn, Ino::ROOT, "f"), a.file(&mut txn, Ino::ROOT, "g"));
    let base = version(&mut txn, f);
    let replaces = RenameMode::Replace(Some(f));
    a.apply(&mut txn, rename((Ino::ROOT, "g"), g, (Ino::ROOT, "f"), replaces));
    assert_eq!(a.apply_knowing(&mut txn, splice(f, base, 0, b"o", 1), base), nothing);
    let base = version(&mut txn, g);
    b.apply(&mut txn, unlink(Ino::ROOT, "f", g, false));
    let left = splice(g, base, 0, b"o", 1);
    assert_eq!(a.apply_knowing(&mut txn, left, base), Outcome::NeedsWhole);
    assert_eq!(named(&mut txn, Ino::ROOT, ".segue-conflicts"), None);
}

/// The outcome that says so is not among the first that are read.
/// Proves S13.5.
#[test]
fn what_was_removed_long_after_the_store_does_not_come_back() {
    let (mut txn, mut a, _) = two();
    let f = a.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, f);
    for mode in 0..1100 {
        let set = SetAttr { mode: Some(mode % 0o1000), ..SetAttr::default() };
        let stamped = a.stamp(Record::SetAttr { ino: f, set });
        a.send_unchecked(&mut txn, &stamped).unwrap();
    }
    a.apply(&mut txn, unlink(Ino::ROOT, "f", f, false));
    let left = a.apply_knowing(&mut txn, splice(f, base, 0, b"o", 1), base);
    assert_eq!(left, Outcome::Done { touched: Vec::new() });
}

/// A row as the last version wrote it.
#[test]
fn an_outcome_that_says_of_no_removal_is_read() {
    let outcome = Outcome::Done { touched: Vec::new() };
    let digest = [7_u8; 32];
    let old = postcard::to_stdvec(&(digest, outcome.clone())).unwrap();
    let row: OutcomeRow = postcard::from_bytes(&old).unwrap();
    assert_eq!((row.removed, postcard::to_stdvec(&row).unwrap()), (None, old));
    let row = OutcomeRow { digest, outcome, removed: Some(Ino(5)) };
    let mut new = postcard::to_stdvec(&row).unwrap();
    assert_eq!(postcard::from_bytes::<OutcomeRow>(&new).unwrap(), row);
    new.pop();
    assert!(postcard::from_bytes::<OutcomeRow>(&new).is_err(), "torn");
}
