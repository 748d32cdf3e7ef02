//! What a restored volume is, and what its clients find in it.

use proptest::prelude::*;

use super::check::{findings, findings_of, lived_in};
use super::*;
use crate::namespace::lives::Start;
use crate::namespace::rows::InodeRow;
use crate::namespace::tests::model::op;
use crate::nouns::Outcome;
use crate::upkeep::restore::{Entry, Restore, begin, finish};

const START: Start = Start { now: Timestamp { secs: 1_800_000_000, nanos: 0 }, random: 7 };

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn dumped(txn: &mut MapTxn, volume: VolumeId) -> Rows {
    let mut rows = Vec::new();
    dump::dump(txn, volume, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        Ok::<_, Infallible>(())
    })
    .unwrap();
    rows
}

/// A dump, with what is said in front of it.
struct Dump {
    row: VolumeRow,
    tally: Tally,
    rows: Rows,
}

impl Dump {
    fn of(txn: &mut MapTxn) -> Dump {
        let (row, tally) = (volume(txn, VOLUME).unwrap().unwrap(), tally(txn, VOLUME).unwrap());
        Dump { row, tally, rows: dumped(txn, VOLUME) }
    }

    /// Restores it in `txn` as `name`.
    fn restore(
        &self,
        txn: &mut MapTxn,
        name: &str,
        replaces: Option<VolumeId>,
    ) -> Result<(Restore, VolumeRow), VolumeError> {
        self.restore_beyond(txn, name, replaces, (0, 0))
    }

    fn restore_beyond(
        &self,
        txn: &mut MapTxn,
        name: &str,
        replaces: Option<VolumeId>,
        beyond: (u32, u64),
    ) -> Result<(Restore, VolumeRow), VolumeError> {
        let restore = begin(txn, &self.row, &self.tally, beyond, START).unwrap();
        let of_client = |(key, _): &(Vec<u8>, Vec<u8>)| dump::is_of_client(key);
        let (clients, rows): (Rows, Rows) = self.rows.iter().cloned().partition(of_client);
        for (key, value) in rows {
            match dump::chunk(&key, &value) {
                Some((name, row)) => restore.put_chunk(txn, &name, &row, row.place).unwrap(),
                None => restore.put(txn, &key, &value).unwrap(),
            }
        }
        let entry = Entry { name: name.to_owned(), other_uuid: [9; 16], replaces };
        finish(txn, &restore, &entry, &clients).unwrap().map(|row| (restore, row))
    }
}

/// A dump as it is the same wherever it was restored.
fn comparable(rows: Rows) -> Rows {
    let as_first = |(key, value): (Vec<u8>, Vec<u8>)| {
        let key = if dump::is_of_client(&key) { key } else { keys::moved(&key, VOLUME).unwrap() };
        if key.starts_with(&keys::inodes(VOLUME)) {
            let mut row: InodeRow = postcard::from_bytes(&value).unwrap();
            row.attr.change = Default::default();
            return (key, postcard::to_stdvec(&row).unwrap());
        }
        (key, value)
    };
    // Each restore begins a life.
    let life = keys::life(VOLUME, 0);
    let is_life = |key: &[u8]| key.first() == life.first();
    rows.into_iter().filter(|(key, _)| !is_life(key)).map(as_first).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Every row of the volume is there again, and they fit together; in an empty store as in
    /// one that has another volume of that name.
    /// Proves S19.1.
    #[test]
    fn a_restored_volume_is_the_one_that_was_dumped(ops in prop::collection::vec(op(), 0..40)) {
        let mut txn = lived_in(ops);
        let dump = Dump::of(&mut txn);
        let mut empty = MapTxn::default();
        let (restore, row) = dump.restore(&mut empty, "home", None).unwrap();
        prop_assert_eq!(restore.volume, VOLUME);
        prop_assert_eq!(findings(&mut empty), []);
        prop_assert!(comparable(dumped(&mut empty, VOLUME)) == comparable(dump.rows.clone()));
        prop_assert_eq!((row.uuid, row.epoch), ([7; 16], 2));

        let mut other = MapTxn::default();
        create_volume(&mut other, "home", [8; 16], Timestamp::default()).unwrap().unwrap();
        prop_assert_eq!(dump.restore(&mut other, "home", None), Err(VolumeError::Exists));
        let (restore, _) = dump.restore(&mut other, "home", Some(VOLUME)).unwrap();
        prop_assert_eq!(findings_of(&mut other, restore.volume), []);
        let found = find_volume(&mut other, "home").unwrap().map(|(id, _)| id);
        prop_assert_eq!(found, Some(restore.volume));
        prop_assert_eq!(dumped(&mut other, restore.volume).len(), dump.rows.len() + 1);
    }
}

/// A restore that was broken off is a removed volume, and nobody finds it.
#[test]
fn half_a_restore_is_nobodys() {
    let mut txn = store();
    let dump = Dump::of(&mut txn);
    let restore = begin(&mut txn, &dump.row, &dump.tally, (0, 0), START).unwrap();
    assert_eq!(volumes(&mut txn).unwrap().len(), 1);
    assert!(txn.get(&keys::removed_volume(restore.volume)).unwrap().is_some());
    dump.restore(&mut txn, "home", Some(VOLUME)).unwrap();
    let (now, _) = find_volume(&mut txn, "home").unwrap().unwrap();
    assert!(txn.get(&keys::removed_volume(now)).unwrap().is_none());
    assert!(txn.get(&keys::removed_volume(VOLUME)).unwrap().is_some());
}

