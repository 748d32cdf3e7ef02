//! Keys of the metadata store: a tag byte, then fields whose byte order is their order.
//!
//! Tags from 0x80 on belong to the server's own tables (identities, invites).

mod parts;
mod tables;

pub use parts::{
    awaited_parts, changes_part, client_part, dentry_of, extent_part, fingerprint_part, grave_part,
    hard_link_part, idle_part, inode_of, inode_part, life_part, orphan_ino, orphan_parts,
    outcome_part, pack_part, ragged_part, remnant_order_part, volume_name_part, volume_part,
};
pub use tables::{
    is_chunk, is_of, is_own, is_shared, memories, of_server, of_volume, tables_of_client,
};

use super::extents::Contents;
use super::refs::Held;
use crate::nouns::{ClientId, Fingerprint, Ino, OpId, VolumeId};

const VOLUME: u8 = 0x01;
const VOLUME_NAME: u8 = 0x02;
const VOLUME_TALLY: u8 = 0x03;
const NEXT_VOLUME: u8 = 0x04;
const REMOVED_VOLUME: u8 = 0x05;
const ARRIVED: u8 = 0x06;
const INODE: u8 = 0x10;
const DENTRY: u8 = 0x11;
const XATTR: u8 = 0x12;
const EXTENT: u8 = 0x13;
const ORPHAN: u8 = 0x14;
const LEAF: u8 = 0x15;
const GRAVE: u8 = 0x16;
const RAGGED: u8 = 0x17;
const QUOTA: u8 = 0x18;
const HARD_LINK: u8 = 0x19;
const LIFE: u8 = 0x1a;
const REMNANT: u8 = 0x1b;
const REMNANT_ORDER: u8 = 0x1c;
const REMNANT_TALLY: u8 = 0x1d;
const AWAITED: u8 = 0x1e;
const CLIENT: u8 = 0x20;
const FLOOR: u8 = 0x21;
const OUTCOME: u8 = 0x22;
const COPY: u8 = 0x23;
const DROPPED: u8 = 0x24;
const INHERITED: u8 = 0x25;
const CHUNK: u8 = 0x30;
const IDLE: u8 = 0x31;
const PACK: u8 = 0x32;
/// First tag of the server's own tables.
pub const SERVER_TAGS: u8 = 0x80;
/// The server's, because a volume that is restored elsewhere has other commits there.
const CHANGES: u8 = SERVER_TAGS + 5;
const COMMIT_LIFE: u8 = SERVER_TAGS + 6;

fn key(tag: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + fields.iter().map(|field| field.len()).sum::<usize>());
    key.push(tag);
    fields.iter().for_each(|field| key.extend_from_slice(field));
    key
}

fn of_inode(tag: u8, volume: VolumeId, ino: Ino, rest: &[u8]) -> Vec<u8> {
    key(tag, &[&volume.0.to_be_bytes(), &ino.0.to_be_bytes(), rest])
}

/// The first key after all that start with `prefix`.
pub fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// A volume.
pub fn volume(volume: VolumeId) -> Vec<u8> {
    key(VOLUME, &[&volume.0.to_be_bytes()])
}

/// All names of volumes.
pub fn volume_names() -> Vec<u8> {
    key(VOLUME_NAME, &[])
}

/// A volume's number under its name.
pub fn volume_name(name: &str) -> Vec<u8> {
    key(VOLUME_NAME, &[name.as_bytes()])
}

/// What changes with every commit of a volume.
pub fn volume_tally(volume: VolumeId) -> Vec<u8> {
    key(VOLUME_TALLY, &[&volume.0.to_be_bytes()])
}

/// How many bytes of a volume came and are in no file yet.
pub fn arrived(volume: VolumeId) -> Vec<u8> {
    key(ARRIVED, &[&volume.0.to_be_bytes()])
}

/// The number of the next volume.
pub fn next_volume() -> Vec<u8> {
    key(NEXT_VOLUME, &[])
}

/// An inode.
pub fn inode(volume: VolumeId, ino: Ino) -> Vec<u8> {
    of_inode(INODE, volume, ino, &[])
}

/// A name in a directory; an empty name makes the prefix of all.
pub fn dentry(volume: VolumeId, parent: Ino, name: &[u8]) -> Vec<u8> {
    of_inode(DENTRY, volume, parent, name)
}

