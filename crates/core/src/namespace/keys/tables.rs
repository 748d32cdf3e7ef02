//! Which tables are whose.

use super::{
    AWAITED, CHUNK, CLIENT, COPY, DENTRY, DROPPED, EXTENT, FLOOR, GRAVE, HARD_LINK, INHERITED,
    INODE, LEAF, LIFE, ORPHAN, OUTCOME, QUOTA, RAGGED, REMNANT, REMNANT_ORDER, REMNANT_TALLY,
    SERVER_TAGS, XATTR, all_idle, arrived, key, packs, volume, volume_tally,
};
use crate::nouns::{ClientId, VolumeId};

/// The client's own first.
const OF_CLIENT: [u8; 6] = [CLIENT, FLOOR, OUTCOME, COPY, DROPPED, INHERITED];

/// The tables whose keys begin with a client, as prefixes of its rows; the client's own first.
pub fn tables_of_client(client: ClientId) -> Vec<Vec<u8>> {
    OF_CLIENT.iter().map(|tag| key(*tag, &[&client.0])).collect()
}

/// The tables of what is remembered of a client.
pub fn memories() -> [Vec<u8>; 5] {
    [FLOOR, OUTCOME, COPY, DROPPED, INHERITED].map(|tag| key(tag, &[]))
}

/// All tables of the server itself, from the key of this to that one.
pub fn of_server() -> (Vec<u8>, Vec<u8>) {
    (vec![SERVER_TAGS], vec![u8::MAX])
}

/// Every table whose keys begin with a volume: what refers to others comes after them.
pub fn of_volume(volume: VolumeId) -> [Vec<u8>; 16] {
    let first = [
        CHUNK,
        LEAF,
        INODE,
        DENTRY,
        XATTR,
        EXTENT,
        ORPHAN,
        QUOTA,
        GRAVE,
        RAGGED,
        HARD_LINK,
        LIFE,
        REMNANT,
        REMNANT_ORDER,
        REMNANT_TALLY,
        AWAITED,
    ];
    first.map(|tag| key(tag, &[&volume.0.to_be_bytes()]))
}

/// True for the key of a chunk.
pub fn is_chunk(key: &[u8]) -> bool {
    key.first() == Some(&CHUNK)
}

/// True for the key of a row that is of no volume alone.
pub fn is_shared(key: &[u8]) -> bool {
    !matches!(key.first().copied(), Some(CHUNK | INODE..=AWAITED))
}

/// True for the key of a row that the volume has for itself.
pub fn is_own(key: &[u8], id: VolumeId) -> bool {
    of_volume(id).iter().any(|table| key.starts_with(table))
}

/// True for the key of a row that a volume or its clients have, or that all volumes share.
pub fn is_of(key: &[u8], id: VolumeId) -> bool {
    let others = [volume(id), volume_tally(id), arrived(id), all_idle(), packs()];
    let is_client = key.first().is_some_and(|tag| OF_CLIENT.contains(tag));
    is_client || is_own(key, id) || others.iter().any(|table| key.starts_with(table))
}
