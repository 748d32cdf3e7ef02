//! Promises of the server: their ends, their lease, and the next connection.

use super::calls::NOW;
use super::driven::{actions, call, done};
use super::*;
use crate::host::action::{Action, CallId, Done, Event, Fact, Now, Reach, TakenBack, Told};
use crate::host::cache::LONG;
use crate::host::call::{Call, Ended};
use crate::nouns::Dentry;
use crate::wire::Resumed;

const FILE: Ino = Ino(5);

fn at(seconds: u64) -> Now {
    Now { time: Time(Duration::from_secs(seconds)), ..NOW }
}

fn time_comes(host: &mut Host, now: Now) -> Vec<Action> {
    host.handle(Event::Time, now);
    actions(host)
}

fn is_over(actions: &[Action]) -> bool {
    matches!(actions.last(), Some(Action::Reply(_, Ok(_))))
}

/// A host that is promised the root and `FILE`, which is open, in session 1.
fn promised() -> Host {
    let mut host = core();
    host.tree.begin_connection(1, 40);
    host.tree.follow(1, Time::default());
    let node = Node { attr: attr(5, Kind::File, 1), target: None };
    let (name, parent) = (Name::new("a").unwrap(), attr(1, Kind::Directory, 1));
    host.tree.install_name(parent, name, Some(node), Time::default());
    let inodes = [Ino::ROOT, FILE];
    let as_of = host.tree.as_of(Some(Promised::unmarked(1, inodes)), [Time::default(); 2]);
    host.tree.promised(&as_of);
    host.opened(FILE);
    // What has changed here is announced, and again because it is another session.
    for id in [900, 901] {
        call(&mut host, id, Call::Announce, at(0));
        done(&mut host, id, Ok(Done::Carried), at(0));
    }
    host
}

#[test]
fn a_break_is_over_when_the_kernel_has_forgotten_and_open_files_are_followed() {
    let mut host = promised();
    let broken = Call::TakeBack(Ended::Broken(vec![Ino::ROOT, FILE]));
    let taken = TakenBack {
        inodes: vec![Ino::ROOT, FILE],
        names: vec![Dentry::new(Ino::ROOT, Name::new("a").unwrap())],
        ..TakenBack::default()
    };
    let acts = call(&mut host, 1, broken, at(1));
    assert_eq!(acts, [Action::TakeBack(CallId(1), Box::new(taken))]);
    assert!(!host.tree.is_promised(FILE, at(1).time), "before the kernel is told");
    let acts = done(&mut host, 1, Ok(Done::Carried), at(1));
    assert_eq!(acts[0], Action::Start(Call::Follow(FILE)), "the root is not open");
    assert!(is_over(&acts) && acts.len() == 2);
}

/// Of a change behind an answer that is not promised nobody would hear.
#[test]
fn a_file_is_followed_until_its_answer_is_promised() {
    let mut host = promised();
    host.tree.broken(FILE, at(1).time);
    let node = Node { attr: attr(5, Kind::File, 2), target: None };
    let told = |inodes: &[Ino], asked: Now| {
        let promised = Promised::unmarked(1, inodes.iter().copied());
        let fact = Fact::Attr(node.clone());
        Ok(Done::Told(Box::new(Told { fact, promised: Some(promised), asked: asked.time })))
    };
    let acts = call(&mut host, 1, Call::Follow(FILE), at(2));
    assert!(matches!(acts[..], [Action::Query(..)]), "{acts:?}");
    let acts = done(&mut host, 1, told(&[], at(2)), at(2));
    assert!(matches!(acts[..], [Action::ForgetData(FILE), Action::Pause(..)]), "{acts:?}");
    let acts = done(&mut host, 1, Ok(Done::Carried), at(3));
    assert!(matches!(acts[..], [Action::Query(..)]), "{acts:?}");
    let acts = done(&mut host, 1, told(&[FILE], at(3)), at(3));
    assert!(is_over(&acts), "{acts:?}");
}

