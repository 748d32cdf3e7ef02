//! Packs: those to which no row leads go, and what lives in mostly dead ones moves.
//!
//! A full disk gets emptier with each step. Packs without live chunks go first. Then packs are
//! compacted, those with the fewest live bytes first. Each goes before the next one is copied.
//! The copies may use a part of the disk that no host's chunks get, because the pack frees more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use segue_core::namespace::{self, ChunkPlace, PackRow, arrived};
use segue_core::nouns::{Fingerprint, VolumeId};
use segue_core::upkeep;

use super::{rest, stopping};
use crate::disk_space::Purpose;
use crate::meta::{Kv, MetaFault, StoreError};
use crate::packs::{ENTRY_BYTES, StoredChunk};
use crate::serve::Server;

/// A pack is compacted when more than one part in so many of it is dead: space that is not
/// used is at most a third of what is.
const DEAD_PART: u64 = 4;
/// Less is not worth the work, in bytes.
const DEAD_MIN: u64 = 1 << 20;
/// Entries whose rows are looked for at a time.
const SLICE: usize = 256;
/// Bytes moved in one transaction.
const BATCH_BYTES: usize = 4 << 20;

/// Looks after which a pack that could not be read is tried again, for it may have been healed.
const LOOKS: u32 = 360;

/// What is remembered from one look to the next.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Packs with live chunks that cannot be read: they stay, for whoever repairs them.
    stuck: BTreeSet<u64>,
    looks: u32,
}

