//! What a member of a volume could do to the server's disk and to its one store thread.

use super::*;
use crate::namespace::{Limits, VolumeRow, put_row, volume};

const READER: Rights = Rights { role: Role::Reader, no_root_squash: false };

/// Applies a record without looking whether its repetition changes something.
fn quickly(client: &mut Client, txn: &mut MapTxn, record: Record) -> Outcome {
    let stamped = client.stamp(record);
    match client.send_unchecked(txn, &stamped).unwrap() {
        ApplyResult::Outcome(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

/// A reader had filled the metadata with the outcomes of its refused records.
#[test]
fn nothing_of_a_readers_records_is_kept() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let mut reader = Client::new(&mut txn, 2, READER);
    let before = txn.clone();
    let record = unlink(Ino::ROOT, "f", f, false);
    let stamped = reader.stamp(record);
    for _ in 0..3 {
        let answer = reader.send_unchecked(&mut txn, &stamped).unwrap();
        assert_eq!(answer, ApplyResult::Outcome(refused(Refusal::ReadOnly)));
    }
    assert!(txn == before);
}

fn limited(bytes: u64) -> MapTxn {
    let mut txn = store();
    let row: VolumeRow = volume(&mut txn, VOLUME).unwrap().unwrap();
    let limits = Limits { bytes: Some(bytes), inodes: None };
    put_row(&mut txn, &keys::volume(VOLUME), &VolumeRow { limits, ..row }).unwrap();
    txn
}

/// 165 MB of extended attributes had found room in a quota of 20 MB.
/// Proves S21.11.
#[test]
fn attributes_and_link_targets_count_as_bytes() {
    let mut txn = limited(10_000);
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let set = |name: &str, len| Record::SetXattr {
        ino: f,
        name: format!("user.{name}").into_bytes(),
        value: vec![b'x'; len],
    };
    assert!(matches!(tin.apply(&mut txn, set("a", 5_000)), Outcome::Done { .. }));
    assert_eq!(tin.apply(&mut txn, set("b", 6_000)), refused(Refusal::Quota));
    assert!(matches!(tin.apply(&mut txn, set("a", 1_000)), Outcome::Done { .. }), "replaced");
    assert!(matches!(tin.apply(&mut txn, set("b", 6_000)), Outcome::Done { .. }));
    let link = |tin: &mut Client, len| {
        let ino = tin.ino();
        tin.creation(Ino::ROOT, "link", ino, NewNode::Symlink(vec![b'x'; len]))
    };
    let record = link(&mut tin, 4_000);
    assert_eq!(tin.apply(&mut txn, record), refused(Refusal::Quota));
    let record = link(&mut tin, 2_000);
    assert!(matches!(tin.apply(&mut txn, record), Outcome::Done { .. }));
    let used = 1_006 + 6_006 + 2_000;
    assert_eq!(tally(&mut txn, VOLUME).unwrap().allocated, used);
    let gone = Record::RemoveXattr { ino: f, name: b"user.b".to_vec() };
    tin.apply(&mut txn, gone);
    assert_eq!(tally(&mut txn, VOLUME).unwrap().allocated, used - 6_006);
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, false));
    assert_eq!(tally(&mut txn, VOLUME).unwrap().allocated, 2_000);
}

/// Nine thousand copies of one name had stopped the store for 0.8 s with each further one.
#[test]
fn a_free_name_for_a_copy_is_found_among_thousands() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, f);
    tin.apply(&mut txn, whole(f, base, b"theirs"));
    let mut names = std::collections::BTreeSet::new();
    let conflict = |tin: &mut Client, txn: &mut MapTxn, bytes: usize| match tin
        .apply(txn, whole(f, base, &vec![b'x'; bytes]))
    {
        Outcome::Conflict { name, copy, .. } => (name, copy),
        other => panic!("{other:?}"),
    };
    for copies in 1..=600 {
        let (name, copy) = conflict(&mut tin, &mut txn, copies);
        // Some go: their numbers are free again.
        match copies % 7 {
            0 => {
                let gone = Record::Unlink { parent: Ino::ROOT, name, ino: copy, open: false };
                assert!(matches!(quickly(&mut tin, &mut txn, gone), Outcome::Done { .. }));
            }
            _ => assert!(names.insert(name), "each has a name of its own"),
        }
    }
    let mut counted = Counted(txn, 0);
    let stamped = tin.stamp(whole(f, base, b"once more"));
    let context = Context {
        is_shared: false,
        volume: VOLUME,
        client: tin.id,
        incarnation: 1,
        host: "tin",
        rights: OWNER,
        proven: &|_| false,
        admits: Admits::All,
        damaged: &DamagedChunks::new(0),
        awaited: &tin.awaited,
    };
    apply(&mut counted, &context, &stamped, &[0; 32]).unwrap();
    assert!(counted.1 < 100, "{} reads", counted.1);
}

/// A store that counts what is read.
struct Counted(MapTxn, usize);

impl MetaSnapshot for Counted {
    type Error = Infallible;

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        self.1 += 1;
        self.0.get(key)
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Infallible> {
        self.1 += 1;
        self.0.range(from, to, limit)
    }
}

impl MetaTxn for Counted {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.0.put(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Infallible> {
        self.0.remove(key)
    }
}

/// 256 moves in directories 100,000 deep had stopped the store for 6.5 s.
#[test]
fn nobody_moves_a_directory_into_a_bottomless_one() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let mut at = Ino::ROOT;
    for _ in 0..5000 {
        let ino = tin.ino();
        let record = tin.creation(at, "deep", ino, NewNode::Directory);
        assert!(matches!(quickly(&mut tin, &mut txn, record), Outcome::Done { .. }));
        at = ino;
    }
    let moved = rename((Ino::ROOT, "d"), d, (at, "d"), RenameMode::Replace(None));
    assert_eq!(tin.apply(&mut txn, moved), refused(Refusal::NameTooLong));
    let file = tin.file(&mut txn, at, "f");
    let moved = rename((at, "f"), file, (Ino::ROOT, "f"), RenameMode::Replace(None));
    assert!(matches!(tin.apply(&mut txn, moved), Outcome::Done { .. }));
}
