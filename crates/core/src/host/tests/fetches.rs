//! Data that calls wait for.

use super::calls::NOW;
use super::*;
use crate::host::action::{
    Action, Ask, Await, CallId, Done, Event, Fact, Gap, Load, Now, Patience, Query, Told, Undone,
};
use crate::host::call::{Call, DISK_RESERVE, FetchCall};

fn start(host: &mut Host, id: u64, range: Range<u64>, passes: bool) -> Action {
    let call = Call::Fetch(FetchCall { ino: Ino(7), range, passes });
    host.handle(Event::Call { id: CallId(id), call }, NOW);
    action(host)
}

fn go_on(host: &mut Host, id: u64, done: Result<Done, Refusal>, now: Now) -> Action {
    host.handle(Event::Done { id: CallId(id), done: done.map_err(Undone::from) }, now);
    action(host)
}

/// The next action that a call waits for.
fn action(host: &mut Host) -> Action {
    loop {
        match host.poll_action().expect("an action") {
            Action::Wake(_) | Action::ForgetData(_) => {}
            action => return action,
        }
    }
}

fn free(host: &mut Host, id: u64, more: u64) -> Action {
    go_on(host, id, Ok(Done::Free(DISK_RESERVE + more)), NOW)
}

/// A host that knows inode 7, 100 bytes long, and has none of them.
fn ignorant() -> Host {
    let mut host = core();
    let attr = Attr { size: 100, ..attr(7, Kind::File, 3) };
    host.tree.install_node(Node { attr, target: None }, NOW.time);
    assert!(host.load(Ino(7), None));
    host
}

fn gap(action: &Action) -> Range<u64> {
    match action {
        Action::Fetch(_, Gap { range, .. }) => range.clone(),
        other => panic!("{other:?}"),
    }
}

fn refusal(action: Action) -> Option<Refusal> {
    match action {
        Action::Reply(_, answer) => answer.err(),
        other => panic!("{other:?}"),
    }
}

/// The first bytes are fetched into the container.
fn fill(host: &mut Host, range: Range<u64>) {
    let file = &host.files[&Ino(7)];
    let (key, version) = ((Ino(7), file.container()), file.version());
    let parts = host.to_fill(key, range.clone(), version).unwrap();
    assert_eq!(parts, [range]);
    host.filled(key, parts, version);
}

#[test]
fn gaps_are_fetched_one_by_one_once_there_is_room() {
    let mut host = ignorant();
    fill(&mut host, 20..30);
    assert_eq!(start(&mut host, 1, 0..500, false), Action::Load(CallId(1), Load::FreeSpace));
    assert_eq!(gap(&free(&mut host, 1, 90)), 0..20);
    fill(&mut host, 0..20);
    assert_eq!(gap(&go_on(&mut host, 1, Ok(Done::Carried), NOW)), 30..100);
    fill(&mut host, 30..100);
    assert_eq!(refusal(go_on(&mut host, 1, Ok(Done::Carried), NOW)), None);
    assert_eq!(refusal(start(&mut host, 2, 0..500, false)), None, "it is here");
    assert!(!host.files[&Ino(7)].is_fetching() && host.calls() == 0);
}

#[test]
fn without_room_something_is_evicted_before_that_is_said() {
    for room in [79, 80] {
        let mut host = ignorant();
        start(&mut host, 1, 0..80, false);
        assert_eq!(free(&mut host, 1, 10), Action::Evict(CallId(1)));
        let load = go_on(&mut host, 1, Ok(Done::Carried), NOW);
        assert_eq!(load, Action::Load(CallId(1), Load::FreeSpace));
        match (room, free(&mut host, 1, room)) {
            (79, action) => assert_eq!(refusal(action), Some(Refusal::NoSpace)),
            (_, action) => assert_eq!(gap(&action), 0..80),
        }
    }
}

