//! What the store remembers of a client between its sessions.

use super::rows::{self, ClientRow, VolumeRow};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, is_damage, keys, readable};
use crate::nouns::{ClientId, InoGrant, OpId, VolumeId};

/// Inode numbers in one grant.
pub const GRANT_COUNT: u64 = 1 << 20;
/// Most grants of one client: four thousand million files.
const GRANTS_MAX: usize = 4096;
/// Most clients of one identity. Each keeps what it sent last for ever.
const CLIENTS_MAX: usize = 4096;
/// Most outcomes forgotten in one transaction, so that none is long.
const TRIM: usize = 1024;
/// Inodes removed in one transaction: each may be some hundred rows.
const ORPHANS: usize = 64;

/// Why a client cannot be who it says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindError {
    /// The client belongs to another identity.
    #[error("this cache directory belongs to another identity")]
    OtherIdentity,
    /// The client belongs to another volume.
    #[error("this cache directory belongs to another volume")]
    OtherVolume,
    /// A later life of the client's log has been seen.
    #[error("this cache directory was copied, or restored from an old copy")]
    OldIncarnation,
    /// The identity has as many clients as there may be.
    #[error("this identity has {CLIENTS_MAX} cache directories already")]
    TooMany,
}

/// Binds `client` to the identity and the volume on first use, and checks it later.
pub fn bind<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
    identity: &str,
    volume: VolumeId,
    incarnation: u32,
) -> Result<Result<(), BindError>, Fault<T::Error>> {
    let row = match rows::client(txn, client)? {
        None if of_identity(txn, identity)? >= CLIENTS_MAX => {
            return Ok(Err(BindError::TooMany));
        }
        None => ClientRow {
            identity: identity.to_owned(),
            volume,
            incarnation,
            grants: Vec::new(),
            seen: 0,
        },
        Some(row) if row.identity != identity => return Ok(Err(BindError::OtherIdentity)),
        Some(row) if row.volume != volume => return Ok(Err(BindError::OtherVolume)),
        Some(row) if row.incarnation > incarnation => return Ok(Err(BindError::OldIncarnation)),
        Some(row) if row.incarnation == incarnation => return Ok(Ok(())),
        Some(row) => {
            // Nobody can repeat a record of the old log.
            forget_before(txn, OpId { client, incarnation, seq: 0 })?;
            forget_all(txn, &keys::copies(client))?;
            forget_all(txn, &keys::all_dropped(client))?;
            ClientRow { incarnation, ..row }
        }
    };
    rows::put_row(txn, &keys::client(client), &row)?;
    Ok(Ok(()))
}

/// The clients of an identity.
fn of_identity<T: MetaTxn>(txn: &mut T, identity: &str) -> Result<usize, Fault<T::Error>> {
    let prefix = keys::clients();
    let clients = txn.range_past_damage(&prefix, &keys::after(&prefix), usize::MAX);
    let clients = clients.map_err(Fault::Store)?.into_iter().filter_map(|(_, value)| value);
    let rows = clients.filter_map(|value| rows::decode::<ClientRow, T::Error>(&value, "").ok());
    Ok(rows.filter(|row| row.identity == identity).count())
}

fn forget_before<T: MetaTxn>(txn: &mut T, end: OpId) -> Result<(), Fault<T::Error>> {
    let first = keys::outcome(OpId { incarnation: 0, seq: 0, ..end });
    let rows = txn.range_past_damage(&first, &keys::outcome(end), TRIM).map_err(Fault::Store)?;
    rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)
}

fn forget_all<T: MetaTxn>(txn: &mut T, prefix: &[u8]) -> Result<(), Fault<T::Error>> {
    let rows = txn.range_past_damage(prefix, &keys::after(prefix), TRIM).map_err(Fault::Store)?;
    rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)
}

