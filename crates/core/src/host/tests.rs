use std::ops::Range;
use std::time::Duration;

use super::*;
use crate::host::cache::{Known, Promised};
use crate::host::log::{Change, DataChange, Entry, Payload};
use crate::nouns::{Kind, NewNode, Outcome, RenameMode, Timestamp, Version};
use crate::refusal::Refusal;
use crate::testing::attr;
use crate::wire::Node;

mod calls;
mod cancel;
mod clones;
mod contradictions;
mod driven;
mod exchange;
mod fetches;
mod flushes;
mod forgets;
mod handles;
mod levels;
mod looks;
mod merges;
mod names;
mod opens;
mod outcomes;
mod passthrough;
mod places;
mod promises;
mod recover;
mod recoveries;
mod seals;
mod sends;
mod settles;
mod sharing;
mod similar;
mod superseded;
mod syncs;

fn core() -> Host {
    let mut core = Host::new(100, 1);
    core.tree.set_poll(Duration::from_secs(1));
    core.reserve_seqs(100);
    core.tree.install_listing(attr(1, Kind::Directory, 1), Vec::new(), Time::default());
    core
}

fn version(counter: u64) -> Version {
    Version { epoch: 1, counter }
}

fn create(core: &mut Host) {
    create_as(core, Ino(5), "a");
}

fn create_as(core: &mut Host, ino: Ino, name: &str) -> Entry {
    let record = Record::Create {
        parent: Ino::ROOT,
        name: Name::new(name).unwrap(),
        ino,
        node: NewNode::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let entry = core.draft_change(record, Caller::default(), Timestamp::default());
    core.admit(entry.clone(), Time::default());
    entry
}

fn draft_write(core: &mut Host, ino: u64, range: Range<u64>, time: Timestamp) -> Entry {
    let data = Payload::Durable { len: range.end - range.start };
    core.draft_write(Ino(ino), range.start, data, time).unwrap()
}

fn write(core: &mut Host, ino: u64, range: Range<u64>) {
    let entry = draft_write(core, ino, range, Timestamp::default());
    core.admit(entry, Time::default());
}

fn settle(core: &mut Host, seq: u64, outcome: &Outcome) -> Vec<Effect> {
    core.settle(seq, outcome, &core.tree.as_of(None, [Time::default(); 2]))
}

fn seal(core: &mut Host, ino: u64) -> bool {
    let entry = core.draft_seal(Ino(ino), Caller::default());
    entry.map(|entry| core.admit(entry, Time::default())).is_some()
}

#[test]
fn a_file_made_written_and_stored_ends_clean_at_the_servers_version() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    assert!(seal(&mut core, 5));
    assert!(!seal(&mut core, 5));
    assert_eq!(core.queue.len(), 2);
    let Change::Data(data) = &core.queue.batch(9, 999)[1].change else { panic!("a store") };
    assert_eq!(data.base, crate::nouns::Base::Result(1));
    let done = |counter| Outcome::Done { touched: vec![attr(5, Kind::File, counter)] };
    settle(&mut core, 1, &done(2));
    assert!(core.files[&Ino(5)].is_ahead());
    assert!(core.tree.is_pending(Ino(5)));
    settle(&mut core, 2, &done(3));
    assert!(!core.files[&Ino(5)].is_ahead());
    assert!(!core.tree.is_pending(Ino(5)));
    assert_eq!(core.files[&Ino(5)].version().counter, 3);
    assert!(core.files[&Ino(5)].is_valid(0..100, 100));
}

#[test]
fn a_refused_store_gives_the_file_back_to_the_server_but_not_what_was_written_later() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7));
    write(&mut core, 7, 5..6);
    let refused = Outcome::Refused { refusal: Refusal::NoSpace };
    let effects = settle(&mut core, 1, &refused);
    // The container stays: replaced, it would give zeros for what was written later.
    assert_eq!(effects, [Effect::Refused { refusal: Refusal::NoSpace }]);
    assert!(core.files[&Ino(7)].has_dirty());
    assert!(core.tree.is_pending(Ino(7)));
    // Nor may the rest be spliced into data that lack what was refused.
    assert!(seal(&mut core, 7));
    let Change::Data(data) = &core.queue.batch(9, 999)[0].change else { panic!("a store") };
    assert_eq!(data.base, crate::nouns::Base::Result(1));
}

