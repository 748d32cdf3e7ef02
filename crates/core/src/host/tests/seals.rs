//! Seals of many files, and pushes.

use super::calls::{NOW, Shell};
use super::*;
use crate::host::action::{Action, CallId, Done, Event, Now};
use crate::host::call::{Call, Seals};
use crate::persist::Lm;

const HOUR: Duration = Duration::from_secs(3600);

/// Files 7, 8 and 9 of a directory, each with data that are not sealed.
fn written() -> Host {
    let mut core = core();
    let root = attr(1, Kind::Directory, 3);
    for (name, ino, kind) in [("d", 6, Kind::Directory), ("a", 7, Kind::File), ("b", 8, Kind::File)]
    {
        let node = Node { attr: attr(ino, kind, 3), target: None };
        core.tree.install_name(root, Name::new(name).unwrap(), Some(node), Time::default());
    }
    let node = Node { attr: attr(9, Kind::File, 3), target: None };
    let directory = attr(6, Kind::Directory, 3);
    core.tree.install_name(directory, Name::new("c").unwrap(), Some(node), Time::default());
    [7, 8, 9].into_iter().for_each(|ino| write(&mut core, ino, 0..10));
    core
}

fn sealed(core: &Host) -> Vec<u64> {
    core.queue.iter().map(|(logged, _)| logged.change.ino().0).collect()
}

#[test]
fn files_are_sealed_in_their_order_and_once() {
    let mut core = written();
    let mut shell = Shell::new();
    let answer = shell.call(&mut core, Call::SealAll(Seals::Decided)).unwrap();
    assert_eq!((sealed(&core), answer.left), (vec![7, 8, 9], Vec::new()));
    shell.call(&mut core, Call::SealAll(Seals::All)).unwrap();
    assert_eq!(sealed(&core), [7, 8, 9]);
    assert_eq!(core.calls(), 0);
}

#[test]
fn what_is_kept_back_is_sealed_when_a_user_wants_it_and_not_when_others_are_due() {
    let mut core = written();
    core.settings.lm = Lm::Delay(HOUR);
    Shell::new().call(&mut core, Call::SealAll(Seals::Due)).unwrap();
    assert!(sealed(&core).is_empty());
    let below = Seals::Below(vec![b"d".to_vec()]);
    Shell::new().call(&mut core, Call::SealAll(below)).unwrap();
    assert_eq!(sealed(&core), [9]);
    Shell::new().call(&mut core, Call::SealAll(Seals::These(vec![Ino(8)]))).unwrap();
    assert_eq!(sealed(&core), [9, 8]);
}

/// A sync would say that all is safe.
#[test]
fn one_that_cannot_be_sealed_fails_the_call_and_no_other() {
    let mut core = written();
    let mut shell = Shell::failing(1, Refusal::NoSpace, false);
    let answer = shell.call(&mut core, Call::SealAll(Seals::Decided));
    assert_eq!((answer, sealed(&core)), (Err(Refusal::NoSpace), vec![7, 9]));
    assert_eq!(core.unsealed(), [Ino(8)]);
}

/// The writes of a map would not be in the seal.
#[test]
fn maps_are_logged_before_a_seal_and_a_map_that_cannot_be_is_told() {
    let mut core = written();
    let call = Call::SealAll(Seals::Decided);
    core.handle(Event::Call { id: CallId(1), call }, NOW);
    assert_eq!(core.poll_action(), Some(Action::LogMaps(CallId(1), None)));
    assert_eq!((core.poll_action(), sealed(&core)), (None, Vec::new()));
    let mut done = Err(Refusal::Io.into());
    let answer = loop {
        core.handle(Event::Done { id: CallId(1), done }, NOW);
        let mut shell = Shell::new();
        let mut answer = None;
        done = Ok(Done::Carried);
        while let Some(action) = core.poll_action() {
            match action {
                Action::Reply(_, result) => answer = Some(result),
                action => done = shell.carry_out(action).unwrap_or(done),
            }
        }
        if let Some(answer) = answer {
            break answer;
        }
    };
    assert_eq!((answer, sealed(&core)), (Err(Refusal::Io), vec![7, 8, 9]));
}

#[test]
fn what_is_pushed_is_sealed_and_goes_before_other_changes() {
    let mut core = written();
    core.settings.lm = Lm::Log(HOUR);
    let answer = Shell::new().call(&mut core, Call::Push(vec![b"d".to_vec()])).unwrap();
    assert_eq!((answer.pushed, sealed(&core)), ((1, 10), vec![9]));
    assert_eq!(core.queue.raised(), &[1].into());
    assert_eq!(core.queue.next_release(), None, "it does not wait for company");
    let nothing = Shell::new().call(&mut core, Call::Push(vec![b"e".to_vec()])).unwrap();
    assert_eq!(nothing.pushed, (0, 0));
}

#[test]
fn written_files_are_sealed_when_their_time_is_over() {
    let mut core = written();
    core.settings.lm = Lm::Delay(HOUR);
    let mut begins = |secs| {
        let now = Now { time: Time(Duration::from_secs(secs)), ..NOW };
        core.handle(Event::Time, now);
        let actions = std::iter::from_fn(|| core.poll_action());
        actions.filter(|action| *action == Action::Start(Call::SealAll(Seals::Due))).count()
    };
    assert_eq!([10, 20, 4000, 4001, 4005].map(&mut begins), [0, 0, 1, 0, 1]);
}

/// A writer would wait until thousands of files are sealed.
#[test]
fn others_may_append_between_many_seals() {
    let mut core = core();
    for ino in 100..250 {
        let node = Node { attr: attr(ino, Kind::File, 3), target: None };
        core.tree.install_node(node, Time::default());
        write(&mut core, ino, 0..10);
    }
    core.reserve_seqs(1000);
    let mut shell = Shell::new();
    shell.call(&mut core, Call::SealAll(Seals::All)).unwrap();
    assert_eq!((sealed(&core).len(), shell.sent), (150, vec![0, 0]));
}
