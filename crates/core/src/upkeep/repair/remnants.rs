//! Remnants of removed files: rows that are made anew, removed or counted.

use super::fix::Fixed;
use crate::namespace::remnant::{bury_lost, put_tally};
use crate::namespace::rows;
use crate::namespace::{Fault, MetaTxn, RemnantTally, keys};
use crate::nouns::VolumeId;
use crate::upkeep::check::sound_remnant;

/// Rows read at a time.
const SLICE: usize = 256;

/// Repairs a row of remnants that cannot be read or does not fit the others. Returns how.
pub(super) fn repair<T: MetaTxn>(txn: &mut T, volume: VolumeId, key: &[u8]) -> Fixed<T::Error> {
    if let Some((_, ino)) = keys::remnant_order_part(key)
        && key.starts_with(&keys::remnant_orders(volume))
    {
        // The remnant is collected with the next ones.
        rows::put_row(txn, key, &())?;
        let is_there = txn.get(&keys::remnant(volume, ino)).map_err(Fault::Store)?.is_some();
        return Ok(Some(if is_there { "it was written anew" } else { "its remnant is gone" }));
    }
    if let Some((ino, [])) = keys::inode_part(key)
        && key.starts_with(&keys::remnants(volume))
    {
        bury_lost(txn, volume, ino)?;
    }
    txn.remove(key).map_err(Fault::Store)?;
    recount(txn, volume)?;
    Ok(Some("it was removed, and the others were counted"))
}

fn recount<T: MetaTxn>(txn: &mut T, volume: VolumeId) -> Result<(), Fault<T::Error>> {
    let (mut from, mut found) = (keys::remnants(volume), RemnantTally::default());
    let end = keys::after(&from);
    loop {
        let page = txn.range_past_damage(&from, &end, SLICE).map_err(Fault::Store)?;
        let Some((last, _)) = page.last() else { break };
        from = [last.as_slice(), &[0]].concat();
        for (key, _) in page {
            if let Some(remnant) = sound_remnant(txn, volume, &key).map_err(Fault::Store)? {
                found = found.and(&remnant);
            }
        }
    }
    put_tally(txn, volume, found)
}