/// Forgets outcomes below `below`, which the client knows. A floor that cannot be read is put
/// down anew, as the client says it.
pub fn raise_floor<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
    incarnation: u32,
    below: u64,
) -> Result<(), Fault<T::Error>> {
    let key = keys::floor(client, incarnation);
    let floor: Result<Option<u64>, _> = rows::get_row(txn, &key, "a floor");
    let is_lost = floor.as_ref().is_err_and(is_damage::<T>);
    let floor = readable::<T, _>(floor)?;
    if floor.unwrap_or(0) >= below && !is_lost {
        return Ok(());
    }
    rows::put_row(txn, &key, &below)?;
    forget_before(txn, OpId { client, incarnation, seq: below })
}

/// The client's inode numbers.
pub fn grants<T: MetaTxn>(txn: &mut T, client: ClientId) -> Result<Vec<InoGrant>, Fault<T::Error>> {
    Ok(rows::client(txn, client)?.map(|row| row.grants).unwrap_or_default())
}

/// More inode numbers for a client that is bound; `None` if it has had too many.
pub fn grant<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
) -> Result<Option<InoGrant>, Fault<T::Error>> {
    let mut row = rows::client(txn, client)?.ok_or(Fault::Damaged("a client is missing"))?;
    if row.grants.len() >= GRANTS_MAX {
        return Ok(None);
    }
    let block = reserve(txn, row.volume)?;
    match row.grants.last_mut() {
        // One run, where nobody else asked in between.
        Some(last) if last.first + last.count == block.first => last.count += block.count,
        _ => row.grants.push(block),
    }
    rows::put_row(txn, &keys::client(client), &row)?;
    Ok(Some(block))
}

/// Takes a block of numbers that nobody will get again.
pub(crate) fn reserve<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
) -> Result<InoGrant, Fault<T::Error>> {
    let key = keys::volume(volume);
    let mut row: VolumeRow =
        rows::get_row(txn, &key, "a volume")?.ok_or(Fault::Damaged("a volume is missing"))?;
    let first = row.next_ino;
    row.next_ino = first.checked_add(GRANT_COUNT).ok_or(Fault::Damaged("inode numbers ran out"))?;
    rows::put_row(txn, &key, &row)?;
    Ok(InoGrant { first, count: GRANT_COUNT })
}

/// Removes some of what the client had open without a name, none of which is open any more;
/// true if there may be more.
///
/// What went is remembered: the client's log may hold stores to it, and they need to go
/// nowhere. (A row for each file that a crash found open and unlinked, until the client's log
/// begins anew.) An inode that cannot be read stays, without anybody who has it open.
/// Where the volume `is_shared`, other hosts may read on what this one had open.
pub fn drop_orphans<T: MetaTxn>(
    txn: &mut T,
    (client, volume): (ClientId, VolumeId),
    is_shared: bool,
) -> Result<bool, Fault<T::Error>> {
    let mut tree = Tree::open(txn, volume)?;
    tree.leaves_remnants = is_shared;
    let prefix = keys::orphans(volume, client);
    let rows = tree.txn.range_past_damage(&prefix, &keys::after(&prefix), ORPHANS);
    let rows = rows.map_err(Fault::Store)?;
    for (key, _) in &rows {
        tree.txn.remove(key).map_err(Fault::Store)?;
        let ino = keys::orphan_ino(key).ok_or(Fault::Damaged("an orphan's key"))?;
        if let Some(row) = readable::<T, _>(tree.find(ino))? {
            tree.remove_inode(&row)?;
            rows::put_row(&mut tree.txn, &keys::dropped(client, ino), &())?;
        }
    }
    tree.commit()?;
    Ok(rows.len() == ORPHANS)
}

/// The client is heard of now.
pub fn seen<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
    now_seconds: u64,
) -> Result<(), Fault<T::Error>> {
    match rows::client(txn, client)? {
        Some(row) if row.seen < now_seconds => {
            rows::put_row(txn, &keys::client(client), &ClientRow { seen: now_seconds, ..row })
        }
        _ => Ok(()),
    }
}