/// The data were of no version at all then: reading failed with EIO, and each later write
/// became a conflict copy.
/// Proves S20.8.
#[test]
fn a_file_whose_store_was_refused_is_what_it_was_before() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    let version = core.tree.peek(Ino(7)).unwrap().data_version;
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7));
    let refused = Outcome::Refused { refusal: Refusal::NoSpace };
    let effects = settle(&mut core, 1, &refused);
    assert_eq!(effects, [Effect::Refused { refusal: Refusal::NoSpace }, Effect::Replace(Ino(7))]);
    assert_eq!(core.files[&Ino(7)].version(), version);
    write(&mut core, 7, 0..10);
    assert_eq!(core.files[&Ino(7)].base(), crate::nouns::Base::Version(version));
}

#[test]
fn stores_that_follow_a_conflict_end_with_the_servers_data_here() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7));
    write(&mut core, 7, 5..6);
    assert!(seal(&mut core, 7));
    let (parent, name, copy) = (Ino::ROOT, Name::new("f.conflict").unwrap(), Ino(9));
    let touched = vec![attr(9, Kind::File, 5), attr(7, Kind::File, 4)];
    let conflict = Outcome::Conflict { parent, name: name.clone(), touched, copy };
    // The next store still needs the container.
    let told = settle(&mut core, 1, &conflict);
    assert_eq!(told, [Effect::Conflict { ino: Ino(7), parent, name }]);
    let into_copy = Outcome::Done { touched: vec![attr(9, Kind::File, 6)] };
    let told = settle(&mut core, 2, &into_copy);
    assert_eq!(told, [Effect::Replace(Ino(7))]);
    assert!(!core.files[&Ino(7)].is_ahead());
}

#[test]
fn new_data_and_their_size_arrive_together() {
    let mut core = core();
    let node = |counter, size| {
        let attr = Attr { size, ..attr(7, Kind::File, counter) };
        Node { attr, target: None }
    };
    core.tree.install_node(node(3, 100), Time::default());
    core.file(Ino(7)).unwrap();
    let set = crate::nouns::SetAttr { mode: Some(0o600), ..Default::default() };
    let chmod = Record::SetAttr { ino: Ino(7), set };
    let entry = core.draft_change(chmod, Caller::default(), Timestamp::default());
    core.admit(entry, Time::default());
    // Another host's longer data: the attributes are pending, so the data must wait too.
    core.tree.install_node(node(4, 200), Time::default());
    assert!(!core.observe(Ino(7), node(4, 200).attr.data_version));
    // A conflict tells what the server has: the next write is made on that.
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7));
    settle(&mut core, 1, &Outcome::Done { touched: vec![node(5, 200).attr] });
    assert_eq!(core.tree.peek(Ino(7)).unwrap().size, 100);
    let (parent, name, copy) = (Ino::ROOT, Name::new("f.conflict").unwrap(), Ino(9));
    let touched = vec![node(5, 200).attr];
    let conflict = Outcome::Conflict { parent, name, touched, copy };
    settle(&mut core, 2, &conflict);
    assert_eq!(core.tree.peek(Ino(7)).unwrap().size, 200);
    assert_eq!(core.file(Ino(7)).unwrap().version().counter, 5);
}

#[test]
fn a_file_that_the_server_did_not_want_is_not_ahead_for_ever() {
    let mut core = core();
    create(&mut core);
    settle(&mut core, 1, &Outcome::Refused { refusal: Refusal::NotFound });
    assert!(!core.files[&Ino(5)].is_ahead());
}

/// Another copy of the cache had given its number to another file (seed 6 with copies).
#[test]
fn a_file_whose_number_means_another_one_is_not_ahead_for_ever() {
    let mut core = core();
    create(&mut core);
    let (parent, name, copy) = (Ino::ROOT, Name::new("a").unwrap(), Ino(9));
    let touched = vec![attr(9, Kind::File, 4), attr(1, Kind::Directory, 4)];
    settle(&mut core, 1, &Outcome::Conflict { parent, name, touched, copy });
    assert!(!core.files[&Ino(5)].is_ahead());
}

