//! What a host says of its changes, what it sends when another host opens such a file, and what it
//! does before it opens one of another host's.

use super::calls::NOW;
use super::driven::{actions, call, done};
use super::*;
use crate::host::action::{Action, Ask, Done, Event, Fact, Now, Query, Reach, Told};
use crate::host::call::{Call, OpenCall};
use crate::promise::Inodes;
use crate::sharing::{Announced, Dirty, Hidden, Mark, Marked};

const FILE: Ino = Ino(7);

fn at(ms: u64) -> Now {
    Now { time: Time(NOW.time.0 + Duration::from_millis(ms)), ..NOW }
}

fn inodes(numbers: &[u64]) -> Inodes {
    numbers.iter().copied().map(Ino).collect()
}

/// That file 7 is so long, and was changed when it was here.
fn long(host: &Host, size: u64) -> Marked {
    let attr = host.tree.peek(FILE).unwrap();
    assert_eq!(attr.size, size);
    [(FILE, Mark { announced: Some(Announced { size, mtime: attr.mtime }) })].into()
}

/// A host with a session, which knows file 7 and is not promised anything.
fn connected() -> Host {
    let mut host = core();
    host.poll(Duration::ZERO);
    let node = Node { attr: Attr { size: 100, ..attr(7, Kind::File, 3) }, target: None };
    host.tree.install_node(node, NOW.time);
    assert!(host.load(FILE, None));
    host.tree.follow(1, NOW.time);
    host
}

/// What the host announces now.
fn announced(host: &mut Host, id: u64, now: Now) -> Option<Dirty> {
    host.handle(Event::Time, now);
    let starts = actions(host).contains(&Action::Start(Call::Announce));
    let acts = if starts { call(host, id, Call::Announce, now) } else { Vec::new() };
    acts.into_iter().find_map(|action| match action {
        Action::Announce(_, dirty) => Some(*dirty),
        _ => None,
    })
}

#[test]
fn what_changes_and_what_is_settled_is_announced_one_at_a_time() {
    let mut host = connected();
    let all = Dirty { is_all: true, ..Dirty::default() };
    assert_eq!(announced(&mut host, 1, at(0)), Some(all), "a connection begins with it");
    write(&mut host, 7, 0..10);
    assert_eq!(announced(&mut host, 2, at(1)), None, "one is under way");
    done(&mut host, 1, Ok(Done::Carried), at(2));
    assert_eq!(announced(&mut host, 3, at(3)), None, "a moment later");
    assert!(host.next_deadline() <= at(12).time);
    let changed = Dirty { changed: long(&host, 100), ..Dirty::default() };
    assert_eq!(announced(&mut host, 4, at(12)), Some(changed.clone()));
    write(&mut host, 7, 10..20);
    done(&mut host, 4, Ok(Done::Carried), at(13));
    assert_eq!(announced(&mut host, 5, at(30)), None, "it was said");
    write(&mut host, 7, 100..120);
    host.tree.stir(FILE);
    let longer = Dirty { changed: long(&host, 120), ..Dirty::default() };
    assert_eq!(announced(&mut host, 10, at(40)), Some(longer.clone()), "it has become longer");
    done(&mut host, 10, Ok(Done::Carried), at(41));
    host.drop_dirty(FILE);
    let attr = *host.tree.peek(FILE).unwrap();
    host.tree.install_node(Node { attr, target: None }, at(59).time);
    let clean = Dirty { clean: inodes(&[7]), ..Dirty::default() };
    assert_eq!(announced(&mut host, 6, at(60)), Some(clean));
    // It may not have come, so all is said again, and over another connection, too.
    write(&mut host, 7, 0..10);
    done(&mut host, 6, Err(Refusal::Unreachable), at(70));
    assert_eq!(announced(&mut host, 7, at(100)), None);
    let all = Dirty { is_all: true, ..longer };
    assert_eq!(announced(&mut host, 8, at(1070)), Some(all.clone()));
    done(&mut host, 8, Ok(Done::Carried), at(1071));
    host.tree.follow(2, at(1080).time);
    assert_eq!(announced(&mut host, 9, at(1081)), Some(all));
}

