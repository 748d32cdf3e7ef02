use std::path::Path;

use segue_core::host::log::{
    After, Change, DataChange, Instead, Logged, Payload, Replaced, WritePlace,
};
use segue_core::nouns::{Base, Caller, ContainerId, Ino, Outcome, Record, Timestamp, Version};
use segue_core::wire::History;

use super::super::durable::failing;
use super::format::{OLDEST, frame};
use super::*;

fn change(seq: u64) -> Entry {
    Entry::Change(Logged {
        seq,
        time: Timestamp { secs: 1, nanos: 2 },
        caller: Caller::default(),
        operation: None,
        after: After::Nothing,
        known: None,
        change: Change::Record(Record::Release { ino: Ino(seq) }),
    })
}

/// Adds an entry of which that is the body.
fn add(bytes: &mut Vec<u8>, body: &[u8]) {
    let body = |bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(body);
        Ok(())
    };
    frame(bytes, body, 0, (0, 0)).unwrap();
}

fn written() -> Entry {
    let base = Base::Version(Version::default());
    let (time, container) = (Timestamp::default(), ContainerId(3));
    let place = WritePlace { ino: Ino(1), container, base, old_size: 0, time };
    Entry::Written { place, offset: 0, data: Payload::Inline(vec![7; 5]) }
}

fn settled(seq: u64) -> Entry {
    let outcome = Outcome::Refused { refusal: segue_core::refusal::Refusal::NoSpace };
    Entry::Settled { seq, outcome: Box::new(outcome) }
}

fn filled(path: &Path) -> Vec<Entry> {
    let entries = vec![change(1), written(), change(2), settled(1)];
    let (mut log, old) = LogFile::open(path.into(), 1, false).unwrap();
    assert!(old.entries.is_empty());
    entries.iter().for_each(|entry| log.append(entry).unwrap());
    entries
}

#[test]
fn a_log_cut_at_any_byte_opens_with_what_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    let entries = filled(&path);
    let bytes = fs::read(&path).unwrap();
    for len in 0..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        let (mut log, found) = LogFile::open(path.clone(), 1, false).unwrap();
        let found = found.entries;
        assert_eq!(found, entries[..found.len()], "cut at {len}");
        log.append(&change(9)).unwrap();
        let (_, again) = LogFile::open(path.clone(), 1, false).unwrap();
        assert_eq!(again.entries.last(), Some(&change(9)));
    }
}

/// It had counted as a new one, and `segue recover` had said that the server has everything.
#[test]
fn a_file_that_is_no_log_is_no_new_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    for bytes in [&b"nonsense"[..], &[0; 100], b"SEGUELOX"] {
        fs::write(&path, bytes).unwrap();
        let refused = LogFile::open(path.clone(), 1, false).unwrap_err().to_string();
        assert!(refused.contains("is damaged") && refused.contains("segue recover"), "{refused}");
        let (found, damage) = LogFile::read(&path).unwrap();
        assert!(found.entries.is_empty() && damage.is_some(), "{damage:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    // Behind a damaged header all entries can be read still.
    fs::remove_file(&path).unwrap();
    let entries = filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] = 0;
    fs::write(&path, &bytes).unwrap();
    let (found, damage) = LogFile::read(&path).unwrap();
    assert_eq!((found.entries, damage.is_some()), (entries, true));
    // The process that made it died at once.
    for bytes in [&b""[..], b"SEGUE", &[0; 7]] {
        fs::write(&path, bytes).unwrap();
        assert!(LogFile::open(path.clone(), 1, false).unwrap().1.entries.is_empty());
    }
}

#[test]
fn damage_in_the_middle_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[50] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let refused = LogFile::open(path, 1, false).unwrap_err().to_string();
    assert!(refused.contains("damaged at byte 32"), "{refused}");
}