/// Another copy of the cache had made it, and filled it: the directory was believed to be empty
/// (seed 70 with copies).
#[test]
fn of_a_new_directory_that_was_there_nothing_is_believed() {
    let mut core = core();
    let (parent, name, ino) = (Ino::ROOT, Name::new("d").unwrap(), Ino(5));
    let (node, mode, uid, gid) = (NewNode::Directory, 0o755, 0, 0);
    let record = Record::Create { parent, name, ino, node, mode, uid, gid };
    let entry = core.draft_change(record, Caller::default(), Timestamp::default());
    core.admit(entry, Time::default());
    let name = Name::new("f").unwrap();
    assert_eq!(core.tree.name(ino, &name, Time::default()), Known::Fresh(None));
    // A name was moved from the root into it: that is as old as the directory is now.
    let made = Attr { change: version(6), ..attr(5, Kind::Directory, 4) };
    let touched = vec![made, attr(1, Kind::Directory, 6)];
    settle(&mut core, 1, &Outcome::Done { touched });
    assert_ne!(core.tree.name(ino, &name, Time::default()), Known::Fresh(None));
    assert_eq!(core.tree.peek(ino).unwrap().change, version(6));
}

/// The same of a file: it had the length that the other copy had given it, and no data that could
/// be fetched.
#[test]
fn a_new_file_that_was_there_has_the_data_of_the_server() {
    let mut core = core();
    create(&mut core);
    core.file(Ino(5)).unwrap();
    let made = Attr { size: 100, ..attr(5, Kind::File, 6) };
    let touched = vec![made, attr(1, Kind::Directory, 4)];
    settle(&mut core, 1, &Outcome::Done { touched });
    let file = core.file(Ino(5)).unwrap();
    assert!(!file.is_ahead());
    assert_eq!(file.to_fetch(0..100, 100), [0..100]);
    assert_eq!(file.fillable(0..100, version(6)), [0..100]);
}

/// Another copy of the cache, or this one before it was copied, had made it and not filled it: what
/// is written to it here became a conflict copy beside an empty file.
#[test]
fn a_new_file_that_was_there_empty_takes_what_is_written() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..10);
    let touched = vec![attr(5, Kind::File, 4), attr(1, Kind::Directory, 6)];
    settle(&mut core, 1, &Outcome::Done { touched });
    let file = core.file(Ino(5)).unwrap();
    assert!(file.is_ahead());
    assert_eq!(file.version(), version(4));
}

fn unlink(core: &mut Host, ino: u64, open: bool) {
    let (parent, name) = (Ino::ROOT, Name::new("a").unwrap());
    let unlink = Record::Unlink { parent, name, ino: Ino(ino), open };
    let entry = core.draft_change(unlink, Caller::default(), Timestamp::default());
    core.admit(entry, Time::default());
}

/// The server's answer to the only change that is queued: the root and file 7 with `nlink`.
fn settle_with_links(core: &mut Host, seq: u64, nlink: u32) {
    let touched = vec![attr(1, Kind::Directory, 5), Attr { nlink, ..attr(7, Kind::File, 5) }];
    settle(core, seq, &Outcome::Done { touched });
}

/// Another host had moved the name of a file that was open here. This host removed the name
/// that it knew, took it for the last, and dropped what it wrote through the one that was left
/// (seed 10615).
/// Proves S6.18.
#[test]
fn what_is_written_after_the_last_known_name_went_is_kept_while_there_may_be_others() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    core.opened(Ino(7));
    write(&mut core, 7, 0..10);
    unlink(&mut core, 7, true);
    assert_eq!(core.tree.peek(Ino(7)).unwrap().nlink, 0);
    let entry = draft_write(&mut core, 7, 10..20, Timestamp::default());
    let left = crate::host::log::replay(core.log_entries().iter().chain([&entry]));
    assert_eq!(left.unsealed[0].ranges, [0..20]);
    core.admit(entry, Time::default());
    settle_with_links(&mut core, 1, 1);
    assert!(core.unsealed() == [Ino(7)] && seal(&mut core, 7));
    assert!(core.closed(Ino(7)) && core.is_ahead(Ino(7)));
}

#[test]
fn what_is_written_while_the_removal_of_the_last_name_is_on_its_way_is_stored() {
    let mut core = core();
    create(&mut core);
    core.opened(Ino(5));
    unlink(&mut core, 5, true);
    write(&mut core, 5, 0..10);
    assert!(seal(&mut core, 5));
    assert!(core.closed(Ino(5)) && core.is_ahead(Ino(5)));
}

