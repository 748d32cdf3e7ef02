//! A file gets another's data by reference, as a whole or not at all.

use super::*;
use crate::upkeep::check::chunk_uses_of;
use crate::upkeep::collect::collect;

fn clone(txn: &mut MapTxn, ino: Ino, from: Ino) -> Record {
    let Base::Version(version) = version(txn, from) else { panic!() };
    Record::Clone { ino, base: self::version(txn, ino), from, version }
}

/// A file of inline bytes, a chunk and a leaf, and its content's rows.
fn furnish(txn: &mut MapTxn, tin: &mut Client) -> Ino {
    let ino = tin.file(txn, Ino::ROOT, "source");
    let names = [&[1; 5000], &[2; 5000], &[3; 5000]].map(|bytes| arrive(txn, bytes));
    tin.proven.extend(names);
    let parts = [(names[1], 5000), (names[2], 5000)];
    let leaf = stage(txn, VOLUME, (&parts, brought_for(&[])), &|_, _| true, NOW).unwrap().unwrap();
    tin.proven.insert(leaf);
    let piece = |offset, bytes| Piece { offset, bytes };
    let pieces = vec![
        piece(0, PieceBytes::Inline(b"inline".to_vec())),
        piece(10_000, PieceBytes::Chunk { fingerprint: names[0], len: 5000 }),
        piece(20_000, PieceBytes::Leaf { leaf, len: 10_000 }),
    ];
    let base = version(txn, ino);
    let store = Store { ino, base, cut: None, size: 40_000, pieces, mtime: None, whole: true };
    tin.apply(txn, Record::Store(store));
    ino
}

fn segments(txn: &mut MapTxn, ino: Ino) -> Vec<read::Segment> {
    let attr = attr(txn, ino);
    let ask = crate::wire::Fetch { ino, version: attr.data_version, offset: 0, len: attr.size };
    read::contents(txn, VOLUME, &ask).unwrap()
}

#[test]
fn a_clone_shares_and_outlives_its_source() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let source = furnish(&mut txn, &mut tin);
    let copy = tin.file(&mut txn, Ino::ROOT, "copy");
    let record = clone(&mut txn, copy, source);
    let outcome = tin.apply(&mut txn, record);
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    let (theirs, ours) = (attr(&mut txn, source), attr(&mut txn, copy));
    assert_eq!((ours.size, ours.allocated), (theirs.size, theirs.allocated));
    let expected = segments(&mut txn, source);
    assert_eq!(segments(&mut txn, copy), expected);
    // What is written to the copy afterwards stays there.
    let write = splice(copy, version(&mut txn, copy), 10_100, b"other", 40_000);
    tin.apply(&mut txn, write);
    assert_eq!(segments(&mut txn, source), expected);
    tin.apply(&mut txn, unlink(Ino::ROOT, "copy", copy, false));
    while collect(&mut txn, u64::MAX, 9).unwrap().rows > 0 {}
    assert_eq!(segments(&mut txn, source), expected);
    assert_eq!(check::findings(&mut txn), []);
}

/// Nothing happens where either file is not what was meant, and the host is shown an empty one.
#[test]
fn a_clone_that_comes_too_late_does_nothing() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let source = furnish(&mut txn, &mut tin);
    let copy = tin.file(&mut txn, Ino::ROOT, "copy");
    let late = clone(&mut txn, copy, source);
    let write = splice(source, version(&mut txn, source), 0, b"newer", 40_000);
    tin.apply(&mut txn, write);
    let Outcome::Done { touched } = tin.apply(&mut txn, late) else { panic!() };
    assert!(touched.iter().any(|attr| attr.ino == copy && attr.size == 0), "{touched:?}");
    // What the host then writes follows its clone.
    let follows = whole(copy, Base::Result(tin.seq), b"copied by hand");
    let outcome = tin.apply(&mut txn, follows);
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    let again = clone(&mut txn, copy, source);
    tin.apply(&mut txn, again);
    assert_eq!(content(&mut txn, copy), b"copied by hand", "only an empty file gets data");
}

/// Who may not read a file does not get its bytes by asking for a copy.
#[test]
fn a_clone_needs_the_right_to_read() {
    let mut txn = store();
    let mut root = Client::new(&mut txn, 1, OWNER);
    let source = furnish(&mut txn, &mut root);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    root.apply(&mut txn, Record::SetAttr { ino: source, set });
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    root.apply(&mut txn, Record::SetAttr { ino: Ino::ROOT, set });
    let mut user = Client::new(&mut txn, 2, HOST).user(1000, 1000, &[]);
    let copy = user.file(&mut txn, Ino::ROOT, "copy");
    let record = clone(&mut txn, copy, source);
    user.apply(&mut txn, record);
    assert_eq!(attr(&mut txn, copy).size, 0);
}

