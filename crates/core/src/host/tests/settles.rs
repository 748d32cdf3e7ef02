//! Outcomes: those that are kept for the user before they are logged, and those that waiters hear.

use std::sync::Arc;

use super::calls::{NOW, Shell, change_call, opened, seal_call, unlink, write_call};
use super::*;
use crate::host::action::{Action, CallId, Done, Event};
use crate::host::call::{Call, Settle};
use crate::host::send::Claim;

const REFUSED: Outcome = Outcome::Refused { refusal: Refusal::NoSpace };

pub(super) fn settle_call(core: &Host, outcomes: Vec<Outcome>) -> Call {
    let logged = core.queue.iter().map(|(logged, _)| logged.clone());
    let answered: Vec<_> = logged.zip(outcomes).collect();
    let as_of = core.tree.as_of(None, [NOW.time; 2]);
    Call::Settle(Arc::new(Settle { answered, as_of }))
}

/// A host whose queue has the creation of file 5 and a store of it.
fn stored() -> Host {
    let (mut core, handle) = opened();
    core.told_free(u64::MAX, NOW.time);
    let mut shell = Shell::new();
    shell.call(&mut core, write_call(handle, 0, 4)).unwrap();
    shell.call(&mut core, seal_call()).unwrap();
    core.handles.remove(handle);
    core.closed(Ino(5));
    assert_eq!(core.queue.len(), 2);
    core
}

fn created() -> Outcome {
    let touched = vec![attr(1, Kind::Directory, 2), attr(5, Kind::File, 2)];
    Outcome::Done { touched }
}

fn conflict() -> Outcome {
    let (parent, name, copy) = (Ino::ROOT, Name::new("a.conflict").unwrap(), Ino(9));
    Outcome::Conflict { parent, name, copy, touched: vec![attr(9, Kind::File, 5)] }
}

#[test]
fn what_is_refused_is_kept_before_the_log_forgets_it() {
    let mut core = stored();
    let mut shell = Shell::new();
    let call = settle_call(&core, vec![created(), REFUSED]);
    shell.call(&mut core, call).unwrap();
    let done: Vec<&str> = shell.did.iter().map(String::as_str).take(2).collect();
    assert_eq!((done, shell.kept), (vec!["keep", "append all"], vec![2]));
    assert!(core.queue.is_empty());
}

#[test]
fn what_cannot_be_kept_or_logged_stays_in_the_queue() {
    for at in 0..2 {
        let mut core = stored();
        let call = settle_call(&core, vec![created(), REFUSED]);
        let mut shell = Shell::failing(at, Refusal::NoSpace, false);
        assert_eq!(shell.call(&mut core, call.clone()), Err(Refusal::NoSpace));
        assert_eq!(core.queue.len(), 2, "nothing has happened");
        Shell::new().call(&mut core, call).unwrap();
        assert!(core.queue.is_empty(), "the next answer is the same");
    }
}

/// A waiter that reports an outcome is told it. The outcome is kept only if that fails.
#[test]
fn what_somebody_reports_is_held_and_told() {
    for (claim, outcome, is_held) in [
        (Claim::Nothing, REFUSED, false),
        (Claim::IsRefused, REFUSED, true),
        (Claim::IsRefused, conflict(), false),
        (Claim::Answers, conflict(), true),
    ] {
        let mut core = stored();
        let waiter = core.waiters.add(2, claim);
        let mut shell = Shell::new();
        let call = settle_call(&core, vec![created(), outcome.clone()]);
        shell.call(&mut core, call).unwrap();
        let first = if is_held { "hold" } else { "keep" };
        assert_eq!(shell.did[0], first, "{claim:?}");
        assert!(!shell.did.contains(&"KeepHeld(2)".to_owned()), "{claim:?}");
        assert_eq!(core.waiters.heard(waiter), Some(outcome));
        assert!(core.waiters.is_empty());
    }
}

/// The waiter stops while another outcome is kept.
#[test]
fn a_claim_counts_when_the_outcome_is_logged() {
    let mut core = stored();
    let waiter = core.waiters.add(2, Claim::IsRefused);
    let call = settle_call(&core, vec![conflict(), REFUSED]);
    let id = CallId(1);
    core.handle(Event::Call { id, call }, NOW);
    let mut kept = Vec::new();
    loop {
        let done = match core.poll_action().expect("an action") {
            Action::Keep(_, what) => {
                kept.push(what.logged.seq);
                Ok(Done::Carried)
            }
            Action::Hold(..) => {
                core.waiters.leave(2, waiter);
                Ok(Done::Carried)
            }
            Action::Append(..) => Ok(Done::Carried),
            Action::AppendAll(..) => Ok(Done::Carried),
            Action::KeepHeld(seq) => {
                kept.push(seq);
                continue;
            }
            Action::Reply(..) => break,
            _ => continue,
        };
        core.handle(Event::Done { id, done }, NOW);
    }
    assert_eq!(kept, [1, 2]);
}

