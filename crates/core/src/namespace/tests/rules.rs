//! POSIX rules, one by one.

use std::time::Duration;

use super::*;
use crate::persist::{self, Lm};

/// A disk that has room for removals only takes nothing new, and everything that makes room.
/// Proves S20.12.
#[test]
fn a_full_disk_takes_removals() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, f);
    tin.apply(&mut txn, whole(f, base, b"contents"));
    let base = version(&mut txn, f);
    let (ino, attribute) = (tin.ino(), b"user.a".to_vec());
    tin.apply(&mut txn, Record::SetXattr { ino: f, name: attribute.clone(), value: vec![1] });
    let version = attr(&mut txn, f).data_version;
    let additions = [
        tin.creation(d, "new", ino, NewNode::File),
        tin.creation(d, "new", ino, NewNode::Symlink(b"f".to_vec())),
        Record::Link { ino: f, parent: d, name: name_of("new") },
        Record::SetXattr { ino: f, name: b"user.b".to_vec(), value: vec![1] },
        Record::Clone { ino: f, base, from: f, version },
        splice(f, base, 0, b"x", 8),
    ];
    tin.admits = Admits::Removals;
    for record in additions {
        assert_eq!(tin.apply(&mut txn, record.clone()), refused(Refusal::NoSpace), "{record:?}");
    }
    let removals = [
        Record::RemoveXattr { ino: f, name: attribute },
        rename((Ino::ROOT, "f"), f, (d, "f"), RenameMode::NoReplace),
        whole(f, base, b""),
        unlink(d, "f", f, false),
        Record::Rmdir { parent: Ino::ROOT, name: name_of("d"), ino: d },
    ];
    for record in removals {
        let outcome = tin.apply(&mut txn, record.clone());
        assert!(matches!(outcome, Outcome::Done { .. }), "{record:?}: {outcome:?}");
    }
    tin.admits = Admits::All;
    tin.file(&mut txn, Ino::ROOT, "f");
}

#[test]
fn a_directory_counts_its_subdirectories() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let a = tin.directory(&mut txn, Ino::ROOT, "a");
    let b = tin.directory(&mut txn, a, "b");
    assert_eq!((attr(&mut txn, Ino::ROOT).nlink, attr(&mut txn, a).nlink), (3, 3));
    tin.apply(&mut txn, rename((a, "b"), b, (Ino::ROOT, "b"), RenameMode::Replace(None)));
    assert_eq!((attr(&mut txn, Ino::ROOT).nlink, attr(&mut txn, a).nlink), (4, 2));
    let gone = Record::Rmdir { parent: Ino::ROOT, name: name_of("b"), ino: b };
    assert!(matches!(tin.apply(&mut txn, gone), Outcome::Done { .. }));
    assert_eq!(attr(&mut txn, Ino::ROOT).nlink, 3);
    assert_eq!(tally(&mut txn, VOLUME).unwrap().inodes, 2);
}

