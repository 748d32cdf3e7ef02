//! Open files without a name go when their clients are lost, and not before.

use super::*;
use crate::refusal::Refusal;
use crate::upkeep::{drop_silent_orphans, silent_clients};

/// A client came back between being found silent and the removal of what it had open.
#[test]
fn a_client_that_came_back_keeps_its_orphans() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let f = tin.file(&mut txn, Ino::ROOT, "f");
    tin.apply(&mut txn, unlink(Ino::ROOT, "f", f, true));
    seen(&mut txn, tin.id, NOW).unwrap();
    let silent = silent_clients(&mut txn, NOW + 1).unwrap();
    assert_eq!(silent, [(tin.id, VOLUME)]);
    seen(&mut txn, tin.id, NOW + 5).unwrap();
    drop_silent_orphans(&mut txn, silent[0], NOW + 1).unwrap();
    assert_eq!(attr(&mut txn, f).nlink, 0);
    drop_silent_orphans(&mut txn, silent[0], NOW + 6).unwrap();
    assert_eq!(read::getattr(&mut txn, VOLUME, f), Err(Refusal::Stale.into()));
}