/// Notes that the chunk of these bytes, which [`furnish`] uses, cannot be read.
fn damage(txn: &mut MapTxn, tin: &mut Client, bytes: &[u8]) -> Fingerprint {
    let name = crate::chunk::fingerprint(bytes);
    let row = super::chunk(txn, VOLUME, &name).unwrap().unwrap();
    assert!(tin.damaged.note(&name, &row.place));
    name
}

/// `cp` of a damaged file made a second damaged file, without a word.
#[test]
fn a_clone_refers_to_nothing_damaged() {
    // In an extent of its own, and in a leaf.
    for bytes in [[1; 5000], [3; 5000]] {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let source = furnish(&mut txn, &mut tin);
        let copy = tin.file(&mut txn, Ino::ROOT, "copy");
        let name = damage(&mut txn, &mut tin, &bytes);
        let before = super::chunk(&mut txn, VOLUME, &name).unwrap();
        let record = clone(&mut txn, copy, source);
        let Outcome::Done { touched } = tin.apply(&mut txn, record) else { panic!() };
        assert!(touched.iter().any(|attr| attr.ino == copy && attr.size == 0), "{touched:?}");
        assert_eq!(super::chunk(&mut txn, VOLUME, &name).unwrap(), before, "no reference more");
        // The bytes that the host copies follow its clone.
        let follows = whole(copy, Base::Result(tin.seq), b"copied by hand");
        let outcome = tin.apply(&mut txn, follows);
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");

        // Once the chunk stands elsewhere it is whole.
        let old = before.unwrap().place;
        let new = ChunkPlace { pack: 2, ..old };
        arrived(&mut txn, (VOLUME, &name), new, Some(old), 0).unwrap();
        let second = tin.file(&mut txn, Ino::ROOT, "second");
        let record = clone(&mut txn, second, source);
        tin.apply(&mut txn, record);
        assert_eq!(segments(&mut txn, second), segments(&mut txn, source));
    }
}

/// A host that had shown to have a chunk before it was damaged referred to it all the same.
#[test]
fn a_store_that_names_a_damaged_chunk_has_to_bring_it() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    furnish(&mut txn, &mut tin);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let names = [[1; 5000], [3; 5000]].map(|bytes| damage(&mut txn, &mut tin, &bytes));
    let parts = [[2; 5000], [3; 5000]].map(|bytes| (crate::chunk::fingerprint(&bytes), 5000));
    let leaf = leaf_name(&leaf_of(&parts)).unwrap();
    for (bytes, name) in [
        (PieceBytes::Chunk { fingerprint: names[0], len: 5000 }, names[0]),
        (PieceBytes::Leaf { leaf, len: 10_000 }, leaf),
    ] {
        let (base, pieces) = (version(&mut txn, file), vec![Piece { offset: 0, bytes }]);
        let store =
            Store { ino: file, base, cut: None, size: 10_000, pieces, mtime: None, whole: true };
        let outcome = tin.apply(&mut txn, Record::Store(store.clone()));
        assert_eq!(outcome, Outcome::Missing { chunks: vec![name] });
        let damaged = std::mem::replace(&mut tin.damaged, DamagedChunks::new(9));
        let outcome = tin.apply(&mut txn, Record::Store(store));
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        tin.damaged = damaged;
    }
}

/// The chunks that a copy would refer to are found, on as many pages as there are.
#[test]
fn a_file_tells_its_chunks() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let source = furnish(&mut txn, &mut tin);
    let version = attr(&mut txn, source).data_version;
    let mut uses = |from, version| chunk_uses_of(&mut txn, VOLUME, (source, version), from);
    let (found, next) = uses(0, version).unwrap().unwrap();
    let places: Vec<_> = found.iter().map(|used| (used.offset, used.len)).collect();
    assert_eq!((places, next), (vec![(10_000, 5000), (20_000, 5000), (25_000, 5000)], None));
    let (found, _) = uses(27_000, version).unwrap().unwrap();
    assert_eq!(found.iter().map(|used| used.offset).collect::<Vec<_>>(), [20_000, 25_000]);
    assert_eq!(uses(30_000, version).unwrap().unwrap().0, []);
    let other = crate::nouns::Version { counter: version.counter + 1, ..version };
    assert_eq!(uses(0, other).unwrap(), None);
}