#[test]
fn wrong_kinds_are_refused_with_the_right_reason() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let f = tin.file(&mut txn, d, "f");
    let e = tin.directory(&mut txn, Ino::ROOT, "e");
    let ino = tin.ino();
    let cases = [
        (tin.creation(f, "x", ino, NewNode::File), Refusal::NotDirectory),
        (tin.creation(d, "x", ino, NewNode::BlockDevice(1)), Refusal::NotPermitted),
        (tin.creation(d, "x", ino, NewNode::Symlink(vec![])), Refusal::NotFound),
        (tin.creation(d, "x", ino, NewNode::Symlink(vec![b'x'; 4096])), Refusal::NameTooLong),
        (Record::Link { ino: d, parent: d, name: name_of("x") }, Refusal::NotPermitted),
        (unlink(Ino::ROOT, "d", d, false), Refusal::IsDirectory),
        (Record::Rmdir { parent: d, name: name_of("f"), ino: f }, Refusal::NotDirectory),
        (Record::Rmdir { parent: Ino::ROOT, name: name_of("d"), ino: d }, Refusal::NotEmpty),
        (rename((Ino::ROOT, "x"), f, (d, "y"), RenameMode::NoReplace), Refusal::NotFound),
        (rename((Ino::ROOT, "d"), d, (d, "y"), RenameMode::NoReplace), Refusal::Invalid),
        (rename((Ino::ROOT, "e"), e, (d, "f"), RenameMode::NoReplace), Refusal::Exists),
        (
            rename((Ino::ROOT, "e"), e, (d, "f"), RenameMode::Replace(Some(f))),
            Refusal::NotDirectory,
        ),
        (rename((d, "f"), f, (Ino::ROOT, "e"), RenameMode::Replace(Some(e))), Refusal::IsDirectory),
        (
            rename((Ino::ROOT, "e"), e, (Ino::ROOT, "d"), RenameMode::Replace(Some(d))),
            Refusal::NotEmpty,
        ),
        (rename((d, "f"), f, (Ino::ROOT, "d"), RenameMode::Exchange(d)), Refusal::Invalid),
        (rename((Ino::ROOT, "e"), e, (d, "f"), RenameMode::Exchange(d)), Refusal::Changed),
        (splice(d, Base::Result(1), 0, b"x", 1), Refusal::IsDirectory),
        (splice(f, Base::Result(2), 0, b"xy", 1), Refusal::Protocol),
    ];
    let before = txn.clone();
    for (record, refusal) in cases {
        assert_eq!(tin.apply(&mut txn, record.clone()), refused(refusal), "{record:?}");
    }
    let outcomes = |txn: &MapTxn| txn.0.iter().filter(|(key, _)| key[0] != 0x22).count();
    assert_eq!(outcomes(&txn), outcomes(&before));
    txn.0.retain(|key, _| before.0.contains_key(key));
    assert_eq!(txn, before, "a refusal changed something");
}

#[test]
fn renames_replace_exchange_and_do_nothing_between_links() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let e = tin.directory(&mut txn, Ino::ROOT, "e");
    let f = tin.file(&mut txn, d, "f");
    tin.apply(&mut txn, Record::Link { ino: f, parent: d, name: name_of("g") });
    tin.apply(&mut txn, rename((d, "f"), f, (d, "g"), RenameMode::Replace(Some(f))));
    assert_eq!((named(&mut txn, d, "f"), named(&mut txn, d, "g")), (Some(f), Some(f)));
    assert_eq!(attr(&mut txn, f).nlink, 2);

    tin.apply(&mut txn, rename((d, "f"), f, (Ino::ROOT, "e"), RenameMode::Exchange(e)));
    assert_eq!((named(&mut txn, Ino::ROOT, "e"), named(&mut txn, d, "f")), (Some(f), Some(e)));
    assert_eq!((attr(&mut txn, Ino::ROOT).nlink, attr(&mut txn, d).nlink), (3, 3));

    let h = tin.directory(&mut txn, Ino::ROOT, "h");
    tin.apply(&mut txn, rename((Ino::ROOT, "h"), h, (d, "f"), RenameMode::Replace(Some(e))));
    assert_eq!(named(&mut txn, d, "f"), Some(h));
    assert_eq!((attr(&mut txn, Ino::ROOT).nlink, attr(&mut txn, d).nlink), (3, 3));
    assert_eq!(read::getattr(&mut txn, VOLUME, e), Err(Refusal::Stale.into()));
}

#[test]
fn links_have_a_limit() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let mut row = rows::inode(&mut txn, VOLUME, f).unwrap().unwrap();
    row.attr.nlink = create::LINK_MAX;
    put_row(&mut txn, &keys::inode(VOLUME, f), &row).unwrap();
    let link = Record::Link { ino: f, parent: Ino::ROOT, name: name_of("g") };
    assert_eq!(tin.apply(&mut txn, link), refused(Refusal::TooManyLinks));
}

/// Proves S1.6.
#[test]
fn an_unlinked_open_file_stays_until_its_last_close() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let before = tally(&mut txn, VOLUME).unwrap().inodes;
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, true));
    assert_eq!(attr(&mut txn, f).nlink, 0);
    let base = version(&mut txn, f);
    assert!(matches!(tin.apply(&mut txn, whole(f, base, b"abc")), Outcome::Done { .. }));
    assert_eq!(content(&mut txn, f), b"abc");
    tin.apply(&mut txn, Record::Release { ino: f });
    assert_eq!(read::getattr(&mut txn, VOLUME, f), Err(Refusal::Stale.into()));

    let g = tin.file(&mut txn, Ino::ROOT, "g");
    tin.apply(&mut txn, unlink(Ino::ROOT, "g", g, true));
    drop_orphans(&mut txn, (tin.id, VOLUME), true).unwrap();
    assert_eq!(read::getattr(&mut txn, VOLUME, g), Err(Refusal::Stale.into()));
    let after = tally(&mut txn, VOLUME).unwrap();
    assert_eq!((after.inodes, after.allocated), (before, 0));
}

