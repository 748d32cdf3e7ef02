//! Syncs of programs, and closes of descriptors.

use super::calls::{NOW, Shell, caller, opened, write_call};
use super::*;
use crate::host::action::{Action, CallId, Done, Event, Undone};
use crate::host::cache::Way;
use crate::host::call::{Answer, Call, OpenFile};
use crate::host::log::After;
use crate::persist::Lm;

const REFUSED: Outcome = Outcome::Refused { refusal: Refusal::Quota };

/// A host with a handle of file 5, to which something was written.
fn written(lm: Lm) -> (Host, u64) {
    let (mut core, handle) = opened();
    core.settings.lm = lm;
    core.told_free(u64::MAX, NOW.time);
    Shell::new().call(&mut core, write_call(handle, 0, 4)).unwrap();
    (core, handle)
}

fn done() -> Outcome {
    Outcome::Done { touched: Vec::new() }
}

#[test]
fn a_sync_seals_the_file_and_then_makes_all_of_it_durable() {
    let (mut core, handle) = written(Lm::default());
    let mut shell = Shell::new();
    let answer = shell.call(&mut core, Call::Sync(handle)).unwrap();
    assert_eq!(answer, Answer::default(), "other hosts need not have heard");
    assert_eq!(shell.did.iter().filter(|did| !did.contains("Wake")).count(), 2);
    assert_eq!((&*shell.did[0], shell.kinds()), ("append", vec!["store"]));
    assert_eq!(shell.did.last().unwrap(), "sync");
    // What the session does next comes behind it.
    assert_eq!(core.after(&[caller().session].into()), After::These(vec![2]));
    let mut again = Shell::new();
    again.call(&mut core, Call::Sync(handle)).unwrap();
    assert_eq!(again.did, ["sync"], "nothing is left to be sealed");
}

#[test]
fn a_sync_that_waits_for_the_server_waits_when_the_disk_has_everything() {
    let (mut core, handle) = written(Lm::default());
    core.settings.syncs_to_server = true;
    let mut shell = Shell::new().settling(vec![done(), done()]);
    let answer = shell.call(&mut core, Call::Sync(handle)).unwrap();
    assert!(answer.is_settled && core.queue.is_empty());
    let did: Vec<_> = shell.did.iter().filter(|did| !did.contains("Wake")).collect();
    assert_eq!(did, ["append", "sync", "await"]);
    // Nothing is on its way.
    let mut again = Shell::new();
    assert!(again.call(&mut core, Call::Sync(handle)).unwrap().is_settled);
    assert_eq!(again.did, ["sync"]);
}

#[test]
fn a_sync_fails_without_the_server_and_when_it_refuses() {
    let (mut core, handle) = written(Lm::default());
    core.settings.syncs_to_server = true;
    let mut offline = Shell::new();
    assert_eq!(offline.call(&mut core, Call::Sync(handle)), Err(Refusal::Unreachable));
    assert!(!core.has_waiters() && core.queue.len() == 2, "it is sent later");
    assert!(!core.has_company());
    let mut shell = Shell::new().settling(vec![done(), REFUSED]);
    assert_eq!(shell.call(&mut core, Call::Sync(handle)), Err(Refusal::Quota));
    let mut again = Shell::new();
    assert_eq!(again.call(&mut core, Call::Sync(handle)).map(drop), Ok(()), "it was told once");
}

#[test]
fn a_sync_fails_where_its_disk_does_and_tells_a_refusal_all_the_same() {
    let (mut core, handle) = written(Lm::default());
    let mut shell = Shell::failing(1, Refusal::Io, false);
    assert_eq!(shell.call(&mut core, Call::Sync(handle)), Err(Refusal::Io));
    assert!(!core.files[&Ino(5)].has_dirty(), "it is sealed");
    let mut full = Shell::failing(0, Refusal::NoSpace, false);
    Shell::new().call(&mut core, write_call(handle, 0, 4)).unwrap();
    assert_eq!(full.call(&mut core, Call::Sync(handle)), Err(Refusal::NoSpace));
    assert!(core.files[&Ino(5)].has_dirty() && !full.did.contains(&"sync".to_owned()));
}

/// Without a wait for the server a refusal is for the close.
#[test]
fn a_sync_of_this_host_leaves_what_the_server_refused_to_the_close() {
    let (mut core, handle) = opened();
    core.refused(Ino(5), Refusal::Quota);
    assert!(Shell::new().call(&mut core, Call::Sync(handle)).is_ok());
    let flush = |core: &mut Host| Shell::new().call(core, Call::Flush(handle));
    assert_eq!([flush(&mut core), flush(&mut core)], [Err(Refusal::Quota), Err(Refusal::Quota)]);
    // A map wrote in vain: this host knows that by itself.
    core.refused(Ino(5), Refusal::Io);
    assert_eq!(Shell::new().call(&mut core, Call::Sync(handle)), Err(Refusal::Io));
    assert!(flush(&mut core).is_ok());
}

#[test]
fn a_close_waits_if_the_level_of_the_file_says_so() {
    let (mut core, handle) = written(Lm::Close);
    let mut shell = Shell::new().settling(vec![done(), done()]);
    assert!(shell.call(&mut core, Call::Flush(handle)).unwrap().is_settled);
    assert!(core.queue.is_empty() && !shell.did.contains(&"sync".to_owned()));
    let (mut core, handle) = written(Lm::Close);
    let mut refused = Shell::new().settling(vec![done(), REFUSED]);
    assert_eq!(refused.call(&mut core, Call::Flush(handle)), Err(Refusal::Quota));
}

