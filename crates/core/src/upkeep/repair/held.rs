//! Chunks, leaves and packs: counts that are set to what was found, and places found again.

use std::collections::BTreeMap;

use super::fix::Fixed;
use crate::namespace::extents::Contents;
use crate::namespace::refs::{self, Held};
use crate::namespace::rows::{
    self, ChunkPlace, ChunkRow, Extent, InodeRow, LeafRow, PackRow, Source,
};
use crate::namespace::{Fault, MetaTxn, keys, readable};
use crate::nouns::{Fingerprint, Ino, VolumeId};

/// The chunk has its bytes at `place`. It is counted in the next round.
pub(super) fn put_chunk<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    fingerprint: &Fingerprint,
    place: ChunkPlace,
) -> Fixed<T::Error> {
    let row = match readable::<T, _>(rows::chunk(txn, id, fingerprint))? {
        Some(row) if row.place == place => return Ok(None),
        Some(row) => {
            refs::shift_pack(txn, &row.place, -1)?;
            ChunkRow { place, ..row }
        }
        None => {
            rows::put_row(txn, &keys::idle(0, Held::Chunk(id, *fingerprint)), &())?;
            ChunkRow { place, refs: 0, due: 0 }
        }
    };
    refs::shift_pack(txn, &place, 1)?;
    rows::put_row(txn, &keys::chunk(id, fingerprint), &row)?;
    Ok(Some("it was found in the packs"))
}

/// The chunk or leaf has `found` references.
pub(super) fn recount<T: MetaTxn>(txn: &mut T, held: Held, found: u64) -> Fixed<T::Error> {
    let due = match held {
        Held::Chunk(id, fingerprint) => {
            let Some(row) = readable::<T, _>(rows::chunk(txn, id, &fingerprint))? else {
                return Ok(None);
            };
            let key = keys::chunk(id, &fingerprint);
            rows::put_row(txn, &key, &ChunkRow { refs: found, due: 0, ..row })?;
            row.due
        }
        Held::Leaf(id, leaf) => {
            let Some(row) = readable::<T, _>(rows::leaf(txn, id, &leaf))? else { return Ok(None) };
            let due = row.due;
            rows::put_row(txn, &keys::leaf(id, &leaf), &LeafRow { refs: found, due: 0, ..row })?;
            due
        }
    };
    txn.remove(&keys::idle(due, held)).map_err(Fault::Store)?;
    if found == 0 {
        rows::put_row(txn, &keys::idle(0, held), &())?;
    }
    Ok(Some("it was counted anew"))
}

/// What nothing refers to, and goes by the name `fingerprint`, is collected when it is due.
pub(super) fn make_idle<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    fingerprint: Fingerprint,
) -> Fixed<T::Error> {
    let chunk = readable::<T, _>(rows::chunk(txn, id, &fingerprint))?;
    if let Some(ChunkRow { refs: 0, due, .. }) = chunk {
        rows::put_row(txn, &keys::idle(due, Held::Chunk(id, fingerprint)), &())?;
    }
    if let Some(LeafRow { refs: 0, due, .. }) = readable::<T, _>(rows::leaf(txn, id, &fingerprint))?
    {
        rows::put_row(txn, &keys::idle(due, Held::Leaf(id, fingerprint)), &())?;
    }
    Ok(Some("it was marked for collection"))
}

/// Takes from the table of idle ones what is not, or is not there.
pub(super) fn wake<T: MetaTxn>(txn: &mut T, id: VolumeId) -> Fixed<T::Error> {
    let all = keys::all_idle();
    let rows = txn.range(&all, &keys::after(&all), usize::MAX).map_err(Fault::Store)?;
    for (key, _) in rows {
        let Some((due, held)) = keys::idle_part(&key) else { continue };
        let said = match held {
            Held::Chunk(of, fingerprint) if of == id => {
                let row = readable::<T, _>(rows::chunk(txn, id, &fingerprint))?;
                row.map(|row| (row.refs, row.due))
            }
            Held::Leaf(of, leaf) if of == id => {
                readable::<T, _>(rows::leaf(txn, id, &leaf))?.map(|row| (row.refs, row.due))
            }
            _ => continue,
        };
        if said != Some((0, due)) {
            txn.remove(&key).map_err(Fault::Store)?;
        }
    }
    Ok(Some("the mark was removed"))
}

