//! What was made and removed before the server heard of it.

use super::*;
use crate::host::log::{Instead, Replaced};

/// A file made here, with bytes of it stored, and its name removed.
fn made_and_removed(open: bool) -> Host {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    assert!(seal(&mut core, 5));
    unlink(&mut core, 5, open);
    core
}

fn cancelled(seqs: Vec<u64>) -> Entry {
    Entry::Replaced(Replaced { seqs, by: Instead::Nothing(Ino(5)) })
}

fn cancel(core: &mut Host, ino: u64) -> Vec<u64> {
    let Some(replaced) = core.take_to_cancel(Ino(ino)) else { return Vec::new() };
    core.replace(&replaced, Time::default()).iter().map(|logged| logged.seq).collect()
}

#[test]
fn nothing_is_left_of_it() {
    let mut core = made_and_removed(false);
    assert_eq!(cancel(&mut core, 5), [1, 2, 3]);
    assert!(core.queue.is_empty() && core.log_entries().is_empty());
    assert_eq!((core.unsafe_bytes(), core.acked_below()), (0, 4));
    assert!(!core.tree.is_pending(Ino(5)) && !core.tree.is_pending(Ino::ROOT));
    let known = core.tree.name(Ino::ROOT, &Name::new("a").unwrap(), Time::default());
    assert!(matches!(known, Known::Fresh(None)), "{known:?}");
    core.let_go(Ino(5));
    assert!(core.is_gone(Ino(5)));
    core.forget_file(Ino(5), Time::default());
    assert!(core.tree.peek(Ino(5)).is_none() && core.files.is_empty());
}

/// The cleaner took its data before the log said durably that it was gone: a loss of power brought
/// it back, without them.
#[test]
fn its_data_stay_until_the_log_says_durably_that_nothing_is_left() {
    let mut core = made_and_removed(false);
    let container = core.files[&Ino(5)].container();
    assert_eq!(cancel(&mut core, 5), [1, 2, 3]);
    core.let_go(Ino(5));
    core.forget_file(Ino(5), Time::default());
    assert!(!core.evict(Ino(5), container));
    assert!(core.take_scrap().contains(&Scrap::Container(Ino(5), container)));
    assert!(!core.evict(Ino(5), container), "it is on its way");
    core.take_scrap();
    assert!(core.evict(Ino(5), container));
}

