//! What stands where.

use std::ops::Range;

use super::calls::{NOW, opened, write_call};
use super::*;
use crate::host::action::{Action, CallId, Done, Event};
use crate::host::cache::Scrap;
use crate::host::log::Entry;

/// Makes file 5 as change 1, and stores 100 bytes of it as change 2.
fn store(core: &mut Host) {
    create(core);
    write(core, 5, 0..100);
    seal(core, 5);
}

/// Both are done.
fn settle_store(core: &mut Host) {
    for seq in [1, 2] {
        let done = Outcome::Done { touched: vec![attr(5, Kind::File, seq + 1)] };
        settle(core, seq, &done);
    }
}

/// The timer closes a file into a change while somebody is about to write over what it has.
/// Proves S23.4.
#[test]
fn what_became_a_change_meanwhile_is_not_written_over_before_it_is_preserved() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    let container = core.container(Ino(5)).unwrap();
    let is_free = |core: &Host, range: Range<u64>| core.to_preserve(Ino(5), &range).is_empty();
    assert!(is_free(&core, 0..50), "nothing is on its way");
    seal(&mut core, 5);
    assert!(!is_free(&core, 0..50) && is_free(&core, 100..200));
    core.admit(Entry::Preserved { seq: 2, range: 0..50, sums: Vec::new() }, Time::default());
    assert!(is_free(&core, 0..50) && !is_free(&core, 0..51));
    let emptied = core.draft_resize(Ino(5), 0, false, Timestamp::default()).unwrap();
    core.admit(emptied, Time::default());
    assert_ne!(core.container(Ino(5)), Some(container), "the change keeps what it has");
}

/// A change that is not sent keeps the end of its container, but not for what was preserved of it.
/// After a loss of power, bytes of a lost write stood behind the end of a file that was cut.
#[test]
fn a_container_ends_where_its_file_does_if_the_rest_is_preserved() {
    let mut core = core();
    store(&mut core);
    let end = |core: &Host| core.ends().first().map(|(_, size)| *size);
    assert_eq!(end(&core), Some(100));
    let emptied = |core: &mut Host| {
        let cut = core.draft_resize(Ino(5), 5, false, Timestamp::default()).unwrap();
        core.admit(cut, Time::default());
    };
    core.admit(Entry::Preserved { seq: 2, range: 40..100, sums: Vec::new() }, Time::default());
    emptied(&mut core);
    assert_eq!(end(&core), Some(40), "the change needs what is before that");
    core.admit(Entry::Preserved { seq: 2, range: 5..40, sums: Vec::new() }, Time::default());
    assert_eq!(end(&core), Some(5));
}

/// A store was settled while a write preserved more of its bytes. All that was preserved of it was
/// removed at once; a loss of power took the entry that it was settled, and so its data.
#[test]
fn what_was_preserved_is_removed_only_by_the_sweep_which_syncs_the_log_first() {
    let (mut core, handle) = opened();
    write(&mut core, 5, 0..100);
    seal(&mut core, 5);
    core.told_free(u64::MAX, NOW.time);
    let id = CallId(1);
    core.handle(Event::Call { id, call: write_call(handle, 10, 4) }, NOW);
    assert!(matches!(core.poll_action(), Some(Action::Preserve(..))));
    settle_store(&mut core);
    let preserved = [Scrap::Preserved(2)];
    assert_eq!(core.take_scrap(), preserved.into(), "some of it may be there already");
    core.handle(Event::Done { id, done: Ok(Done::Preserved(vec![9])) }, NOW);
    assert_eq!(core.take_scrap(), preserved.into(), "or be there since");
    assert!(core.take_scrap().is_empty());
}

/// A process that died had settled a change, and its log may say so only in memory.
#[test]
fn what_an_earlier_process_preserved_goes_with_its_change() {
    let mut core = core();
    store(&mut core);
    core.found_preserved(vec![1, 2, 77]);
    assert_eq!(core.take_scrap(), [Scrap::Preserved(77)].into(), "the others are pending");
    settle_store(&mut core);
    assert!(core.take_scrap().contains(&Scrap::Preserved(2)));
}
