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

/// Proves S17.7.
#[test]
fn a_reader_changes_nothing() {
    let mut txn = store();
    let rights = Rights { role: Role::Reader, no_root_squash: false };
    let mut tin = Client::new(&mut txn, 1, rights);
    let ino = tin.ino();
    let record = tin.creation(Ino::ROOT, "f", ino, NewNode::File);
    assert_eq!(tin.apply(&mut txn, record), refused(Refusal::ReadOnly));
}

/// Proves S17.2, S17.3.
#[test]
fn users_of_a_host_are_told_apart() {
    let mut txn = store();
    let mut owner = Client::new(&mut txn, 1, OWNER);
    let d = owner.directory(&mut txn, Ino::ROOT, "tmp");
    let sticky = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    owner.apply(&mut txn, Record::SetAttr { ino: d, set: sticky });
    let mut alice = Client::new(&mut txn, 2, HOST).user(1000, 1000, &[50]);
    let mut bob = Client::new(&mut txn, 3, HOST).user(1001, 1001, &[]);
    let mut root = Client::new(&mut txn, 4, HOST).user(0, 0, &[]);
    let f = alice.file(&mut txn, d, "f");
    let ino = alice.ino();
    let record = alice.creation(Ino::ROOT, "x", ino, NewNode::File);
    assert_eq!(alice.apply(&mut txn, record), refused(Refusal::Access));

    let set = |set| Record::SetAttr { ino: f, set };
    let chmod = SetAttr { mode: Some(0o2750), ..SetAttr::default() };
    let chgrp = SetAttr { gid: Some(50), ..SetAttr::default() };
    let chown = SetAttr { uid: Some(1001), ..SetAttr::default() };
    assert_eq!(bob.apply(&mut txn, set(chmod)), refused(Refusal::NotPermitted));
    assert_eq!(alice.apply(&mut txn, set(chown)), refused(Refusal::NotPermitted));
    assert!(matches!(alice.apply(&mut txn, set(chmod)), Outcome::Done { .. }));
    assert_eq!(attr(&mut txn, f).mode, 0o2750);
    assert!(matches!(alice.apply(&mut txn, set(chgrp)), Outcome::Done { .. }));
    assert_eq!((attr(&mut txn, f).gid, attr(&mut txn, f).mode), (50, 0o750));
    let base = version(&mut txn, f);
    assert_eq!(bob.apply(&mut txn, whole(f, base, b"x")), refused(Refusal::Access));
    let take = unlink(d, "f", f, false);
    assert_eq!(bob.apply(&mut txn, take.clone()), refused(Refusal::NotPermitted));
    assert_eq!(root.apply(&mut txn, take.clone()), refused(Refusal::NotPermitted));
    assert!(matches!(alice.apply(&mut txn, take), Outcome::Done { .. }));

    let squashed = root.file(&mut txn, d, "r");
    assert_eq!(attr(&mut txn, squashed).uid, 65534);
}

/// It is what programs give for "leave it": one such change of the root shut everybody out.
/// Proves S17.9.
#[test]
fn no_user_and_no_group_has_the_number_that_means_none() {
    let mut txn = store();
    let mut owner = Client::new(&mut txn, 1, OWNER);
    let file = owner.file(&mut txn, Ino::ROOT, "f");
    let none = Some(u32::MAX);
    for set in
        [SetAttr { uid: none, ..Default::default() }, SetAttr { gid: none, ..Default::default() }]
    {
        for ino in [Ino::ROOT, file] {
            let outcome = owner.apply(&mut txn, Record::SetAttr { ino, set });
            assert_eq!(outcome, refused(Refusal::Invalid));
        }
    }
    let ino = owner.ino();
    let mut create = owner.creation(Ino::ROOT, "g", ino, NewNode::File);
    if let Record::Create { uid, .. } = &mut create {
        *uid = u32::MAX;
    }
    assert_eq!(owner.apply(&mut txn, create), refused(Refusal::Invalid));
    let mut nobody = Client::new(&mut txn, 2, HOST).user(1000, u32::MAX, &[]);
    let ino = nobody.ino();
    let create = nobody.creation(Ino::ROOT, "g", ino, NewNode::File);
    assert_eq!(nobody.apply(&mut txn, create), refused(Refusal::Invalid));
}

/// Only its user was nobody: who was in root's group changed what that may write.
/// Proves S17.8.
#[test]
fn roots_group_is_nobodys_too() {
    let mut txn = store();
    let mut owner = Client::new(&mut txn, 1, OWNER);
    let d = owner.directory(&mut txn, Ino::ROOT, "d");
    let mode = SetAttr { mode: Some(0o770), uid: Some(0), gid: Some(0), ..Default::default() };
    owner.apply(&mut txn, Record::SetAttr { ino: d, set: mode });
    let trusted = Rights { no_root_squash: true, ..HOST };
    for (id, rights, gid, groups, may) in [
        (2, HOST, 0, &[][..], false),
        (3, HOST, 1000, &[7, 0], false),
        (4, trusted, 0, &[], true),
        (5, trusted, 1000, &[7, 0], true),
    ] {
        let mut user = Client::new(&mut txn, id, rights).user(1000, gid, groups);
        let name = format!("f{id}");
        let ino = user.ino();
        let create = user.creation(d, &name, ino, NewNode::File);
        match user.apply(&mut txn, create) {
            Outcome::Done { .. } => assert!(may, "{id}"),
            outcome => assert!(!may && outcome == refused(Refusal::Access), "{id}: {outcome:?}"),
        }
    }
    // It makes files in its own directories, which are nobody's group's.
    let open = SetAttr { mode: Some(0o777), ..Default::default() };
    owner.apply(&mut txn, Record::SetAttr { ino: d, set: open });
    let mut user = Client::new(&mut txn, 6, HOST).user(1000, 0, &[]);
    let ino = user.ino();
    let mut create = user.creation(d, "mine", ino, NewNode::File);
    if let Record::Create { uid, gid, .. } = &mut create {
        (*uid, *gid) = (1000, 0);
        assert!(matches!(user.apply(&mut txn, create), Outcome::Done { .. }));
        assert_eq!((attr(&mut txn, ino).uid, attr(&mut txn, ino).gid), (1000, 65534));
    }
}

