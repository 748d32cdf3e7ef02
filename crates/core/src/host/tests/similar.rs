//! The files that a new file is most like.

use super::*;
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
