//! Arrivals: chunks that came and leaves that were staged for files, and are in none yet.
//!
//! They count against the volume's quota, or a host could fill the disk with what it never
//! names. They count as in a file: a chunk its own bytes, a leaf those of all its extents, and a
//! chunk that a leaf has nothing. What a record brings along is used in the transaction in which
//! it arrives, or not kept.
//!
//! What is uploaded for a file may replace what the file holds, which goes only when the record
//! comes. So as many bytes more are taken as the files hold that are named. Then an upload whose
//! record fits is refused only where other uploads take its place; and a volume has never more
//! on the disk than about twice its quota.
//!
//! Invariant: a volume's row of arrivals is the sum over its chunks and leaves that nothing
//! refers to and that have a lease; it is not there if that is nothing.

use std::collections::BTreeSet;

use super::refs::Held;
use super::rows::{self, ChunkRow, LeafRow, Tally};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys, tally, volume::existing};
use crate::nouns::{ClientId, Fingerprint, Ino, PieceBytes, Store, VolumeId};
use crate::refusal::Refusal;

impl ChunkRow {
    /// Bytes of it that came for a file and are in none.
    pub(crate) fn waiting(&self) -> u64 {
        waiting(self.refs, self.due, u64::from(self.place.raw_len))
    }
}

impl LeafRow {
    /// Bytes of it that came for a file and are in none.
    pub(crate) fn waiting(&self) -> u64 {
        waiting(self.refs, self.due, self.len)
    }
}

/// What something of `len` bytes counts: what a file had goes at once, and does not wait.
pub(crate) fn waiting(refs: u64, due: u64, len: u64) -> u64 {
    if refs == 0 && due > 0 { len } else { 0 }
}

/// How many bytes came that are in no file yet.
pub fn bytes<S: MetaSnapshot>(snapshot: &mut S, volume: VolumeId) -> Result<u64, Fault<S::Error>> {
    let bytes = rows::get_row(snapshot, &keys::arrived(volume), "a volume's arrivals")?;
    Ok(bytes.unwrap_or_default())
}

/// Something that counted `before` counts `after`.
pub(crate) fn shift<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    before: u64,
    after: u64,
) -> Result<(), Fault<T::Error>> {
    if before == after {
        return Ok(());
    }
    let bytes = bytes(txn, volume)?;
    put(txn, volume, bytes.saturating_add(after).saturating_sub(before))
}

/// So many bytes came that are in no file yet.
pub(crate) fn put<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    bytes: u64,
) -> Result<(), Fault<T::Error>> {
    let key = keys::arrived(volume);
    match bytes {
        0 => txn.remove(&key).map_err(Fault::Store),
        _ => rows::put_row(txn, &key, &bytes),
    }
}

/// For what a host brings chunks.
#[derive(Clone, Copy, Debug)]
pub struct BroughtFor<'a> {
    /// The host.
    pub client: ClientId,
    /// Its files, whose data they will replace.
    pub files: &'a [Ino],
}

/// Whether the volume takes `more` bytes, beside what came already. They replace the data of a
/// file, or of the conflict copy to which the host's stores of it go. Chunks that are refused here
/// must not be asked for when their record comes: the host would send both for ever.
pub fn admit<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    more: u64,
    of: BroughtFor<'_>,
) -> Result<Result<(), Refusal>, Fault<S::Error>> {
    let limits = existing(snapshot, volume)?.limits;
    if limits.bytes.is_none() {
        return Ok(Ok(()));
    }
    let Tally { allocated, .. } = tally(snapshot, volume)?;
    let mut replaced = 0_u64;
    for ino in of.files.iter().collect::<BTreeSet<_>>() {
        let copy = rows::get_row(snapshot, &keys::copy(of.client, *ino), "a copy's number")?;
        let mut most = 0;
        for ino in [Some(*ino), copy].into_iter().flatten() {
            let row = rows::inode(snapshot, volume, ino)?;
            most = most.max(row.map_or(0, |row| row.attr.allocated));
        }
        replaced = replaced.saturating_add(most);
    }
    let held = allocated.saturating_sub(replaced).saturating_add(bytes(snapshot, volume)?);
    let fits = held.saturating_add(more) <= limits.bytes_max();
    Ok(if fits { Ok(()) } else { Err(Refusal::Quota) })
}

/// Whether the volume takes those of these chunks that it has not.
pub fn admit_chunks<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    chunks: &[(Fingerprint, u32)],
    of: BroughtFor<'_>,
) -> Result<Result<(), Refusal>, Fault<S::Error>> {
    let mut more = 0;
    for (name, len) in chunks {
        if rows::chunk(snapshot, volume, name)?.is_none() {
            more += u64::from(*len);
        }
    }
    // Those that it has may be sent to heal them.
    if more == 0 { Ok(Ok(())) } else { admit(snapshot, volume, more, of) }
}

impl<T: MetaTxn> Tree<'_, T> {
    /// Whether the volume takes what a record says whose chunks are not all here, with what
    /// came for others. Who was refused their chunks hears so whether that is for good.
    pub(super) fn check_arrivals(&mut self) -> Result<Result<(), Refusal>, Fault<T::Error>> {
        let held = self.tally.allocated.saturating_add(bytes(&mut self.txn, self.volume)?);
        let fits = held <= self.limits.bytes_max();
        Ok(if fits { Ok(()) } else { Err(Refusal::Quota) })
    }
}

/// What came for a store that was refused goes at once, as far as nothing else needs it.
pub(super) fn let_go<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    store: &Store,
    proven: &dyn Fn(&Fingerprint) -> bool,
) -> Result<(), Fault<T::Error>> {
    for piece in &store.pieces {
        let (PieceBytes::Chunk { fingerprint: name, .. } | PieceBytes::Leaf { leaf: name, .. }) =
            &piece.bytes
        else {
            continue;
        };
        if !proven(name) {
            continue;
        }
        if let PieceBytes::Leaf { .. } = piece.bytes {
            let row = rows::leaf(txn, volume, name)?;
            if let Some(row) = row.filter(|row| row.waiting() > 0) {
                expire(txn, Held::Leaf(volume, *name), row.due, row.waiting())?;
                rows::put_row(txn, &keys::leaf(volume, name), &LeafRow { due: 0, ..row })?;
            }
        } else {
            let row = rows::chunk(txn, volume, name)?;
            if let Some(row) = row.filter(|row| row.waiting() > 0) {
                expire(txn, Held::Chunk(volume, *name), row.due, row.waiting())?;
                rows::put_row(txn, &keys::chunk(volume, name), &ChunkRow { due: 0, ..row })?;
            }
        }
    }
    Ok(())
}

/// The lease of something ends.
fn expire<T: MetaTxn>(
    txn: &mut T,
    held: Held,
    due: u64,
    waiting: u64,
) -> Result<(), Fault<T::Error>> {
    let (Held::Chunk(volume, _) | Held::Leaf(volume, _)) = held;
    txn.remove(&keys::idle(due, held)).map_err(Fault::Store)?;
    rows::put_row(txn, &keys::idle(0, held), &())?;
    shift(txn, volume, waiting, 0)
}