#[test]
fn a_group_is_inherited_where_the_directory_says_so() {
    let mut txn = store();
    let mut owner = Client::new(&mut txn, 1, OWNER);
    let d = owner.directory(&mut txn, Ino::ROOT, "shared");
    let set = SetAttr { mode: Some(0o2777), gid: Some(77), ..SetAttr::default() };
    owner.apply(&mut txn, Record::SetAttr { ino: d, set });
    let mut alice = Client::new(&mut txn, 2, HOST).user(1000, 1000, &[]);
    let create = |ino, gid| Record::Create {
        parent: d,
        name: name_of(&format!("f{gid}")),
        ino,
        node: NewNode::File,
        mode: 0o2755,
        uid: 1000,
        gid,
    };
    let (a, b) = (alice.ino(), alice.ino());
    assert_eq!(alice.apply(&mut txn, create(b, 78)), refused(Refusal::NotPermitted));
    assert!(matches!(alice.apply(&mut txn, create(a, 77)), Outcome::Done { .. }));
    assert_eq!((attr(&mut txn, a).gid, attr(&mut txn, a).mode), (77, 0o755));
}

/// Proves S17.5.
#[test]
fn set_id_bits_go_when_others_than_root_write() {
    let mut txn = store();
    let trusted = Rights { role: Role::Host, no_root_squash: true };
    let mut root = Client::new(&mut txn, 1, trusted).user(0, 0, &[]);
    let f = root.file(&mut txn, Ino::ROOT, "f");
    let set = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    let set_id = Record::SetAttr { ino: f, set };
    root.apply(&mut txn, set_id.clone());
    assert_eq!(attr(&mut txn, f).mode, 0o6755, "rsync and tar bring them");
    let base = version(&mut txn, f);
    root.apply(&mut txn, whole(f, base, b"x"));
    assert_eq!(attr(&mut txn, f).mode, 0o6755);
    for uid in [1000, 0] {
        let base = version(&mut txn, f);
        let mut owner =
            Client::new(&mut txn, if uid == 0 { 2 } else { 3 }, OWNER).user(uid, uid, &[]);
        owner.apply(&mut txn, whole(f, base, b"y"));
        assert_eq!(attr(&mut txn, f).mode, 0o755, "{uid} of a personal identity");
        root.apply(&mut txn, set_id.clone());
    }
}

/// The owner of a volume is root of each host that serves users: a writer had become root there.
/// Proves S17.11.
#[test]
fn a_personal_identity_makes_no_set_id_program() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let made = |tin: &mut Client, txn: &mut _, node, mode| {
        let ino = tin.ino();
        let (parent, name) = (Ino::ROOT, Name::new(format!("{mode:o} {ino}")).unwrap());
        let record = Record::Create { parent, name, ino, node, mode, uid: 0, gid: 0 };
        assert!(matches!(tin.apply(txn, record), Outcome::Done { .. }));
        ino
    };
    let file = made(&mut tin, &mut txn, NewNode::File, 0o7755);
    let directory = made(&mut tin, &mut txn, NewNode::Directory, 0o2755);
    assert_eq!(attr(&mut txn, file).mode, 0o1755);
    assert_eq!(attr(&mut txn, directory).mode, 0o2755, "its group is passed on");
    let set = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    tin.apply(&mut txn, Record::SetAttr { ino: file, set });
    tin.apply(&mut txn, Record::SetAttr { ino: directory, set });
    assert_eq!((attr(&mut txn, file).mode, attr(&mut txn, directory).mode), (0o755, 0o6755));
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

/// A client came back between being found silent and the removal of what it had open.
#[test]
fn a_client_that_came_back_keeps_its_orphans() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, true));
    seen(&mut txn, tin.id, NOW).unwrap();
    let silent = silent_clients(&mut txn, NOW + 1).unwrap();
    assert_eq!(silent, [(tin.id, VOLUME)]);
    seen(&mut txn, tin.id, NOW + 5).unwrap();
    drop_silent_orphans(&mut txn, silent[0], NOW + 1).unwrap();
    assert_eq!(attr(&mut txn, f).nlink, 0);
    drop_silent_orphans(&mut txn, silent[0], NOW + 6).unwrap();
    assert_eq!(read::getattr(&mut txn, VOLUME, f), Err(Refusal::Stale.into()));
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