#[test]
fn a_close_seals_what_has_no_time_and_waits_for_nobody() {
    let (mut core, handle) = written(Lm::default());
    let mut shell = Shell::new();
    assert_eq!(shell.call(&mut core, Call::Flush(handle)), Ok(Answer::default()));
    assert!(!core.files[&Ino(5)].has_dirty() && core.queue.len() == 2);
    let (mut core, handle) = written(Lm::Delay(Duration::from_secs(30)));
    let mut shell = Shell::new();
    assert!(shell.call(&mut core, Call::Flush(handle)).is_ok());
    assert!(core.files[&Ino(5)].has_dirty() && shell.did.is_empty(), "{:?}", shell.did);
}

/// A shell that redirects into a file closes a copy of its descriptor first.
#[test]
fn a_file_that_is_written_anew_is_sealed_by_its_last_close() {
    let (mut core, handle) = written(Lm::default());
    core.unsealed.insert(Ino(5), Unsealed::at(NOW.time, true));
    Shell::new().call(&mut core, Call::Flush(handle)).unwrap();
    assert!(core.files[&Ino(5)].has_dirty());
    Shell::new().call(&mut core, Call::Close(handle)).unwrap();
    assert!(!core.files[&Ino(5)].has_dirty());
}

/// Somebody who reads a file while it is written stored it with each close.
#[test]
fn a_reader_that_closes_seals_nothing_while_a_writer_has_the_file_open() {
    let (mut core, writer) = written(Lm::default());
    let mut shell = Shell::new();
    let mut closes = |core: &mut Host, handle| {
        core.opened(Ino(5));
        shell.call(core, Call::Close(handle)).unwrap();
        core.files[&Ino(5)].has_dirty()
    };
    let reader = || OpenFile::new(Ino(5), Way::Cached, caller());
    let reads = core.handles.add(reader());
    assert!(closes(&mut core, reads));
    core.handles.remove(writer).unwrap();
    let reads = core.handles.add(reader());
    assert!(!closes(&mut core, reads), "nobody else will");
}

#[test]
fn writes_of_maps_are_logged_first_and_a_failure_is_the_answer() {
    let (mut core, _) = written(Lm::default());
    let mut file = OpenFile::new(Ino(5), Way::Direct, caller());
    file.writable = true;
    let handle = core.handles.add(file);
    core.opened(Ino(5));
    core.nodes.open(5, crate::host::cache::Ask { only_reads: false, whole: false }).unwrap();
    for (id, call) in [(1, Call::Sync(handle)), (2, Call::Flush(handle))] {
        core.handle(Event::Call { id: CallId(id), call }, NOW);
        assert_eq!(core.poll_action(), Some(Action::LogMaps(CallId(id), Some(Ino(5)))));
        let done = Err(Undone::from(Refusal::NoSpace));
        core.handle(Event::Done { id: CallId(id), done }, NOW);
        let reply = Action::Reply(CallId(id), Err(Refusal::NoSpace));
        assert_eq!((core.poll_action(), core.calls()), (Some(reply), 0));
    }
}

#[test]
fn a_sync_of_a_directory_covers_its_names_and_waits_for_them() {
    let (mut core, _) = opened();
    let call = || Call::SyncDirectory { ino: Ino::ROOT, session: 3 };
    let mut here = Shell::new();
    assert_eq!(here.call(&mut core, call()), Ok(Answer::default()));
    assert_eq!((here.did, core.queue.len()), (vec!["sync".to_owned()], 1));
    assert_eq!(core.after(&[3].into()), After::These(vec![1]));
    core.settings.syncs_to_server = true;
    let mut shell = Shell::new().settling(vec![done()]);
    assert!(shell.call(&mut core, call()).unwrap().is_settled && core.queue.is_empty());
    let mut failing = Shell::failing(0, Refusal::Io, false);
    assert_eq!(failing.call(&mut core, call()), Err(Refusal::Io));
}

#[test]
fn a_sync_of_everything_goes_on_where_a_file_cannot_be_sealed() {
    let (mut core, _) = written(Lm::default());
    let mut full = Shell::failing(0, Refusal::NoSpace, false);
    assert_eq!(full.call(&mut core, Call::SyncAll { session: 3 }), Err(Refusal::NoSpace));
    assert_eq!(full.did.last().unwrap(), "sync", "the others are durable");
    assert_eq!(core.after(&[3].into()), After::Everything);
    let mut shell = Shell::new();
    assert!(shell.call(&mut core, Call::SyncAll { session: 3 }).is_ok());
    assert!(!core.has_unsealed());
}

#[test]
fn a_handle_that_is_not_open_is_no_file() {
    let (mut core, handle) = opened();
    for call in [Call::Flush(handle + 1), Call::Sync(handle + 1)] {
        assert_eq!(Shell::new().call(&mut core, call), Err(Refusal::Invalid));
    }
    core.handles.lose(Ino(5));
    assert_eq!(Shell::new().call(&mut core, Call::Flush(handle)), Err(Refusal::Stale));
    let readable = core.handles.add(OpenFile::new(Ino(5), Way::Cached, caller()));
    core.opened(Ino(5));
    let mut shell = Shell::new();
    assert_eq!(shell.call(&mut core, Call::Flush(readable)), Ok(Answer::default()));
    assert!(shell.did.is_empty());
    let (id, done) = (CallId(9), Ok(Done::Carried));
    core.handle(Event::Call { id, call: Call::Sync(readable) }, NOW);
    core.handle(Event::Done { id, done }, NOW);
    assert!(core.calls() == 0);
}
