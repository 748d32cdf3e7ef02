//! Putting a volume's rows into a store, where nobody sees them before all of them are there.
//!
//! ```text
//!   begin   a number for the volume, which counts as removed: a crash leaves nothing
//!   row     each row of a dump, as it stands in this store
//!   finish  one transaction: the volume has its name, and the one it replaces is removed
//! ```
//!
//! Clients know the volume again, and some know more than the dump has: what was committed after
//! it. So that they notice, the volume goes on in a new epoch, in which every inode counts as
//! changed; its data keep their version, because they are what that version was. Numbers that
//! were granted after the dump are not granted again. They may still be used by those who have
//! them, as far as no inode has them.

use std::collections::BTreeSet;

use crate::namespace::arrivals;
use crate::namespace::lives::{self, Start};
use crate::namespace::refs::{self, Held};
use crate::namespace::rows::{
    self, ChunkPlace, ChunkRow, ClientRow, InodeRow, LeafRow, Tally, VolumeRow,
};
use crate::namespace::tree::Tree;
use crate::namespace::volume::{Readable, find_volume, is_name, next_id, volumes};
use crate::namespace::{Fault, MetaTxn, VolumeError, delete_volume, keys};
use crate::nouns::{ClientId, Fingerprint, Ino, InoGrant, Version, VolumeId};

/// Inode numbers that are passed over: more than a volume's clients are granted between two
/// backups, and few enough that there are millions of restores.
const JUMP: u64 = 1 << 36;
/// Rows looked at or removed at a time.
const SLICE: usize = 256;

/// A volume that is being put in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restore {
    /// Its number.
    pub volume: VolumeId,
    /// What it will be.
    pub row: VolumeRow,
    /// Its counters.
    tally: Tally,
    /// What every inode gets.
    version: Version,
}

/// How the volume becomes one of the server's.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its uuid, if another volume here has its own.
    pub other_uuid: [u8; 16],
    /// The volume that has the name, and goes.
    pub replaces: Option<VolumeId>,
}

/// Begins to put in a volume that was `row` with `tally`, and of which epochs up to `epoch` and
/// inode numbers below `next_ino` may be known besides.
pub fn begin<T: MetaTxn>(
    txn: &mut T,
    row: &VolumeRow,
    tally: &Tally,
    (epoch, next_ino): (u32, u64),
    start: Start,
) -> Result<Restore, Fault<T::Error>> {
    let volume = next_id(txn)?;
    rows::put_row(txn, &keys::removed_volume(volume), &())?;
    let mut row = row.clone();
    let end = row.next_ino.max(next_ino).checked_add(JUMP);
    let end = end.ok_or(Fault::Damaged("inode numbers ran out"))?;
    row.lost.push(InoGrant { first: row.next_ino, count: end - row.next_ino });
    row.next_ino = end;
    row.epoch = row.epoch.max(epoch).checked_add(1).ok_or(Fault::Damaged("epochs ran out"))?;
    let commits = lives::jump(tally.commits, start);
    let version = Version { epoch: row.epoch, counter: commits };
    // The server's own numbers were used on after the dump too: it takes new ones.
    let own_next = tally.own_end;
    let before = (tally.commits, row.next_ino);
    let next_ino = lives::first_ino(row.next_ino, commits);
    row.next_ino = next_ino.ok_or(Fault::Damaged("inode numbers ran out"))?;
    let tally = Tally { commits, own_next, ..*tally };
    lives::note_jump(txn, volume, &tally, before)?;
    Ok(Restore { volume, row, tally, version })
}

