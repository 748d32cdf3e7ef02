//! Stores of a host that lost the tail of its log.
//!
//! A loss of power takes the end of a host's log, with changes that were sent already. The rest of
//! the log sends an earlier state of a file again: of a change that was sealed, or taken back, in
//! the lost tail. The server has later records of this host. A version that these made is newer
//! and stays. A file that they removed does not come back.

use super::permission::Change;
use super::rows::{self, InodeRow, OutcomeRow};
use super::store::own_copy;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys};
use crate::nouns::{Base, Ino, OpId, Store};

/// Most outcomes that are looked at: a host that is well has fewer, because it says what it knows
/// once a second. One that has more gets a conflict copy.
const OUTCOMES_MAX: usize = 1 << 16;
/// Outcomes read at a time.
const SLICE: usize = 1 << 10;

/// True if `store` brings what its own host has changed or removed since.
pub(super) fn is_outdated<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    store: &Store,
    original: Option<&InodeRow>,
) -> Result<bool, Fault<T::Error>> {
    let is_there = original.filter(|row| row.attr.nlink > 0);
    if is_there.is_some_and(|row| is_made_since(change, row)) {
        return Ok(true);
    }
    let copy = own_copy(tree, change, store.ino)?;
    if copy.is_some_and(|copy| is_made_since(change, &copy)) {
        return Ok(true);
    }
    Ok(is_there.is_none() && is_removed_since(tree, change, store.ino)?)
}

/// The last record of the host that comes before the change in its log, as far as is known.
fn before(change: &Change<'_>) -> u64 {
    match change.known {
        None => change.op.seq,
        Some(Base::Result(seq)) => seq,
        Some(Base::Version(_)) => 0,
    }
}

/// True if a later record of the host made the data of `row`.
fn is_made_since(change: &Change<'_>, row: &InodeRow) -> bool {
    let is_newer = match change.known {
        // What was restored from a backup is older.
        Some(Base::Version(version)) => row.attr.data_version > version,
        _ => true,
    };
    let is_later = |op: &OpId| OpId { seq: op.seq, ..change.op } == *op && op.seq > before(change);
    is_newer && row.made_by.iter().any(is_later)
}

/// True if a later record of the host took the last name of `ino`.
fn is_removed_since<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
) -> Result<bool, Fault<T::Error>> {
    let at = |seq| keys::outcome(OpId { seq, ..change.op });
    let (mut from, end) = (at(before(change).saturating_add(1)), at(u64::MAX));
    for _ in 0..OUTCOMES_MAX / SLICE {
        let rows = tree.txn.range(&from, &end, SLICE).map_err(Fault::Store)?;
        for (_, value) in &rows {
            let row: OutcomeRow = rows::decode(value, "an outcome")?;
            if row.removed == Some(ino) {
                return Ok(true);
            }
        }
        match rows.last() {
            Some((last, _)) if rows.len() == SLICE => from = [last.as_slice(), &[0]].concat(),
            _ => break,
        }
    }
    Ok(false)
}