/// A host died with an unlinked file open and stores to it in its log: after its next start
/// they found no file, and became a conflict copy of what nobody had a name for.
#[test]
fn stores_to_an_orphan_that_went_with_its_host_go_nowhere() {
    let mut txn = store();
    let (mut tin, mut zinc) = (Client::new(&mut txn, 1, OWNER), Client::new(&mut txn, 2, OWNER));
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, f);
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, true));
    drop_orphans(&mut txn, (tin.id, VOLUME), true).unwrap();
    let rows = txn.clone();
    let stored = tin.apply(&mut txn, splice(f, base, 3, b"abc", 6));
    assert_eq!(stored, Outcome::Done { touched: Vec::new() });
    assert_eq!(named(&mut txn, Ino::ROOT, ".segue-conflicts"), None);
    // Who did not remove it keeps what it wrote.
    let mut txn = rows;
    let stored = zinc.apply(&mut txn, whole(f, base, b"abc"));
    assert!(matches!(stored, Outcome::Conflict { .. }), "{stored:?}");
}

#[test]
fn a_new_log_has_no_stores_to_what_went_before() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, true));
    drop_orphans(&mut txn, (tin.id, VOLUME), true).unwrap();
    let remembered = keys::dropped(tin.id, f);
    assert!(txn.0.contains_key(&remembered));
    bind(&mut txn, tin.id, "identity", VOLUME, 2).unwrap().unwrap();
    assert!(!txn.0.contains_key(&remembered));
}

/// An attribute of the inode says the same, so that hosts need not ask for extended ones.
/// Proves S4.2.
#[test]
fn a_level_is_an_attribute_too_and_must_be_one() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let name = persist::ATTRIBUTE.to_vec();
    let set = |value: &[u8]| {
        let (name, value) = (name.clone(), value.to_vec());
        Record::SetXattr { ino: f, name, value }
    };
    assert_eq!(tin.apply(&mut txn, set(b"sometimes")), refused(Refusal::Invalid));
    assert_eq!(attr(&mut txn, f).lm, None);
    tin.apply(&mut txn, set(b"log:2s"));
    assert_eq!(attr(&mut txn, f).lm, Some(Lm::Log(Duration::from_secs(2))));
    tin.apply(&mut txn, set(b"close"));
    assert_eq!(attr(&mut txn, f).lm, Some(Lm::Close));
    assert_eq!(read::xattrs(&mut txn, VOLUME, f).unwrap().values.len(), 1);
    tin.apply(&mut txn, Record::RemoveXattr { ino: f, name });
    assert_eq!(attr(&mut txn, f).lm, None);
}

/// Proves S23.2.
#[test]
fn extended_attributes_have_namespaces_and_limits() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    let set = |name: &str, len| Record::SetXattr {
        ino: f,
        name: name.as_bytes().to_vec(),
        value: vec![1; len],
    };
    let cases = [
        (set("trusted.a", 1), Refusal::NotSupported),
        (set("security.a", 1), Refusal::NotSupported),
        (set("system.posix_acl_access", 1), Refusal::NotSupported),
        (set("user.", 1), Refusal::Invalid),
        (set(&format!("user.{}", "x".repeat(251)), 1), Refusal::AttributeTooLarge),
        (set("user.a", (64 << 10) + 1), Refusal::AttributeTooLarge),
        (Record::RemoveXattr { ino: f, name: b"user.a".to_vec() }, Refusal::NoAttribute),
    ];
    for (record, refusal) in cases {
        assert_eq!(tin.apply(&mut txn, record), refused(refusal));
    }
    for number in 0..64 {
        let name = format!("user.{number:02}");
        assert!(matches!(tin.apply(&mut txn, set(&name, 5)), Outcome::Done { .. }));
    }
    assert_eq!(tin.apply(&mut txn, set("user.more", 5)), refused(Refusal::NoSpace));
    assert!(matches!(tin.apply(&mut txn, set("user.00", 64 << 10)), Outcome::Done { .. }));
    tin.apply(&mut txn, Record::RemoveXattr { ino: f, name: b"user.01".to_vec() });
    let values = read::xattrs(&mut txn, VOLUME, f).unwrap().values;
    assert_eq!((values.len(), values[0].1.len()), (63, 64 << 10));
    assert_eq!(values[1].0, b"user.02");
}