/// An extended attribute; an empty name makes the prefix of all.
pub fn xattr(volume: VolumeId, ino: Ino, name: &[u8]) -> Vec<u8> {
    of_inode(XATTR, volume, ino, name)
}

/// The extent that ends at `end`: by its end, because then the extents that overlap a range
/// are found by looking forward from the range's start.
pub fn extent(contents: Contents, end: u64) -> Vec<u8> {
    let mut key = extents(contents);
    key.extend_from_slice(&end.to_be_bytes());
    key
}

/// All extents of one generation of a file's contents.
pub fn extents(contents: Contents) -> Vec<u8> {
    let Contents { volume, ino, generation } = contents;
    of_inode(EXTENT, volume, ino, &generation.to_be_bytes())
}

/// All extents of an inode, of every generation.
pub fn extents_of(volume: VolumeId, ino: Ino) -> Vec<u8> {
    of_inode(EXTENT, volume, ino, &[])
}

/// Contents that no inode has any more, and whose extents are still there.
pub fn grave(contents: Contents) -> Vec<u8> {
    let Contents { volume, ino, generation } = contents;
    of_inode(GRAVE, volume, ino, &generation.to_be_bytes())
}

/// All graves of all volumes.
pub fn all_graves() -> Vec<u8> {
    key(GRAVE, &[])
}

/// All graves of a volume.
pub fn graves(volume: VolumeId) -> Vec<u8> {
    key(GRAVE, &[&volume.0.to_be_bytes()])
}

/// What is left of a file that lost its last name.
pub fn remnant(volume: VolumeId, ino: Ino) -> Vec<u8> {
    of_inode(REMNANT, volume, ino, &[])
}

/// All remnants of a volume, by inode.
pub fn remnants(volume: VolumeId) -> Vec<u8> {
    key(REMNANT, &[&volume.0.to_be_bytes()])
}

/// The place of a remnant among those of its volume: behind those that commits before `commit`
/// left.
pub fn remnant_order(volume: VolumeId, commit: u64, ino: Ino) -> Vec<u8> {
    key(REMNANT_ORDER, &[&volume.0.to_be_bytes(), &commit.to_be_bytes(), &ino.0.to_be_bytes()])
}

/// The places of all remnants of a volume, the oldest first.
pub fn remnant_orders(volume: VolumeId) -> Vec<u8> {
    key(REMNANT_ORDER, &[&volume.0.to_be_bytes()])
}

/// How much all remnants of a volume are.
pub fn remnant_tally(volume: VolumeId) -> Vec<u8> {
    key(REMNANT_TALLY, &[&volume.0.to_be_bytes()])
}

/// That the first contents of a file are awaited.
pub fn awaited(volume: VolumeId, ino: Ino) -> Vec<u8> {
    of_inode(AWAITED, volume, ino, &[])
}

/// All files of a volume of which that is noted.
pub fn all_awaited(volume: VolumeId) -> Vec<u8> {
    key(AWAITED, &[&volume.0.to_be_bytes()])
}

/// The same of all volumes.
pub fn awaited_everywhere() -> Vec<u8> {
    key(AWAITED, &[])
}

/// All inodes of a volume.
pub fn inodes(volume: VolumeId) -> Vec<u8> {
    key(INODE, &[&volume.0.to_be_bytes()])
}

/// All names of a volume, by directory.
pub fn dentries(volume: VolumeId) -> Vec<u8> {
    key(DENTRY, &[&volume.0.to_be_bytes()])
}

/// All extended attributes of a volume, by inode.
pub fn all_xattrs(volume: VolumeId) -> Vec<u8> {
    key(XATTR, &[&volume.0.to_be_bytes()])
}

/// All extents of a volume, by inode.
pub fn all_extents(volume: VolumeId) -> Vec<u8> {
    key(EXTENT, &[&volume.0.to_be_bytes()])
}

/// What commit `number` changed in a volume.
pub fn changes(number: u64, volume: VolumeId) -> Vec<u8> {
    key(CHANGES, &[&number.to_be_bytes(), &volume.0.to_be_bytes()])
}

/// The life of the server whose commits are numbered from `start` on.
pub fn commit_life(start: u64) -> Vec<u8> {
    key(COMMIT_LIFE, &[&start.to_be_bytes()])
}

/// The life of the server whose versions of a volume are counted from `start` on.
pub fn life(volume: VolumeId, start: u64) -> Vec<u8> {
    key(LIFE, &[&volume.0.to_be_bytes(), &start.to_be_bytes()])
}

