//! Batches that go to the server: how each is delivered, and what becomes of it.

use super::calls::{NOW, Shell, Takes, Truth, opened, seal_call, write_call};
use super::*;
use crate::host::action::{Action, CallId, Delivered, Done, Event, Undone};
use crate::host::call::{Answer, Call};
use crate::host::log::{Lane, Stage};

fn done() -> Outcome {
    Outcome::Done { touched: vec![attr(1, Kind::Directory, 2), attr(5, Kind::File, 2)] }
}

fn outcomes(of: Vec<Outcome>) -> Result<Done, Undone> {
    let (took, round_trip) = (Duration::ZERO, Duration::ZERO);
    let (promised, heard, asked) = (None, 0, NOW.time);
    let delivered = Delivered { outcomes: of, promised, heard, asked, took, round_trip };
    Ok(Done::Delivered(Box::new(delivered)))
}

/// Sends what there is. Returns the answer, and how many changes each delivery had.
fn send(core: &mut Host, deliveries: &[Takes]) -> (Result<Answer, Refusal>, Vec<usize>) {
    send_as(core, Call::SendLast, deliveries)
}

/// The same by another call.
fn send_as(
    core: &mut Host,
    call: Call,
    deliveries: &[Takes],
) -> (Result<Answer, Refusal>, Vec<usize>) {
    // It is asked for the file whose data it refused.
    let mut shell = Shell::knowing(vec![Truth::Attr(attr(5, Kind::File, 2))]);
    shell.deliveries = deliveries.iter().copied().collect();
    let answer = shell.call(core, call);
    assert_eq!((core.calls(), shell.deliveries.len()), (0, 0));
    (answer, shell.sent)
}

/// A host with the creation of a file and a store of `len` bytes.
fn stored(len: u64) -> Host {
    let (mut core, handle) = opened();
    core.told_free(u64::MAX, NOW.time);
    let mut shell = Shell::new();
    shell.call(&mut core, write_call(handle, 0, len)).unwrap();
    shell.call(&mut core, seal_call()).unwrap();
    assert_eq!(core.queue.len(), 2);
    core
}

fn waits(core: &Host) -> usize {
    let waits = |seq| core.queue.stage(seq) == Some(Stage::Waits);
    core.queue.iter().filter(|(logged, _)| waits(logged.seq)).count()
}

#[test]
fn what_is_settled_leaves_the_queue_and_nothing_is_sent_without_changes() {
    let mut core = stored(4);
    let (answer, sent) = send(&mut core, &[|_| outcomes(vec![done(), done()])]);
    assert_eq!((answer.map(|answer| answer.has_sent), sent), (Ok(true), vec![2]));
    assert!(core.queue.is_empty());
    let (answer, sent) = send(&mut core, &[]);
    assert_eq!((answer.map(|answer| answer.has_sent), sent), (Ok(false), vec![]));
}

#[test]
fn what_was_not_delivered_or_answered_waits_again() {
    let failed: Takes = |_| Err(Refusal::Unreachable.into());
    let mut core = stored(4);
    assert_eq!(send(&mut core, &[failed]).0, Err(Refusal::Unreachable));
    assert_eq!(waits(&core), 2);
    // The server takes a part of a batch.
    assert!(send(&mut core, &[|_| outcomes(vec![done()])]).0.is_ok());
    assert_eq!((core.queue.len(), waits(&core)), (1, 1));
    assert_eq!(send(&mut core, &[|_| outcomes(vec![done(), done()])]).0, Err(Refusal::Protocol));
    assert_eq!(waits(&core), 1);
}

#[test]
fn a_batch_that_is_too_large_goes_in_halves_and_what_alone_is_is_refused() {
    let too_large: Takes = |_| Err(Refusal::TooLarge.into());
    let mut core = stored(4);
    let (answer, sent) = send(&mut core, &[too_large, |_| outcomes(vec![done()])]);
    assert_eq!((answer.is_ok(), sent), (true, vec![2, 1]));
    assert_eq!((core.queue.len(), waits(&core)), (1, 1));
    let (answer, sent) = send(&mut core, &[too_large]);
    assert_eq!((answer.is_ok(), sent), (true, vec![1]));
    assert!(core.queue.is_empty(), "it is kept for the user");
}

/// Proves S20.11.
#[test]
fn without_room_for_chunks_the_oldest_change_goes_with_their_names() {
    let full: Takes = |_| Ok(Done::NoChunks(Refusal::Quota));
    let named: Takes = |deliver| {
        assert_eq!(deliver.without, Some(Refusal::Quota));
        outcomes(vec![Outcome::Refused { refusal: Refusal::Quota }])
    };
    let mut core = stored(100_000);
    let (answer, sent) = send(&mut core, &[full, |_| outcomes(vec![done()])]);
    assert_eq!((answer.is_ok(), sent), (true, vec![2, 1]), "the creation has none");
    let (answer, sent) = send(&mut core, &[full, named]);
    assert_eq!((answer.is_ok(), sent), (true, vec![1, 1]));
    assert!(core.queue.is_empty());
}

/// A writer waited until all of a batch was settled.
#[test]
fn others_append_to_the_log_between_many_outcomes() {
    let (mut core, _) = opened();
    core.reserve_seqs(1000);
    for mode in 0..150 {
        let set = crate::nouns::SetAttr { mode: Some(mode), ..Default::default() };
        let record = Record::SetAttr { ino: Ino(5), set };
        let entry = core.draft_change(record, Caller::default(), Timestamp::default());
        core.admit(entry, Time::default());
    }
    let takes: Takes = |deliver| outcomes(deliver.batch.iter().map(|_| done()).collect());
    let (answer, sent) = send_as(&mut core, Call::Send(Lane::Metadata), &[takes]);
    assert_eq!((answer.is_ok(), sent), (true, vec![151, 0, 0]));
    assert!(core.queue.is_empty());
}

#[test]
fn a_batch_whose_sender_is_gone_waits_again() {
    let mut core = stored(4);
    core.handle(Event::Call { id: CallId(3), call: Call::Send(Lane::Metadata) }, NOW);
    assert!(matches!(core.poll_action(), Some(Action::Deliver(..))));
    assert!(waits(&core) < 2);
    core.handle(Event::Cancel(CallId(3)), NOW);
    assert_eq!((waits(&core), core.calls()), (2, 0));
}
