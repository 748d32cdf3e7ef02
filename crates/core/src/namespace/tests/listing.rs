//! What a host is told of a directory whose names it had been told before.

use super::*;
use crate::namespace::changes::{self, Changed};
use crate::namespace::read;
use crate::wire::{Page, Readdir};

/// Carries out `change` and notes what it changed, as the server does with each commit.
fn commit(txn: &mut MapTxn, change: impl FnOnce(&mut MapTxn)) {
    let before = txn.clone();
    change(txn);
    let keys: Vec<Vec<u8>> = before.0.keys().chain(txn.0.keys()).cloned().collect();
    let is_other = |key: &&Vec<u8>| before.0.get(*key) != txn.0.get(*key);
    let changed = Changed::of(keys.iter().filter(is_other).map(Vec::as_slice));
    changes::note(txn, changed, 100).unwrap();
}

fn page(txn: &mut MapTxn, ino: Ino, since: Option<u64>) -> Page {
    read::page(txn, VOLUME, &Readdir { ino, after: None, since, limit: 4096 }).unwrap()
}

fn names(page: &Page) -> Vec<String> {
    page.entries.iter().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn only_what_changed_is_told_again() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let top = tin.directory(&mut txn, Ino::ROOT, "top");
    let file = tin.file(&mut txn, top, "file");
    commit(&mut txn, |txn| {
        tin.file(txn, top, "other");
    });
    let whole = page(&mut txn, top, None);
    assert_eq!((names(&whole), &whole.gone), (vec!["file".into(), "other".into()], &None));
    let changed = |txn: &mut MapTxn| page(txn, top, Some(whole.commit));
    let nothing = changed(&mut txn);
    assert_eq!((nothing.entries.len(), nothing.gone), (0, Some(vec![])));
    commit(&mut txn, |txn| {
        tin.file(txn, top, "new");
        tin.file(txn, Ino::ROOT, "elsewhere");
        let unlink = Record::Unlink { parent: top, name: name_of("file"), ino: file, open: false };
        tin.apply(txn, unlink);
    });
    // It came and went: who never heard of it hears that it is gone.
    commit(&mut txn, |txn| {
        let brief = tin.file(txn, top, "brief");
        let unlink =
            Record::Unlink { parent: top, name: name_of("brief"), ino: brief, open: false };
        tin.apply(txn, unlink);
    });
    let told = changed(&mut txn);
    assert_eq!(names(&told), ["new"]);
    assert!(told.gone.as_ref().is_some_and(|gone| gone.contains(&name_of("file"))));
    assert!(!told.more && told.commit > whole.commit);
    assert_eq!(told.directory, page(&mut txn, top, None).directory);
    // What is not known is told whole.
    for since in [0, told.commit + 1] {
        assert_eq!(page(&mut txn, top, Some(since)).gone, None);
    }
    for _ in 0..300 {
        commit(&mut txn, |txn| drop(tin.apply(txn, chmod(top))));
    }
    assert_eq!(changed(&mut txn).gone, None, "too many commits to look at");
}

/// Targets of links are long, and all of it was one message.
#[test]
fn what_changed_is_told_only_where_it_is_no_more_than_a_page() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let top = tin.directory(&mut txn, Ino::ROOT, "top");
    commit(&mut txn, |txn| drop(tin.apply(txn, chmod(top))));
    let before = page(&mut txn, top, None).commit;
    let mut link = |txn: &mut MapTxn, names: std::ops::Range<u32>| {
        commit(txn, |txn| {
            for name in names {
                let target = NewNode::Symlink(vec![b'x'; 4_095]);
                let ino = tin.ino();
                let stamped = tin.stamp(tin.creation(top, &name.to_string(), ino, target));
                tin.send_unchecked(txn, &stamped).unwrap();
            }
        });
        page(txn, top, Some(before))
    };
    let few = link(&mut txn, 0..900);
    assert_eq!((few.entries.len(), few.gone, few.more), (900, Some(vec![]), false));
    let many = link(&mut txn, 900..1_800);
    assert!(many.entries.len() < 1_100 && many.gone.is_none() && many.more);
}

fn chmod(ino: Ino) -> Record {
    Record::SetAttr { ino, set: SetAttr { times_now: true, ..SetAttr::default() } }
}
