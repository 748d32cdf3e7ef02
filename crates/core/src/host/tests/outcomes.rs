//! Calls that wait for outcomes: the answer, and the way back where another host had the name.

use super::calls::{NOW, Shell, Truth, caller, opened, write_call};
use super::*;
use crate::host::action::{CallId, Event};
use crate::host::call::{Call, NameCall, RenameFlag};
use crate::host::log::Logged;
use crate::nouns::Dentry;
use crate::persist::Lm;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn at(of: &str) -> Dentry {
    Dentry { parent: Ino::ROOT, name: name(of) }
}

/// A host whose calls wait, and a shell that knows `known` and settles with `outcomes`.
fn waiting(known: Vec<Truth>, outcomes: Vec<Outcome>) -> (Host, Shell) {
    let mut core = core();
    core.settings.lm = Lm::Sync;
    let root = Truth::Attr(attr(1, Kind::Directory, 1));
    let truth = known.into_iter().chain([root]).collect();
    (core, Shell::knowing(truth).settling(outcomes))
}

fn made_beside() -> Outcome {
    let touched = vec![attr(1, Kind::Directory, 2), attr(9, Kind::File, 2)];
    let (parent, name) = (Ino::ROOT, name("new.conflict"));
    Outcome::Conflict { parent, name, copy: Ino(9), touched }
}

#[test]
fn what_another_host_made_first_is_said_to_exist_and_the_own_one_goes() {
    let known = vec![Truth::Name(at("new"), Ok(None)), Truth::Number(Ino(9))];
    let (mut core, mut shell) = waiting(known, vec![made_beside()]);
    let node = NewNode::File;
    let create = NameCall::Create { at: at("new"), node, mode: 0o644, exclusive: true };
    let answer = shell.call(&mut core, Call::Name(create, caller()));
    assert_eq!(answer, Err(Refusal::Exists));
    assert_eq!(shell.kinds(), ["create", "unlink"]);
    let removed = core.queue.iter().next().map(|(logged, _)| logged.change.clone());
    let unlink =
        Record::Unlink { parent: Ino::ROOT, name: name("new.conflict"), ino: Ino(9), open: false };
    assert_eq!(removed, Some(Change::Record(unlink)));
    assert!(!shell.did.contains(&"keep".to_owned()), "its program is told");
}

#[test]
fn what_was_renamed_beside_another_file_gets_its_old_name_again() {
    let file = attr(9, Kind::File, 1);
    let known = vec![Truth::Name(at("old"), Ok(Some(file))), Truth::Name(at("new"), Ok(None))];
    let (mut core, mut shell) = waiting(known, vec![made_beside()]);
    let (from, to, flag) = (at("old"), at("new"), RenameFlag::NoReplace);
    let rename = NameCall::Rename { from, to, flag };
    assert_eq!(shell.call(&mut core, Call::Name(rename, caller())), Err(Refusal::Exists));
    assert_eq!(shell.kinds(), ["rename", "rename"]);
    let back = core.queue.iter().next().map(|(logged, _)| logged.change.clone());
    let Some(Change::Record(Record::Rename { from_name, to_name, .. })) = back else {
        panic!("{back:?}");
    };
    assert_eq!((from_name, to_name), (name("new.conflict"), name("old")));
}

#[test]
fn a_refusal_is_the_answer_and_a_server_out_of_reach_is_none() {
    let refused = Outcome::Refused { refusal: Refusal::Quota };
    for (outcomes, answers) in [(vec![refused], Err(Refusal::Quota)), (Vec::new(), Ok(Some(1)))] {
        let known = vec![Truth::Name(at("new"), Ok(None)), Truth::Number(Ino(9))];
        let (mut core, mut shell) = waiting(known, outcomes);
        let create = NameCall::Create {
            at: at("new"),
            node: NewNode::Directory,
            mode: 0o755,
            exclusive: true,
        };
        let answer = shell.call(&mut core, Call::Name(create, caller()));
        assert_eq!(answer.map(|answer| answer.seq), answers);
        assert!(core.waiters.is_empty());
    }
}

#[test]
fn a_call_that_is_cancelled_waits_no_longer() {
    let (mut core, handle) = opened();
    core.settings.lm = Lm::Sync;
    core.told_free(u64::MAX, NOW.time);
    let id = CallId(1);
    core.handle(Event::Call { id, call: write_call(handle, 0, 4) }, NOW);
    let mut shell = Shell::new();
    while let Some(action) = core.poll_action() {
        if let Some(done) = shell.carry_out(action) {
            core.handle(Event::Done { id, done }, NOW);
        }
    }
    assert!(core.waiters.is_waited_for(2), "{:?}", shell.did);
    core.handle(Event::Cancel(id), NOW);
    assert!(core.waiters.is_empty() && core.calls() == 0);
}

#[test]
fn a_sync_waits_for_each_change_that_is_not_settled() {
    for (last, answer) in [(2, Ok(())), (3, Err(Refusal::Quota))] {
        let (mut core, _) = opened();
        let change = |core: &mut Host| {
            let set = crate::nouns::SetAttr { mode: Some(0o600), ..Default::default() };
            let record = Record::SetAttr { ino: Ino(5), set };
            let entry = core.draft_change(record, Caller::default(), Timestamp::default());
            core.admit(entry, Time::default());
        };
        (0..2).for_each(|_| change(&mut core));
        let done = || Outcome::Done { touched: vec![attr(5, Kind::File, 2)] };
        settle(&mut core, 1, &done());
        let outcomes = match last {
            2 => vec![done(), done()],
            _ => vec![done(), Outcome::Refused { refusal: Refusal::Quota }],
        };
        let mut shell = Shell::new().settling(outcomes);
        let synced = shell.call(&mut core, Call::Committed(vec![1, 2, 3]));
        assert_eq!(synced.map(drop), answer);
        let left: Vec<Logged> = core.queue.iter().map(|(logged, _)| logged.clone()).collect();
        assert!(left.is_empty() && core.waiters.is_empty());
    }
}