/// Proves S6.19.
#[test]
fn what_was_written_to_a_file_goes_nowhere_once_the_server_knows_of_no_name() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    core.opened(Ino(7));
    write(&mut core, 7, 0..100);
    unlink(&mut core, 7, true);
    settle_with_links(&mut core, 1, 0);
    let entry = draft_write(&mut core, 7, 100..200, Timestamp::default());
    assert!(matches!(entry, Entry::Nameless(_)));
    core.admit(entry, Time::default());
    assert!(core.log_entries().is_empty());
    assert!(!seal(&mut core, 7));
    assert!(core.closed(Ino(7)));
    assert!(core.unsealed().is_empty() && !core.tree.is_pending(Ino(7)));
}

/// Another host had moved a file. This host removed it by its new name, and still wrote to it
/// by the old one, which led nowhere: the bytes were gone with the last close (seed 50346).
#[test]
fn no_name_leads_to_a_file_that_the_server_knows_of_no_name_of() {
    let mut core = core();
    let (root, now) = (attr(1, Kind::Directory, 1), Time::default());
    let node = Node { attr: attr(7, Kind::File, 3), target: None };
    let names = ["a", "b"].map(|name| (Name::new(name).unwrap(), node.clone()));
    core.tree.install_listing(root, names.to_vec(), now);
    core.opened(Ino(7));
    unlink(&mut core, 7, true);
    let name = Name::new("b").unwrap();
    assert_eq!(core.tree.name(Ino::ROOT, &name, now), Known::Fresh(Some(Ino(7))));
    settle_with_links(&mut core, 1, 0);
    assert_eq!(core.tree.name(Ino::ROOT, &name, now), Known::Fresh(None));
    assert_eq!(core.tree.listing(Ino::ROOT, now), Known::Fresh(Vec::new()));
}

/// Another host removed a file that was open here, or still had its old name here; what was
/// written to it was dropped as if this host had removed it (seed 14194).
/// Proves S6.19.
#[test]
fn what_is_written_to_a_file_that_another_host_removed_is_kept() {
    let mut core = core();
    let removed = Attr { nlink: 0, ..attr(7, Kind::File, 3) };
    core.tree.install_node(Node { attr: removed, target: None }, Time::default());
    core.opened(Ino(7));
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7));
}

#[test]
fn a_file_is_sealed_before_a_name_of_it_goes_unless_the_server_keeps_it() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    let (parent, name) = (Ino::ROOT, Name::new("a").unwrap());
    let unlink = Record::Unlink { parent, name: name.clone(), ino: Ino(7), open: false };
    let rename = Record::Rename {
        from_parent: parent,
        from_name: Name::new("b").unwrap(),
        ino: Ino(8),
        to_parent: parent,
        to_name: name,
        mode: RenameMode::Replace(Some(Ino(7))),
        open: false,
    };
    assert!(core.seal_first(&unlink).is_empty());
    write(&mut core, 7, 0..10);
    assert_eq!([&unlink, &rename].map(|record| core.seal_first(record)), [[Ino(7)], [Ino(7)]]);
    let kept = Record::Unlink { parent, name: Name::new("a").unwrap(), ino: Ino(7), open: true };
    assert!(core.seal_first(&kept).is_empty());
    assert!(seal(&mut core, 7));
    assert!(core.seal_first(&unlink).is_empty());
}

#[test]
fn a_rewritten_log_means_the_same() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    let cut = core.draft_resize(Ino(5), 50, false, Timestamp::default()).unwrap();
    core.admit(cut, Time::default());
    write(&mut core, 5, 80..90);
    let leftover = crate::host::log::replay(&core.log_entries());
    assert_eq!(leftover.changes.len(), 1);
    let left = &leftover.unsealed[0];
    assert_eq!((left.cut, left.size), (Some(50), 90));
    assert_eq!(left.ranges, [0..50, 80..90]);
}

