use std::collections::BTreeMap;

use proptest::prelude::*;
use segue_core::namespace::{MetaSnapshot, MetaTxn};

use super::*;
use crate::disk_space::DiskSpace;

fn open(dir: &Path) -> Arc<Store> {
    Arc::new(Store::make(&dir.join("meta.db")).unwrap())
}

fn put(key: &'static [u8]) -> impl FnOnce(&mut Kv<'_>) -> Result<(), MetaFault> {
    move |txn| txn.put(key, b"value").map_err(Fault::Store)
}

fn has(store: &Store, key: &[u8]) -> bool {
    store.read_blocking(|kv| kv.get(key)).unwrap().unwrap().is_some()
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Range(Vec<u8>, Vec<u8>, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop::collection::vec(prop_oneof![Just(0u8), Just(7), Just(255)], 0..4);
    prop_oneof![
        (key(), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(k, v)| Step::Put(k, v)),
        key().prop_map(Step::Remove),
        (key(), key(), 0usize..6).prop_map(|(from, to, limit)| Step::Range(from, to, limit)),
    ]
}

/// What a map answers to a range.
fn range(
    map: &BTreeMap<Vec<u8>, Vec<u8>>,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = map.iter().filter(|(key, _)| &key[..] >= from && &key[..] < to);
    inside.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn the_store_is_an_ordered_map(
        groups in prop::collection::vec(prop::collection::vec(step(), 1..20), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        for steps in groups {
            let store = open(dir.path());
            for step in &steps {
                match step {
                    Step::Put(key, value) => drop(expected.insert(key.clone(), value.clone())),
                    Step::Remove(key) => drop(expected.remove(key)),
                    Step::Range(..) => {}
                }
            }
            let done = store.write_blocking(move |txn| {
                for step in steps {
                    match step {
                        Step::Put(key, value) => txn.put(&key, &value),
                        Step::Remove(key) => txn.remove(&key),
                        Step::Range(from, to, limit) => txn.range(&from, &to, limit).map(drop),
                    }
                    .map_err(Fault::Store)?;
                }
                Ok(())
            });
            prop_assert_eq!(done, Ok(()));
            let all = (&[][..], &[255, 255, 255, 255][..], 99);
            for (from, to, limit) in [all, (&[7], &[255], 2), (&[255], &[0], 9)] {
                let found = store.read_blocking(|kv| kv.range(from, to, limit)).unwrap().unwrap();
                prop_assert_eq!(found, range(&expected, from, to, limit));
            }
        }
    }
}

/// A job that does `steps`, sees after each what a map has, and fails in the end or not.
fn job(
    steps: Vec<Step>,
    fails: bool,
    map: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
) -> impl FnOnce(&mut Kv<'_>) -> Result<(), MetaFault> {
    move |txn| {
        let mut expected = map.lock().unwrap().clone();
        for step in steps {
            match &step {
                Step::Put(key, value) => {
                    txn.put(key, value).map_err(Fault::Store)?;
                    expected.insert(key.clone(), value.clone());
                }
                Step::Remove(key) => {
                    txn.remove(key).map_err(Fault::Store)?;
                    expected.remove(key);
                }
                Step::Range(from, to, limit) => {
                    let found = txn.range(from, to, *limit).map_err(Fault::Store)?;
                    assert_eq!(found, range(&expected, from, to, *limit));
                }
            }
            let (Step::Put(key, _) | Step::Remove(key) | Step::Range(key, ..)) = &step;
            let found = txn.get(key).map_err(Fault::Store)?;
            assert_eq!(found.as_ref(), expected.get(key));
        }
        if fails {
            return Err(Fault::Damaged("a row"));
        }
        *map.lock().unwrap() = expected;
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Jobs of one commit see each other's writes, but for those that fail; also where SQLite has
    /// been given what those before them wrote.
    #[test]
    fn a_group_is_an_ordered_map_for_each_of_its_jobs(
        groups in prop::collection::vec(
            prop::collection::vec((prop::collection::vec(step(), 1..8), any::<bool>()), 1..6),
            1..4,
        ),
        large in prop_oneof![1usize..40, Just(write_buffer::LARGE)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.db");
        let connection = sqlite::writer(&path, true).unwrap();
        let map = Arc::new(Mutex::new(BTreeMap::new()));
        let poisoned = Arc::new(AtomicBool::new(false));
        for group in groups {
            let (jobs, queue) = channel::<Box<dyn Job>>();
            let mut answers = Vec::new();
            for (steps, fails) in group {
                let (answer, answered) = oneshot::channel();
                let work = job(steps, fails, map.clone());
                let work = |txn: &mut Kv<'_>| Ok((work(txn)?, Vec::new()));
                jobs.send(Box::new(Task::new(None, work, answer))).unwrap();
                answers.push((answered, fails));
            }
            drop(jobs);
            let promises = Promises::new(std::collections::BTreeSet::new(), &[], 0);
            let disk_space = DiskSpace::beside(&path);
            writer::run(&connection, &queue, (&poisoned, &disk_space), &promises, large);
            for (answered, fails) in answers {
                let damaged = Err(StoreError::Damaged("a row".into()));
                let expected = if fails { damaged } else { Ok(()) };
                let came = answered.blocking_recv().unwrap().map(|((), _)| ());
                prop_assert_eq!(came, expected);
            }
            let reader = sqlite::reader(&path).unwrap();
            let stored = Kv::reading(&reader).range(&[], &[255; 9], 99).unwrap();
            prop_assert_eq!(stored, range(&map.lock().unwrap(), &[], &[255; 9], 99));
        }
    }
}

#[test]
fn a_job_that_finds_damage_leaves_nothing_and_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let damaged = store.write_blocking(|txn| {
        txn.put(b"half", b"done").map_err(Fault::Store)?;
        Err::<(), _>(Fault::Damaged("a row"))
    });
    assert_eq!(damaged, Err(StoreError::Damaged("a row".into())));
    assert_eq!(store.write_blocking(put(b"whole")), Ok(()));
    assert!(!has(&store, b"half") && has(&store, b"whole"));
}

#[test]
fn a_store_whose_disk_failed_is_not_believed_until_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(store.write_blocking(put(b"before")), Ok(()));
    let failed = store.write_blocking(|txn| {
        txn.put(b"never", b"").map_err(Fault::Store)?;
        Err::<(), _>(Fault::Store(rusqlite::Error::InvalidQuery))
    });
    assert_eq!(failed, Err(StoreError::Poisoned));
    assert_eq!(store.write_blocking(put(b"after")), Err(StoreError::Poisoned));
    drop(store);
    let store = open(dir.path());
    assert!(has(&store, b"before") && !has(&store, b"never") && !has(&store, b"after"));
    assert_eq!(store.write_blocking(put(b"after")), Ok(()));
}

/// "Reads take a connection of their own, see one moment of the store and never wait for a
/// commit": here one that does not end before the read has.
#[test]
fn a_read_does_not_wait_for_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(store.write_blocking(put(b"before")), Ok(()));
    let (began, has_begun) = channel();
    let (read, has_read) = channel();
    let writing = store.submit(None, move |txn| {
        txn.put(b"during", b"").map_err(Fault::Store)?;
        began.send(()).unwrap();
        let in_time = has_read.recv_timeout(std::time::Duration::from_secs(20)).is_ok();
        Ok((in_time, Vec::new()))
    });
    has_begun.recv().unwrap();
    assert!(has(&store, b"before") && !has(&store, b"during"));
    read.send(()).unwrap();
    let in_time = writing.blocking_recv().unwrap().map(|(in_time, _)| in_time);
    assert_eq!(in_time, Ok(true), "the commit was over before");
}

#[tokio::test]
async fn writes_that_come_together_are_all_answered() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let tasks: Vec<_> = (0..500u32)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = number.to_be_bytes();
                store.write(move |txn| txn.put(&key, b"").map_err(Fault::Store)).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Ok(()));
    }
    let all = store.read(|kv| kv.range(&[], &[255], usize::MAX)).await.unwrap().unwrap();
    assert_eq!(all.len(), 500);
}