#[test]
fn a_new_file_with_another_number_gives_its_own_back_first() {
    let mut core = stored();
    let (parent, name, copy) = (Ino::ROOT, Name::new("a").unwrap(), Ino(9));
    let touched = vec![attr(1, Kind::Directory, 2), attr(9, Kind::File, 2)];
    let mut answered = settle_call(&core, vec![Outcome::Conflict { parent, name, copy, touched }]);
    if let Call::Settle(settle) = &mut answered {
        Arc::make_mut(settle).answered.truncate(1);
    }
    let mut shell = Shell::new();
    core.nodes.tell(5);
    shell.call(&mut core, answered).unwrap();
    let of = |entry: &Entry| match entry {
        Entry::Change(logged) => logged.change.kind(),
        Entry::Settled { .. } => "settled",
        _ => "other",
    };
    assert_eq!(shell.log.iter().map(of).collect::<Vec<_>>(), ["release", "settled"]);
    assert!(core.nodes.is_released(5));
}

/// The server keeps a removed file until nobody has it open.
#[test]
fn a_file_that_was_closed_before_its_removal_was_answered_is_released() {
    let (mut core, handle) = opened();
    settle(&mut core, 1, &created());
    let mut shell = Shell::new();
    shell.call(&mut core, change_call(unlink(), None)).unwrap();
    core.handles.remove(handle);
    core.closed(Ino(5));
    let gone = Attr { nlink: 0, ..attr(5, Kind::File, 3) };
    let done = Outcome::Done { touched: vec![attr(1, Kind::Directory, 3), gone] };
    let call = settle_call(&core, vec![done]);
    let mut shell = Shell::new();
    shell.call(&mut core, call).unwrap();
    let last = shell.log.last().and_then(Entry::change).map(|logged| logged.change.kind());
    assert_eq!(last, Some("release"));
}

/// A waiter for a close reports a refusal. Only the caller of the change reports a conflict copy.
#[test]
fn what_a_waiter_reports_is_not_kept() {
    let mut core = stored();
    let call = settle_call(&core, vec![conflict(), REFUSED]);
    let id = CallId(1);
    core.handle(Event::Call { id, call }, NOW);
    let mut kept = Vec::new();
    while let Some(action) = core.poll_action() {
        if let Action::Keep(_, fate) = action {
            kept.push(
                [Claim::Nothing, Claim::IsRefused, Claim::Answers]
                    .map(|claim| fate.is_unreported(claim)),
            );
            core.handle(Event::Done { id, done: Ok(Done::Carried) }, NOW);
        }
    }
    assert_eq!(kept, [[true, true, false], [true, false, false]]);
}

#[test]
fn an_answer_is_settled_up_to_the_first_outcome_that_is_not_final() {
    let batch = || stored().queue.iter().map(|(logged, _)| logged.clone()).collect::<Vec<_>>();
    let split = |outcomes| {
        let as_of = core().tree.as_of(None, [NOW.time; 2]);
        let (settle, not_yet) = Settle::of_batch(batch(), outcomes, as_of);
        (settle.answered, not_yet)
    };
    let (answered, not_yet) = split(vec![created(), Outcome::NeedsWhole]);
    assert_eq!((answered.len(), not_yet.map(|(logged, _)| logged.seq)), (1, Some(2)));
    let (answered, not_yet) = split(vec![Outcome::NeedsWhole, created()]);
    assert_eq!((answered.len(), not_yet.map(|(logged, _)| logged.seq)), (0, Some(1)));
    let (answered, not_yet) = split(vec![created()]);
    assert_eq!((answered.len(), not_yet), (1, None));
}

/// A store went to the conflict copy of an earlier one. The host had that copy in its cache too,
/// and its kernel read the old data on.
#[test]
fn a_conflict_copy_that_is_cached_follows_the_store_that_went_to_it() {
    let mut core = stored();
    let at = |counter| Node { attr: attr(9, Kind::File, counter), target: None };
    core.tree.install_node(at(2), Time::default());
    core.file(Ino(9)).unwrap();
    core.observe(Ino(9), version(2));
    let mut shell = Shell::new();
    let elsewhere = Outcome::Done { touched: vec![at(7).attr] };
    let call = settle_call(&core, vec![created(), elsewhere]);
    shell.call(&mut core, call).unwrap();
    let forgets = |ino| shell.did.contains(&format!("ForgetData(Ino({ino}))"));
    assert!(forgets(5) && forgets(9), "{:?}", shell.did);
}