/// What was stored behind the release would be a conflict with nobody.
#[test]
fn a_removed_file_is_released_behind_what_is_stored_of_it() {
    let mut core = core();
    let nameless = Attr { nlink: 0, ..attr(7, Kind::File, 3) };
    core.tree.install_node(Node { attr: nameless, target: None }, Time::default());
    core.opened(Ino(7));
    assert!(!core.is_to_release(Ino(7)), "it is open");
    write(&mut core, 7, 0..10);
    assert!(core.closed(Ino(7)) && !core.is_to_release(Ino(7)), "it could not be sealed");
    seal(&mut core, 7);
    assert!(core.is_to_release(Ino(7)));
    core.tree.install_node(Node { attr: attr(8, Kind::File, 3), target: None }, Time::default());
    assert!(!core.is_to_release(Ino(8)), "it has a name");
}

/// Its answer was not promised, as it changed again meanwhile: of that nobody would hear.
#[test]
fn an_open_file_is_followed_until_it_is_promised() {
    let mut core = core();
    let (file, now) = (attr(7, Kind::File, 3), Time::default());
    core.tree.follow(1, now);
    core.tree.install_node(Node { attr: file, target: None }, now);
    assert!(!core.is_to_follow(Ino(7), now), "nobody has it open");
    core.opened(Ino(7));
    assert!(core.is_to_follow(Ino(7), now));
    let promised = Promised::unmarked(1, [Ino(7)]);
    core.tree.promised(&core.tree.as_of(Some(promised), [now; 2]));
    assert!(!core.is_to_follow(Ino(7), now));
    core.tree.broken(Ino(7), now);
    assert!(core.is_to_follow(Ino(7), now));
}

#[test]
fn the_last_close_is_told_from_the_others() {
    let mut core = core();
    core.opened(Ino(5));
    core.opened(Ino(5));
    assert!(!core.closed(Ino(5)));
    assert!(core.closed(Ino(5)));
    assert!(!core.is_open(Ino(5)));
}

/// A store was stamped with the time of its seal, and the answer to it moved the change time
/// of a file that nobody had touched meanwhile.
/// Proves S1.5.
#[test]
fn a_store_is_of_the_moment_of_the_last_change() {
    let mut core = core();
    create(&mut core);
    let (wrote, chmodded) = (Timestamp { secs: 7, nanos: 0 }, Timestamp { secs: 8, nanos: 0 });
    let entry = draft_write(&mut core, 5, 0..10, wrote);
    core.admit(entry, Time::default());
    let seal = |core: &Host| match core.draft_seal(Ino(5), Caller::default()) {
        Some(Entry::Change(logged)) => logged.time,
        other => panic!("{other:?}"),
    };
    assert_eq!(seal(&core), wrote);
    let set = crate::nouns::SetAttr { mode: Some(0o600), ..Default::default() };
    let chmod = Record::SetAttr { ino: Ino(5), set };
    let entry = core.draft_change(chmod, Caller::default(), chmodded);
    core.admit(entry, Time::default());
    assert_eq!(seal(&core), chmodded);
}

/// A directory that was somebody's working directory was forgotten as soon as the server had
/// removed it, and stat(2) of it failed.
#[test]
fn what_the_server_lacks_is_known_to_be_only_here() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..10);
    let entry = core.draft_resize(Ino(5), 30, false, Timestamp::default()).unwrap();
    core.admit(entry, Time::default());
    let is_only_here = |core: &Host, range| core.is_only_here(Ino(5), &range);
    assert!(is_only_here(&core, 5..15) && is_only_here(&core, 20..25));
    assert!(!is_only_here(&core, 30..40));
    assert!(seal(&mut core, 5));
    assert!(is_only_here(&core, 9..10));
}

#[test]
fn what_lost_its_name_stays_until_the_kernel_lets_go() {
    let mut core = core();
    create(&mut core);
    let done = |counter| Outcome::Done { touched: vec![attr(5, Kind::File, counter)] };
    settle(&mut core, 1, &done(2));
    unlink(&mut core, 5, false);
    assert!(core.is_held(Ino(5)) && core.is_closed_for_good(Ino(5)));
    settle(&mut core, 2, &Outcome::Done { touched: Vec::new() });
    assert!(!core.is_gone(Ino(5)));
    core.opened(Ino(5));
    core.let_go(Ino(5));
    assert!(!core.is_gone(Ino(5)));
    core.closed(Ino(5));
    assert!(core.is_gone(Ino(5)));
}

#[test]
fn what_could_not_be_removed_is_not_held() {
    let mut core = core();
    create(&mut core);
    unlink(&mut core, 5, false);
    settle(&mut core, 1, &Outcome::Done { touched: Vec::new() });
    settle(&mut core, 2, &Outcome::Refused { refusal: Refusal::Access });
    assert!(!core.is_held(Ino(5)));
}

