//! The files that a new file is most like.

use super::calls::caller;
use super::*;
use crate::host::cache::Way;
use crate::host::call::OpenFile;
use crate::nouns::Record;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// A host with files of these names and sizes in one directory, with the numbers 5, 6, ..
fn named(files: &[(&str, u64)]) -> Host {
    let mut core = core();
    let root = attr(1, Kind::Directory, 1);
    for (ino, (of, size)) in (5..).zip(files) {
        let attr = Attr { size: *size, nlink: 1, ..attr(ino, Kind::File, 3) };
        let node = Some(Node { attr, target: None });
        core.tree.install_name(root, name(of), node, Time::default());
    }
    core
}

#[test]
fn the_likeliest_is_of_nearly_the_same_size_and_name() {
    let files =
        [("disk.img", 100), ("disk.img.old", 98), ("disk.img~", 60), ("other", 100), ("disk", 9)];
    let core = named(&files);
    assert_eq!(core.bases(Ino(5), 1), [5, 6, 7].map(Ino), "no smaller one than half of it");
    assert_eq!(core.bases(Ino(9), 1), [9, 7, 6].map(Ino), "it is still written");
    assert_eq!(core.bases(Ino(8), 1), [Ino(8)]);
}

#[test]
fn the_file_that_is_replaced_comes_first() {
    let mut core = named(&[("a", 100), ("tmp", 100), ("tmp.1", 100)]);
    let rename = Record::Rename {
        from_parent: Ino::ROOT,
        from_name: name("tmp"),
        ino: Ino(6),
        to_parent: Ino::ROOT,
        to_name: name("a"),
        mode: RenameMode::Replace(Some(Ino(5))),
        open: false,
    };
    let draft = core.draft_change(rename, Caller::default(), Timestamp::default());
    core.admit(draft, Time::default());
    assert_eq!(core.bases(Ino(6), 1)[..2], [Ino(6), Ino(5)]);
}

#[test]
fn a_file_that_the_server_does_not_know_has_no_stored_version() {
    assert_eq!(named(&[("a", 10)]).stored_version(Ino(5)), Some(version(3)));
    let mut core = core();
    create(&mut core);
    assert_eq!([5, 99].map(|ino| core.stored_version(Ino(ino))), [None; 2]);
}

fn open_to_write(core: &mut Host) {
    let mut writer = OpenFile::new(Ino(5), Way::Cached, caller());
    writer.writable = true;
    core.handles.add(writer);
}

/// A program inserts bytes without emptying the file: it writes all that follows them anew.
#[test]
fn who_writes_on_over_a_large_file_makes_one_change_and_leaves_a_basis() {
    let mib = 1 << 20;
    let mut core = core();
    let file = Attr { size: 8 * mib, ..attr(5, Kind::File, 3) };
    core.tree.install_node(Node { attr: file, target: None }, Time::default());
    core.file(Ino(5)).unwrap().filled(0..8 * mib);
    assert_eq!(core.overwrites(Ino(5), &(mib..mib + 10)), mib..mib + 10);
    assert!(core.overwrites(Ino(5), &(8 * mib..9 * mib)).is_empty(), "it is an append");
    for at in 1..6 {
        let range = at * mib..(at + 1) * mib;
        let kept = core.overwrites(Ino(5), &range);
        assert_eq!(kept.is_empty(), at == 5, "near the beginning is enough");
        write(&mut core, 5, range);
    }
    open_to_write(&mut core);
    let at = |secs| Time(Duration::from_secs(secs));
    assert!(core.is_rewritten(Ino(5), at(4)) && !core.is_rewritten(Ino(5), at(6)), "a pause");
    assert!(core.overwrites(Ino(5), &(0..10)).is_empty(), "it is written elsewhere");
    write(&mut core, 5, 0..10);
    assert!(!core.is_rewritten(Ino(5), at(0)), "and is no run any more");
}

/// Databases write here and there: others see that soon.
#[test]
fn short_writes_are_no_run() {
    let mut core = core();
    let file = Attr { size: 8 << 20, ..attr(5, Kind::File, 3) };
    core.tree.install_node(Node { attr: file, target: None }, Time::default());
    core.file(Ino(5)).unwrap().filled(0..8 << 20);
    open_to_write(&mut core);
    write(&mut core, 5, 4096..8192);
    write(&mut core, 5, 8192..12_288);
    assert!(!core.is_rewritten(Ino(5), Time::default()));
}
