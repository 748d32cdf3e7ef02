//! The fields of a key: the inverse of the functions that make keys.
//!
//! Each function returns `None` for a key that does not have these fields. Most of them trust the
//! tag byte, because the caller read the key from one table.

use super::{CHANGES, Contents, DENTRY, Held, INODE};
use crate::nouns::{ClientId, Fingerprint, Ino, OpId, VolumeId};

/// The name of such a key.
pub fn volume_name_part(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(1..)?).ok()
}

/// The generation and the end of an extent, from what follows the inode in its key.
pub fn extent_part(rest: &[u8]) -> Option<(u32, u64)> {
    let (generation, end) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*generation), u64::from_be_bytes(end.try_into().ok()?)))
}

/// The contents of a grave's key.
pub fn grave_part(key: &[u8]) -> Option<Contents> {
    let (volume, _) = key.get(1..)?.split_first_chunk()?;
    let (ino, generation) = inode_part(key)?;
    let generation = u32::from_be_bytes(generation.try_into().ok()?);
    Some(Contents { volume: VolumeId(u32::from_be_bytes(*volume)), ino, generation })
}

/// The commit and the inode of such a key.
pub fn remnant_order_part(key: &[u8]) -> Option<(u64, Ino)> {
    let (commit, ino) = key.get(1 + size_of::<u32>()..)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*commit), Ino(u64::from_be_bytes(ino.try_into().ok()?))))
}

/// The volume and the file of such a key.
pub fn awaited_parts(key: &[u8]) -> Option<(VolumeId, Ino)> {
    let (volume, _) = key.get(1..)?.split_first_chunk()?;
    match inode_part(key)? {
        (ino, []) => Some((VolumeId(u32::from_be_bytes(*volume)), ino)),
        _ => None,
    }
}

/// The inode of a key that begins with a volume and an inode, and what comes after it.
pub fn inode_part(key: &[u8]) -> Option<(Ino, &[u8])> {
    let (ino, rest) = key.get(1 + size_of::<u32>()..)?.split_first_chunk()?;
    Some((Ino(u64::from_be_bytes(*ino)), rest))
}

/// The inode whose row has that key, if it is such a key.
pub fn inode_of(key: &[u8]) -> Option<(VolumeId, Ino)> {
    let (volume, _) = key.strip_prefix(&[INODE])?.split_first_chunk()?;
    Some((VolumeId(u32::from_be_bytes(*volume)), inode_part(key)?.0))
}

/// The volume, the directory and the name of a name's key, if it is one.
pub fn dentry_of(key: &[u8]) -> Option<(VolumeId, Ino, &[u8])> {
    let (volume, _) = key.strip_prefix(&[DENTRY])?.split_first_chunk()?;
    let (directory, name) = inode_part(key)?;
    Some((VolumeId(u32::from_be_bytes(*volume)), directory, name))
}

/// Where the life of such a key starts.
pub fn life_part(key: &[u8]) -> Option<u64> {
    key.last_chunk().map(|start| u64::from_be_bytes(*start))
}

/// The number and the volume of such a key.
pub fn changes_part(key: &[u8]) -> Option<(u64, VolumeId)> {
    let (number, volume) = key.strip_prefix(&[CHANGES])?.split_first_chunk()?;
    let volume = VolumeId(u32::from_be_bytes(volume.try_into().ok()?));
    Some((u64::from_be_bytes(*number), volume))
}

/// The directory and the name of such a key.
pub fn hard_link_part(key: &[u8]) -> Option<(Ino, &[u8])> {
    let (parent, name) = inode_part(key)?.1.split_first_chunk()?;
    (!name.is_empty()).then_some((Ino(u64::from_be_bytes(*parent)), name))
}

/// The client and the inode of an orphan's key.
pub fn orphan_parts(key: &[u8]) -> Option<(ClientId, Ino)> {
    let (client, ino) = key.get(1 + size_of::<u32>()..)?.split_first_chunk()?;
    Some((ClientId(*client), Ino(u64::from_be_bytes(ino.try_into().ok()?))))
}

/// The inode of an orphan's key.
pub fn orphan_ino(key: &[u8]) -> Option<Ino> {
    key.last_chunk().map(|bytes| Ino(u64::from_be_bytes(*bytes)))
}

/// The client of a key that begins with one.
pub fn client_part(key: &[u8]) -> Option<ClientId> {
    key.get(1..)?.first_chunk().map(|client| ClientId(*client))
}

/// The record of an outcome's key.
pub fn outcome_part(key: &[u8]) -> Option<OpId> {
    let (client, rest) = key.get(1..)?.split_first_chunk()?;
    let (incarnation, seq) = rest.split_first_chunk()?;
    let incarnation = u32::from_be_bytes(*incarnation);
    let seq = u64::from_be_bytes(seq.try_into().ok()?);
    Some(OpId { client: ClientId(*client), incarnation, seq })
}

/// The volume and the inode of such a file's key.
pub fn ragged_part(key: &[u8]) -> Option<(VolumeId, Ino)> {
    let (volume, _) = key.get(1..)?.split_first_chunk()?;
    let (ino, _) = inode_part(key)?;
    Some((VolumeId(u32::from_be_bytes(*volume)), ino))
}

/// The fingerprint of a chunk's or a leaf's key.
pub fn fingerprint_part(key: &[u8]) -> Option<Fingerprint> {
    key.get(1 + size_of::<u32>()..)?.try_into().ok().map(Fingerprint)
}

/// What the key of something idle says.
pub fn idle_part(key: &[u8]) -> Option<(u64, Held)> {
    let (due, rest) = key.get(1..)?.split_first_chunk()?;
    let (volume, rest) = rest.split_first_chunk()?;
    let (kind, fingerprint) = rest.split_first()?;
    let volume = VolumeId(u32::from_be_bytes(*volume));
    let fingerprint = Fingerprint(fingerprint.try_into().ok()?);
    let held = match kind {
        0 => Held::Chunk(volume, fingerprint),
        1 => Held::Leaf(volume, fingerprint),
        _ => return None,
    };
    Some((u64::from_be_bytes(*due), held))
}

/// The number of a pack's key.
pub fn pack_part(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

/// The number of a volume's key, or of that of a removed one.
pub fn volume_part(key: &[u8]) -> Option<VolumeId> {
    Some(VolumeId(u32::from_be_bytes(key.get(1..)?.try_into().ok()?)))
}
