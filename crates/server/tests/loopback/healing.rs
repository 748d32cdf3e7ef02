//! Nothing new refers to a chunk that is damaged, and hosts heal it.

use std::path::PathBuf;

use segue_core::chunk::fingerprint;
use segue_core::modlog::{Base, Outcome, PieceBytes, Record};
use segue_core::namespace::leaf_wanted;
use segue_core::refusal::Refusal;
use segue_core::types::{Ino, Role, Version};
use segue_core::wire::{Fetch, Reply, Request, Stage};

use crate::harness::{Client, Server, call, chunk, done, noise, store, whole};

const LEN: usize = 100_000;

/// Changes a byte in the middle of a chunk that is stored as it is.
fn harm(server: &Server, bytes: &[u8]) {
    let packs = std::fs::read_dir(server.data().join("packs")).unwrap();
    let packs: Vec<PathBuf> = packs.map(|entry| entry.unwrap().path()).collect();
    let mut places = 0;
    for pack in packs {
        let mut stored = std::fs::read(&pack).unwrap();
        let found = stored.windows(64).position(|window| window == &bytes[..64]);
        let Some(at) = found else { continue };
        stored[at + bytes.len() / 2] ^= 1;
        std::fs::write(&pack, stored).unwrap();
        places += 1;
    }
    assert_eq!(places, 1, "the chunk stands in one pack");
}

/// A file of chunks.
async fn file(client: &mut Client, name: &str, chunks: &[Vec<u8>]) -> (Ino, Version) {
    client.upload(&chunks.iter().map(Vec::as_slice).collect::<Vec<_>>()).await.unwrap();
    let (ino, version) = client.create(name).await;
    let pieces = (0..).zip(chunks).map(|(n, bytes)| chunk(n * LEN as u64, bytes)).collect();
    (ino, done(&client.apply(whole(ino, version, pieces)).await, ino).data_version)
}

/// How many bytes a copy by reference has.
async fn copied(client: &mut Client, name: &str, (from, version): (Ino, Version)) -> u64 {
    let (ino, base) = client.create(name).await;
    let record = Record::Clone { ino, base: Base::Version(base), from, version };
    done(&client.apply(record).await, ino).size
}

async fn fetch(client: &Client, (ino, version): (Ino, Version)) -> Result<Vec<u8>, Refusal> {
    let ask = Fetch { ino, version, offset: 0, len: 3 * LEN as u64 };
    client.fetch(ask).await.map(|(bytes, _)| bytes).map_err(|refused| refused.refusal)
}

/// `cp` made a second damaged file of a damaged one, also where nobody had found the damage yet.
/// Proves S18.7.
#[tokio::test]
async fn a_damaged_file_is_not_copied_by_reference() {
    let mut server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let chunks = [1, 3, 5].map(|seed| noise(LEN, seed));
    let source = file(&mut tin, "f", &chunks).await;
    assert_eq!(copied(&mut tin, "before", source).await, 3 * LEN as u64);
    harm(&server, &chunks[1]);
    assert_eq!(copied(&mut tin, "unknown", source).await, 0);
    assert_eq!(fetch(&tin, source).await, Err(Refusal::Io));
    assert_eq!(copied(&mut tin, "known", source).await, 0);
    server.restart().await;
    let mut tin = server.client("zinc", Role::Writer).await;
    assert_eq!(copied(&mut tin, "forgotten", source).await, 0);
    // The bytes that a copy of the bytes brings heal the file, and all its earlier copies.
    tin.upload(&[&chunks[1]]).await.unwrap();
    assert_eq!(copied(&mut tin, "healed", source).await, 3 * LEN as u64);
    let before = tin.lookup("before").await.unwrap();
    for file in [source, (before.ino, before.data_version)] {
        assert_eq!(fetch(&tin, file).await, Ok(chunks.concat()));
    }
}

/// A host that had shown to have a chunk was answered that the server has it, also after the
/// server had found it damaged. So the host's copy of the file healed nothing.
/// Proves S18.7.
#[tokio::test]
async fn a_chunk_that_was_shown_before_it_was_damaged_is_wanted_again() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let chunks = [1, 3].map(|seed| noise(LEN, seed));
    let source = file(&mut tin, "f", &chunks).await;
    let slices: [&[u8]; 2] = chunks.each_ref().map(Vec::as_slice);
    assert!(tin.offer(&slices).await.is_empty());
    harm(&server, &chunks[1]);
    assert_eq!(fetch(&tin, source).await, Err(Refusal::Io));
    assert_eq!(tin.offer(&slices).await, [1]);

    let name = fingerprint(&chunks[1]);
    let (copy, base) = tin.create("copy").await;
    let again = whole(copy, base, vec![chunk(0, &chunks[1])]);
    assert_eq!(tin.apply(again.clone()).await, Outcome::Missing { chunks: vec![name] });
    let named = chunks.each_ref().map(|bytes| (fingerprint(bytes), LEN as u32));
    let leaves = vec![leaf_wanted(&named).unwrap()];
    let stage = Request::Stage(Stage { leaves, files: Vec::new() });
    match call(&tin.peer, &stage).await {
        Reply::Staged(staged) => assert_eq!(staged.missing, [name]),
        other => panic!("{other:?}"),
    }
    tin.upload(&[&chunks[1]]).await.unwrap();
    assert!(tin.offer(&slices).await.is_empty());
    done(&tin.apply(again).await, copy);
    assert_eq!(fetch(&tin, source).await, Ok(chunks.concat()));
}

/// A leaf that was made before one of its chunks was damaged is not named once more.
/// Proves S18.7.
#[tokio::test]
async fn a_leaf_with_a_damaged_chunk_is_not_referred_to() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let chunks = [1, 3].map(|seed| noise(LEN, seed));
    tin.upload(&chunks.each_ref().map(Vec::as_slice)).await.unwrap();
    let named = chunks.each_ref().map(|bytes| (fingerprint(bytes), LEN as u32));
    let leaf = leaf_wanted(&named).unwrap();
    let name = leaf.name;
    let stage = Request::Stage(Stage { leaves: vec![leaf], files: Vec::new() });
    assert!(
        matches!(call(&tin.peer, &stage).await, Reply::Staged(staged) if staged.missing.is_empty())
    );
    let len = 2 * LEN as u64;
    let pieces = |bytes| vec![segue_core::modlog::Piece { offset: 0, bytes }];
    let leaf = || pieces(PieceBytes::Leaf { leaf: name, len });
    let (ino, base) = tin.create("f").await;
    let version = done(&tin.apply(store(ino, base, len, leaf())).await, ino).data_version;
    harm(&server, &chunks[0]);
    assert_eq!(fetch(&tin, (ino, version)).await, Err(Refusal::Io));
    let (copy, base) = tin.create("copy").await;
    let refused = tin.apply(store(copy, base, len, leaf())).await;
    assert_eq!(refused, Outcome::Missing { chunks: vec![name] });
    tin.upload(&[&chunks[0]]).await.unwrap();
    done(&tin.apply(store(copy, base, len, leaf())).await, copy);
    assert_eq!(fetch(&tin, (ino, version)).await, Ok(chunks.concat()));
}
