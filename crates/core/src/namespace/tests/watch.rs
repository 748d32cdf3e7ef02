//! What is told to who watches a directory.

use super::*;
use crate::namespace::changes::{self, Changed, Span};
use crate::namespace::watch::{self, watched};
use crate::wire::{Became, WatchedAll};

/// What is told of the rows that `change` writes: path, and `+`, `~` or `-`.
fn told(txn: &mut MapTxn, top: Ino, change: impl FnOnce(&mut MapTxn)) -> Vec<String> {
    let before = txn.clone();
    change(txn);
    let is_other = |key: &&Vec<u8>| before.0.get(*key) != txn.0.get(*key);
    let keys: BTreeSet<Vec<u8>> =
        before.0.keys().chain(txn.0.keys()).filter(is_other).cloned().collect();
    let changed = Changed::of(keys.iter().map(Vec::as_slice)).remove(&VOLUME).unwrap_or_default();
    let line = |watched: crate::wire::Watched| {
        let path: Vec<String> = watched.path.iter().map(ToString::to_string).collect();
        let mark = match watched.became {
            Became::Named(_) => '+',
            Became::Changed(_) => '~',
            Became::Gone => '-',
        };
        format!("{mark}{}", path.join("/"))
    };
    watched(txn, VOLUME, top, &changed).unwrap().unwrap().into_iter().map(line).collect()
}

/// Proves S22.2.
#[test]
fn paths_are_those_below_the_directory() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let top = tin.directory(&mut txn, Ino::ROOT, "top");
    let deep = tin.directory(&mut txn, top, "deep");
    let file = tin.file(&mut txn, deep, "file");
    let outside = tin.file(&mut txn, Ino::ROOT, "outside");
    let mode =
        |ino| Record::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } };
    let rename = |from_parent, from: &str, ino, to_parent, to: &str| Record::Rename {
        from_parent,
        from_name: name_of(from),
        ino,
        to_parent,
        to_name: name_of(to),
        mode: RenameMode::Replace(None),
        open: false,
    };
    let mut at = |txn: &mut MapTxn, top: Ino, record: Record| {
        told(txn, top, |txn| drop(tin.apply(txn, record)))
    };
    assert_eq!(at(&mut txn, top, mode(file)), ["~deep/file"]);
    assert_eq!(at(&mut txn, deep, mode(file)), ["~file"]);
    assert_eq!(at(&mut txn, Ino::ROOT, mode(deep)), ["~top/deep"]);
    assert_eq!(at(&mut txn, top, mode(top)), ["~"]);
    assert_eq!(at(&mut txn, top, mode(outside)), [] as [&str; 0]);
    let moved = rename(Ino::ROOT, "outside", outside, deep, "inside");
    assert_eq!(at(&mut txn, top, moved), ["+deep/inside"]);
    assert_eq!(at(&mut txn, top, rename(top, "deep", deep, top, "low")), ["-deep", "+low"]);
    let link = Record::Link { ino: file, parent: Ino::ROOT, name: name_of("link") };
    assert_eq!(at(&mut txn, top, link), ["~low/file"], "it has another link");
    let unlink = Record::Unlink { parent: deep, name: name_of("file"), ino: file, open: false };
    assert_eq!(at(&mut txn, top, unlink), ["-low/file"]);
    let away = rename(top, "low", deep, Ino::ROOT, "away");
    assert_eq!(at(&mut txn, top, away), ["-low"]);
    assert_eq!(at(&mut txn, deep, mode(outside)), ["~inside"]);
    assert_eq!(at(&mut txn, top, mode(outside)), [] as [&str; 0]);
}

/// Paths were put together for each name, whatever they came to: gigabytes.
#[test]
fn names_that_are_too_deep_to_tell_are_changes_of_anything() {
    let (mut txn, mut notes) = (store(), MapTxn::default());
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let mut make = |txn: &mut MapTxn, parent, name: String, node| {
        let ino = tin.ino();
        let stamped = tin.stamp(tin.creation(parent, &name, ino, node));
        tin.send_unchecked(txn, &stamped).unwrap();
        ino
    };
    let deepest = (0..2_000).fold(Ino::ROOT, |parent, number| {
        make(&mut txn, parent, format!("{number:0>255}"), NewNode::Directory)
    });
    for number in 0..2_000 {
        make(&mut txn, deepest, number.to_string(), NewNode::File);
    }
    let keys = txn.0.keys().map(Vec::as_slice).collect::<Vec<_>>();
    let rows = Changed::of(keys.into_iter());
    changes::note(&mut notes, rows, 100).unwrap();
    txn.0.extend(notes.0);
    let last = changes::head(&mut txn, 0).unwrap().last;
    let mut since = |top| {
        let span = Span { since: last - 1, through: last };
        let WatchedAll { commit, changes, others } =
            watch::since(&mut txn, VOLUME, top, span).unwrap();
        assert_eq!(commit, last);
        (changes.len(), others)
    };
    assert_eq!(since(Ino::ROOT), (0, true));
    assert_eq!(since(deepest), (2_000, false));
}

/// A file that was made under one name and linked to its own was never heard of again.
/// Proves S22.2.
#[test]
fn a_file_is_told_of_under_a_name_that_it_has() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let d = tin.directory(&mut txn, Ino::ROOT, "d");
    let f = tin.file(&mut txn, Ino::ROOT, "a");
    let link = |parent, name| Record::Link { ino: f, parent, name: name_of(name) };
    let mut after = |txn: &mut MapTxn, records: Vec<Record>| {
        for record in records {
            let done = tin.apply(txn, record);
            assert!(matches!(done, Outcome::Done { .. }), "{done:?}");
        }
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        told(txn, Ino::ROOT, |txn| drop(tin.apply(txn, Record::SetAttr { ino: f, set })))
    };
    let gone = |parent, name| unlink(parent, name, f, false);
    assert_eq!(after(&mut txn, vec![link(d, "b"), gone(d, "b")]), ["~a"]);
    assert_eq!(after(&mut txn, vec![link(d, "b"), gone(Ino::ROOT, "a")]), ["~d/b"]);
    let moved = |from, to| rename((d, from), f, (d, to), RenameMode::Replace(None));
    let renamed = vec![link(d, "c"), link(d, "e"), moved("c", "g"), gone(d, "g")];
    assert_eq!(after(&mut txn, renamed), ["~d/b"]);
    assert_eq!(after(&mut txn, vec![moved("b", "h"), gone(d, "h")]), ["~d/e"]);
    assert!(
        txn.range(&keys::all_hard_links(VOLUME), &keys::after(&keys::all_hard_links(VOLUME)), 9)
            .unwrap()
            .is_empty()
    );
}