/// Why a pack is not compacted.
enum Failed {
    /// Somebody holds, or the server stops: another time.
    Later,
    /// The pack.
    Pack(String),
    /// Not the pack's fault.
    Store(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

impl Upkeep {
    /// Looks at all packs.
    pub(super) fn look(&mut self, server: &Server) {
        if let Err(error) = self.try_look(server) {
            tracing::error!("cannot compact and remove packs: {error}");
        }
    }

    fn try_look(&mut self, server: &Server) -> Result<(), StoreError> {
        let packs = &server.data.packs;
        let told = |error: std::io::Error| StoreError::Read(error.to_string());
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            self.stuck.clear();
        }
        let ids = packs.ids().map_err(told)?;
        // One that is being removed by hand is somebody else's business.
        let sizes: Vec<u64> = ids.iter().map(|id| packs.entry_bytes(*id).unwrap_or(0)).collect();
        let (rows, current) = (rows(server)?, packs.current());
        let of = |id: &u64| rows.get(id).copied().unwrap_or_default();
        let packs_now = ids.iter().copied().zip(sizes).map(|(id, bytes)| (id, bytes, of(&id)));
        let worth = to_compact(packs_now.filter(|(id, ..)| !self.stuck.contains(id)));
        // Until their rows are committed, chunks that are arriving look dead: the present pack's
        // turn is at the next look, and what moves now does not move into it.
        let present = current.filter(|current| worth.iter().any(|(id, _)| id == current));
        present.into_iter().for_each(|id| packs.close(id));
        self.retire(server, &ids)?;
        self.remove(server)?;
        let others = worth.into_iter().filter(|(id, _)| Some(*id) != present && of(id).chunks > 0);
        for (id, copied) in others {
            if !packs.has_room(copied, Purpose::Compaction).map_err(told)? {
                // The others need more. What is removed until the next look may make room.
                break;
            }
            match compact(server, id) {
                Ok(()) => {}
                Err(Failed::Later | Failed::Store(StoreError::Full)) => break,
                Err(Failed::Store(error)) => return Err(error),
                Err(Failed::Pack(words)) => {
                    tracing::error!("cannot compact pack {id}: {words}");
                    self.stuck.insert(id);
                }
            }
            self.retire(server, &ids)?;
            self.remove(server)?;
        }
        Ok(())
    }

    /// Takes packs without rows out of use.
    fn retire(&self, server: &Server, ids: &[u64]) -> Result<(), StoreError> {
        let (rows, current) = (rows(server)?, server.data.packs.current());
        let is_empty =
            |id: &u64| !rows.contains_key(id) && Some(*id) != current && !self.stuck.contains(id);
        server.data.packs.retire(&ids.iter().copied().filter(is_empty).collect::<Vec<_>>());
        Ok(())
    }

    /// Removes what was retired and nobody reads. Rows that came since lead to chunks that were
    /// being uploaded at that time: their packs stay.
    fn remove(&mut self, server: &Server) -> Result<(), StoreError> {
        let removed = server.data.holds.unless_held(|| -> Result<(), StoreError> {
            let unread = server.data.packs.unread();
            if unread.is_empty() {
                return Ok(());
            }
            let rows = rows(server)?;
            for id in unread.into_iter().filter(|id| !rows.contains_key(id)) {
                match check_dead(server, id).map(|()| server.data.packs.remove(id)) {
                    Ok(Ok(())) => {
                        server.metrics.packs_removed.inc();
                    }
                    Ok(Err(error)) => tracing::error!("cannot remove pack {id}: {error}"),
                    Err(words) => {
                        tracing::error!("pack {id} is kept although its count is 0: {words}");
                        self.stuck.insert(id);
                    }
                }
            }
            Ok(())
        });
        removed.unwrap_or(Ok(()))
    }
}

/// Looks whether any chunk leads to an entry of the pack. Its row says that none does, but a
/// count alone is not worth a pack.
fn check_dead(server: &Server, id: u64) -> Result<(), String> {
    let entries = server.data.packs.entries(id).map_err(|error| error.to_string())?;
    for listed in entries.chunks(SLICE) {
        let wanted = listed.to_vec();
        let found = server.data.store.read_blocking(move |kv| live(kv, wanted));
        let found = found.and_then(|found| Ok(found?)).map_err(|error| error.to_string())?;
        if let Some((_, fingerprint, _)) = found.first() {
            return Err(format!("it has chunk {fingerprint}; run segue volume check"));
        }
    }
    Ok(())
}

/// The packs that are worth compacting, of those with their entries' bytes and their rows. Each
/// comes with the bytes that are copied of it, and the one with the fewest is the first.
fn to_compact(packs: impl Iterator<Item = (u64, u64, PackRow)>) -> Vec<(u64, u64)> {
    let worth = packs.filter(|(_, bytes, row)| is_worth_compacting(*bytes, *row));
    let mut worth: Vec<_> = worth.map(|(id, _, row)| (id, live_bytes(row))).collect();
    worth.sort_by_key(|(id, copied)| (*copied, *id));
    worth
}

/// Bytes of the entries to which rows lead.
fn live_bytes(row: PackRow) -> u64 {
    row.live_bytes.saturating_add(row.chunks.saturating_mul(ENTRY_BYTES))
}

/// True if of `bytes` of entries so much is dead that the rest should move.
fn is_worth_compacting(bytes: u64, row: PackRow) -> bool {
    let dead = bytes.saturating_sub(live_bytes(row));
    dead >= DEAD_MIN && dead >= bytes / DEAD_PART
}

/// What rows refer to in each pack. One whose row is damaged looks empty.
fn rows(server: &Server) -> Result<BTreeMap<u64, PackRow>, StoreError> {
    let (rows, _) = server.data.store.read_noting(|kv| upkeep::collect::packs(kv))?;
    Ok(rows?)
}

/// A live chunk of a pack.
type Live = (VolumeId, Fingerprint, ChunkPlace);

/// Moves what lives in the pack `id` to the present pack.
fn compact(server: &Server, id: u64) -> Result<(), Failed> {
    let entries = server.data.packs.entries(id).map_err(|error| Failed::Pack(error.to_string()))?;
    for listed in entries.chunks(SLICE) {
        let wanted = listed.to_vec();
        let live = server.data.store.read_blocking(move |kv| live(kv, wanted))?;
        let mut batch: Vec<(Live, StoredChunk)> = Vec::new();
        let mut bytes = 0;
        for entry in live.map_err(|fault| unreadable(fault.into()))? {
            let (_, fingerprint, place) = &entry;
            let (stored, _) = server
                .data
                .packs
                .read(fingerprint, place)
                .map_err(|error| Failed::Pack(error.to_string()))?;
            bytes += stored.stored.len();
            batch.push((entry, stored));
            if bytes >= BATCH_BYTES {
                relocate(server, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        relocate(server, batch)?;
    }
    Ok(())
}

/// A row that is damaged keeps its pack as it is, and no other.
fn unreadable(error: StoreError) -> Failed {
    match error {
        StoreError::Damaged(words) => Failed::Pack(words.into_owned()),
        error => Failed::Store(error),
    }
}

/// Those entries that rows lead to.
fn live(kv: &mut Kv<'_>, entries: Vec<Live>) -> Result<Vec<Live>, MetaFault> {
    let mut live = Vec::new();
    for (volume, fingerprint, place) in entries {
        let row = namespace::chunk(kv, volume, &fingerprint)?;
        if row.is_some_and(|row| row.place == place) {
            live.push((volume, fingerprint, place));
        }
    }
    Ok(live)
}

/// Writes chunks anew, and then lets their rows lead there.
fn relocate(server: &Server, batch: Vec<(Live, StoredChunk)>) -> Result<(), Failed> {
    if batch.is_empty() {
        return Ok(());
    }
    if stopping(server) {
        return Err(Failed::Later);
    }
    let begun = Instant::now();
    let done = server.data.holds.unless_held(|| write(server, batch));
    done.unwrap_or(Err(Failed::Later))?;
    rest(server, begun.elapsed());
    Ok(())
}

fn write(server: &Server, batch: Vec<(Live, StoredChunk)>) -> Result<(), Failed> {
    let _pin = server.data.packs.pin();
    let mut moves = Vec::with_capacity(batch.len());
    let mut chunks: BTreeMap<VolumeId, (Vec<_>, Vec<StoredChunk>)> = BTreeMap::new();
    for ((volume, fingerprint, old), chunk) in batch {
        let (from, of_volume) = chunks.entry(volume).or_default();
        from.push((fingerprint, old));
        of_volume.push(chunk);
    }
    for (volume, (from, chunks)) in chunks {
        let places = server.data.keep(volume, &chunks, Purpose::Compaction)?;
        let pairs = from.into_iter().zip(places);
        moves.extend(pairs.map(|((name, old), new)| (volume, name, old, new)));
    }
    server.data.store.write_blocking(move |txn| {
        moves.iter().try_for_each(|(volume, fingerprint, old, new)| {
            // A chunk that was collected meanwhile is not brought back.
            match namespace::chunk(txn, *volume, fingerprint)? {
                Some(_) => arrived(txn, (*volume, fingerprint), *new, Some(*old), 0),
                None => Ok(()),
            }
        })
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_compacted_when_a_quarter_of_it_and_a_mebibyte_are_dead() {
        let row = |live_bytes| PackRow { chunks: 1, live_bytes };
        let bytes = 64 << 20;
        assert!(is_worth_compacting(bytes, row(bytes / 4 * 3 - ENTRY_BYTES)));
        assert!(!is_worth_compacting(bytes, row(bytes / 4 * 3 - ENTRY_BYTES + 1)));
        assert!(is_worth_compacting(DEAD_MIN, PackRow::default()));
        assert!(!is_worth_compacting(DEAD_MIN - 1, PackRow::default()));
        // A row that says more than the file has is for the check to find.
        assert!(!is_worth_compacting(10, row(100)));
    }

    #[test]
    fn the_pack_with_the_fewest_live_bytes_is_compacted_first() {
        let row = |chunks, live_bytes| PackRow { chunks, live_bytes };
        let pack = 64 << 20;
        let packs = [
            (1, pack, row(1, 40 << 20)),
            (2, pack, row(1, 60 << 20)),
            (3, 9 << 20, row(1, 2 << 20)),
            (4, pack, row(1, 20 << 20)),
            (5, pack, row(0, 0)),
        ];
        let worth = to_compact(packs.into_iter());
        let copied = |mebibytes: u64| (mebibytes << 20) + ENTRY_BYTES;
        assert_eq!(worth, [(5, 0), (3, copied(2)), (4, copied(20)), (1, copied(40))]);
    }
}
