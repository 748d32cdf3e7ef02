//! References: how many extents need a chunk or a leaf, and when what nobody needs may go.
//!
//! ```text
//!              arrives                    first extent
//!   (none) ──────────────▶ idle until due ─────────────▶ referred to
//!      ▲                      │     ▲                        │ last extent goes: due at once
//!      └──────────────────────┘     └────────────────────────┘
//!            collected
//! ```
//!
//! What came and is not used yet is kept for [`LEASE_SECONDS`], so that an upload that broke
//! off goes on where it stopped, and counts against the volume's quota (`arrivals`). A commit looks
//! again at each chunk it names, in its own transaction: one that was collected meanwhile is
//! answered as missing and comes again.
//!
//! Invariant: a row with no references, and no other, has a row in the table of idle ones under
//! its `due`. A pack's row sums up the chunk rows that point into it.

use super::arrivals::{self, BroughtFor};
use super::rows::{self, ChunkPlace, ChunkRow, Extent, LeafRow, PackRow, Source};
use super::{Fault, MetaTxn, Overlay, is_damage, keys, readable};
use crate::nouns::{Fingerprint, VolumeId};
use crate::refusal::Refusal;
use crate::wire::{Leaf, LeafPart};

/// How long a chunk that came is kept for the record that will name it: seven days.
pub const LEASE_SECONDS: u64 = 7 * 86_400;
/// Most extents of one leaf: a row of 64 KiB.
pub const LEAF_EXTENTS_MAX: usize = 1024;

/// Something with a count of references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// A chunk.
    Chunk(VolumeId, Fingerprint),
    /// A leaf.
    Leaf(VolumeId, Fingerprint),
}

/// Makes `place` the place of a chunk whose bytes are durable there, if nothing happened since
/// its place was `known`: where somebody else sent the same chunk meanwhile, his stays. So does
/// a row that cannot be read, because who counts on the chunk is not known without it. One that
/// is new and is needed by nothing goes at `due`, which is 0 for what its own transaction needs.
pub fn arrived<T: MetaTxn>(
    txn: &mut T,
    (volume, fingerprint): (VolumeId, &Fingerprint),
    place: ChunkPlace,
    known: Option<ChunkPlace>,
    due: u64,
) -> Result<(), Fault<T::Error>> {
    let row = match rows::chunk(txn, volume, fingerprint) {
        Err(fault) if is_damage::<T>(&fault) => return Ok(()),
        row => row?,
    };
    if row.map(|row| row.place) != known {
        return Ok(());
    }
    let known_waiting = row.map_or(0, |row| row.waiting());
    let row = match row {
        Some(row) => {
            shift_pack(txn, &row.place, -1)?;
            ChunkRow { place, ..row }
        }
        None => {
            let key = keys::idle(due, Held::Chunk(volume, *fingerprint));
            rows::put_row(txn, &key, &())?;
            ChunkRow { place, refs: 0, due }
        }
    };
    arrivals::shift(txn, volume, known_waiting, row.waiting())?;
    shift_pack(txn, &place, 1)?;
    rows::put_row(txn, &keys::chunk(volume, fingerprint), &row)
}

/// A leaf's extents, as one side says them and both understand them.
pub fn leaf_of(parts: &[(Fingerprint, u32)]) -> Vec<Extent> {
    let extent = |(fingerprint, len): &(Fingerprint, u32)| {
        let source = Source::Chunk { fingerprint: *fingerprint, start: 0 };
        Extent { len: u64::from(*len), source }
    };
    parts.iter().map(extent).collect()
}

/// A leaf of these chunks, as it is asked for.
pub fn leaf_wanted(chunks: &[(Fingerprint, u32)]) -> Option<Leaf> {
    let parts = chunks.iter().map(|(name, len)| LeafPart::Chunk(*name, *len)).collect();
    Some(Leaf { name: leaf_name(&leaf_of(chunks))?, parts })
}

/// Why a leaf is not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotStaged {
    /// These chunks are not here, or not shown to be there.
    Missing(Vec<Fingerprint>),
    /// It would be more than the volume takes.
    Refused(Refusal),
}

/// Makes a leaf of whole chunks for one of some files. It is kept for a while for the record that
/// will name it. A chunk is missing unless `is_usable` says that it may be referred to at its
/// place.
pub fn stage<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    (parts, of): (&[(Fingerprint, u32)], BroughtFor<'_>),
    is_usable: &dyn Fn(&Fingerprint, &ChunkPlace) -> bool,
    now_seconds: u64,
) -> Result<Result<Fingerprint, NotStaged>, Fault<T::Error>> {
    let mut missing = Vec::new();
    for (fingerprint, len) in parts {
        let row = rows::chunk(txn, volume, fingerprint)?;
        let is_usable =
            |row: ChunkRow| row.place.raw_len == *len && is_usable(fingerprint, &row.place);
        if !row.is_some_and(is_usable) {
            missing.push(*fingerprint);
        }
    }
    if !missing.is_empty() {
        return Ok(Err(NotStaged::Missing(missing)));
    }
    let mut overlay = Overlay::new(txn);
    let before = arrivals::bytes(&mut overlay, volume)?;
    let leaf = make_leaf(&mut overlay, volume, leaf_of(parts), lease(now_seconds))?;
    // What its chunks counted before, the leaf counts now, and the difference is new.
    let is_more = arrivals::bytes(&mut overlay, volume)? > before;
    if is_more && let Err(refusal) = arrivals::admit(&mut overlay, volume, 0, of)? {
        return Ok(Err(NotStaged::Refused(refusal)));
    }
    overlay.flush().map_err(Fault::Store)?;
    Ok(Ok(leaf))
}

