//! What is left of removed files, for how long, and how much.

use super::*;
use crate::promise::KEPT_SECONDS as KEPT;
use crate::upkeep::RemnantAges;
use crate::upkeep::collect::collect;

/// Attributes of what is left of `ino`.
fn left(txn: &mut MapTxn, ino: Ino) -> Option<Attr> {
    match read::getattr_or_remnant(txn, VOLUME, ino) {
        Ok((node, true)) => Some(node.attr),
        Ok((_, false)) => panic!("it is there"),
        Err(stop) => {
            assert_eq!(stop, Stop::Refused(Refusal::Stale));
            None
        }
    }
}

/// Bytes of what is left of a file, whose extents are inline.
fn bytes_left(txn: &mut MapTxn, attr: &Attr) -> Vec<u8> {
    let (ino, len) = (attr.ino, attr.size);
    let ask = crate::wire::Fetch { ino, version: attr.data_version, offset: 0, len };
    let mut bytes = Vec::new();
    for segment in read::contents(txn, VOLUME, &ask).unwrap() {
        let Some(Source::Inline(inline)) = segment.source else { panic!("{segment:?}") };
        bytes.extend_from_slice(&inline);
    }
    bytes
}

fn usage(txn: &mut MapTxn) -> (u64, u64) {
    let tally = tally(txn, VOLUME).unwrap();
    (tally.inodes, tally.allocated)
}

/// A file of `bytes` under `name`, which replaces what has the name.
fn saved(txn: &mut MapTxn, tin: &mut Client, name: &str, bytes: &[u8]) -> Ino {
    let ino = tin.file(txn, Ino::ROOT, "new");
    let written = whole(ino, version(txn, ino), bytes);
    tin.apply(txn, written);
    let mode = RenameMode::Replace(None);
    let mode = match named(txn, Ino::ROOT, name) {
        Some(replaced) => RenameMode::Replace(Some(replaced)),
        None => mode,
    };
    let outcome = tin.apply(txn, rename((Ino::ROOT, "new"), ino, (Ino::ROOT, name), mode));
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    ino
}

/// A host that had looked a file up could not open it when another host replaced it.
/// Proves S6.21, S6.23.
#[test]
fn a_replaced_file_can_be_read_for_a_minute() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let one = saved(&mut txn, &mut tin, "file", b"one");
    let value = b"value".to_vec();
    let set = Record::SetXattr { ino: one, name: b"user.of".to_vec(), value };
    tin.apply(&mut txn, set);
    let before = attr(&mut txn, one);
    let two = saved(&mut txn, &mut tin, "file", b"and two");
    assert_eq!(usage(&mut txn), (2, 7), "it counts no more");
    assert_eq!(named(&mut txn, Ino::ROOT, "file"), Some(two));
    let mut ages = RemnantAges::default();
    for now in [5, 5 + KEPT - 1] {
        assert_eq!(ages.expire(&mut txn, now, 9, false).unwrap(), 0);
        while collect(&mut txn, u64::MAX, 9).unwrap().rows > 0 {}
        let found = left(&mut txn, one).unwrap();
        assert_eq!((found.nlink, found.data_version), (0, before.data_version));
        assert!(found.change > before.change);
        assert_eq!(bytes_left(&mut txn, &found), b"one");
        assert_eq!(read::xattrs(&mut txn, VOLUME, one).unwrap().values.len(), 1);
    }
    assert_eq!(ages.expire(&mut txn, 5 + KEPT, 9, false).unwrap(), 1);
    assert_eq!(left(&mut txn, one), None);
    while collect(&mut txn, u64::MAX, 9).unwrap().rows > 0 {}
    assert_eq!(check::findings(&mut txn), []);
    let of_one = |key: &Vec<u8>| keys::inode_part(key).is_some_and(|(ino, _)| ino == one);
    let tables = keys::of_volume(VOLUME);
    let is_own = |key: &&Vec<u8>| tables.iter().any(|table| key.starts_with(table));
    assert!(!txn.0.keys().filter(is_own).any(of_one), "no row is left");
    assert_eq!(remnant_tally(&mut txn, VOLUME).unwrap(), RemnantTally::default());
}

