//! Nothing that two hosts did is lost.

use super::*;

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
