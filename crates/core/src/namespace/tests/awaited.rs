//! The notes of files whose first contents are awaited.

use super::*;

fn noted(txn: &mut MapTxn) -> Vec<Ino> {
    all_awaited(txn).unwrap().iter().map(|awaited| awaited.ino).collect()
}

#[test]
fn a_note_lasts_until_contents_come_or_the_file_goes() {
    let mut txn = store();
    let (mut tin, mut zinc) = (Client::new(&mut txn, 1, OWNER), Client::new(&mut txn, 2, OWNER));
    let files = ["stored", "emptied", "copied", "removed", "left"];
    let files = files.map(|name| tin.awaited_file(&mut txn, Ino::ROOT, name));
    let [stored, emptied, copied, removed, left] = files;
    tin.awaited.insert(Ino(tin.next_ino), Mark::default());
    let directory = tin.directory(&mut txn, Ino::ROOT, "directory");
    assert!(!noted(&mut txn).contains(&directory), "it has no contents");
    let source = tin.file(&mut txn, Ino::ROOT, "source");
    assert_eq!(noted(&mut txn), files);
    assert_eq!(
        all_awaited(&mut txn).unwrap()[0],
        Awaited { volume: VOLUME, ino: stored, client: tin.id }
    );
    let meant = attr(&mut txn, source).data_version;
    let base = version(&mut txn, copied);
    let clone = Record::Clone { ino: copied, base, from: source, version: meant };
    let stores = whole(stored, version(&mut txn, stored), b"contents");
    let empties = whole(emptied, version(&mut txn, emptied), b"");
    let removes = unlink(Ino::ROOT, "removed", removed, false);
    let outcomes = [
        tin.apply(&mut txn, stores),
        tin.apply(&mut txn, clone),
        zinc.apply(&mut txn, empties),
        zinc.apply(&mut txn, removes),
    ];
    let is_done = |outcome: &Outcome| matches!(outcome, Outcome::Done { .. });
    assert!(outcomes.iter().all(is_done), "{outcomes:?}");
    assert_eq!(noted(&mut txn), [left]);
}

#[test]
fn a_mark_of_an_empty_file_is_noted_until_it_is_clean() {
    let mut txn = store();
    let (mut tin, zinc) = (Client::new(&mut txn, 1, OWNER), Client::new(&mut txn, 2, OWNER));
    let [empty, full] = ["empty", "full"].map(|name| tin.file(&mut txn, Ino::ROOT, name));
    let directory = tin.directory(&mut txn, Ino::ROOT, "directory");
    let stores = whole(full, version(&mut txn, full), b"contents");
    tin.apply(&mut txn, stores);
    let told = |txn: &mut MapTxn, client: &Client, changed: &[Ino], clean: &[Ino]| {
        let changed = changed.iter().map(|ino| (*ino, Mark::default())).collect();
        let clean = clean.iter().copied().collect();
        let dirty = Dirty { is_all: false, changed, clean };
        take_in_awaited(txn, (VOLUME, client.id), &dirty).unwrap();
        noted(txn)
    };
    assert_eq!(told(&mut txn, &tin, &[empty, full, directory, Ino(999)], &[]), [empty]);
    assert_eq!(told(&mut txn, &zinc, &[empty], &[]), [empty], "one is enough");
    assert_eq!(told(&mut txn, &zinc, &[], &[empty]), [empty], "the other has it still");
    assert_eq!(told(&mut txn, &tin, &[], &[empty, full]), []);
    let announced = Announced { size: 0, mtime: Timestamp::default() };
    let changed = [(empty, Mark { announced: Some(announced) })].into();
    let dirty = Dirty { changed, ..Dirty::default() };
    take_in_awaited(&mut txn, (VOLUME, tin.id), &dirty).unwrap();
    assert_eq!(noted(&mut txn), [], "it is empty there, too");
}