/// What is known of all commits: behind their rows, so that it is written beside the last.
pub fn changes_head() -> Vec<u8> {
    key(CHANGES, &[&[u8::MAX]])
}

/// The quota of a directory.
pub fn quota(volume: VolumeId, directory: Ino) -> Vec<u8> {
    of_inode(QUOTA, volume, directory, &[])
}

/// All quotas of directories of a volume.
pub fn quotas(volume: VolumeId) -> Vec<u8> {
    key(QUOTA, &[&volume.0.to_be_bytes()])
}

/// A hard link: a name of an inode beside the one that its row records.
pub fn hard_link(volume: VolumeId, ino: Ino, (parent, name): (Ino, &[u8])) -> Vec<u8> {
    of_inode(HARD_LINK, volume, ino, &[&parent.0.to_be_bytes(), name].concat())
}

/// All hard links of an inode.
pub fn hard_links_of(volume: VolumeId, ino: Ino) -> Vec<u8> {
    of_inode(HARD_LINK, volume, ino, &[])
}

/// All hard links of a volume.
pub fn all_hard_links(volume: VolumeId) -> Vec<u8> {
    key(HARD_LINK, &[&volume.0.to_be_bytes()])
}

/// The key that a row of a volume has in `volume`.
pub fn moved(key: &[u8], volume: VolumeId) -> Option<Vec<u8>> {
    let mut moved = key.to_vec();
    *moved.get_mut(1..)?.first_chunk_mut()? = volume.0.to_be_bytes();
    Some(moved)
}

/// A nameless inode that a client still has open.
pub fn orphan(volume: VolumeId, client: ClientId, ino: Ino) -> Vec<u8> {
    key(ORPHAN, &[&volume.0.to_be_bytes(), &client.0, &ino.0.to_be_bytes()])
}

/// All nameless inodes that a client still has open.
pub fn orphans(volume: VolumeId, client: ClientId) -> Vec<u8> {
    key(ORPHAN, &[&volume.0.to_be_bytes(), &client.0])
}

/// All nameless inodes of a volume.
pub fn all_orphans(volume: VolumeId) -> Vec<u8> {
    key(ORPHAN, &[&volume.0.to_be_bytes()])
}

/// A client.
pub fn client(client: ClientId) -> Vec<u8> {
    key(CLIENT, &[&client.0])
}

/// All clients.
pub fn clients() -> Vec<u8> {
    key(CLIENT, &[])
}

/// The floor of a client's log: below it every outcome is known to the client.
pub fn floor(client: ClientId, incarnation: u32) -> Vec<u8> {
    key(FLOOR, &[&client.0, &incarnation.to_be_bytes()])
}

/// The floors of all logs of a client.
pub fn floors(client: ClientId) -> Vec<u8> {
    key(FLOOR, &[&client.0])
}

/// All that is known of a client's records.
pub fn outcomes(client: ClientId) -> Vec<u8> {
    key(OUTCOME, &[&client.0])
}

/// What became of a record.
pub fn outcome(op: OpId) -> Vec<u8> {
    key(OUTCOME, &[&op.client.0, &op.incarnation.to_be_bytes(), &op.seq.to_be_bytes()])
}

/// The conflict copy that a client's stores to an inode go on in.
pub fn copy(client: ClientId, ino: Ino) -> Vec<u8> {
    key(COPY, &[&client.0, &ino.0.to_be_bytes()])
}

/// All conflict copies that a client's stores go on in.
pub fn copies(client: ClientId) -> Vec<u8> {
    key(COPY, &[&client.0])
}

/// An orphan of a client that went with the life of the client that had it open.
pub fn dropped(client: ClientId, ino: Ino) -> Vec<u8> {
    key(DROPPED, &[&client.0, &ino.0.to_be_bytes()])
}

/// All orphans of a client that went.
pub fn all_dropped(client: ClientId) -> Vec<u8> {
    key(DROPPED, &[&client.0])
}

/// What a client has of those that it was before.
pub fn inherited(client: ClientId) -> Vec<u8> {
    key(INHERITED, &[&client.0])
}

/// A file whose extents are to be put in order.
pub fn ragged(volume: VolumeId, ino: Ino) -> Vec<u8> {
    of_inode(RAGGED, volume, ino, &[])
}

/// All of them, in all volumes.
pub fn all_ragged() -> Vec<u8> {
    key(RAGGED, &[])
}

