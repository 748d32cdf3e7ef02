//! What stands where.

use std::ops::Range;

use super::*;
use crate::host::log::Entry;

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
