//! Opens: their questions, and when the kernel looks the name up again.

use super::calls::NOW;
use super::*;
use crate::host::action::{
    Action, Ask, CallId, Done, Event, Fact, Gap, Load, Now, Query, Reach, Told, Undone,
};
use crate::host::call::{Call, DISK_RESERVE, OpenCall};
use crate::persist::Lm;

const ID: CallId = CallId(1);
const READ: OpenCall =
    OpenCall { ino: Ino(7), writable: false, truncates: false, is_second: false };

/// A host that knows inode 7, of which nothing is here.
fn host(size: u64) -> Host {
    let mut host = core();
    let attr = Attr { size, ..attr(7, Kind::File, 3) };
    host.tree.install_node(Node { attr, target: None }, NOW.time);
    host.told_free(DISK_RESERVE + (1 << 30), NOW.time);
    host
}

fn action(host: &mut Host) -> Action {
    loop {
        match host.poll_action().expect("an action") {
            Action::Wake(_) | Action::ForgetData(_) => {}
            action => return action,
        }
    }
}

fn go_on(host: &mut Host, done: Result<Done, Refusal>) -> Action {
    host.handle(Event::Done { id: ID, done: done.map_err(Undone::from) }, NOW);
    action(host)
}

/// What an open asks for, once its data are loaded.
fn open(host: &mut Host, open: OpenCall, now: Now) -> Action {
    host.handle(Event::Call { id: ID, call: Call::Open(open) }, now);
    match action(host) {
        Action::Load(ID, Load::Data(ino)) => {
            host.load(ino, None);
            go_on(host, Ok(Done::Carried))
        }
        action => action,
    }
}

fn told(host: &mut Host, attr: Attr) -> Action {
    let fact = Fact::Attr(Node { attr, target: None });
    let told = Told { fact, promised: None, asked: NOW.time };
    match go_on(host, Ok(Done::Told(Box::new(told)))) {
        Action::LogMaps(ID, None) => go_on(host, Ok(Done::Carried)),
        action => action,
    }
}

fn result(action: Action) -> Result<(), Refusal> {
    match action {
        Action::Reply(ID, answer) => answer.map(drop),
        other => panic!("{other:?}"),
    }
}

fn asks_for_attributes(action: &Action) -> bool {
    matches!(action, Action::Query(ID, Query { ask: Ask::Attr(Ino(7)), .. }))
}

#[test]
fn what_is_here_is_opened_without_a_question() {
    let mut host = host(100);
    assert!(host.load(Ino(7), None));
    host.file(Ino(7)).unwrap().filled(0..100);
    assert_eq!(result(open(&mut host, READ, NOW)), Ok(()));
    let writing = OpenCall { writable: true, ..READ };
    assert_eq!(result(open(&mut host, writing, NOW)), Ok(()));
    host.settings.is_read_only = true;
    assert_eq!(result(open(&mut host, writing, NOW)), Err(Refusal::ReadOnly));
    assert_eq!(result(open(&mut host, READ, NOW)), Ok(()));
}

#[test]
fn a_small_file_is_fetched_and_of_a_large_one_the_attributes_are_asked_for() {
    let mut small = host(100);
    let expected = Gap { ino: Ino(7), version: version(3), range: 0..100 };
    assert_eq!(open(&mut small, READ, NOW), Action::Fetch(ID, expected));
    small.file(Ino(7)).unwrap().filled(0..100);
    assert_eq!(result(go_on(&mut small, Ok(Done::Carried))), Ok(()));
    let mut large = host(1 << 20);
    assert!(asks_for_attributes(&open(&mut large, READ, NOW)));
    let same = Attr { size: 1 << 20, ..attr(7, Kind::File, 3) };
    assert_eq!(result(told(&mut large, same)), Ok(()));
}

/// A read tells of anything but that the file is gone.
#[test]
fn a_fetch_that_fails_fails_no_open() {
    for (refusal, asks) in [(Refusal::Io, false), (Refusal::Stale, true)] {
        let mut host = host(100);
        open(&mut host, READ, NOW);
        let next = go_on(&mut host, Err(refusal));
        assert_eq!(asks_for_attributes(&next), asks);
        if asks {
            let gone = Attr { nlink: 0, size: 100, ..attr(7, Kind::File, 4) };
            assert_eq!(result(told(&mut host, gone)), Err(Refusal::Stale));
        } else {
            assert_eq!(result(next), Ok(()));
        }
        assert!(!host.files[&Ino(7)].is_fetching());
    }
}

#[test]
fn what_is_emptied_or_cannot_be_asked_for_is_not_fetched() {
    let truncating = OpenCall { writable: true, truncates: true, ..READ };
    assert_eq!(result(open(&mut host(100), truncating, NOW)), Ok(()));
    for link in [Reach::Silent, Reach::Offline] {
        let mut host = host(100);
        assert!(host.load(Ino(7), None));
        assert_eq!(result(open(&mut host, READ, Now { link, ..NOW })), Ok(()));
    }
}

/// Under `close`, the data of the last close before an open are read.
#[test]
fn where_closes_are_waited_for_the_server_is_asked_before_each_open() {
    let mut host = host(100);
    host.settings.lm = Lm::Close;
    assert!(host.load(Ino(7), None));
    host.file(Ino(7)).unwrap().filled(0..100);
    let asked = open(&mut host, READ, NOW);
    assert!(matches!(asked, Action::Query(ID, Query { ask: Ask::Open(Ino(7)), .. })));
    let same = Attr { size: 100, ..attr(7, Kind::File, 3) };
    assert_eq!(result(told(&mut host, same)), Ok(()));
    let offline = Now { link: Reach::Offline, ..NOW };
    assert_eq!(result(open(&mut host, READ, offline)), Ok(()));
    write(&mut host, 7, 0..1);
    assert_eq!(result(open(&mut host, READ, NOW)), Ok(()), "this host is ahead");
}

/// The kernel ends reads at the size that it knows.
#[test]
fn an_open_of_another_size_than_was_known_is_begun_anew_once() {
    let mut host = host(1 << 20);
    let longer = Attr { size: 2 << 20, ..attr(7, Kind::File, 4) };
    open(&mut host, READ, NOW);
    assert_eq!(result(told(&mut host, longer)), Err(Refusal::Stale));
    let second = OpenCall { is_second: true, ..READ };
    assert!(asks_for_attributes(&open(&mut host, second, NOW)));
    let again = Attr { size: 3 << 20, ..attr(7, Kind::File, 5) };
    assert_eq!(result(told(&mut host, again)), Ok(()), "it is taken as it is");
}