/// All of them of a volume.
pub fn ragged_of(volume: VolumeId) -> Vec<u8> {
    key(RAGGED, &[&volume.0.to_be_bytes()])
}

/// A chunk of a volume.
pub fn chunk(volume: VolumeId, fingerprint: &Fingerprint) -> Vec<u8> {
    key(CHUNK, &[&volume.0.to_be_bytes(), &fingerprint.0])
}

/// All chunks of a volume.
pub fn chunks(volume: VolumeId) -> Vec<u8> {
    key(CHUNK, &[&volume.0.to_be_bytes()])
}

/// All chunks of all volumes.
pub fn all_chunks() -> Vec<u8> {
    key(CHUNK, &[])
}

/// A leaf of a volume.
pub fn leaf(volume: VolumeId, fingerprint: &Fingerprint) -> Vec<u8> {
    key(LEAF, &[&volume.0.to_be_bytes(), &fingerprint.0])
}

/// All leaves of a volume.
pub fn leaves(volume: VolumeId) -> Vec<u8> {
    key(LEAF, &[&volume.0.to_be_bytes()])
}

/// Something that nothing refers to, to be collected from `due` on.
pub fn idle(due: u64, held: Held) -> Vec<u8> {
    let (volume, kind, fingerprint) = match held {
        Held::Chunk(volume, fingerprint) => (volume, 0, fingerprint),
        Held::Leaf(volume, fingerprint) => (volume, 1, fingerprint),
    };
    key(IDLE, &[&due.to_be_bytes(), &volume.0.to_be_bytes(), &[kind], &fingerprint.0])
}

/// All that is to be collected before `due`, from the key of this to that one.
pub fn idle_before(due: u64) -> (Vec<u8>, Vec<u8>) {
    (key(IDLE, &[]), key(IDLE, &[&due.to_be_bytes()]))
}

/// Everything that nothing refers to.
pub fn all_idle() -> Vec<u8> {
    key(IDLE, &[])
}

/// What rows refer to in a pack.
pub fn pack(pack: u64) -> Vec<u8> {
    key(PACK, &[&pack.to_be_bytes()])
}

/// All packs.
pub fn packs() -> Vec<u8> {
    key(PACK, &[])
}

/// A volume whose rows are being removed.
pub fn removed_volume(volume: VolumeId) -> Vec<u8> {
    key(REMOVED_VOLUME, &[&volume.0.to_be_bytes()])
}

/// All volumes whose rows are being removed.
pub fn removed_volumes() -> Vec<u8> {
    key(REMOVED_VOLUME, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_the_order_of_their_fields() {
        let volume = VolumeId(7);
        assert!(inode(volume, Ino(255)) < inode(volume, Ino(256)));
        assert!(inode(volume, Ino(u64::MAX)) < inode(VolumeId(8), Ino(0)));
        assert!(dentry(volume, Ino(3), b"a") < dentry(volume, Ino(3), b"ab"));
        assert!(dentry(volume, Ino(3), &[255; 255]) < after(&dentry(volume, Ino(3), b"")));
        assert_eq!(after(&[1, 255, 255]), [2]);
        let (client, ino) = (ClientId([9; 16]), Ino(5));
        assert_eq!(orphan_ino(&orphan(volume, client, ino)), Some(ino));
        assert_eq!(orphan_parts(&orphan(volume, client, ino)), Some((client, ino)));
        assert_eq!(client_part(&floor(client, 1)), Some(client));
        assert_eq!(inode_part(&dentry(volume, ino, b"name")), Some((ino, &b"name"[..])));
        assert_eq!(inode_part(&volume_tally(volume)), None);
        let contents = Contents { volume, ino, generation: 2 };
        let extent = extent(contents, 77);
        assert_eq!(inode_part(&extent).and_then(|(_, rest)| extent_part(rest)), Some((2, 77)));
        assert_eq!(grave_part(&grave(contents)), Some(contents));
        let held = Held::Leaf(volume, Fingerprint([3; 32]));
        assert_eq!(idle_part(&idle(9, held)), Some((9, held)));
        let (first, end) = idle_before(9);
        assert!(idle(8, held) < end && idle(9, held) >= end && first < idle(0, held));
        assert_eq!(
            fingerprint_part(&chunk(volume, &Fingerprint([3; 32]))),
            Some(Fingerprint([3; 32]))
        );
        assert_eq!(
            (pack_part(&pack(5)), volume_part(&removed_volume(volume))),
            (Some(5), Some(volume))
        );
    }
}