/// A gibibyte of nothing with one byte in it was shown as a gibibyte on disk.
#[test]
fn holes_take_no_room() {
    let mut core = core();
    create(&mut core);
    let entry = core.draft_resize(Ino(5), 1 << 30, false, Timestamp::default()).unwrap();
    core.admit(entry, Time::default());
    write(&mut core, 5, 1 << 29..(1 << 29) + 10);
    write(&mut core, 5, (1 << 29) + 5..(1 << 29) + 15);
    assert_eq!(core.tree.peek(Ino(5)).unwrap().allocated, 15);
}

/// The server lets root keep the bits of what he stores, whoever wrote it on this host.
#[test]
fn set_id_bits_go_with_the_store_unless_it_is_roots() {
    let mut core = core();
    let (root, now) = (attr(1, Kind::Directory, 1), Time::default());
    let modes = [(7, 0o6777), (8, 0o2766), (9, 0o755)];
    let nodes = modes.map(|(ino, mode)| {
        let attr = Attr { mode, ..attr(ino, Kind::File, 3) };
        (Name::new(ino.to_string()).unwrap(), Node { attr, target: None })
    });
    core.tree.install_listing(root, nodes.to_vec(), now);
    let by = |ino, uid| core.set_ids_after_write(Ino(ino), &Caller { uid, ..Caller::default() });
    let chmod = |mode| Some(SetIds::GoByChmod(SetAttr { mode: Some(mode), ..SetAttr::default() }));
    assert_eq!([7, 8, 9].map(|ino| by(ino, 1001)), [Some(SetIds::GoWithTheStore), None, None]);
    assert_eq!([7, 8, 9].map(|ino| by(ino, 0)), [chmod(0o777), None, None]);
}

/// Forgotten between the draft of a change and its admission, a file would not hear of it.
#[test]
fn files_that_nobody_uses_leave_memory_once_they_are_noted() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    core.file(Ino(7)).unwrap().filled(0..10);
    let notes = core.take_notes();
    assert_eq!(notes.files.len(), 1);
    let entry = draft_write(&mut core, 7, 0..10, Timestamp::default());
    core.noted(&notes, true);
    assert!(core.files.contains_key(&Ino(7)), "somebody is about to write");
    core.admit(entry, Time::default());
    let notes = core.take_notes();
    core.noted(&notes, true);
    assert!(core.files.contains_key(&Ino(7)), "it is ahead of the server");
    core.drop_dirty(Ino(7));
    core.file(Ino(7)).unwrap().filled(50..60);
    let notes = core.take_notes();
    core.noted(&notes, false);
    assert!(core.files.contains_key(&Ino(7)), "it is not noted");
    let notes = core.take_notes();
    core.noted(&notes, true);
    assert!(core.files.is_empty());
}

/// Proves S15.5.
#[test]
fn data_go_from_the_disk_only_when_nobody_uses_them_and_the_server_has_them() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    let note = |core: &mut Host| {
        let notes = core.take_notes();
        core.noted(&notes, true);
        notes.used
    };
    core.opened(Ino(7));
    core.file(Ino(7)).unwrap().filled(0..10);
    let container = core.container(Ino(7)).unwrap();
    assert_eq!(note(&mut core), [Ino(7)]);
    assert!(!core.evict(Ino(7), container), "it is open");
    core.file(Ino(7)).unwrap().fetch_began(20..30);
    core.closed(Ino(7));
    assert_eq!(note(&mut core), [Ino(7)]);
    assert!(!core.evict(Ino(7), container), "it is being fetched");
    core.file(Ino(7)).unwrap().fetch_ended(20..30);
    assert!(!core.evict(Ino(7), ContainerId(container.0 + 1)), "it has another container");
    core.file(Ino(7)).unwrap().filled(20..30);
    assert!(!core.evict(Ino(7), container), "what is noted is not what is here");
    note(&mut core);
    write(&mut core, 7, 0..5);
    let container = core.container(Ino(7)).unwrap();
    core.take_notes();
    assert!(!core.evict(Ino(7), container), "it has what the server lacks");
    seal(&mut core, 7);
    core.take_notes();
    assert!(!core.evict(Ino(7), container), "the server is still to get it");
    let touched = vec![attr(7, Kind::File, 4)];
    settle(&mut core, 1, &Outcome::Done { touched });
    core.take_notes();
    assert!(core.evict(Ino(7), container) && !core.files.contains_key(&Ino(7)));
    assert!(core.evict(Ino(7), container), "what is not in memory is in nobody's use");
    assert_ne!(core.container(Ino(7)), Some(container), "and never comes back under that name");
}

