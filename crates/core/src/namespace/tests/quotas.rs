//! Quotas: who counts against which, and what is refused.

use proptest::prelude::*;

use super::model::{Model, came_to, op, record};
use super::*;

const MB: u64 = 1 << 20;

fn limits(bytes: Option<u64>, inodes: Option<u64>) -> Limits {
    Limits { bytes, inodes }
}

fn limited(txn: &mut MapTxn, path: &[&str], limits: Limits) -> Result<(), LimitError> {
    let path: Vec<_> = path.iter().map(|name| name_of(name)).collect();
    let done = limit_directory(txn, VOLUME, &path, limits).unwrap();
    assert_eq!(check::findings(txn), []);
    done
}

/// A store that makes all of `ino` one chunk of `len` bytes.
fn chunk(tin: &mut Client, txn: &mut MapTxn, ino: Ino, len: usize) -> Record {
    let bytes = vec![len as u8; len];
    let fingerprint = arrive(txn, &bytes);
    tin.proven.insert(fingerprint);
    let bytes = PieceBytes::Chunk { fingerprint, len: len as u32 };
    let (base, pieces) = (version(txn, ino), vec![Piece { offset: 0, bytes }]);
    let size = len as u64;
    Record::Store(Store { ino, base, cut: None, size, pieces, mtime: None, whole: true })
}

fn usage(txn: &mut MapTxn, ino: Ino) -> Usage {
    quota_of(txn, VOLUME, ino).unwrap().unwrap().usage
}

/// Proves S21.3.
#[test]
fn a_volume_takes_a_hundredth_more_than_its_quota_and_then_no_more() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let [a, b] = ["a", "b"].map(|name| tin.file(&mut txn, Ino::ROOT, name));
    limit_volume(&mut txn, VOLUME, limits(Some(2 * MB), Some(3))).unwrap();
    let (full, over) = ((2 * MB) as usize, (2 * MB / 50) as usize);
    let record = chunk(&mut tin, &mut txn, a, full);
    assert!(matches!(tin.apply(&mut txn, record), Outcome::Done { .. }));
    let before = txn.clone();
    let record = chunk(&mut tin, &mut txn, b, over);
    assert_eq!(tin.apply(&mut txn, record), refused(Refusal::Quota));
    assert_eq!(content(&mut txn, b), b"");
    let record = chunk(&mut tin, &mut txn, b, over / 2);
    assert!(matches!(tin.apply(&mut txn, record), Outcome::Done { .. }));
    let creation = tin.creation(Ino::ROOT, "c", Ino(tin.next_ino), NewNode::File);
    assert_eq!(tin.apply(&mut txn, creation), refused(Refusal::Quota));
    // What shrinks may, though it is over still.
    limit_volume(&mut txn, VOLUME, limits(Some(MB), Some(1))).unwrap();
    let record = chunk(&mut tin, &mut txn, a, full - 1);
    assert!(matches!(tin.apply(&mut txn, record), Outcome::Done { .. }));
    let gone = unlink(Ino::ROOT, "a", a, false);
    assert!(matches!(tin.apply(&mut txn, gone), Outcome::Done { .. }));
    assert!(before != txn);
}

/// Proves S21.9.
#[test]
fn space_is_that_of_the_quota_where_it_is_less_than_the_disk() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let a = tin.file(&mut txn, Ino::ROOT, "a");
    let record = chunk(&mut tin, &mut txn, a, MB as usize);
    tin.apply(&mut txn, record);
    let mut asked = |limits| {
        limit_volume(&mut txn, VOLUME, limits).unwrap();
        let space = space(&mut txn, VOLUME, Ino::ROOT, (100 * MB, 10 * MB)).unwrap();
        (space.total_bytes / MB, space.free_bytes / MB, space.free_inodes)
    };
    assert_eq!(asked(Limits::default()), (100, 10, u64::MAX));
    assert_eq!(asked(limits(Some(5 * MB), Some(9))), (5, 4, 7));
    assert_eq!(asked(limits(Some(50 * MB), Some(1))), (50, 10, 0));
    assert_eq!(asked(limits(Some(MB / 2), None)), (0, 0, u64::MAX));
}

#[test]
fn a_directory_with_a_quota_counts_its_tree() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let e = tin.directory(&mut txn, d, "e");
    let f = tin.file(&mut txn, e, "f");
    tin.apply(&mut txn, Record::Link { ino: f, parent: d, name: name_of("again") });
    let record = chunk(&mut tin, &mut txn, f, 5_000);
    tin.apply(&mut txn, record);
    assert_eq!(limited(&mut txn, &["d"], limits(Some(10_000), Some(5))), Ok(()));
    assert_eq!(usage(&mut txn, d), Usage { bytes: 5_000, inodes: 3 });
    let g = tin.file(&mut txn, e, "g");
    let record = chunk(&mut tin, &mut txn, g, 6_000);
    assert_eq!(tin.apply(&mut txn, record), refused(Refusal::Quota));
    // Without a name it counts against the volume only.
    tin.apply(&mut txn, unlink(e, "g", g, true));
    assert_eq!(usage(&mut txn, d), Usage { bytes: 5_000, inodes: 3 });
    let record = chunk(&mut tin, &mut txn, g, 6_000);
    assert!(matches!(tin.apply(&mut txn, record), Outcome::Done { .. }));
    tin.apply(&mut txn, Record::Release { ino: g });
    assert_eq!(limited(&mut txn, &["d"], Limits::default()), Ok(()));
    assert_eq!(quota_of(&mut txn, VOLUME, d).unwrap(), None);
    assert_eq!(attr(&mut txn, f).quota, None);
}