/// A damaged row failed whatever was looked for beside it, such as the number of each new file
/// behind that of a damaged one.
#[test]
fn a_damaged_row_fails_who_needs_it_and_nobody_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for key in [b"c", b"e", b"k", b"m", b"q", b"u", b"x"] {
        assert_eq!(store.write_blocking(put(key)), Ok(()));
    }
    let db = Connection::open(dir.path().join("meta.db")).unwrap();
    db.execute("UPDATE kv SET v = x'00' WHERE k = CAST('e' AS BLOB)", []).unwrap();
    // "m" with one other bit.
    db.execute("UPDATE kv SET k = CAST('o' AS BLOB) WHERE k = CAST('m' AS BLOB)", []).unwrap();

    // "u" with two other bits.
    db.execute("UPDATE kv SET k = CAST('v' AS BLOB) WHERE k = CAST('u' AS BLOB)", []).unwrap();

    let get = |key: &[u8]| store.read_blocking(|kv| kv.get(key)).unwrap();
    for missing in [b"d", b"f", b"l", b"n", b"p", b"t", b"w"] {
        assert_eq!(get(missing).unwrap(), None);
    }
    for damaged in [b"e", b"m", b"o", b"u", b"v"] {
        assert!(get(damaged).is_err_and(|error| sqlite::is_damage(&error)));
    }
    let range = |from: &[u8], to: &[u8]| {
        let found = store.read_blocking(|kv| kv.range(from, to, 9)).unwrap();
        found.map(|rows| rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    };
    for (from, to, keys) in
        [(b"a", b"e", vec![b"c"]), (b"f", b"m", vec![b"k"]), (b"n", b"r", vec![b"q"])]
    {
        assert_eq!(
            range(from, to).unwrap(),
            keys.into_iter().map(|key| key.to_vec()).collect::<Vec<_>>()
        );
    }
    for (from, to) in [(b"a", b"f"), (b"e", b"f"), (b"l", b"n"), (b"m", b"z")] {
        assert!(range(from, to).is_err(), "{from:?}..{to:?}");
    }
    let past = store.read_blocking(|kv| kv.range_past_damage(b"d", b"r", 9)).unwrap().unwrap();
    let past: Vec<_> = past.into_iter().map(|(key, value)| (key, value.is_some())).collect();
    assert_eq!(past, [(b"e".to_vec(), false), (b"k".to_vec(), true), (b"q".to_vec(), true)]);

    let healed = store.write_blocking(|txn| {
        let rows = txn.range_past_damage(b"d", b"f", 9).map_err(Fault::Store)?;
        rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)
    });
    assert_eq!((healed, get(b"e").unwrap()), (Ok(()), None));
}