/// Until when something is kept that came now.
pub fn lease(now_seconds: u64) -> u64 {
    now_seconds.saturating_add(LEASE_SECONDS)
}

/// What a leaf of these extents is called. No chunk has such a name: who sent a leaf's own bytes
/// as a chunk would otherwise have shown to possess what the leaf refers to.
pub fn leaf_name(extents: &[Extent]) -> Option<Fingerprint> {
    let bytes = postcard::to_stdvec(extents).ok()?;
    Some(Fingerprint(blake3::derive_key("segue 2026-11-21 leaf of extents", &bytes)))
}

/// Makes a leaf, which refers to its chunks; one that is there already stays as it is.
pub(crate) fn make_leaf<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    extents: Vec<Extent>,
    due: u64,
) -> Result<Fingerprint, Fault<T::Error>> {
    let leaf = leaf_name(&extents).ok_or(Fault::Damaged("a leaf does not encode"))?;
    if rows::leaf(txn, volume, &leaf)?.is_some() {
        return Ok(leaf);
    }
    for extent in &extents {
        shift(txn, volume, &extent.source, 1)?;
    }
    let len = extents.iter().map(|extent| extent.len).sum();
    rows::put_row(txn, &keys::idle(due, Held::Leaf(volume, leaf)), &())?;
    let row = LeafRow { refs: 0, due, len, extents };
    arrivals::shift(txn, volume, 0, row.waiting())?;
    rows::put_row(txn, &keys::leaf(volume, &leaf), &row)?;
    Ok(leaf)
}

/// `by` more extents need `source`. One that is missing or cannot be read is damage that is
/// reported elsewhere, and counted anew when it is repaired: it must not keep a file from being
/// removed.
pub(crate) fn shift<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    source: &Source,
    by: i64,
) -> Result<(), Fault<T::Error>> {
    match source {
        _ if by == 0 => Ok(()),
        Source::Inline(_) => Ok(()),
        Source::Chunk { fingerprint, .. } => {
            let row = readable::<T, _>(rows::chunk(txn, volume, fingerprint))?;
            let Some(mut row) = row else { return Ok(()) };
            let (held, waiting) = (Held::Chunk(volume, *fingerprint), row.waiting());
            (row.refs, row.due) = count(txn, held, (row.refs, row.due), by)?;
            arrivals::shift(txn, volume, waiting, row.waiting())?;
            rows::put_row(txn, &keys::chunk(volume, fingerprint), &row)
        }
        Source::Leaf { leaf, .. } => {
            let row = readable::<T, _>(rows::leaf(txn, volume, leaf))?;
            let Some(mut row) = row else { return Ok(()) };
            let (held, waiting) = (Held::Leaf(volume, *leaf), row.waiting());
            (row.refs, row.due) = count(txn, held, (row.refs, row.due), by)?;
            arrivals::shift(txn, volume, waiting, row.waiting())?;
            rows::put_row(txn, &keys::leaf(volume, leaf), &row)
        }
    }
}

/// The new count and due time of something, which enters or leaves the table of idle ones.
fn count<T: MetaTxn>(
    txn: &mut T,
    held: Held,
    (refs, due): (u64, u64),
    by: i64,
) -> Result<(u64, u64), Fault<T::Error>> {
    let now = refs.saturating_add_signed(by);
    if refs == 0 && now > 0 {
        txn.remove(&keys::idle(due, held)).map_err(Fault::Store)?;
    }
    if refs > 0 && now == 0 {
        rows::put_row(txn, &keys::idle(0, held), &())?;
        return Ok((0, 0));
    }
    Ok((now, due))
}

/// One chunk more (1) or fewer (-1) has its bytes at `place`. A row that cannot be read stays:
/// the pack is kept until a repair counts it anew.
pub(crate) fn shift_pack<T: MetaTxn>(
    txn: &mut T,
    place: &ChunkPlace,
    by: i64,
) -> Result<(), Fault<T::Error>> {
    let key = keys::pack(place.pack);
    let mut row: PackRow = match rows::get_row(txn, &key, "a pack") {
        Err(fault) if is_damage::<T>(&fault) => return Ok(()),
        row => row?.unwrap_or_default(),
    };
    row.chunks = row.chunks.saturating_add_signed(by);
    row.live_bytes = row.live_bytes.saturating_add_signed(by * i64::from(place.stored_len));
    match row.chunks {
        0 => txn.remove(&key).map_err(Fault::Store),
        _ => rows::put_row(txn, &key, &row),
    }
}
