//! What the next process makes of what a full disk left.

use super::*;
use crate::host::log::{Logged, covered_by};
use crate::host::recover::needs;

/// What is noted of a file of which the first hundred bytes are here.
fn noted(core: &mut Host) -> BTreeMap<Ino, FileNote> {
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    core.file(Ino(7)).unwrap().filled(0..100);
    let notes = core.take_notes();
    core.noted(&notes, true);
    notes.files.iter().cloned().collect()
}

/// A write failed half-way, and what was noted before could not be noted anew.
#[test]
fn what_a_failed_write_spoiled_is_not_valid_for_the_next_process() {
    let files = noted(&mut core());
    let container = files[&Ino(7)].container;
    for (container, is_there) in [(container, false), (ContainerId(container.0 + 1), true)] {
        let mut next = core();
        next.tree
            .install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
        let log = vec![Entry::Spoiled { ino: Ino(7), container, range: 10..20 }];
        assert!(needs(&log, 0).inodes.contains(&Ino(7)));
        assert!(next.take_in_log(log, 0, &files, Time::default()).is_empty());
        let file = &next.files[&Ino(7)];
        assert_eq!(file.is_valid(10..20, 100), is_there);
        assert!(file.is_valid(0..10, 100) && file.is_valid(20..100, 100));
    }
}

/// The file was closed for good, its container went, and the log could not say so: zeros would have
/// been sent.
#[test]
fn what_went_with_its_container_is_not_stored() {
    let place = |container| crate::host::log::WritePlace {
        ino: Ino(7),
        container: ContainerId(container),
        base: crate::nouns::Base::Version(Default::default()),
        old_size: 0,
        time: Timestamp::default(),
    };
    let written = |data| Entry::Written { place: place(1), offset: 5, data };
    let inline = || Payload::Inline(vec![1; 10]);
    for (data, is_there, is_stored) in [
        (Payload::Durable { len: 10 }, true, true),
        (Payload::Durable { len: 10 }, false, false),
        (inline(), false, true),
    ] {
        let mut next = core();
        let log = vec![written(data)];
        let mut unsealed = next.take_in_log(log.clone(), 0, &BTreeMap::new(), Time::default());
        assert_eq!(unsealed.len(), 1);
        let lost = next.drop_lost(&mut unsealed, &covered_by(&log), |_, _| is_there);
        assert_eq!((unsealed.len(), lost.len()), if is_stored { (1, 0) } else { (0, 1) });
        assert_eq!(next.has_unsealed(), is_stored);
    }
}

/// The server forgot a directory, and the index its names, those of pending changes too.
#[test]
fn a_pending_name_means_what_its_last_change_made_of_it() {
    let name = |name: &str| Name::new(name.as_bytes().to_vec()).unwrap();
    let link = |ino, to: &str| Record::Link { ino: Ino(ino), parent: Ino(2), name: name(to) };
    let unlink = |ino, of: &str| Record::Unlink {
        parent: Ino(2),
        name: name(of),
        ino: Ino(ino),
        open: false,
    };
    let changes = [link(7, "a"), link(7, "b"), unlink(7, "b"), unlink(8, "c"), link(9, "c")];
    let logged = |(seq, record)| {
        Entry::Change(Logged {
            seq,
            time: Timestamp::default(),
            caller: Default::default(),
            operation: None,
            after: Default::default(),
            known: None,
            change: Change::Record(record),
        })
    };
    let log: Vec<Entry> = (1..).zip(changes).map(logged).collect();
    for is_forgotten in [true, false] {
        let mut next = core();
        for ino in [7, 9, 11] {
            let attr = attr(ino, Kind::File, 1);
            next.tree.install_node(Node { attr, target: None }, Time::default());
        }
        if !is_forgotten {
            next.tree.install_noted_name(Ino(2), name("a"), Some(Ino(11)));
        }
        next.take_in_log(log.clone(), log.len(), &BTreeMap::new(), Time::default());
        let meaning = |of: &str| next.tree.name(Ino(2), &name(of), Time::default());
        let of_the_index = Known::Fresh(Some(Ino(if is_forgotten { 7 } else { 11 })));
        assert_eq!(meaning("a"), of_the_index);
        assert_eq!(meaning("b"), Known::Fresh(None));
        assert_eq!(meaning("c"), Known::Fresh(Some(Ino(9))));
    }
}

