//! Open files without a name whose clients have been silent for long.

use crate::namespace::rows::{self, ClientRow};
use crate::namespace::{Fault, MetaSnapshot, MetaTxn, drop_orphans, keys};
use crate::nouns::{ClientId, VolumeId};

/// Clients that were last heard of before `seconds` and have files open without a name.
pub fn silent_clients<S: MetaSnapshot>(
    snapshot: &mut S,
    seconds: u64,
) -> Result<Vec<(ClientId, VolumeId)>, Fault<S::Error>> {
    let prefix = keys::clients();
    let rows = snapshot.range_past_damage(&prefix, &keys::after(&prefix), usize::MAX);
    let mut silent = Vec::new();
    for (key, value) in rows.map_err(Fault::Store)? {
        let client = keys::client_part(&key).ok_or(Fault::Damaged("a client's key"))?;
        let row = value.map(|value| rows::decode::<ClientRow, S::Error>(&value, "a client"));
        // One that cannot be read keeps what it has open.
        let Some(Ok(row)) = row else { continue };
        let orphans = keys::orphans(row.volume, client);
        let has =
            |snapshot: &mut S| snapshot.range_past_damage(&orphans, &keys::after(&orphans), 1);
        if row.seen < seconds && !has(snapshot).map_err(Fault::Store)?.is_empty() {
            silent.push((client, row.volume));
        }
    }
    Ok(silent)
}

/// [`drop_orphans`] of a client that has not been heard of since `seconds`: it may have come
/// back since it was seen to be silent.
pub fn drop_silent_orphans<T: MetaTxn>(
    txn: &mut T,
    (client, volume): (ClientId, VolumeId),
    seconds: u64,
) -> Result<bool, Fault<T::Error>> {
    match rows::client(txn, client)? {
        Some(row) if row.seen < seconds => drop_orphans(txn, (client, volume), true),
        _ => Ok(false),
    }
}