#[test]
fn a_name_that_was_known_to_be_none_is_none_where_not_all_are_known() {
    let mut core = core();
    let (directory, name) = (attr(6, Kind::Directory, 3), Name::new("a").unwrap());
    core.tree.install_name(directory, name.clone(), None, Time::default());
    let record = Record::Create {
        parent: Ino(6),
        name: name.clone(),
        ino: Ino(5),
        node: NewNode::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let removal = Record::Unlink { parent: Ino(6), name: name.clone(), ino: Ino(5), open: false };
    for record in [record, removal] {
        let entry = core.draft_change(record, Caller::default(), Timestamp::default());
        core.admit(entry, Time::default());
    }
    assert_eq!(cancel(&mut core, 5), [1, 2]);
    let known = core.tree.name(Ino(6), &name, Time::default());
    assert!(matches!(known, Known::Stale(None)), "offline that is enough: {known:?}");
}

#[test]
fn a_file_that_is_open_is_kept_until_it_is_closed() {
    let mut core = core();
    create(&mut core);
    core.opened(Ino(5));
    unlink(&mut core, 5, true);
    assert!(cancel(&mut core, 5).is_empty());
    write(&mut core, 5, 0..10);
    assert!(core.closed(Ino(5)));
    // What was written last and not sealed goes, too.
    assert_eq!(cancel(&mut core, 5), [1, 2]);
    assert!(!core.is_ahead(Ino(5)) && core.unsealed().is_empty());
    assert!(core.log_entries().is_empty());
}

#[test]
fn what_cannot_be_logged_is_sent() {
    let mut core = made_and_removed(false);
    let replaced = core.take_to_cancel(Ino(5)).unwrap();
    assert!(core.queue.batch(9, 999).is_empty(), "nobody else takes them");
    core.send_after_all(&replaced);
    assert_eq!(core.queue.batch(9, 999).len(), 3);
}

/// The store was taken while uploads ahead were picked. They passed it, and it waited for ever.
#[test]
fn what_cannot_be_logged_is_uploaded_ahead() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..300_000);
    assert!(seal(&mut core, 5));
    settle(&mut core, 1, &Outcome::Done { touched: vec![attr(5, Kind::File, 2)] });
    core.ahead.follow(Some([1; 32]));
    let replaced = core.take_to_unseal(Ino(5)).unwrap();
    assert!(core.pick_ahead(Time::default()).is_none());
    core.send_after_all(&replaced);
    let picked = core.pick_ahead(Time::default()).unwrap();
    assert_eq!(picked.changes.iter().map(|logged| logged.seq).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_log_with_it_leaves_nothing_of_it() {
    let mut core = core();
    let mut log = Vec::new();
    let admit = |core: &mut Host, log: &mut Vec<Entry>, entry: Entry| {
        log.push(entry.clone());
        core.admit(entry, Time::default());
    };
    create(&mut core);
    log.push(Entry::Change(core.queue.batch(9, 999)[0].clone()));
    for range in [0..10, 20..30] {
        let entry = draft_write(&mut core, 5, range, Timestamp::default());
        admit(&mut core, &mut log, entry);
        if log.len() == 2 {
            let entry = core.draft_seal(Ino(5), Caller::default()).unwrap();
            admit(&mut core, &mut log, entry);
        }
    }
    let record = Record::Unlink {
        parent: Ino::ROOT,
        name: Name::new("a").unwrap(),
        ino: Ino(5),
        open: true,
    };
    let entry = core.draft_change(record, Caller::default(), Timestamp::default());
    admit(&mut core, &mut log, entry);
    assert_eq!(crate::host::log::replay(&log).changes.len(), 3);
    log.push(cancelled(vec![1, 2, 3]));
    let left = crate::host::log::replay(&log);
    assert!(left.changes.is_empty() && left.unsealed.is_empty(), "{left:?}");
    assert_eq!(left.newest_seq, 3);
    // And in a life that begins with any part of it noted.
    for noted in 0..=log.len() {
        let mut next = super::core();
        next.take_in_log(log.clone(), noted, &BTreeMap::new(), Time::default());
        assert!(next.queue.is_empty() && next.log_entries().is_empty(), "{noted}");
    }
}

/// A sync covered what was cancelled, which followed something: who comes later follows that.
#[test]
fn what_a_cancelled_change_followed_is_followed_after_a_restart() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7));
    core.cover(0, Ino(7));
    create(&mut core);
    core.cover(0, Ino(5));
    unlink(&mut core, 5, false);
    core.cover(0, Ino(5));
    let known = Node { attr: attr(8, Kind::File, 3), target: None };
    core.tree.install_node(known, Time::default());
    write(&mut core, 8, 0..10);
    assert!(seal(&mut core, 8));
    let log: Vec<Entry> =
        core.queue.iter().map(|(logged, _)| Entry::Change(logged.clone())).collect();
    assert_eq!(cancel(&mut core, 5), [2, 3]);
    let is_behind = |entries: &[Entry]| {
        let left = crate::host::log::replay(entries);
        left.changes
            .iter()
            .any(|logged| logged.seq == 4 && logged.after == crate::host::log::After::Everything)
    };
    assert!(is_behind(&core.log_entries()));
    let log: Vec<Entry> = log.into_iter().chain([cancelled(vec![2, 3])]).collect();
    assert!(is_behind(&log));
    settle(&mut core, 1, &Outcome::Done { touched: vec![attr(7, Kind::File, 4)] });
    assert_eq!(core.queue.batch(9, 999).len(), 1);
}

fn amend(core: &mut Host, log: &mut Vec<Entry>) -> bool {
    let Some(replaced) = core.take_to_amend(Ino(5), &Caller::default()) else { return false };
    log.push(Entry::Replaced(replaced.clone()));
    core.replace(&replaced, Time::default());
    true
}

fn stored(core: &Host, seq: u64) -> DataChange {
    match core.queue.change(seq) {
        Some(Change::Data(data)) => data.clone(),
        other => panic!("{other:?}"),
    }
}