/// No rule sees what is left: the inode is gone to all that change it, as ever.
#[test]
fn nothing_changes_what_is_left() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = saved(&mut txn, &mut tin, "file", b"one");
    let known = version(&mut txn, file);
    tin.apply(&mut txn, unlink(Ino::ROOT, "file", file, false));
    let found = left(&mut txn, file).unwrap();
    let name = name_of("again");
    let link = Record::Link { ino: file, parent: Ino::ROOT, name };
    assert_eq!(tin.apply(&mut txn, link), refused(Refusal::Stale));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let set = Record::SetAttr { ino: file, set };
    assert_eq!(tin.apply(&mut txn, set), refused(Refusal::Stale));
    // Another host writes to what it had open: the bytes are kept beside.
    let mut zinc = Client::new(&mut txn, 2, OWNER);
    let outcome = zinc.apply(&mut txn, whole(file, known, b"two"));
    assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(left(&mut txn, file), Some(found));
    assert_eq!(bytes_left(&mut txn, &found), b"one");
}

/// A server that starts again knows no ages: what is left stays for another minute. What a host
/// asks for does, too.
#[test]
fn what_is_asked_for_stays() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let [held, other] = ["held", "other"].map(|name| {
        let ino = saved(&mut txn, &mut tin, name, b"text");
        tin.apply(&mut txn, unlink(Ino::ROOT, name, ino, false));
        ino
    });
    let mut before = RemnantAges::default();
    assert_eq!(before.expire(&mut txn, 7, 9, false).unwrap(), 0);
    let mut ages = RemnantAges::default();
    for now in 0..KEPT {
        assert_eq!(ages.expire(&mut txn, now, 9, false).unwrap(), 0);
    }
    for round in 1..20 {
        let asked = round * (KEPT - 1);
        ages.asked(VOLUME, held, asked);
        ages.expire(&mut txn, asked + KEPT - 1, 9, false).unwrap();
        assert!(left(&mut txn, held).is_some());
        assert_eq!(left(&mut txn, other), None);
    }
    ages.expire(&mut txn, 20 * KEPT, 9, false).unwrap();
    assert_eq!(left(&mut txn, held), None);
    assert_eq!(remnant_tally(&mut txn, VOLUME).unwrap(), RemnantTally::default());
}

/// What is removed later is older than no other: each has its minute.
#[test]
fn each_has_its_own_minute() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let mut ages = RemnantAges::default();
    let mut removed = Vec::new();
    for now in 0..200 {
        if now % 7 == 0 {
            let ino = saved(&mut txn, &mut tin, "file", b"text");
            tin.apply(&mut txn, unlink(Ino::ROOT, "file", ino, false));
            removed.push((now, ino));
        }
        ages.expire(&mut txn, now, 9, false).unwrap();
        for (at, ino) in &removed {
            assert_eq!(left(&mut txn, *ino).is_some(), now - at < KEPT, "{at} at {now}");
        }
    }
}

/// Number and bytes are bounded, without any look at the time; a full disk has none of it.
/// Proves S6.22, S6.23.
#[test]
fn the_oldest_make_room() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let remove = |txn: &mut MapTxn, tin: &mut Client, number: u64| {
        let name = format!("{number}");
        let ino = tin.ino();
        for record in [
            tin.creation(Ino::ROOT, &name, ino, NewNode::File),
            unlink(Ino::ROOT, &name, ino, false),
        ] {
            let stamped = tin.stamp(record);
            tin.send_unchecked(txn, &stamped).unwrap();
        }
        ino
    };
    let all: Vec<Ino> = (0..=REMNANTS_MAX).map(|n| remove(&mut txn, &mut tin, n)).collect();
    assert_eq!(remnant_tally(&mut txn, VOLUME).unwrap().files, REMNANTS_MAX);
    assert_eq!(left(&mut txn, all[0]), None);
    assert!(left(&mut txn, all[1]).is_some());
    assert_eq!(check::findings(&mut txn), []);

    // One is as large as all may be, and is the last; the next takes its place.
    let large = saved(&mut txn, &mut tin, "large", b"text");
    let mut row: rows::InodeRow =
        get_row(&mut txn, &keys::inode(VOLUME, large), "an inode").unwrap().unwrap();
    row.attr.allocated = REMNANT_BYTES_MAX + 1;
    put_row(&mut txn, &keys::inode(VOLUME, large), &row).unwrap();
    let unlinked = tin.stamp(unlink(Ino::ROOT, "large", large, false));
    tin.send_unchecked(&mut txn, &unlinked).unwrap();
    assert!(left(&mut txn, large).is_some());
    assert_eq!(remnant_tally(&mut txn, VOLUME).unwrap().files, 1);
    let last = remove(&mut txn, &mut tin, 0);
    assert_eq!((left(&mut txn, large), left(&mut txn, last).is_some()), (None, true));
    let mut ages = RemnantAges::default();
    ages.asked(VOLUME, last, 1);
    assert_eq!(ages.expire(&mut txn, 1, 9, true).unwrap(), 1);
    assert_eq!(left(&mut txn, last), None);
}