#[test]
fn what_was_announced_and_does_not_come_is_taken_back() {
    let mut host = connected();
    announced(&mut host, 1, at(0));
    done(&mut host, 1, Ok(Done::Carried), at(1));
    write(&mut host, 7, 0..10);
    let before = *host.tree.peek(FILE).unwrap();
    host.tree.install_node(
        Node { attr: Attr { mtime: Timestamp { secs: 9, nanos: 0 }, ..before }, target: None },
        at(2).time,
    );
    let later = host.tree.peek(FILE).unwrap().mtime;
    let changed = Dirty { changed: long(&host, 100), ..Dirty::default() };
    assert_eq!(announced(&mut host, 2, at(20)), Some(changed));
    done(&mut host, 2, Ok(Done::Carried), at(21));
    host.drop_dirty(FILE);
    let earlier = Timestamp { secs: later.secs - 1, ..later };
    let attr = Attr { mtime: earlier, ..before };
    host.tree.install_node(Node { attr, target: None }, at(22).time);
    let unknown = Dirty { changed: [(FILE, Mark::default())].into(), ..Dirty::default() };
    assert_eq!(announced(&mut host, 3, at(40)), Some(unknown));
    done(&mut host, 3, Ok(Done::Carried), at(41));
    let clean = Dirty { clean: inodes(&[7]), ..Dirty::default() };
    assert_eq!(announced(&mut host, 4, at(60)), Some(clean));
}

#[test]
fn without_a_connection_nothing_is_announced() {
    let mut host = connected();
    write(&mut host, 7, 0..10);
    for link in [Reach::Silent, Reach::Offline] {
        host.handle(Event::Time, Now { link, ..at(5) });
        assert!(!actions(&mut host).contains(&Action::Start(Call::Announce)));
    }
    host.settings.is_read_only = true;
    assert_eq!(announced(&mut host, 1, at(6)), None, "nor by who changes nothing");
}

const READ: OpenCall = OpenCall { ino: FILE, writable: false, truncates: false, is_second: false };

/// What the host asks before an open.
fn asks(host: &mut Host, id: u64, now: Now) -> Option<Query> {
    call(host, id, Call::Open(READ), now).into_iter().find_map(|action| match action {
        Action::Query(_, query) => Some(query),
        _ => None,
    })
}

fn opened(promised: Option<Promised>, size: u64, is_hidden: bool) -> Done {
    let node = Node { attr: Attr { size, ..attr(7, Kind::File, 3) }, target: None };
    let fact = Fact::Opened(node, is_hidden);
    Done::Told(Box::new(Told { fact, promised, asked: NOW.time }))
}

#[test]
fn a_file_that_another_host_has_changed_is_asked_for_at_each_open() {
    let mut host = connected();
    host.file(FILE).unwrap().filled(0..100);
    let query = Query { ask: Ask::Open(FILE), is_known: true };
    let is_open = |acts: &[Action]| matches!(acts.last(), Some(Action::Reply(_, Ok(_))));
    let unmarked = Promised::unmarked(1, [FILE]);
    let marked = Promised { marked: [(FILE, Mark::default())].into(), ..unmarked.clone() };
    assert_eq!(asks(&mut host, 1, at(1)), Some(query.clone()), "nothing is promised");
    assert!(is_open(&done(&mut host, 1, Ok(opened(Some(marked), 100, false)), at(2))));
    assert_eq!(asks(&mut host, 2, at(3)), Some(query.clone()));
    assert!(is_open(&done(&mut host, 2, Ok(opened(Some(unmarked), 100, false)), at(4))));
    assert_eq!(asks(&mut host, 3, at(5)), None, "the server has everything");
    host.tree.broken(FILE, at(6).time);
    assert_eq!(asks(&mut host, 4, at(7)), Some(query));
    let lost = done(&mut host, 4, Err(Refusal::Unreachable), at(8));
    assert!(is_open(&lost), "what is known here does");
}