#[test]
fn pages_follow_each_other_in_byte_order() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let names = ["b", "a", "a b", "aa", "\u{fc}", "Z"];
    names.iter().for_each(|name| {
        tin.file(&mut txn, Ino::ROOT, name);
    });
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let ask =
            crate::wire::Readdir { ino: Ino::ROOT, after: after.clone(), since: None, limit: 2 };
        let page = read::page(&mut txn, VOLUME, &ask).unwrap();
        all.extend(page.entries.iter().map(|(name, _)| name.to_string()));
        after = page.entries.last().map(|(name, _)| name.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(all, ["Z", "a", "a b", "aa", "b", "\u{fc}"]);
}

/// A host that had many files open when it died: one transaction removed all of them.
#[test]
fn orphans_go_some_at_a_time() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    for number in 0..150 {
        let (ino, name) = (tin.ino(), format!("file-{number}"));
        let creation = tin.creation(Ino::ROOT, &name, ino, NewNode::File);
        tin.apply(&mut txn, creation);
        tin.apply(&mut txn, unlink(Ino::ROOT, &name, ino, true));
    }
    let orphans = |txn: &MapTxn| {
        txn.0.keys().filter(|key| key.starts_with(&keys::all_orphans(VOLUME))).count()
    };
    let mut left = vec![orphans(&txn)];
    while drop_orphans(&mut txn, (tin.id, VOLUME), true).unwrap() {
        assert_eq!(check::findings(&mut txn), []);
        left.push(orphans(&txn));
    }
    assert!(left.len() > 2 && left.is_sorted_by(|before, after| before > after), "{left:?}");
    assert_eq!((orphans(&txn), tally(&mut txn, VOLUME).unwrap().inodes), (0, 1));
}

/// Nobody sends a store of so many pieces, and one that somebody makes up is no long commit.
#[test]
fn a_store_has_so_many_pieces() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let store = |txn: &mut MapTxn, count: u64| {
        let hole = |at| Piece { offset: at, bytes: PieceBytes::Hole { len: 1 } };
        let (base, pieces) = (version(txn, file), (0..count).map(hole).collect());
        let size = count;
        Record::Store(Store { ino: file, base, cut: None, size, pieces, mtime: None, whole: true })
    };
    let record = store(&mut txn, 1 << 16);
    assert!(matches!(tin.apply(&mut txn, record), Outcome::Done { .. }));
    let record = store(&mut txn, (1 << 16) + 1);
    assert_eq!(tin.apply(&mut txn, record), refused(Refusal::Limit));
}

/// Truncating a file of many small extents to something takes exactly what is beyond.
#[test]
fn a_long_file_is_cut_where_it_is_said() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let piece = |at: u64| Piece { offset: at * 5000, bytes: PieceBytes::Inline(vec![1; 5000]) };
    let (base, size, pieces) = (version(&mut txn, file), 5000 * 300, (0..300).map(piece).collect());
    let store = Store { ino: file, base, cut: None, size, pieces, mtime: None, whole: true };
    tin.apply(&mut txn, Record::Store(store));
    let (base, cut) = (version(&mut txn, file), Some(7000));
    let (size, pieces) = (900_000, Vec::new());
    let store = Store { ino: file, base, cut, size, pieces, mtime: None, whole: false };
    assert!(matches!(tin.apply(&mut txn, Record::Store(store)), Outcome::Done { .. }));
    assert_eq!(content(&mut txn, file), [vec![1; 7000], vec![0; 893_000]].concat());
    assert_eq!(attr(&mut txn, file).allocated, 7000);
}