/// What a host that went down had not synced is on its disk in any part; what it had is there.
/// Proves S13.3.
#[test]
fn after_a_restart_the_log_ends_where_something_unsynced_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    let (mut log, _) = LogFile::open(path.clone(), 1, false).unwrap();
    log.append(&change(1)).unwrap();
    let sync = log.begin_sync().unwrap().unwrap();
    log.synced(&sync, sync.wait()).unwrap();
    let end = |log: &LogFile| usize::try_from(log.len()).unwrap();
    let durable = end(&log);
    log.append(&change(2)).unwrap();
    let second = end(&log);
    log.append(&change(3)).unwrap();
    let whole = fs::read(&path).unwrap();
    let with_zeros = |range: std::ops::Range<usize>| {
        let mut bytes = whole.clone();
        bytes[range].fill(0);
        fs::write(&path, &bytes).unwrap();
    };
    with_zeros(durable..second);
    assert!(LogFile::open(path.clone(), 1, false).is_err(), "nothing is lost by a kill");
    let (_, found) = LogFile::open(path.clone(), 1, true).unwrap();
    assert_eq!(found.entries, [change(1)]);
    with_zeros(32..durable);
    let refused = LogFile::open(path.clone(), 1, true).unwrap_err().to_string();
    assert!(refused.contains("damaged at byte 32"), "{refused}");
}

/// A second fsync returned while the first was still at it, or after it had failed.
#[test]
fn entries_are_durable_when_their_sync_has_succeeded_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    filled(&path);
    let (mut log, _) = LogFile::open(path, 1, false).unwrap();
    assert!(log.begin_sync().unwrap().is_none());
    log.append(&change(3)).unwrap();
    let first = log.begin_sync().unwrap().unwrap();
    assert!(log.needs_sync() && log.begin_sync().unwrap().is_some());
    log.append(&change(4)).unwrap();
    log.synced(&first, first.wait()).unwrap();
    assert!(log.needs_sync(), "the fourth came later");
    let [second, third] = [(); 2].map(|()| log.begin_sync().unwrap().unwrap());
    failing::after(0);
    assert!(log.synced(&second, second.wait()).is_err());
    assert!(log.synced(&third, third.wait()).is_err(), "the disk says that all is well");
    assert!(log.needs_sync() && log.begin_sync().is_err());
    log.rewrite(&[change(3), change(4)]).unwrap();
    assert!(!log.needs_sync() && log.begin_sync().unwrap().is_none());
}

#[test]
fn a_rewritten_log_holds_what_was_asked_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    filled(&path);
    let (mut log, _) = LogFile::open(path.clone(), 1, false).unwrap();
    log.rewrite(&[change(2)]).unwrap();
    log.append(&change(3)).unwrap();
    let (log, found) = LogFile::open(path, 1, false).unwrap();
    assert_eq!(found.entries, [change(2), change(3)]);
    assert_eq!((found.generation, found.noted, found.durable), (1, 1, 1));
    assert_eq!(log.position(), Position { generation: 1, entries: 2 });
}

/// What was appended after that went into a file without a name, and was durable there until the
/// process died.
#[test]
fn a_rewritten_log_goes_on_in_its_file_also_if_its_name_may_not_be_durable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    filled(&path);
    let (mut log, _) = LogFile::open(path.clone(), 1, false).unwrap();
    failing::after(1);
    assert!(log.rewrite(&[change(2)]).is_err());
    log.append(&change(3)).unwrap();
    assert!(log.begin_sync().is_err(), "the name is not durable");
    let (_, found) = LogFile::open(path.clone(), 1, false).unwrap();
    assert_eq!(found.entries, [change(2), change(3)]);
    log.rewrite(&found.entries).unwrap();
    assert!(log.begin_sync().unwrap().is_none());
    let (_, found) = LogFile::open(path, 1, false).unwrap();
    assert_eq!((found.entries, found.generation), (vec![change(2), change(3)], 2));
}

#[test]
fn what_is_taken_back_did_not_happen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    let entries = filled(&path);
    let (mut log, _) = LogFile::open(path.clone(), 1, false).unwrap();
    log.append(&change(8)).unwrap();
    log.take_back().unwrap();
    log.append(&change(9)).unwrap();
    assert_eq!(log.position().entries, 5);
    let (_, found) = LogFile::open(path, 1, false).unwrap();
    assert_eq!(found.entries, [entries, vec![change(9)]].concat());
}