/// A file is made and saved, then written at other places, cut, and written anew; the log says the
/// same.
#[test]
fn what_is_saved_again_is_one_change() {
    let mut core = core();
    create(&mut core);
    let mut log = vec![Entry::Change(core.queue.batch(9, 999)[0].clone())];
    let write = |core: &mut Host, log: &mut Vec<Entry>, range: Range<u64>| {
        let entry = draft_write(core, 5, range, Timestamp::default());
        log.push(entry.clone());
        core.admit(entry, Time::default());
    };
    write(&mut core, &mut log, 0..100);
    assert!(!amend(&mut core, &mut log), "nothing waits with data");
    let entry = core.draft_seal(Ino(5), Caller::default()).unwrap();
    log.push(entry.clone());
    core.admit(entry, Time::default());
    let preserved = Entry::Preserved { seq: 2, range: 50..100, sums: Vec::new() };
    log.push(preserved.clone());
    core.admit(preserved, Time::default());
    write(&mut core, &mut log, 60..120);
    assert!(!core.queue.is_rewritten(2));
    assert!(amend(&mut core, &mut log));
    // After a loss of power it would be sent again as it was.
    assert!(core.queue.is_rewritten(2));
    assert_eq!(stored(&core, 2).ranges, [0..120]);
    assert_eq!(core.preserved(2).iter().collect::<Vec<_>>(), [50..60]);
    let cut = core.draft_resize(Ino(5), 40, false, Timestamp::default()).unwrap();
    log.push(cut.clone());
    core.admit(cut, Time::default());
    write(&mut core, &mut log, 80..90);
    assert!(amend(&mut core, &mut log));
    let both = stored(&core, 2);
    assert_eq!((both.ranges.clone(), both.cut, both.size), (vec![0..40, 80..90], Some(40), 90));
    assert_eq!((both.base, core.queue.bytes()), (crate::nouns::Base::Result(1), 50));
    assert!(core.preserved(2).is_empty() && core.queue.len() == 2);
    let left = crate::host::log::replay(&log);
    assert_eq!(left.changes[1].change, Change::Data(both.clone()));
    assert!(left.unsealed.is_empty() && left.preserved[&2].is_empty());
    let mut next = super::core();
    next.take_in_log(log, 0, &BTreeMap::new(), Time::default());
    assert_eq!(stored(&next, 2), both);
    // Emptied, it has another container, and nothing of what was there before.
    let emptied = core.draft_resize(Ino(5), 0, false, Timestamp::default()).unwrap();
    let place = emptied.place().unwrap().container;
    core.admit(emptied, Time::default());
    super::write(&mut core, 5, 0..7);
    assert!(amend(&mut core, &mut Vec::new()));
    let anew = stored(&core, 2);
    assert_eq!((anew.ranges, anew.cut, anew.container), (vec![0..7], Some(0), place));
    let scrap = core.take_scrap();
    assert!(scrap.contains(&Scrap::Container(Ino(5), both.container)));
    // What could not be removed is scrap again.
    core.keep_scrap();
    assert_eq!(core.take_scrap(), scrap);
    settle(&mut core, 1, &Outcome::Done { touched: vec![attr(5, Kind::File, 2)] });
    settle(&mut core, 2, &Outcome::Done { touched: vec![attr(5, Kind::File, 3)] });
    assert!(!core.is_ahead(Ino(5)) && !core.tree.is_pending(Ino(5)) && core.queue.is_empty());
}

/// File 7 of the server, with a store that waits, and bytes written since.
fn stored_and_written() -> (Host, Vec<Entry>) {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    let mut log = Vec::new();
    for range in [10..30, 20..40] {
        let entry = draft_write(&mut core, 7, range, Timestamp::default());
        log.push(entry.clone());
        core.admit(entry, Time::default());
        if log.len() == 1 {
            let entry = core.draft_seal(Ino(7), Caller::default()).unwrap();
            log.push(entry.clone());
            core.admit(entry, Time::default());
        }
    }
    (core, log)
}