#[test]
fn what_another_call_fetches_is_waited_for() {
    let mut host = ignorant();
    start(&mut host, 1, 0..60, false);
    assert_eq!(gap(&free(&mut host, 1, 1000)), 0..60);
    assert_eq!(gap(&start(&mut host, 2, 50..80, false)), 60..80);
    fill(&mut host, 60..80);
    let waits = go_on(&mut host, 2, Ok(Done::Carried), NOW);
    let Action::Await(CallId(2), Await { since, patience: Patience::Ever, data }) = waits else {
        panic!("{waits:?}")
    };
    assert_eq!((since, data), (host.progress(), Some((Ino(7), 50..80))));
    fill(&mut host, 0..60);
    assert_eq!(refusal(go_on(&mut host, 1, Ok(Done::Carried), NOW)), None);
    assert_ne!(since, host.progress());
    assert_eq!(refusal(go_on(&mut host, 2, Ok(Done::Carried), NOW)), None);
}

/// Else a reader that was interrupted would keep everybody from its bytes.
#[test]
fn what_a_call_fetched_that_was_ended_is_fetched_by_others() {
    let mut host = ignorant();
    start(&mut host, 1, 0..60, false);
    assert_eq!(gap(&free(&mut host, 1, 1000)), 0..60);
    let since = host.progress();
    host.handle(Event::Cancel(CallId(1)), NOW);
    assert_ne!(since, host.progress());
    assert_eq!(gap(&start(&mut host, 2, 0..60, false)), 0..60);
}

#[test]
fn data_that_do_not_come_are_asked_for_so_often_and_an_error_is_passed_on() {
    let mut host = ignorant();
    start(&mut host, 1, 0..60, false);
    let mut action = free(&mut host, 1, 1000);
    for _ in 1..16 {
        action = go_on(&mut host, 1, Ok(Done::Carried), NOW);
        assert_eq!(gap(&action), 0..60);
    }
    drop(action);
    assert_eq!(refusal(go_on(&mut host, 1, Ok(Done::Carried), NOW)), Some(Refusal::Io));
    assert_eq!(gap(&start(&mut host, 2, 0..60, false)), 0..60);
    let ended = go_on(&mut host, 2, Err(Refusal::Unreachable), NOW);
    assert_eq!(refusal(ended), Some(Refusal::Unreachable));
}

#[test]
fn of_a_version_that_the_server_has_no_more_the_next_is_asked_for() {
    let mut host = ignorant();
    start(&mut host, 1, 0..60, false);
    free(&mut host, 1, 1000);
    let asked = go_on(&mut host, 1, Err(Refusal::Changed), NOW);
    assert!(matches!(&asked, Action::Query(_, Query { ask: Ask::Attr(Ino(7)), .. })), "{asked:?}");
    let attr = Attr { size: 40, ..attr(7, Kind::File, 4) };
    let fact = Fact::Attr(Node { attr, target: None });
    let told = Told { fact, promised: None, asked: NOW.time };
    let moved = go_on(&mut host, 1, Ok(Done::Told(Box::new(told))), NOW);
    assert_eq!(moved, Action::LogMaps(CallId(1), None));
    let again = go_on(&mut host, 1, Ok(Done::Carried), NOW);
    let expected = Gap { ino: Ino(7), version: version(4), range: 0..40 };
    assert_eq!(again, Action::Fetch(CallId(1), expected));
}

/// Its own store made the version that the server has.
#[test]
fn the_outcome_of_the_files_own_store_is_waited_for_but_not_for_ever() {
    let later = |seconds| Now { time: Time(NOW.time.0 + Duration::from_secs(seconds)), ..NOW };
    let mut host = ignorant();
    write(&mut host, 7, 0..10);
    assert!(seal(&mut host, 7));
    start(&mut host, 1, 0..60, false);
    assert_eq!(gap(&free(&mut host, 1, 1000)), 10..60);
    let one_second = Patience::AtMost(Duration::from_secs(1));
    let waits = |host: &mut Host, done, seconds| match go_on(host, 1, done, later(seconds)) {
        Action::Await(_, Await { patience, .. }) => {
            assert_eq!(patience, one_second);
            None
        }
        action => Some(action),
    };
    assert!(waits(&mut host, Err(Refusal::Changed), 0).is_none());
    assert!(waits(&mut host, Ok(Done::Carried), 1).is_none(), "something else was settled");
    settle(
        &mut host,
        1,
        &Outcome::Done { touched: vec![Attr { size: 100, ..attr(7, Kind::File, 4) }] },
    );
    let again = waits(&mut host, Ok(Done::Carried), 2).expect("an action");
    assert_eq!(gap(&again), 10..60);
    // Another one, that does not come.
    for (late, seconds) in [(true, 3), (false, 20)] {
        let mut host = ignorant();
        write(&mut host, 7, 0..10);
        assert!(seal(&mut host, 7));
        start(&mut host, 1, 0..60, false);
        free(&mut host, 1, 1000);
        assert!(waits(&mut host, Err(Refusal::Changed), 2).is_none());
        let done = if late { Err(Refusal::Unreachable) } else { Ok(Done::Carried) };
        let ended = waits(&mut host, done, seconds).expect("an answer");
        assert_eq!(refusal(ended), Some(Refusal::Stale));
    }
}

