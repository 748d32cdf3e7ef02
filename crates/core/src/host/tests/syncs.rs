//! What follows a sync, and what it covered.

use super::*;
use crate::host::log::After;
use crate::host::log::covered::COVERED_MAX;

/// A session changes the permissions of file `ino`; what that follows.
fn chmod(core: &mut Host, ino: u64, session: u32) -> After {
    let record = Record::SetAttr { ino: Ino(ino), set: SetAttr::default() };
    let caller = Caller { session, ..Caller::default() };
    let entry = core.draft_change(record, caller, Timestamp::default());
    let after = entry.change().unwrap().after.clone();
    core.admit(entry, Time::default());
    after
}

/// Two sessions write to file 5, which some third one closes; what that follows.
fn store(core: &mut Host, sessions: [u32; 2]) -> After {
    sessions.into_iter().for_each(|session| core.note_writer(Ino(5), session));
    write(core, 5, 0..10);
    let entry = core.draft_seal(Ino(5), Caller::default()).unwrap();
    let after = entry.change().unwrap().after.clone();
    core.admit(entry, Time::default());
    after
}

/// Proves S7.6.
#[test]
fn what_a_session_does_after_a_sync_follows_what_that_covered() {
    let mut core = core();
    create(&mut core);
    assert_eq!(store(&mut core, [7, 7]), After::Nothing);
    core.cover(7, Ino(5));
    assert_eq!(chmod(&mut core, 6, 8), After::Nothing);
    assert_eq!(chmod(&mut core, 6, 7), After::These(vec![2]));
    assert_eq!(store(&mut core, [8, 7]), After::These(vec![2]));
    // That one stands for both.
    core.cover(7, Ino(5));
    assert_eq!(chmod(&mut core, 6, 7), After::These(vec![5]));
    let done = Outcome::Done { touched: Vec::new() };
    (1..=5).for_each(|seq| drop(settle(&mut core, seq, &done)));
    assert_eq!(chmod(&mut core, 6, 7), After::Nothing);
}

/// Proves S7.6.
#[test]
fn a_sync_of_everything_counts_for_the_next_change_and_that_for_the_others() {
    let mut core = core();
    create(&mut core);
    core.cover_all(7);
    assert_eq!(chmod(&mut core, 6, 8), After::Nothing);
    assert_eq!(chmod(&mut core, 6, 7), After::Everything);
    assert_eq!(chmod(&mut core, 6, 7), After::These(vec![3]));
    // So is one of more than can be told apart.
    (100..100 + COVERED_MAX as u64 + 1).for_each(|ino| {
        core.reserve_seqs(1_000);
        chmod(&mut core, ino, 9);
        core.cover(7, Ino(ino));
    });
    assert_eq!(chmod(&mut core, 6, 7), After::Everything);
}

/// Those of another pid namespace, which may belong together.
#[test]
fn sessions_that_cannot_be_told_are_one() {
    let mut core = core();
    create(&mut core);
    store(&mut core, [0, 0]);
    core.cover(0, Ino(5));
    assert_eq!(chmod(&mut core, 6, 7), After::Nothing);
    assert_eq!(chmod(&mut core, 6, 0), After::These(vec![2]));
    // Who closes a file that others wrote to does not make it: nobody knows who that was.
    assert_eq!(store(&mut core, [7, 7]), After::Nothing);
}

#[test]
fn what_an_earlier_process_left_follows_everything() {
    for lost_power in [false, true] {
        let mut core = core();
        create(&mut core);
        write(&mut core, 5, 0..10);
        let data = DataChange {
            ino: Ino(5),
            container: core.container(Ino(5)).unwrap(),
            base: crate::nouns::Base::Result(1),
            cut: None,
            size: 10,
            ranges: vec![0..10],
            mtime: Timestamp::default(),
        };
        let entry = core.draft_leftover(data.clone(), Caller::default(), lost_power);
        let logged = entry.change().unwrap();
        assert_eq!(logged.after, After::Everything);
        assert_eq!(logged.known, lost_power.then_some(data.base));
        core.admit(entry, Time::default());
        settle(&mut core, 1, &Outcome::Done { touched: vec![attr(5, Kind::File, 2)] });
        // With them the server sees whether a change that the log has lost came later.
        assert_eq!(core.acked_below(), if lost_power { 0 } else { 2 }, "outcomes are kept");
        settle(&mut core, 2, &Outcome::Done { touched: vec![attr(5, Kind::File, 3)] });
        assert_eq!(core.acked_below(), 3);
    }
}
