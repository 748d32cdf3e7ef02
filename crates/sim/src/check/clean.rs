//! What a client has of a file that it has not changed.

use segue_core::nouns::Ino;

use super::ledger::Ledger;
use crate::Violation;
use crate::client::Mount;

/// Cached bytes of the server's version are the server's.
pub(crate) fn check(mount: &mut Mount, ledger: &Ledger, ino: Ino) -> Result<(), Violation> {
    // What was written to a file without a name went nowhere.
    let named = ledger.files.get(&ino).filter(|_| ledger.is_named(ino));
    let Some(state) = named else { return Ok(()) };
    if !mount.disk.changed_maps(Some(ino)).is_empty() {
        // This host changed it, and does not know.
        return Ok(());
    }
    let here = mount.disk.here(&mut mount.core, ino);
    let file = mount.core.data_of(ino);
    if !file.is_some_and(|file| !file.is_ahead() && file.version() == state.version) {
        return Ok(());
    }
    for (offset, bytes) in here {
        // Behind the end of the file are zeros. A host has them whose own length of it was refused.
        let at = |index: usize| usize::try_from(offset).ok()?.checked_add(index);
        let expected = |index| at(index).and_then(|at| state.content.get(at)).copied();
        let is_there = |(index, byte): (usize, &u8)| expected(index).unwrap_or(0) == *byte;
        if !bytes.iter().enumerate().all(is_there) {
            let words = format!("#{ino} at {offset} is cached as {bytes:?}: {:?}", state.content);
            return Err(Violation(words));
        }
    }
    Ok(())
}