/// What a process that died left in the container went when the server's data moved.
#[test]
fn data_that_an_earlier_life_left_stay_until_they_are_settled() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    let version = core.tree.peek(Ino(7)).unwrap().data_version;
    let base = crate::nouns::Base::Version(version);
    let (ranges, mtime) = (vec![0..10], Timestamp::default());
    let container = ContainerId(1);
    let left = DataChange { ino: Ino(7), container, base, cut: None, size: 10, ranges, mtime };
    let entries = vec![Entry::Change(left.logged(1, Caller::default()))];
    assert!(core.take_in_log(entries, 1, &BTreeMap::new(), Time::default()).is_empty());
    assert!(core.files[&Ino(7)].is_valid(0..10, 10));
    core.tree.install_node(Node { attr: attr(7, Kind::File, 4), target: None }, Time::default());
    let moved = core.tree.peek(Ino(7)).unwrap().data_version;
    assert!(!core.observe(Ino(7), moved));
    settle(&mut core, 1, &Outcome::Refused { refusal: Refusal::NoSpace });
    core.tree.install_node(Node { attr: attr(7, Kind::File, 4), target: None }, Time::default());
    core.observe(Ino(7), moved);
    assert_eq!(core.files[&Ino(7)].version(), moved);
    assert_eq!(core.take_scrap().len(), 1);
}

#[test]
fn containers_in_memory_go_before_the_others_and_once() {
    let mut core = core();
    for ino in [7, 8] {
        core.tree
            .install_node(Node { attr: attr(ino, Kind::File, 3), target: None }, Time::default());
        core.file(Ino(ino)).unwrap();
        core.forget_file(Ino(ino), Time::default());
    }
    let scrapped = core.scrapped_containers();
    assert_eq!(scrapped.len(), 2);
    core.scrap_gone(&scrapped[..1]);
    assert_eq!(core.scrapped_containers(), scrapped[1..]);
    let (ino, container) = scrapped[1];
    assert_eq!(core.take_scrap(), [Scrap::Container(ino, container)].into());
    assert!(core.scrapped_containers().is_empty(), "it is being removed");
    core.keep_scrap();
    assert_eq!(core.scrapped_containers(), scrapped[1..]);
}

/// It lost its name here and had another one of which this host had not heard. The index had it in
/// the old container still, which was removed with what was written to it.
#[test]
fn a_file_that_comes_back_is_not_in_a_container_that_goes() {
    let mut core = core();
    let node = || Node { attr: attr(7, Kind::File, 3), target: None };
    core.tree.install_node(node(), Time::default());
    core.file(Ino(7)).unwrap().filled(0..10);
    let notes = core.take_notes();
    core.noted(&notes, true);
    let (_, note) = notes.files[0].clone();
    let is_back = |core: &mut Host, note: &FileNote| {
        core.tree.install_node(node(), Time::default());
        assert!(core.load(Ino(7), Some(note.clone())));
        core.container(Ino(7)) == Some(note.container)
    };
    assert!(is_back(&mut core, &note));
    core.forget_file(Ino(7), Time::default());
    assert!(!is_back(&mut core, &note));
    core.forget_file(Ino(7), Time::default());
    assert!(core.take_scrap().contains(&Scrap::Container(Ino(7), note.container)));
    assert!(!is_back(&mut core, &note), "it is being removed");
    core.forget_file(Ino(7), Time::default());
    core.take_scrap();
    core.take_scrap();
    let notes = core.take_notes();
    assert!(!is_back(&mut core, &note), "the index removes it");
    core.noted(&notes, true);
}

/// A core with a source of 2 MiB and an empty file, and what to copy.
fn two_files() -> (Host, Copied) {
    let mut core = core();
    let source = Attr { size: 2 << 20, ..attr(7, Kind::File, 3) };
    for attr in [source, attr(8, Kind::File, 3)] {
        core.tree.install_node(Node { attr, target: None }, Time::default());
    }
    (core, Copied { from: 0, to: 0, len: source.size })
}