#[test]
fn an_unreachable_server_ends_the_following() {
    let mut host = promised();
    host.tree.broken(FILE, at(1).time);
    call(&mut host, 1, Call::Follow(FILE), at(2));
    let silent = Now { link: Reach::Silent, ..at(3) };
    assert!(is_over(&done(&mut host, 1, Err(Refusal::Unreachable), silent)));
    assert_eq!(host.calls(), 0);
}

#[test]
fn the_lease_is_renewed_at_its_time_once_and_later_again_if_that_fails() {
    let mut host = promised();
    host.handle(Event::Time, at(0));
    assert_eq!((actions(&mut host), host.next_deadline()), (vec![], at(5).time));
    let silent = Now { link: Reach::Silent, ..at(5) };
    assert_eq!(time_comes(&mut host, silent), [], "nobody would answer");
    assert_eq!(host.next_deadline(), at(6).time);
    assert_eq!(time_comes(&mut host, at(6)), [Action::Start(Call::Renew)]);
    assert_eq!(time_comes(&mut host, at(9)), [], "that is under way");
    assert_eq!(call(&mut host, 1, Call::Renew, at(9)), [Action::Renew(CallId(1))]);
    done(&mut host, 1, Err(Refusal::Unreachable), at(10));
    assert_eq!(time_comes(&mut host, at(10)), [Action::Start(Call::Renew)]);
    call(&mut host, 2, Call::Renew, at(10));
    let renewed = Done::Renewed { session: 1, commit: 50 };
    assert!(is_over(&done(&mut host, 2, Ok(renewed), at(11))));
    host.tree.follow(1, at(10).time);
    assert_eq!((time_comes(&mut host, at(14)), host.next_deadline()), (vec![], at(15).time));
}

#[test]
fn a_connection_goes_on_with_promises_of_the_last_one_but_for_what_changed() {
    for is_answered in [true, false] {
        let mut host = promised();
        host.tree.follow(0, at(1).time);
        let acts = call(&mut host, 1, Call::Resume { epoch: 1, commit: 60 }, at(30));
        assert!(matches!(acts[..], [Action::Resume(..)]), "{acts:?}");
        let resumed = Resumed { changed: [FILE].into_iter().collect(), commit: 60 };
        let answer = is_answered.then_some(Done::Resumed(resumed)).ok_or(Refusal::Unreachable);
        let acts = done(&mut host, 1, answer, at(30));
        assert!(is_over(&acts));
        host.tree.follow(2, at(30).time);
        let goes_on = host.tree.is_promised(Ino::ROOT, at(30).time);
        let follows = acts.contains(&Action::Start(Call::Follow(FILE)));
        assert_eq!((goes_on, follows), (is_answered, is_answered));
        assert!(!host.tree.is_promised(FILE, at(30).time));
    }
}

/// More inodes than were asked for: it is no answer to that.
#[test]
fn a_server_that_says_too_much_resumes_nothing() {
    let mut host = promised();
    host.tree.follow(0, at(1).time);
    call(&mut host, 1, Call::Resume { epoch: 1, commit: 60 }, at(30));
    let changed = (100..200).map(Ino).collect();
    assert!(is_over(&done(
        &mut host,
        1,
        Ok(Done::Resumed(Resumed { changed, commit: 60 })),
        at(30)
    )));
    host.tree.follow(2, at(30).time);
    assert!(!host.tree.is_promised(Ino::ROOT, at(30).time));
}

#[test]
fn what_others_removed_is_asked_for_while_it_is_open_and_the_server_answers() {
    let mut host = promised();
    let removed = Attr { nlink: 0, size: 10, ..attr(5, Kind::File, 2) };
    host.tree.install_node(Node { attr: removed, target: None }, at(1).time);
    let silent = Now { link: Reach::Silent, ..at(300) };
    assert_eq!(time_comes(&mut host, silent), []);
    let next = Now { time: host.next_deadline(), ..NOW };
    let keep = Call::KeepRemoved(vec![FILE]);
    let started = time_comes(&mut host, Now { time: next.time.max(at(600).time), ..NOW });
    assert!(started.contains(&Action::Start(keep.clone())), "{started:?}");
    let acts = call(&mut host, 1, keep.clone(), at(600));
    assert!(matches!(acts[..], [Action::Query(..)]), "{acts:?}");
    assert!(is_over(&done(&mut host, 1, Err(Refusal::Stale), at(600))), "its error is nobody's");
    assert!(is_over(&call(&mut host, 2, keep, silent)));
}

