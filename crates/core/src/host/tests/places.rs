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

/// A change that is not sent keeps the end of its container, but not for what was preserved of it.
/// After a loss of power, bytes of a lost write stood behind the end of a file that was cut.
#[test]
fn a_container_ends_where_its_file_does_if_the_rest_is_preserved() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    seal(&mut core, 5);
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