/// Nothing was noted of the data of an empty file. The copy that was on its way was forgotten: the
/// file was shown as empty, and its removal was refused as that of a file which another host had
/// changed.
#[test]
fn a_copy_by_the_server_is_on_its_way_in_the_next_life_too() {
    for noted in 0..=1 {
        let mut before = core();
        let empty = Attr { size: 0, ..attr(7, Kind::File, 3) };
        before.tree.install_node(Node { attr: empty, target: None }, Time::default());
        let base = before.file(Ino(7)).unwrap().base();
        let record = Record::Clone { ino: Ino(7), base, from: Ino(8), version: version(2) };
        let clone = before.draft_change(record, Caller::default(), Timestamp::default());
        let mut core = core();
        core.tree.install_node(Node { attr: empty, target: None }, Time::default());
        core.take_in_log(vec![clone], noted, &BTreeMap::new(), Time::default());
        assert!(core.is_cloning(Ino(7)), "{noted}");
        let (parent, name) = (Ino::ROOT, Name::new("f").unwrap());
        let unlink = Record::Unlink { parent, name, ino: Ino(7), open: false };
        let entry = core.draft_apart(unlink, Caller::default(), Timestamp::default());
        let known = entry.change().and_then(|logged| logged.known);
        assert_eq!(known, Some(crate::nouns::Base::Result(1)), "{noted}");
    }
}

/// The file was empty in the next life. What was written to it then covered the server's copy with
/// zeros.
#[test]
fn a_copy_by_the_server_is_as_long_as_its_source_in_the_next_life_too() {
    let node = |ino, size, counter| {
        let (change, data_version) = (version(counter), version(counter));
        let attr = Attr { size, change, data_version, ..attr(ino, Kind::File, counter) };
        Node { attr, target: None }
    };
    let clone = Record::Clone {
        ino: Ino(7),
        base: crate::nouns::Base::Version(version(3)),
        from: Ino(8),
        version: version(5),
    };
    let mut before = core();
    before.tree.install_node(node(7, 0, 3), Time::default());
    let clone = before.draft_change(clone, Caller::default(), Timestamp::default());
    assert!(needs(std::slice::from_ref(&clone), 0).inodes.contains(&Ino(8)));
    let next = |source: Option<Node>, is_noted: bool| {
        let mut next = core();
        let target = Some(node(7, 0, 3)).filter(|_| !is_noted);
        for node in target.into_iter().chain(source) {
            next.tree.install_node(node, Time::default());
        }
        let noted = usize::from(is_noted);
        next.take_in_log(vec![clone.clone()], noted, &BTreeMap::new(), Time::default());
        // The server does not have the copy yet.
        next.tree.install_node(node(7, 0, 3), Time::default());
        next
    };
    let size = |core: &Host| match core.tree.attr(Ino(7), Time::default()) {
        Known::Fresh(attr) | Known::Stale(attr) => Some(attr.size),
        Known::Unknown => None,
    };
    assert_eq!(size(&next(Some(node(8, 300, 5)), false)), Some(300));
    let unsure =
        [(None, false), (Some(node(8, 200, 4)), false), (None, true)].map(|(source, is_noted)| {
            let mut core = next(source, is_noted);
            assert_eq!(size(&core), None, "how long it is was not noted");
            let copied = Outcome::Done { touched: vec![node(7, 300, 6).attr] };
            settle(&mut core, 1, &copied);
            size(&core)
        });
    assert_eq!(unsure, [Some(300); 3]);
}

/// A host that lost power knew nothing of a file but what its log said, and heard of a later
/// version before the outcome of its store. The data stayed at the version of the store, which the
/// server had no more: reads failed for ever.
#[test]
fn data_follow_the_version_that_was_told_before_the_outcome_of_a_store() {
    let place = crate::host::log::WritePlace {
        ino: Ino(7),
        container: ContainerId(1),
        base: crate::nouns::Base::Version(version(5)),
        old_size: 100,
        time: Timestamp::default(),
    };
    let written = Entry::Written { place, offset: 0, data: Payload::Inline(vec![1; 10]) };
    let mut core = core();
    let unsealed = core.take_in_log(vec![written], 0, &BTreeMap::new(), Time::default());
    let sealed = core.draft_leftover(unsealed[0].clone(), Caller::nobody(), true);
    let seq = sealed.change().unwrap().seq;
    core.admit(sealed, Time::default());
    let node = |counter| Node { attr: attr(7, Kind::File, counter), target: None };
    core.tree.install_node(node(12), Time::default());
    let stored = Outcome::Done { touched: vec![attr(7, Kind::File, 8)] };
    settle(&mut core, seq, &stored);
    assert!(!core.is_ahead(Ino(7)));
    assert_eq!(core.files[&Ino(7)].version(), version(12));
}