/// A leaf whose extents are those it was named after is as long as they are.
pub(super) fn measure<T: MetaTxn>(txn: &mut T, id: VolumeId, leaf: Fingerprint) -> Fixed<T::Error> {
    let row = readable::<T, _>(rows::leaf(txn, id, &leaf))?;
    let Some(row) = row.filter(|row| refs::leaf_name(&row.extents) == Some(leaf)) else {
        return Ok(None);
    };
    let len = row.extents.iter().map(|extent| extent.len).sum();
    rows::put_row(txn, &keys::leaf(id, &leaf), &LeafRow { len, ..row })?;
    Ok(Some("its length was set to that of its extents"))
}

/// Contents of `ino` that are not `present` are left to collection.
pub(super) fn bury<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    row: &InodeRow,
) -> Result<(), Fault<T::Error>> {
    let present = Contents::of(id, row);
    for (generation, _) in generations(txn, id, row.attr.ino)? {
        if generation != present.generation {
            rows::put_row(txn, &keys::grave(Contents { generation, ..present }), &())?;
        }
    }
    Ok(())
}

/// The contents of an inode that are there and not left to collection, each with its end.
pub(super) fn generations<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
) -> Result<BTreeMap<u32, u64>, Fault<T::Error>> {
    let prefix = keys::extents_of(id, ino);
    let rows = txn.range(&prefix, &keys::after(&prefix), usize::MAX).map_err(Fault::Store)?;
    let mut found = BTreeMap::new();
    for (key, _) in rows {
        let part = keys::inode_part(&key).and_then(|(_, rest)| keys::extent_part(rest));
        let Some((generation, end)) = part else { continue };
        let grave = keys::grave(Contents { volume: id, ino, generation });
        if txn.get(&grave).map_err(Fault::Store)?.is_none() {
            found.insert(generation, end);
        }
    }
    Ok(found)
}

/// What the rows of packs count is made what the chunks of all volumes say.
pub(super) fn recount_packs<T: MetaTxn>(txn: &mut T) -> Result<(), Fault<T::Error>> {
    let (mut found, mut from) = (BTreeMap::<u64, PackRow>::new(), keys::all_chunks());
    let end = keys::after(&from);
    loop {
        let page = txn.range(&from, &end, 1024).map_err(Fault::Store)?;
        let Some((last, _)) = page.last() else { break };
        from = [last, &[0][..]].concat();
        for (_, value) in page {
            let Ok(ChunkRow { place, .. }) = postcard::from_bytes(&value) else { continue };
            let pack = found.entry(place.pack).or_default();
            pack.chunks += 1;
            pack.live_bytes += u64::from(place.stored_len);
        }
    }
    let prefix = keys::packs();
    let rows = txn.range(&prefix, &keys::after(&prefix), usize::MAX).map_err(Fault::Store)?;
    rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)?;
    found.iter().try_for_each(|(pack, row)| rows::put_row(txn, &keys::pack(*pack), row))
}

/// The chunk of extents that could not be read: nobody ever has it.
const NOWHERE: Fingerprint = Fingerprint([0; 32]);

/// An extent that cannot be read becomes one whose bytes are nowhere, from the end of the one
/// before it on: reading there still fails, and writing works.
pub(super) fn lose<T: MetaTxn>(txn: &mut T, id: VolumeId, key: &[u8]) -> Fixed<T::Error> {
    let part = keys::inode_part(key).and_then(|(ino, rest)| Some((ino, keys::extent_part(rest)?)));
    let Some((ino, (generation, end))) = part else { return Ok(None) };
    let contents = Contents { volume: id, ino, generation };
    let (mut from, last) = (keys::extents(contents), keys::after(&keys::extents(contents)));
    let mut start = 0;
    loop {
        let page = txn.range(&from, &last, 1024).map_err(Fault::Store)?;
        let Some((at, _)) = page.last() else { break };
        from = [at, &[0][..]].concat();
        for (other, value) in page {
            let before = other.last_chunk().map_or(0, |end| u64::from_be_bytes(*end));
            if before < end {
                start = before;
            } else if other != key
                && let Ok(extent) = postcard::from_bytes::<Extent>(&value)
                && before.saturating_sub(extent.len) < end
            {
                // It never stood here, or the next one does not.
                return Ok(None);
            }
        }
    }
    let source = Source::Chunk { fingerprint: NOWHERE, start: 0 };
    rows::put_row(txn, key, &Extent { len: end.saturating_sub(start), source })?;
    Ok(Some("its bytes are lost, and can be written again"))
}