#[test]
fn what_a_host_that_is_away_has_changed_is_opened_as_it_was_and_never_empty() {
    let mut host = connected();
    host.file(FILE).unwrap().filled(0..100);
    let reply = |acts: Vec<Action>| match acts.last() {
        Some(Action::Reply(_, answer)) => answer.clone().map(drop),
        other => panic!("{other:?}"),
    };
    asks(&mut host, 1, at(1)).unwrap();
    assert_eq!(reply(done(&mut host, 1, Ok(opened(None, 100, true)), at(2))), Ok(()));
    let mut host = connected();
    asks(&mut host, 1, at(1)).unwrap();
    let acts = done(&mut host, 1, Ok(opened(None, 0, true)), at(2));
    assert_eq!(reply(acts), Err(Refusal::Hidden));
}

#[test]
fn without_a_link_a_file_whose_contents_are_elsewhere_is_not_opened_as_empty() {
    let opens = |size, link| {
        let mut host = connected();
        host.file(FILE).unwrap().filled(0..100);
        heard(&mut host, 300, at(1));
        let node = Node { attr: Attr { size, ..attr(7, Kind::File, 3) }, target: None };
        host.tree.install_node(node, at(1).time);
        // Once the kernel knows its size.
        let open = OpenCall { is_second: true, ..READ };
        let mut acts = call(&mut host, 1, Call::Open(open), Now { link, ..at(2) });
        if let Some(Action::Query(..)) = acts.last() {
            acts = done(&mut host, 1, Err(Refusal::Unreachable), at(3));
        }
        match acts.last() {
            Some(Action::Reply(_, answer)) => answer.clone().map(drop),
            _ => panic!("{acts:?}"),
        }
    };
    for link in [Reach::Offline, Reach::Online] {
        assert_eq!(opens(0, link), Err(Refusal::Hidden));
        assert_eq!(opens(100, link), Ok(()), "the last version");
    }
}

#[test]
fn without_a_link_a_file_that_is_as_empty_elsewhere_is_opened() {
    let node = |size| Node { attr: Attr { size, ..attr(7, Kind::File, 3) }, target: None };
    let marked = Promised::unmarked(1, [FILE]);
    let marked = |mark| Promised { marked: [(FILE, mark)].into(), ..marked.clone() };
    let opens = |host: &mut Host, id| {
        let acts = call(host, id, Call::Open(READ), Now { link: Reach::Offline, ..at(9) });
        matches!(acts.last(), Some(Action::Reply(_, Ok(_))))
    };
    // It says so.
    let mut host = connected();
    let announced = Announced { size: 0, mtime: Timestamp::default() };
    let as_of = host.tree.as_of(Some(marked(Mark { announced: Some(announced) })), [at(1).time; 2]);
    host.tree.install_node(node(0), &as_of);
    host.tree.promised(&as_of);
    assert!(opens(&mut host, 1));
    // All that it has was sent, and that was nothing.
    let mut host = connected();
    asks(&mut host, 1, at(1)).unwrap();
    done(&mut host, 1, Ok(opened(Some(marked(Mark::default())), 0, false)), at(2));
    assert!(host.tree.is_marked(FILE) && opens(&mut host, 2));
}