#[test]
fn a_store_that_is_taken_back_is_unsealed_with_what_was_written_since() {
    let (mut core, mut log) = stored_and_written();
    let replaced = core.take_to_unseal(Ino(7)).unwrap();
    log.push(Entry::Replaced(replaced.clone()));
    let gone = core.replace(&replaced, Time::default());
    assert_eq!(gone.iter().map(|logged| logged.seq).collect::<Vec<_>>(), [1]);
    assert!(core.queue.is_empty() && core.is_ahead(Ino(7)) && core.tree.is_pending(Ino(7)));
    let left = crate::host::log::replay(&log);
    assert!(left.changes.is_empty());
    assert_eq!((&left.unsealed[0].ranges, left.unsealed[0].size), (&vec![10..40], 40));
    let mut next = super::core();
    let unsealed = next.take_in_log(log, 0, &BTreeMap::new(), Time::default());
    assert_eq!(unsealed[0].ranges, [10..40]);
    // It is stored whole if it is not removed after all.
    assert!(seal(&mut core, 7));
    let data = stored(&core, 2);
    assert_eq!((data.ranges, data.base), (vec![10..40], left.unsealed[0].base));
    settle(&mut core, 2, &Outcome::Done { touched: vec![attr(7, Kind::File, 4)] });
    assert!(!core.is_ahead(Ino(7)) && !core.tree.is_pending(Ino(7)));
}

/// A file that is written for longer than five seconds is stored in parts.
#[test]
fn each_part_of_a_file_is_taken_back() {
    let (mut core, _) = stored_and_written();
    assert!(seal(&mut core, 7));
    for seq in [2, 1] {
        let replaced = core.take_to_unseal(Ino(7)).unwrap();
        assert_eq!(replaced.seqs, [seq]);
        core.replace(&replaced, Time::default());
    }
    assert!(core.queue.is_empty() && core.is_ahead(Ino(7)) && core.tree.is_pending(Ino(7)));
    unlink(&mut core, 7, true);
    settle_with_links(&mut core, 3, 0);
    assert!(core.unsealed().is_empty() && !core.tree.is_pending(Ino(7)));
}

/// A server that is put back has the file again, and not what was written to it while it had no
/// name.
#[test]
fn of_a_removed_open_file_nothing_is_noted() {
    let (mut core, _) = stored_and_written();
    core.opened(Ino(7));
    assert!(seal(&mut core, 7));
    unlink(&mut core, 7, true);
    settle(&mut core, 1, &Outcome::Done { touched: vec![attr(7, Kind::File, 4)] });
    settle(&mut core, 2, &Outcome::Done { touched: vec![attr(7, Kind::File, 5)] });
    let valid = |core: &mut Host| {
        let notes = core.take_notes();
        core.noted(&notes, true);
        notes.files.into_iter().find(|(ino, _)| *ino == Ino(7)).map(|(_, note)| note.valid)
    };
    assert!(valid(&mut core).is_some_and(|valid| !valid.is_empty()));
    settle_with_links(&mut core, 3, 0);
    assert!(valid(&mut core).is_some_and(|valid| valid.is_empty()));
}

#[test]
fn what_is_taken_back_goes_nowhere_once_the_last_name_is_gone() {
    for nlink in [0, 1] {
        let (mut core, _) = stored_and_written();
        let replaced = core.take_to_unseal(Ino(7)).unwrap();
        core.replace(&replaced, Time::default());
        unlink(&mut core, 7, true);
        settle_with_links(&mut core, 2, nlink);
        assert_eq!(core.unsealed().is_empty(), nlink == 0);
    }
}

#[test]
fn a_file_that_is_open_or_has_another_name_is_stored() {
    let (mut core, _) = stored_and_written();
    core.opened(Ino(7));
    assert_eq!(core.take_to_unseal(Ino(7)), None);
    core.closed(Ino(7));
    let twice = Attr { nlink: 2, ..attr(7, Kind::File, 4) };
    let mut core = stored_and_written().0;
    core.tree.cancel(&Touched { inodes: vec![Ino(7); 2], names: Vec::new() });
    core.tree.install_node(Node { attr: twice, target: None }, Time::default());
    assert_eq!(core.take_to_unseal(Ino(7)), None);
}