/// Proves S21.10.
#[test]
fn only_a_file_of_one_name_moves_across_a_border() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let e = tin.directory(&mut txn, Ino::ROOT, "e");
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let record = chunk(&mut tin, &mut txn, f, 5_000);
    tin.apply(&mut txn, record);
    limited(&mut txn, &["d"], limits(Some(6_000), None)).unwrap();
    let other = refused(Refusal::OtherQuota);
    let replace = RenameMode::Replace(None);
    let link = Record::Link { ino: f, parent: d, name: name_of("f") };
    assert_eq!(tin.apply(&mut txn, link), other);
    assert_eq!(tin.apply(&mut txn, rename((Ino::ROOT, "e"), e, (d, "e"), replace)), other);
    tin.apply(&mut txn, rename((Ino::ROOT, "f"), f, (d, "f"), replace));
    assert_eq!(usage(&mut txn, d), Usage { bytes: 5_000, inodes: 2 });
    tin.apply(&mut txn, Record::Link { ino: f, parent: d, name: name_of("g") });
    assert_eq!(tin.apply(&mut txn, rename((d, "g"), f, (Ino::ROOT, "g"), replace)), other);
    tin.apply(&mut txn, unlink(d, "g", f, false));
    tin.apply(&mut txn, rename((d, "f"), f, (e, "f"), replace));
    assert_eq!(usage(&mut txn, d), Usage { bytes: 0, inodes: 1 });
    // The quota moves with its directory, and goes with it.
    tin.apply(&mut txn, rename((Ino::ROOT, "d"), d, (e, "d"), replace));
    let gone = Record::Rmdir { parent: e, name: name_of("d"), ino: d };
    assert!(matches!(tin.apply(&mut txn, gone), Outcome::Done { .. }));
    assert_eq!(quotas(&mut txn, VOLUME).unwrap(), []);
}

#[test]
fn what_cannot_have_a_quota_is_told_so() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let e = tin.directory(&mut txn, d, "e");
    let f = tin.file(&mut txn, e, "f");
    tin.apply(&mut txn, Record::Link { ino: f, parent: Ino::ROOT, name: name_of("f") });
    let some = limits(None, Some(9));
    for (path, error) in [
        (&[][..], LimitError::Root),
        (&["f"], LimitError::NotDirectory),
        (&["d", "x"], LimitError::NotFound),
        (&["d"], LimitError::Shared),
    ] {
        assert_eq!(limited(&mut txn, path, some), Err(error), "{path:?}");
    }
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, false));
    assert_eq!(limited(&mut txn, &["d", "e"], some), Ok(()));
    assert_eq!(limited(&mut txn, &["d"], some), Err(LimitError::Nested));
    assert_eq!(limited(&mut txn, &["d", "e"], Limits::default()), Ok(()));
    assert_eq!(limited(&mut txn, &["d"], some), Ok(()));
    assert_eq!(limited(&mut txn, &["d", "e"], some), Err(LimitError::Nested));
    assert_eq!(quotas(&mut txn, VOLUME).unwrap().len(), 1);
}

/// Sets or takes away the quota of some directory, in the store and in the model.
fn set_quota(txn: &mut MapTxn, model: &mut Model, index: usize, most: Option<u64>) {
    let (directory, path) = model.some_directory(index);
    let expected = model.may_limit(directory, most.is_some());
    let done = limit_directory(txn, VOLUME, &path, limits(None, most)).unwrap();
    assert_eq!(done.is_ok(), expected, "{directory} {most:?}: {done:?}");
    if done.is_ok() {
        match most {
            Some(most) => drop(model.1.insert(directory, most)),
            None => drop(model.1.remove(&directory)),
        }
    }
    assert_eq!(check::findings(txn), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn quotas_count_what_stands_below_them(
        ops in prop::collection::vec((op(), prop::option::weighted(0.2, 0u64..6)), 1..80),
    ) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let (mut model, mut all) = (Model::new(), vec![Ino::ROOT]);
        for (op, most) in ops {
            if let Some(most) = most {
                set_quota(&mut txn, &mut model, op.1[0], (most > 0).then_some(most));
            }
            let record = record(&mut tin, &mut txn, &model, &mut all, op);
            let expected = model.apply(&record);
            let outcome = tin.apply(&mut txn, record.clone());
            prop_assert_eq!(came_to(&mut model, &mut txn, &outcome), expected, "{:?}", record);
            let found: BTreeMap<_, _> = quotas(&mut txn, VOLUME).unwrap().into_iter()
                .map(|(ino, row)| (ino.0, row.usage.inodes)).collect();
            let counted = model.1.keys().map(|quota| (*quota, model.within(*quota)));
            prop_assert_eq!(found, counted.collect::<BTreeMap<_, _>>(), "{:?}", record);
        }
        model.compare(&mut txn);
    }
}