/// Proves S6.27.
#[test]
fn an_open_fails_or_waits_where_the_user_wants_that() {
    let hidden = |size| Ok(opened(None, size, true));
    let mut host = connected();
    host.settings.hidden = Hidden::Fail;
    asks(&mut host, 1, at(1)).unwrap();
    let acts = done(&mut host, 1, hidden(100), at(2));
    assert!(matches!(acts.last(), Some(Action::Reply(_, Err(Refusal::Hidden)))), "{acts:?}");
    host.settings.hidden = Hidden::Wait;
    asks(&mut host, 2, at(3)).unwrap();
    for again in 0..3 {
        let acts = done(&mut host, 2, hidden(0), at(4 + again));
        assert!(matches!(acts[..], [Action::Pause(..)]), "{acts:?}");
        let acts = done(&mut host, 2, Ok(Done::Carried), at(4 + again));
        let Some(Action::Query(_, query)) = acts.last() else { panic!("{acts:?}") };
        assert_eq!(query.ask, Ask::Open(FILE));
    }
    host.file(FILE).unwrap().filled(0..100);
    let acts = done(&mut host, 2, Ok(opened(None, 100, false)), at(9));
    assert!(matches!(acts.last(), Some(Action::Reply(_, Ok(_)))), "{acts:?}");
}

/// What another host has announced of file 7.
fn heard(host: &mut Host, size: u64, now: Now) {
    let announced = Announced { size, mtime: Timestamp { secs: 9, nanos: 0 } };
    let marked = [(FILE, Mark { announced: Some(announced) })].into();
    host.tree.broken(FILE, at(0).time);
    let promised = Promised { marked, ..Promised::unmarked(1, [FILE]) };
    let as_of = host.tree.as_of(Some(promised), [now.time; 2]);
    let attr = *host.tree.peek(FILE).unwrap();
    host.tree.install_node(Node { attr, target: None }, &as_of);
    host.tree.promised(&as_of);
}

fn shown(host: &Host, now: Now) -> (u64, i64) {
    let shown = host.shown(*host.tree.peek(FILE).unwrap(), now);
    (shown.size, shown.mtime.secs)
}

/// Proves S6.29.
#[test]
fn size_and_time_are_those_that_another_host_has_announced() {
    let mut host = connected();
    let (own, others) = (shown(&host, at(0)), (300, 9));
    assert_eq!(own.0, 100);
    heard(&mut host, 300, at(1));
    assert_eq!(shown(&host, at(2)), others);
    assert!(host.tree.remaining(FILE, at(2).time) <= Duration::from_secs(1));
    for link in [Reach::Silent, Reach::Offline] {
        assert_eq!(shown(&host, Now { link, ..at(2) }), own, "nobody can read it so");
    }
    let attr = *host.tree.peek(FILE).unwrap();
    let later = Attr { mtime: Timestamp { secs: 9, nanos: 0 }, ..attr };
    host.tree.install_node(Node { attr: later, target: None }, at(2).time);
    assert_eq!(shown(&host, at(2)).0, own.0, "the server has it");
    host.tree.install_node(Node { attr, target: None }, at(2).time);
    assert_eq!(shown(&host, at(2)), others);
    write(&mut host, 7, 0..10);
    assert_eq!(shown(&host, at(3)).0, own.0, "it is changed here, too");
    host.drop_dirty(FILE);
    host.tree.broken(FILE, at(4).time);
    assert_eq!(shown(&host, at(5)).0, own.0, "it is to be asked for");
}

/// The kernel ends reads at the size that it knows.
#[test]
fn an_open_is_of_the_version_that_is_read_and_not_of_what_is_announced() {
    let mut host = connected();
    host.file(FILE).unwrap().filled(0..100);
    heard(&mut host, 300, at(1));
    asks(&mut host, 1, at(2)).unwrap();
    assert_eq!(shown(&host, at(3)).0, 100, "it is being opened");
    let acts = done(&mut host, 1, Ok(opened(None, 100, true)), at(4));
    let Some(Action::Reply(_, answer)) = acts.last() else { panic!("{acts:?}") };
    assert_eq!(answer.as_ref().err(), Some(&Refusal::Stale), "the kernel knew another size");
    assert_eq!(shown(&host, at(5)).0, 100, "it looks the name up again, and opens that");
    heard(&mut host, 400, at(6));
    assert_eq!(shown(&host, at(7)).0, 100, "also if more is announced meanwhile");
    assert_eq!(shown(&host, at(20_000)).0, 400, "it did not");
}
