//! Parts of a host that contradict each other, and the checks that find that.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::host::cache::Ask;
use crate::host::call::Growth;

/// A host with a file that is written and sealed, and not sent.
fn pending() -> Host {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    let sealed = core.draft_seal(Ino(5), Caller::default()).unwrap();
    core.admit(sealed, Time::default());
    core
}

/// The words with which a check fails, if it does.
fn found(core: &mut Host, check: impl FnOnce(&mut Host)) -> Option<String> {
    let failed = catch_unwind(AssertUnwindSafe(|| check(core))).err()?;
    let words = failed.downcast_ref::<String>().cloned();
    words.or_else(|| failed.downcast_ref::<&str>().map(|words| (*words).to_owned()))
}

/// `breaks` makes a contradiction, of which the checks say `words`. Some are found `in_turn`, in
/// every build, at the next few events.
fn finds(breaks: fn(&mut Host), words: &str, in_turn: bool) {
    let mut core = pending();
    assert_eq!(found(&mut core, |core| core.check_invariants()), None);
    assert_eq!(found(&mut core, Host::check_in_turn), None);
    breaks(&mut core);
    let all = found(&mut core, |core| core.check_invariants()).unwrap();
    assert!(all.contains(words), "{all}");
    if in_turn {
        let soon = (0..4).find_map(|_| found(&mut core, Host::check_in_turn)).unwrap();
        assert!(soon.contains(words), "{soon}");
    }
}

#[test]
fn contradictions_are_found() {
    finds(|core| core.next_seq = 101, "reserved", true);
    finds(|core| core.next_seq = 2, "from the future", true);
    let by_nobody = |core: &mut Host| {
        core.open.insert(Ino(5), 0);
    };
    finds(by_nobody, "by nobody", true);
    let opened = |core: &mut Host| {
        let ask = Ask { only_reads: true, whole: false };
        (0..2).for_each(|_| assert!(core.nodes.open(5, ask).is_ok()));
        core.open.insert(Ino(5), 1);
    };
    finds(opened, "by more descriptors", true);
    let room = |core: &mut Host| core.room.changed(9, Growth { bytes: 5, ..Growth::default() });
    finds(room, "counts against quotas", false);
    finds(|core| core.room.mark_sending(9), "was sent", false);
    let preserved = |core: &mut Host| {
        core.preserved.insert(9, RangeSet::default());
    };
    finds(preserved, "preserved", false);
    let scrap = |core: &mut Host| {
        let container = core.container(Ino(5)).unwrap();
        core.scrap.insert(Scrap::Container(Ino(5), container));
    };
    finds(scrap, "used, and removed", false);
}

/// All changes are settled, and something still counts as changed.
#[test]
fn what_is_counted_as_pending_without_a_change_finds() {
    let mut core = core();
    core.tree.mark(Ino::ROOT);
    let words = found(&mut core, |core| core.check_invariants()).unwrap();
    assert!(words.contains("unsettled changes"), "{words}");
}
