//! A record takes effect once, however often it comes.

use super::*;

/// Proves S7.9.
#[test]
fn a_repeat_gets_the_stored_outcome_and_changes_nothing() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.ino();
    let create = tin.stamp(tin.creation(Ino::ROOT, "f", ino, NewNode::File));
    let first = tin.send(&mut txn, &create);
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", ino, false));
    let before = txn.clone();
    assert_eq!(tin.send(&mut txn, &create), first.again());
    assert_eq!(txn, before);
}

#[test]
fn another_record_under_the_same_number_shows_a_copied_cache() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.ino();
    let mut create = tin.stamp(tin.creation(Ino::ROOT, "f", ino, NewNode::File));
    tin.send(&mut txn, &create);
    create.time.secs += 1;
    assert_eq!(tin.send(&mut txn, &create), ApplyResult::Cloned);
}

/// Proves S7.9.
#[test]
fn what_is_below_the_floor_is_never_applied_again() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.ino();
    let create = tin.stamp(tin.creation(Ino::ROOT, "f", ino, NewNode::File));
    tin.send(&mut txn, &create);
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", ino, false));
    raise_floor(&mut txn, tin.id, 1, 3).unwrap();
    raise_floor(&mut txn, tin.id, 1, 2).unwrap();
    assert!(!txn.0.keys().any(|key| key[0] == 0x22), "outcomes are forgotten");
    let before = txn.clone();
    assert_eq!(tin.send(&mut txn, &create), ApplyResult::Cloned);
    assert_eq!(txn, before);
}

#[test]
fn what_is_not_final_may_come_again() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let fingerprint = crate::chunk::fingerprint(b"chunk");
    let bytes = PieceBytes::Chunk { fingerprint, len: 5 };
    let pieces = vec![Piece { offset: 0, bytes }];
    let base = Base::Result(tin.seq);
    let store = Store { ino: f, base, cut: None, size: 5, pieces, mtime: None, whole: true };
    let stamped = tin.stamp(Record::Store(store));
    let missing = ApplyResult::Outcome(Outcome::Missing { chunks: vec![fingerprint] });
    let before = txn.clone();
    assert_eq!(tin.send(&mut txn, &stamped), missing);
    tin.proven.insert(fingerprint);
    assert_eq!(tin.send(&mut txn, &stamped), missing, "the server lacks it");
    assert_eq!(txn, before);
    arrive(&mut txn, b"chunk");
    tin.proven.clear();
    assert_eq!(tin.send(&mut txn, &stamped), missing, "the client may only know its name");
    tin.proven.insert(fingerprint);
    let done = tin.send(&mut txn, &stamped);
    assert!(matches!(done, ApplyResult::Outcome(Outcome::Done { .. })));
}

#[test]
fn a_client_is_bound_to_identity_volume_and_life() {
    let mut txn = store();
    let tin = ClientId([1; 16]);
    bind(&mut txn, tin, "one", VOLUME, 3).unwrap().unwrap();
    bind(&mut txn, tin, "one", VOLUME, 3).unwrap().unwrap();
    bind(&mut txn, tin, "one", VOLUME, 4).unwrap().unwrap();
    let mut again = |identity, volume, life| bind(&mut txn, tin, identity, volume, life).unwrap();
    assert_eq!(again("two", VOLUME, 4), Err(BindError::OtherIdentity));
    assert_eq!(again("one", VolumeId(2), 4), Err(BindError::OtherVolume));
    assert_eq!(again("one", VOLUME, 3), Err(BindError::OldIncarnation));
}

#[test]
fn grants_never_overlap() {
    let mut txn = store();
    let clients = [ClientId([1; 16]), ClientId([2; 16])];
    let mut last = 0;
    for round in 0..6 {
        let client = clients[round % 2];
        bind(&mut txn, client, "one", VOLUME, 1).unwrap().unwrap();
        let block = grant(&mut txn, client).unwrap().unwrap();
        assert!(block.first >= last + u64::from(round > 0) * GRANT_COUNT);
        last = block.first;
    }
    assert_eq!(grants(&mut txn, clients[0]).unwrap().len(), 3);
}