impl Restore {
    /// Puts in a row of the dump that is neither a chunk's nor a client's. One whose key makes no
    /// sense is nobody's.
    pub fn put<T: MetaTxn>(
        &self,
        txn: &mut T,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Fault<T::Error>> {
        let Some(key) = keys::moved(key, self.volume) else { return Ok(()) };
        if key.starts_with(&keys::inodes(self.volume))
            && let Some(value) = self.inode(value)
        {
            return txn.put(&key, &value).map_err(Fault::Store);
        }
        if key.starts_with(&keys::leaves(self.volume))
            && let Some(leaf) = keys::fingerprint_part(&key)
            && let Ok(row @ LeafRow { refs: 0, due, .. }) = &postcard::from_bytes::<LeafRow>(value)
        {
            rows::put_row(txn, &keys::idle(*due, Held::Leaf(self.volume, leaf)), &())?;
            arrivals::shift(txn, self.volume, 0, row.waiting())?;
        }
        txn.put(&key, value).map_err(Fault::Store)
    }

    /// Puts in a chunk of the dump, whose bytes are durable at `place`.
    pub fn put_chunk<T: MetaTxn>(
        &self,
        txn: &mut T,
        fingerprint: &Fingerprint,
        row: &ChunkRow,
        place: ChunkPlace,
    ) -> Result<(), Fault<T::Error>> {
        if row.refs == 0 {
            let held = Held::Chunk(self.volume, *fingerprint);
            rows::put_row(txn, &keys::idle(row.due, held), &())?;
            arrivals::shift(txn, self.volume, 0, row.waiting())?;
        }
        refs::shift_pack(txn, &place, 1)?;
        let row = ChunkRow { place, ..*row };
        rows::put_row(txn, &keys::chunk(self.volume, fingerprint), &row)
    }

    fn inode(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut row: InodeRow = postcard::from_bytes(value).ok()?;
        row.attr.change = self.version;
        postcard::to_stdvec(&row).ok()
    }
}

/// Puts the volume, all of whose rows are there, in its place, with the rows of its `clients`.
/// Returns what it has become.
pub fn finish<T: MetaTxn>(
    txn: &mut T,
    restore: &Restore,
    entry: &Entry,
    clients: &[(Vec<u8>, Vec<u8>)],
) -> Result<Result<VolumeRow, VolumeError>, Fault<T::Error>> {
    if !is_name(&entry.name) {
        return Ok(Err(VolumeError::BadName));
    }
    let found = find_volume(txn, &entry.name)?;
    if found.as_ref().map(|(id, _)| *id) != entry.replaces {
        return Ok(Err(VolumeError::Exists));
    }
    let mut row = VolumeRow { name: entry.name.clone(), ..restore.row.clone() };
    let others = volumes(txn)?;
    let has_uuid = |(id, other): &Readable<T::Error>| {
        let uuid = other.as_ref().map(|other| other.uuid);
        Some(*id) != entry.replaces && uuid.is_ok_and(|uuid| uuid == restore.row.uuid)
    };
    if others.iter().any(has_uuid) {
        row.uuid = entry.other_uuid;
    }
    let is_same = found.is_some_and(|(_, replaced)| replaced.uuid == row.uuid);
    if let Some(replaced) = entry.replaces {
        hand_over(txn, replaced, restore.volume, is_same)?;
        delete_volume(txn, replaced)?;
    }
    rows::put_row(txn, &keys::volume(restore.volume), &row)?;
    rows::put_row(txn, &keys::volume_tally(restore.volume), &restore.tally)?;
    rows::put_row(txn, &keys::volume_name(&row.name), &restore.volume)?;
    txn.remove(&keys::removed_volume(restore.volume)).map_err(Fault::Store)?;
    put_clients(txn, restore.volume, clients, is_same)?;
    drop_strange_orphans(txn, restore.volume)?;
    Ok(Ok(row))
}

/// Clients of the volume that goes are clients of the one that comes. What they did after the
/// dump has not happened, so its outcomes go.
fn hand_over<T: MetaTxn>(
    txn: &mut T,
    from: VolumeId,
    to: VolumeId,
    is_same: bool,
) -> Result<(), Fault<T::Error>> {
    let all = keys::clients();
    let rows = txn.range(&all, &keys::after(&all), usize::MAX).map_err(Fault::Store)?;
    for (key, value) in rows {
        let mut row: ClientRow = rows::decode(&value, "a client")?;
        let client = keys::client_part(&key).ok_or(Fault::Damaged("a client's key"))?;
        if row.volume != from {
            continue;
        }
        for prefix in [keys::outcomes(client), keys::copies(client), keys::all_dropped(client)] {
            remove_all(txn, &prefix)?;
        }
        row.volume = to;
        if !is_same {
            remove_all(txn, &keys::floors(client))?;
            row.grants.clear();
        }
        rows::put_row(txn, &key, &row)?;
    }
    Ok(())
}

fn remove_all<T: MetaTxn>(txn: &mut T, prefix: &[u8]) -> Result<(), Fault<T::Error>> {
    loop {
        let rows = txn.range(prefix, &keys::after(prefix), SLICE).map_err(Fault::Store)?;
        rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)?;
        if rows.len() < SLICE {
            return Ok(());
        }
    }
}

/// Puts in the clients of the dump, but those that belong to another volume here.
fn put_clients<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    clients: &[(Vec<u8>, Vec<u8>)],
    is_same: bool,
) -> Result<(), Fault<T::Error>> {
    let mut ours = BTreeSet::new();
    for (key, value) in clients {
        let client = keys::client_part(key).ok_or(Fault::Damaged("a client's key"))?;
        if *key == keys::client(client) {
            let row: ClientRow = rows::decode(value, "a client")?;
            let known = rows::client(txn, client)?;
            if known.as_ref().is_some_and(|known| known.volume != volume) {
                continue;
            }
            ours.insert(client);
            let mut row = ClientRow { volume, ..row };
            if let Some(known) = known {
                row.identity = known.identity;
                // A later life of its log has been seen here.
                row.incarnation = row.incarnation.max(if is_same { known.incarnation } else { 0 });
            }
            rows::put_row(txn, key, &row)?;
        } else if ours.contains(&client) {
            put_of_client(txn, client, key, value)?;
        }
    }
    Ok(())
}

/// A floor is never lowered: below it a client waits for no answer.
fn put_of_client<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
    key: &[u8],
    value: &[u8],
) -> Result<(), Fault<T::Error>> {
    if key.starts_with(&keys::floors(client)) {
        let floor: u64 = rows::decode(value, "a floor")?;
        let known: Option<u64> = rows::get_row(txn, key, "a floor")?;
        return rows::put_row(txn, key, &floor.max(known.unwrap_or(0)));
    }
    txn.put(key, value).map_err(Fault::Store)
}

/// Files without a name that are open at clients which did not come along: nobody has them open.
fn drop_strange_orphans<T: MetaTxn>(txn: &mut T, volume: VolumeId) -> Result<(), Fault<T::Error>> {
    let all = keys::all_orphans(volume);
    let orphans = txn.range(&all, &keys::after(&all), usize::MAX).map_err(Fault::Store)?;
    let mut strange: Vec<(Vec<u8>, Ino)> = Vec::new();
    for (key, _) in orphans {
        let (client, ino) = keys::orphan_parts(&key).ok_or(Fault::Damaged("an orphan's key"))?;
        if rows::client(txn, client)?.is_none_or(|row| row.volume != volume) {
            strange.push((key, ino));
        }
    }
    let mut tree = Tree::open(txn, volume)?;
    for (key, ino) in strange {
        tree.txn.remove(&key).map_err(Fault::Store)?;
        if let Some(row) = tree.find(ino)? {
            tree.remove_inode(&row)?;
        }
    }
    tree.commit().map(drop)
}
