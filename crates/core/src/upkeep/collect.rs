//! Collection: rows that nobody needs any more go, a slice at a time.
//!
//! ```text
//!   graves    contents that a file had        their extents go, chunks and leaves lose references
//!   idle      chunks and leaves without any   once they are due
//!   volumes   that were deleted               all their rows, and their clients'
//! ```
//!
//! One slice is one transaction of the writer, between those of clients, so each is small. What
//! it takes away is gone from the index before the bytes go from the disk: the shell removes a
//! pack when no row refers to it and nobody reads it.
//!
//! Damage stops nothing here. A row that says all by its key is taken by its key; one that
//! cannot be read stays where it is, and what needs it is kept until a repair.
//!
//! Invariant: a chunk's row goes only while nothing refers to it, which the same transaction
//! sees; a record that names it afterwards is told that it is missing.

use std::collections::BTreeMap;

use crate::namespace::refs::{self, Held};
use crate::namespace::rows::{self, ChunkRow, ClientRow, PackRow};
use crate::namespace::{
    Contents, Fault, MetaSnapshot, MetaTxn, PastDamage, arrivals, extents, is_damage, keys,
    readable,
};
use crate::nouns::{ClientId, VolumeId};

/// What a slice did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Rows removed.
    pub rows: u64,
    /// Chunks among them.
    pub chunks: u64,
    /// Bytes that these have in packs.
    pub bytes: u64,
}

/// Removes about `budget` rows that nobody needs; nothing was there if none went.
pub fn collect<T: MetaTxn>(
    txn: &mut T,
    now_seconds: u64,
    budget: usize,
) -> Result<Collected, Fault<T::Error>> {
    let mut slice = Slice { txn, done: Collected::default(), left: budget };
    slice.graves()?;
    slice.idle(now_seconds)?;
    slice.volumes()?;
    Ok(slice.done)
}

/// What rows lead to in each pack.
pub fn packs<S: MetaSnapshot>(snapshot: &mut S) -> Result<BTreeMap<u64, PackRow>, Fault<S::Error>> {
    let prefix = keys::packs();
    let rows = snapshot.range(&prefix, &keys::after(&prefix), usize::MAX).map_err(Fault::Store)?;
    let pack = |(key, value): (Vec<u8>, Vec<u8>)| {
        let id = keys::pack_part(&key).ok_or(Fault::Damaged("a pack's key"))?;
        Ok((id, rows::decode(&value, "a pack")?))
    };
    rows.into_iter().map(pack).collect()
}

struct Slice<'a, T> {
    txn: &'a mut T,
    done: Collected,
    left: usize,
}