#[test]
fn entries_say_up_to_where_data_were_durable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    filled(&path);
    let (mut log, found) = LogFile::open(path.clone(), 1, false).unwrap();
    assert_eq!(found.durable, 0);
    log.append(&change(3)).unwrap();
    let mark = log.data_mark();
    log.append(&change(4)).unwrap();
    log.data_synced(mark).unwrap();
    log.data_synced(mark).unwrap();
    let (mut log, found) = LogFile::open(path.clone(), 1, false).unwrap();
    assert_eq!((found.entries.len(), found.durable), (7, 5));
    assert_eq!(found.entries.last(), Some(&Entry::Synced));
    log.cut(&found.entries[..4]).unwrap();
    let (_, found) = LogFile::open(path, 1, false).unwrap();
    assert_eq!(found.entries.len(), 4);
}

/// Each way to replace changes was an entry of its own, and no longer is. The older program, which
/// does not know the new ones, finds none of them in a log that it takes for its own.
#[test]
fn a_log_of_the_version_before_is_read_and_then_is_of_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    let (base, container) = (Base::Version(Version::default()), ContainerId(3));
    let (ino, time) = (Ino(1), Timestamp { secs: 1, nanos: 2 });
    let (ranges, mtime) = (vec![0..5], time);
    let data = DataChange { ino, container, base, cut: None, size: 5, ranges, mtime };
    let Entry::Change(rename) = change(4) else { panic!("a change") };
    let kept = [change(1), written(), Entry::Synced, settled(1)];
    let mut bodies: Vec<Vec<u8>> =
        kept.iter().map(|entry| postcard::to_stdvec(entry).unwrap()).collect();
    bodies.push(postcard::to_stdvec(&(8u8, 2u64, time, &data)).unwrap());
    bodies.push(postcard::to_stdvec(&(9u8, 2u64)).unwrap());
    bodies.push(postcard::to_stdvec(&(10u8, ino, vec![2u64, 3])).unwrap());
    bodies.push(postcard::to_stdvec(&(11u8, ino, vec![2u64], &rename)).unwrap());
    let replaced = |seqs, by| Entry::Replaced(Replaced { seqs, by });
    let mut expected = kept.to_vec();
    expected.extend([
        replaced(vec![2], Instead::More { time, data }),
        replaced(vec![2], Instead::Unsealed),
        replaced(vec![2, 3], Instead::Nothing(ino)),
        replaced(vec![2], Instead::Rename(ino, Box::new(rename))),
    ]);
    let mut bytes = header(1, Position { generation: 6, entries: 2 });
    bytes.splice(8..12, OLDEST.to_le_bytes());
    bodies.iter().for_each(|body| add(&mut bytes, body));
    fs::write(&path, &bytes).unwrap();
    let (read, damage) = LogFile::read(&path).unwrap();
    assert_eq!((&read.entries, damage), (&expected, None));
    let (mut log, found) = LogFile::open(path.clone(), 1, false).unwrap();
    assert_eq!((&found.entries, found.generation, found.noted), (&expected, 6, 2));
    assert_eq!(log.position(), Position { generation: 6, entries: 8 });
    log.append(&change(5)).unwrap();
    drop(log);
    assert_ne!(fs::read(&path).unwrap()[8..12], OLDEST.to_le_bytes());
    let (_, found) = LogFile::open(path, 1, false).unwrap();
    expected.push(change(5));
    assert_eq!((&found.entries, found.generation, found.noted), (&expected, 6, 2));
}

/// A program of version 4 does not know all entries of this one.
#[test]
fn a_log_of_the_version_before_is_read_and_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("update.log");
    let mut bytes = header(1, Position::default());
    bytes.splice(8..12, 4u32.to_le_bytes());
    let again = Entry::Replaced(Replaced { seqs: vec![5], by: Instead::Unsealed });
    for entry in [change(5), again.clone()] {
        add(&mut bytes, &postcard::to_stdvec(&entry).unwrap());
    }
    fs::write(&path, &bytes).unwrap();
    let (mut log, found) = LogFile::open(path.clone(), 1, false).unwrap();
    assert_eq!(found.entries, [change(5), again.clone()]);
    assert_eq!(fs::read(&path).unwrap()[8..12], 5u32.to_le_bytes());
    let forgot = Entry::Forgot(History { epoch: 1, lives: vec![(1, 2)] });
    log.append(&forgot).unwrap();
    drop(log);
    let (_, found) = LogFile::open(path, 1, false).unwrap();
    assert_eq!(found.entries, [change(5), again, forgot]);
}
