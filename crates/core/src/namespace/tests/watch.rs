//! What is told to who watches a directory.

use super::*;
use crate::namespace::changes::Changed;
use crate::namespace::watch::watched;
use crate::wire::Became;

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
    watched(txn, VOLUME, top, &changed).unwrap().into_iter().map(line).collect()
}

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