/// The kernel would use its cached answers until their lifetimes end.
#[test]
fn a_session_that_ends_takes_back_what_may_count_still() {
    let mut host = promised();
    assert!(is_over(&call(&mut host, 1, Call::TakeBack(Ended::Session), at(1))));
    host.tree.tell_for_long();
    let acts = call(&mut host, 2, Call::TakeBack(Ended::Session), at(1));
    let [Action::TakeBack(_, taken)] = &acts[..] else { panic!("{acts:?}") };
    assert!(taken.everything && taken.names.len() == 1);
    assert!(is_over(&done(&mut host, 2, Ok(Done::Carried), at(1))));
    assert!(is_over(&call(&mut host, 3, Call::TakeBack(Ended::Session), at(60))), "too long ago");
    let acts = call(&mut host, 4, Call::TakeBack(Ended::Slept), at(60));
    assert!(matches!(acts[..], [Action::TakeBack(..)]), "its clock stood still");
}

/// The kernel is told for longer than the lease, which may not be renewed.
/// Proves S6.11.
#[test]
fn what_the_kernel_was_told_is_taken_back_before_the_lease_ends() {
    let mut host = promised();
    host.tree.tell_for_long();
    assert!(host.tree.remaining(FILE, at(1).time) < LONG, "the lease was not renewed since");
    host.tree.follow(1, at(1).time);
    assert_eq!(host.tree.remaining(FILE, at(2).time), LONG);
    let lifetime = host.tree.within_lease(LONG, at(2).time);
    assert!(lifetime < Duration::from_secs(20), "of an answer to a change");
    // Silent, so that nothing renews the lease.
    let silent = |seconds| Now { link: Reach::Silent, ..at(seconds) };
    assert_eq!(time_comes(&mut host, silent(17)), []);
    assert!(host.next_deadline() <= at(18).time);
    let start = Action::Start(Call::TakeBack(Ended::Lease));
    assert_eq!(time_comes(&mut host, silent(18)), std::slice::from_ref(&start));
    assert!(host.tree.remaining(FILE, at(18).time) < Duration::from_secs(3));
    assert_eq!(time_comes(&mut host, silent(18)), [], "that is under way");
    let acts = call(&mut host, 1, Call::TakeBack(Ended::Lease), silent(18));
    let [Action::TakeBack(_, taken)] = &acts[..] else { panic!("{acts:?}") };
    assert!(taken.everything && taken.names.len() == 1);
    // The lease is renewed meanwhile: what is told now is not taken back with the rest.
    host.tree.follow(1, at(18).time);
    assert!(host.tree.remaining(FILE, at(18).time) < LONG);
    assert!(is_over(&done(&mut host, 1, Ok(Done::Carried), silent(19))));
    assert!(!time_comes(&mut host, silent(50)).contains(&start), "nothing is left");
    host.tree.follow(1, at(50).time);
    assert_eq!(host.tree.remaining(FILE, at(50).time), LONG);
}

/// Another connection comes first.
#[test]
fn what_another_call_has_taken_back_is_not_taken_back_again() {
    let mut host = promised();
    host.tree.tell_for_long();
    host.tree.follow(1, at(1).time);
    let acts = call(&mut host, 1, Call::TakeBack(Ended::Session), at(18));
    assert!(matches!(acts[..], [Action::TakeBack(..)]));
    assert!(is_over(&call(&mut host, 2, Call::TakeBack(Ended::Lease), at(18))));
    host.handle(Event::Cancel(CallId(1)), at(18));
    let acts = call(&mut host, 3, Call::TakeBack(Ended::Lease), at(18));
    assert!(matches!(acts[..], [Action::TakeBack(..)]), "it was not carried out");
}
