//! Rights of readers, of the users of a host, and of identities that are not a host's.

use super::*;

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