/// A host alone with its volume leaves nothing: nobody else can have looked it up.
#[test]
fn without_other_hosts_nothing_is_left() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    tin.is_shared = false;
    let file = saved(&mut txn, &mut tin, "file", b"text");
    let before = txn.0.len();
    tin.apply(&mut txn, unlink(Ino::ROOT, "file", file, false));
    assert_eq!(left(&mut txn, file), None);
    // Inode, name and extent went, and the outcome came.
    assert_eq!(txn.0.len(), before - 2);
}

/// What is open at the host that removes it is left when that host has closed it, and when its
/// process ended: others may read it.
#[test]
fn orphans_are_left_too() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let [closed, dropped] = ["closed", "dropped"].map(|name| {
        let ino = saved(&mut txn, &mut tin, name, b"text");
        tin.apply(&mut txn, unlink(Ino::ROOT, name, ino, true));
        assert_eq!(attr(&mut txn, ino).nlink, 0);
        ino
    });
    tin.apply(&mut txn, Record::Release { ino: closed });
    drop_orphans(&mut txn, (ClientId([1; 16]), VOLUME), true).unwrap();
    for ino in [closed, dropped] {
        let found = left(&mut txn, ino).unwrap();
        assert_eq!(bytes_left(&mut txn, &found), b"text");
    }
    assert_eq!(check::findings(&mut txn), []);
}

/// A host that makes an inode under the number of one that is gone does not get its contents.
#[test]
fn a_number_is_used_again() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = saved(&mut txn, &mut tin, "file", b"secret");
    tin.apply(&mut txn, unlink(Ino::ROOT, "file", file, false));
    let again = tin.creation(Ino::ROOT, "again", file, NewNode::File);
    let outcome = tin.apply(&mut txn, again);
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    let written = whole(file, version(&mut txn, file), b"mine");
    tin.apply(&mut txn, written);
    while collect(&mut txn, u64::MAX, 9).unwrap().rows > 0 {}
    assert_eq!(content(&mut txn, file), b"mine");
    assert_eq!(check::findings(&mut txn), []);
}

/// A link is left: it may be on the way to a file that is being opened. A directory is not.
#[test]
fn links_are_left_and_directories_are_not() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let link = tin.make(&mut txn, Ino::ROOT, "link", NewNode::Symlink(b"to".to_vec()));
    let directory = tin.directory(&mut txn, Ino::ROOT, "dir");
    tin.apply(&mut txn, unlink(Ino::ROOT, "link", link, false));
    let (parent, name) = (Ino::ROOT, name_of("dir"));
    tin.apply(&mut txn, Record::Rmdir { parent, name, ino: directory });
    let (node, is_remnant) = read::getattr_or_remnant(&mut txn, VOLUME, link).unwrap();
    assert_eq!((node.target.as_deref(), is_remnant), (Some(&b"to"[..]), true));
    assert_eq!(left(&mut txn, directory), None);
}

/// Damaged rows are found and put right, and keep nothing for ever.
#[test]
fn damage_keeps_nothing() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let kept = saved(&mut txn, &mut tin, "kept", b"kept");
    let file = saved(&mut txn, &mut tin, "file", b"text");
    tin.apply(&mut txn, unlink(Ino::ROOT, "kept", kept, false));
    tin.apply(&mut txn, unlink(Ino::ROOT, "file", file, false));
    let tables = [keys::remnant(VOLUME, file), keys::remnant_tally(VOLUME)];
    let place = txn.0.keys().find(|key| key.starts_with(&keys::remnant_orders(VOLUME))).cloned();
    for key in tables.into_iter().chain(place) {
        let mut damaged = txn.clone();
        damaged.0.insert(key.clone(), vec![0xff]);
        assert_ne!(check::findings(&mut damaged), [], "{key:?}");
        let (mut fixed, heard) = crate::upkeep::tests::repair::repaired(&txn, &damaged);
        assert_eq!((heard.repaired.is_empty(), heard.lost), (false, Vec::new()), "{key:?}");
        for txn in [&mut fixed, &mut damaged] {
            RemnantAges::default().expire(txn, 0, 9, true).unwrap();
            while collect(txn, u64::MAX, 9).unwrap().rows > 0 {}
            assert!(!txn.0.keys().any(|key| key.starts_with(&keys::all_extents(VOLUME))));
            assert_eq!(check::findings(txn), []);
        }
    }
}
