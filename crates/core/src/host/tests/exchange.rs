//! Batches that the server does not take as they are.

use super::*;
use crate::host::log::{Lane, Logged};
use crate::host::send::{Claim, Without};

/// A host with two stores, each too large for a record, and the batch of both.
fn two_stores() -> (Host, Vec<Logged>) {
    let mut core = core();
    for ino in [7, 8] {
        let attr = attr(ino, Kind::File, 3);
        core.tree.install_node(Node { attr, target: None }, Time::default());
        write(&mut core, ino, 0..10_000);
        assert!(seal(&mut core, ino));
    }
    let batch = core.next_batch(Lane::Data, Time::default());
    assert_eq!(batch.len(), 2);
    core.mark_sending(&batch, Time::default());
    (core, batch)
}

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

#[test]
fn what_a_quota_does_not_let_in_goes_alone_and_is_then_for_the_server_to_refuse() {
    let (mut core, mut batch) = two_stores();
    let without = core.without_chunks(&mut batch, Refusal::Quota, at(0));
    assert_eq!((without, batch.len()), (Ok(Without::Fewer), 1));
    let later = core.next_batch(Lane::Data, at(0));
    assert_eq!(later.len(), 1, "the other one waits again");
    // What it sends may make room.
    core.mark_sending(&later, at(0));
    let without = core.without_chunks(&mut batch, Refusal::Quota, at(0));
    assert_eq!(without, Ok(Without::Named), "chunks that go with their record do not count");
    assert_eq!(core.without_chunks(&mut batch, Refusal::Io, at(0)), Err(Refusal::Io));
}

#[test]
fn a_full_disk_has_a_minute_unless_a_call_waits() {
    let full = Refusal::NoSpace;
    let (mut core, batch) = two_stores();
    let without = |core: &mut Host, seconds| {
        let mut first = batch[..1].to_vec();
        core.without_chunks(&mut first, full, at(seconds))
    };
    assert_eq!(without(&mut core, 0), Err(full));
    assert_eq!(without(&mut core, 59), Err(full));
    assert_eq!(without(&mut core, 60), Ok(Without::Named));
    core.note_chunks_taken();
    assert_eq!(without(&mut core, 70), Err(full));
    core.waiters.add(batch[0].seq, Claim::IsRefused);
    assert_eq!(without(&mut core, 71), Ok(Without::Named));
}

#[test]
fn an_outcome_that_is_not_final_says_how_the_change_goes_again() {
    let (mut core, batch) = two_stores();
    let seq = batch[0].seq;
    let missing = Outcome::Missing { chunks: Vec::new() };
    assert_eq!(core.not_yet(seq, &missing, None), Err(Refusal::Changed));
    assert_eq!(core.not_yet(seq, &missing, Some(Refusal::Quota)), Err(Refusal::Quota));
    assert!(!core.is_wanted_whole(seq));
    assert_eq!(core.not_yet(seq, &Outcome::NeedsWhole, None), Ok(()));
    assert!(core.is_wanted_whole(seq));
    assert_eq!(core.not_yet(seq, &Outcome::NeedsWhole, None), Err(Refusal::Changed));
    // It goes alone.
    core.put_back(batch.iter().map(|logged| logged.seq));
    let again = core.next_batch(Lane::Data, at(0));
    assert_eq!(again.iter().map(|logged| logged.seq).collect::<Vec<_>>(), [seq]);
}

/// A batch is as large as what gets through in a moment.
#[test]
fn a_batch_that_took_long_makes_the_next_one_smaller() {
    let (mut core, batch) = two_stores();
    core.put_back(batch.iter().map(|logged| logged.seq));
    for _ in 0..20 {
        core.batch_answered(Lane::Data, &batch, Duration::from_secs(9), Duration::ZERO);
    }
    assert_eq!(core.next_batch(Lane::Data, at(0)).len(), 1);
    assert!(core.next_batch(Lane::Metadata, at(0)).is_empty());
}