/// What a client did after the dump is not there. What it does then on that is kept beside what
/// is there; what it does on what the dump has is done; and no record of it is taken for one
/// that was settled, or for another one's.
/// Proves S19.5.
#[test]
fn what_was_committed_after_the_dump_conflicts_and_is_kept() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let (old, same) = (tin.file(&mut txn, Ino::ROOT, "old"), tin.file(&mut txn, Ino::ROOT, "same"));
    let first = whole(old, version(&mut txn, old), b"first");
    tin.apply(&mut txn, first);
    let done = tin.stamp(whole(same, version(&mut txn, same), b"same"));
    let outcome = tin.send(&mut txn, &done);
    raise_floor(&mut txn, tin.id, 1, tin.seq).unwrap();
    let dump = Dump::of(&mut txn);

    let second = whole(old, version(&mut txn, old), b"second");
    tin.apply(&mut txn, second);
    tin.next_ino = grant(&mut txn, tin.id).unwrap().unwrap().first;
    let lost = tin.file(&mut txn, Ino::ROOT, "lost");
    let (on_old, on_lost) = (version(&mut txn, old), version(&mut txn, lost));
    let acked_below = tin.seq + 1;

    let mut txn = MapTxn::default();
    dump.restore(&mut txn, "home", None).unwrap();
    bind(&mut txn, tin.id, "identity", VOLUME, 1).unwrap().unwrap();
    raise_floor(&mut txn, tin.id, 1, acked_below).unwrap();
    assert_eq!(content(&mut txn, old), b"first");
    for (ino, base) in [(old, on_old), (lost, on_lost)] {
        let part = tin.apply(&mut txn, splice(ino, base, 0, b"third", 5));
        assert_eq!(part, Outcome::NeedsWhole);
        let outcome = tin.apply(&mut txn, whole(ino, base, b"third"));
        let Outcome::Conflict { copy, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(content(&mut txn, copy), b"third");
    }
    assert_eq!(content(&mut txn, old), b"first");
    let base = version(&mut txn, same);
    let edited = tin.apply(&mut txn, whole(same, base, b"edited"));
    assert!(matches!(edited, Outcome::Done { .. }), "{edited:?}");
    // A number that was granted after the dump.
    tin.file(&mut txn, Ino::ROOT, "new");
    assert_eq!(findings(&mut txn), []);
    assert!(matches!(outcome, ApplyResult::Outcome(Outcome::Done { .. })));
}

/// Who sends a record again that is in the dump is told what he was told.
#[test]
fn outcomes_in_the_dump_are_told_again() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let record = whole(file, version(&mut txn, file), b"once");
    let stamped = tin.stamp(record);
    let told = tin.send(&mut txn, &stamped);
    let dump = Dump::of(&mut txn);
    let mut txn = MapTxn::default();
    dump.restore(&mut txn, "home", None).unwrap();
    assert_eq!(tin.send(&mut txn, &stamped), told.again());
}

/// Back to the dump on the server itself: what was done since did not happen, for those who did
/// it and for clients that came since too.
#[test]
fn a_volume_that_goes_back_keeps_its_clients() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    tin.file(&mut txn, Ino::ROOT, "before");
    let dump = Dump::of(&mut txn);
    let after = tin.stamp(tin.creation(Ino::ROOT, "after", Ino(tin.next_ino), NewNode::File));
    tin.send(&mut txn, &after);
    let pan = Client::new(&mut txn, 2, OWNER);
    let (restore, row) = dump.restore(&mut txn, "home", Some(VOLUME)).unwrap();
    assert_eq!(row.uuid, [7; 16]);
    for client in [tin.id, pan.id] {
        let found: ClientRow = get_row(&mut txn, &keys::client(client), "").unwrap().unwrap();
        assert_eq!(found.volume, restore.volume);
    }
    let op = OpId { client: tin.id, incarnation: 1, seq: after.seq };
    assert_eq!(txn.get(&keys::outcome(op)).unwrap(), None, "it may be sent again");
    assert_eq!(findings_of(&mut txn, restore.volume), []);
}

/// A volume that is restored beside itself is a copy: another uuid, nobody's clients, and the
/// original is as it was.
#[test]
fn beside_itself_it_is_a_copy() {
    let mut txn = lived_in(Vec::new());
    let (dump, before) = (Dump::of(&mut txn), dumped(&mut txn, VOLUME));
    let (restore, row) = dump.restore(&mut txn, "copy", None).unwrap();
    assert_eq!(row.uuid, [9; 16]);
    assert_eq!(findings_of(&mut txn, restore.volume), []);
    assert!(dumped(&mut txn, VOLUME) == before);
    let open = keys::all_orphans(restore.volume);
    assert_eq!(txn.range(&open, &keys::after(&open), 1).unwrap(), [], "nobody has them open");
}

/// Epochs and numbers of an earlier restore are not given again.
#[test]
fn a_second_restore_goes_beyond_the_first() {
    let mut txn = store();
    let dump = Dump::of(&mut txn);
    let (_, first) = dump.restore(&mut MapTxn::default(), "home", None).unwrap();
    let beyond = (first.epoch, first.next_ino);
    let mut txn = MapTxn::default();
    let (_, second) = dump.restore_beyond(&mut txn, "home", None, beyond).unwrap();
    assert!(second.epoch > first.epoch && second.next_ino > first.next_ino);
    let granted = Ino(first.next_ino);
    assert!(second.lost.iter().any(|lost| lost.contains(granted)));
    assert!(second.lost.iter().all(|lost| lost.first >= dump.row.next_ino));
}