#[test]
fn what_passes_the_cache_is_of_one_state() {
    let mut host = ignorant();
    let passes = |action: Action| match action {
        Action::Pass(_, sight) => sight,
        other => panic!("{other:?}"),
    };
    let sight = passes(start(&mut host, 1, 0..60, true));
    assert_eq!((sight.range.clone(), sight.missing.clone()), (0..60, vec![0..60]));
    // What was read in between is of two states.
    write(&mut host, 7, 10..20);
    let sight = passes(go_on(&mut host, 1, Ok(Done::Carried), NOW));
    assert_eq!(sight.missing, [0..10, 20..60]);
    assert_eq!(refusal(go_on(&mut host, 1, Ok(Done::Carried), NOW)), None);
    assert!(!host.files[&Ino(7)].is_valid(0..1, 100), "nothing is kept");
}

/// Whose data these are is known once the copy is settled.
#[test]
fn a_copy_by_the_server_is_waited_for_and_refused_if_nothing_comes() {
    let mut host = ignorant();
    let container = host.fresh_container();
    host.file(Ino(7)).unwrap().cloned(1, container);
    for id in 1..=2 {
        let waits = start(&mut host, id, 0..0, false);
        assert!(
            matches!(waits, Action::Await(_, Await { patience: Patience::AtMost(_), .. })),
            "{waits:?}"
        );
    }
    let late = go_on(&mut host, 1, Err(Refusal::Unreachable), NOW);
    assert_eq!(refusal(late), Some(Refusal::Unreachable));
    host.file(Ino(7)).unwrap().committed(1, version(4));
    assert_eq!(refusal(go_on(&mut host, 2, Ok(Done::Carried), NOW)), None);
}

#[test]
fn a_reader_is_told_what_is_here_and_what_to_read_ahead() {
    let mut host = ignorant();
    let here = host.here(Ino(7), &(0..10), 1 << 20).unwrap();
    assert_eq!((here.container, here.size, here.ahead), (None, 100, Some(10..100)));
    fill(&mut host, 0..100);
    let here = host.here(Ino(7), &(10..500), 1 << 20).unwrap();
    assert_eq!((here.container, here.ahead), (host.container(Ino(7)), None));
    assert_eq!(host.here(Ino(9), &(0..1), 0), Err(Refusal::Stale));
}

/// What is noted leaves memory if nobody has the file open. It was taken for nothing then, and its
/// container stayed for ever.
#[test]
fn data_that_left_memory_while_a_call_waited_are_loaded_again() {
    let mut host = ignorant();
    start(&mut host, 1, 0..60, false);
    free(&mut host, 1, 1000);
    let waits = start(&mut host, 2, 0..60, false);
    assert!(matches!(waits, Action::Await(..)), "{waits:?}");
    fill(&mut host, 0..60);
    assert_eq!(refusal(go_on(&mut host, 1, Ok(Done::Carried), NOW)), None);
    let notes = host.take_notes();
    host.noted(&notes, true);
    assert!(!host.files.contains_key(&Ino(7)));
    let loads = go_on(&mut host, 2, Ok(Done::Carried), NOW);
    assert_eq!(loads, Action::Load(CallId(2), Load::Data(Ino(7))));
    assert!(host.load(Ino(7), notes.files.first().map(|(_, note)| note.clone())));
    assert_eq!(refusal(go_on(&mut host, 2, Ok(Done::Carried), NOW)), None);
}