#[test]
fn all_of_a_file_goes_into_an_empty_one_by_the_server() {
    let (mut core, all) = two_files();
    let version = core.tree.peek(Ino(7)).unwrap().data_version;
    let base = crate::nouns::Base::Version(version);
    let record = Record::Clone { ino: Ino(8), base, from: Ino(7), version };
    assert_eq!(core.clone_of(Ino(7), Ino(8), all), Some(record));
    let parts = [Copied { from: 1, ..all }, Copied { to: 1, ..all }, Copied { len: 1, ..all }];
    for part in parts {
        assert_eq!(core.clone_of(Ino(7), Ino(8), part), None);
    }
    assert_eq!(core.clone_of(Ino(7), Ino(7), all), None);
    assert_eq!(core.clone_of(Ino(7), Ino::ROOT, all), None);
    assert_eq!(core.clone_of(Ino(8), Ino(7), all), None);
}

#[test]
fn a_small_file_that_is_here_is_copied_here() {
    let (mut core, _) = two_files();
    let small = Attr { size: 1000, ..attr(7, Kind::File, 4) };
    core.tree.install_node(Node { attr: small, target: None }, Time::default());
    let asked = Copied { from: 0, to: 0, len: 1000 };
    assert!(core.clone_of(Ino(7), Ino(8), asked).is_some());
    core.file(Ino(7)).unwrap().filled(0..1000);
    assert_eq!(core.clone_of(Ino(7), Ino(8), asked), None);
}

#[test]
fn the_server_does_not_copy_what_it_lacks_nor_over_what_was_written_here() {
    for written in [7, 8] {
        let (mut core, all) = two_files();
        write(&mut core, written, 0..10);
        assert_eq!(core.clone_of(Ino(7), Ino(8), all), None);
        assert!(seal(&mut core, written));
        assert_eq!(core.clone_of(Ino(7), Ino(8), all), None);
    }
    // Truncated to nothing, it is empty and has a change all the same.
    let (mut core, all) = two_files();
    let resized = core.draft_resize(Ino(8), 0, false, Timestamp::default()).unwrap();
    core.admit(resized, Time::default());
    assert_eq!(core.clone_of(Ino(7), Ino(8), all), None);
}

#[test]
fn nothing_is_copied_into_a_file_that_is_being_copied_into() {
    let (mut core, all) = two_files();
    let record = core.clone_of(Ino(7), Ino(8), all).unwrap();
    let entry = core.draft_change(record, Caller::default(), Timestamp::default());
    core.admit(entry, Time::default());
    assert_eq!(core.clone_of(Ino(7), Ino(8), all), None);
}

/// The file had been emptied in the container that the copy was fetched to: the next process, which
/// had a write to do again, emptied it once more.
#[test]
fn what_is_copied_into_a_file_is_not_in_the_container_that_it_was_emptied_in() {
    let (mut core, all) = two_files();
    let mut log = Vec::new();
    let mut admit = |core: &mut Host, entry: Entry| {
        log.push(entry.clone());
        core.admit(entry, Time::default());
    };
    let resized = core.draft_resize(Ino(8), 0, false, Timestamp::default()).unwrap();
    admit(&mut core, resized);
    let sealed = core.draft_seal(Ino(8), Caller::default()).unwrap();
    admit(&mut core, sealed);
    let emptied = core.container(Ino(8)).unwrap();
    let record = core.clone_of(Ino(7), Ino(8), all).unwrap();
    let entry = core.draft_change(record, Caller::default(), Timestamp::default());
    admit(&mut core, entry);
    let copied = core.container(Ino(8)).unwrap();
    let data = Payload::Inline(vec![1; 5]);
    let written = core.draft_write(Ino(8), 4096, data, Timestamp::default()).unwrap();
    admit(&mut core, written);
    assert_eq!(core.container(Ino(8)), Some(copied));
    let redone = crate::host::log::redo(&log);
    let redone: Vec<_> = redone.into_iter().filter(|(key, _)| key.1 == copied).collect();
    assert_eq!(redone, [((Ino(8), copied), crate::host::log::Redo::Bytes(4096, &[1; 5]))]);
    assert!(emptied != copied && core.needs_container(Ino(8), emptied), "its change is queued");
}