impl<T: MetaTxn> Slice<'_, T> {
    fn spend(&mut self, rows: usize) {
        self.done.rows += rows as u64;
        self.left = self.left.saturating_sub(rows);
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Fault<T::Error>> {
        self.spend(1);
        self.txn.remove(key).map_err(Fault::Store)
    }

    /// The first keys of a table, as many as there is room for.
    fn first(&mut self, prefix: &[u8]) -> Result<PastDamage, Fault<T::Error>> {
        self.within(prefix, &keys::after(prefix))
    }

    fn within(&mut self, from: &[u8], to: &[u8]) -> Result<PastDamage, Fault<T::Error>> {
        self.txn.range_past_damage(from, to, self.left).map_err(Fault::Store)
    }

    fn graves(&mut self) -> Result<(), Fault<T::Error>> {
        for (key, value) in self.first(&keys::all_graves())? {
            let Some(contents) = keys::grave_part(&key) else {
                self.remove(&key)?;
                continue;
            };
            // Whatever the key of a damaged row has become, what a file has is not a grave.
            if value.is_none() && self.may_be_present(contents)? {
                continue;
            }
            let limit = self.left;
            let (gone, _) = extents::discard(self.txn, contents, limit)?;
            self.spend(gone);
            if gone == limit {
                return Ok(());
            }
            self.remove(&key)?;
        }
        Ok(())
    }

    fn may_be_present(&mut self, contents: Contents) -> Result<bool, Fault<T::Error>> {
        match rows::inode(self.txn, contents.volume, contents.ino) {
            Err(fault) if is_damage::<T>(&fault) => Ok(true),
            row => Ok(row?.is_some_and(|row| row.generation == contents.generation)),
        }
    }

    fn idle(&mut self, now_seconds: u64) -> Result<(), Fault<T::Error>> {
        let (first, end) = keys::idle_before(now_seconds);
        for (key, _) in self.within(&first, &end)? {
            if self.left == 0 {
                return Ok(());
            }
            self.remove(&key)?;
            match keys::idle_part(&key) {
                Some((_, held @ Held::Chunk(volume, fingerprint))) => {
                    let row = readable::<T, _>(rows::chunk(self.txn, volume, &fingerprint))?;
                    if let Some(row) = row.filter(|row| row.refs == 0) {
                        arrivals::shift(self.txn, volume, row.waiting(), 0)?;
                        self.chunk(held, &row)?;
                    }
                }
                Some((_, Held::Leaf(volume, leaf))) => {
                    let row = readable::<T, _>(rows::leaf(self.txn, volume, &leaf))?;
                    if let Some(row) = row.filter(|row| row.refs == 0) {
                        arrivals::shift(self.txn, volume, row.waiting(), 0)?;
                        for extent in &row.extents {
                            refs::shift(self.txn, volume, &extent.source, -1)?;
                        }
                        self.spend(row.extents.len());
                        self.remove(&keys::leaf(volume, &leaf))?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    fn chunk(&mut self, held: Held, row: &ChunkRow) -> Result<(), Fault<T::Error>> {
        let (Held::Chunk(volume, fingerprint) | Held::Leaf(volume, fingerprint)) = held;
        refs::shift_pack(self.txn, &row.place, -1)?;
        self.done.chunks += 1;
        self.done.bytes += u64::from(row.place.stored_len);
        self.remove(&keys::chunk(volume, &fingerprint))
    }

    fn volumes(&mut self) -> Result<(), Fault<T::Error>> {
        for (key, value) in self.first(&keys::removed_volumes())? {
            let Some(volume) = keys::volume_part(&key) else {
                self.remove(&key)?;
                continue;
            };
            // The same of a volume that is there.
            if value.is_none()
                && self.txn.get(&keys::volume(volume)).map_err(Fault::Store)?.is_some()
            {
                continue;
            }
            self.chunks_of(volume)?;
            for table in keys::of_volume(volume) {
                for (key, _) in self.first(&table)? {
                    self.remove(&key)?;
                }
            }
            self.clients_of(volume)?;
            if self.left == 0 {
                return Ok(());
            }
            arrivals::put(self.txn, volume, 0)?;
            self.remove(&key)?;
        }
        Ok(())
    }

    /// Chunks of a removed volume, whatever refers to them. (Rows that call some of them idle
    /// lead to nothing then, and go when they are due.)
    fn chunks_of(&mut self, volume: VolumeId) -> Result<(), Fault<T::Error>> {
        for (key, value) in self.first(&keys::chunks(volume))? {
            let row =
                value.and_then(|value| rows::decode::<ChunkRow, T::Error>(&value, "a chunk").ok());
            match (row, keys::fingerprint_part(&key)) {
                (Some(row), Some(fingerprint)) => {
                    self.chunk(Held::Chunk(volume, fingerprint), &row)?;
                }
                _ => self.remove(&key)?,
            }
        }
        Ok(())
    }

    fn clients_of(&mut self, volume: VolumeId) -> Result<(), Fault<T::Error>> {
        if self.left == 0 {
            return Ok(());
        }
        let prefix = keys::clients();
        let clients = self.txn.range_past_damage(&prefix, &keys::after(&prefix), usize::MAX);
        for (key, value) in clients.map_err(Fault::Store)? {
            let row = value.map(|value| rows::decode::<ClientRow, T::Error>(&value, "a client"));
            let is_its = matches!(row, Some(Ok(row)) if row.volume == volume);
            let Some(client) = keys::client_part(&key).filter(|_| is_its) else { continue };
            self.memory_of(client)?;
            if self.left == 0 {
                return Ok(());
            }
            self.remove(&key)?;
        }
        Ok(())
    }

    fn memory_of(&mut self, client: ClientId) -> Result<(), Fault<T::Error>> {
        let tables = [
            keys::outcomes(client),
            keys::copies(client),
            keys::all_dropped(client),
            keys::floors(client),
        ];
        for table in tables {
            for (key, _) in self.first(&table)? {
                self.remove(&key)?;
            }
        }
        Ok(())
    }
}
