//! Nothing new refers to a chunk that is damaged, and hosts heal it.

use std::path::PathBuf;
use std::time::Duration;

use segue_core::chunk::fingerprint;
use segue_core::namespace::leaf_wanted;
use segue_core::nouns::{Base, Ino, Outcome, PieceBytes, Record, Role, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Put, Reply, Request, Stage};
use segue_rpc::Body;
use segue_rpc::codec::encode_block;
use segue_server::admin::{AdminReply, AdminRequest, Limit};
use tokio::sync::mpsc;

use crate::harness::{Client, Server, call, chunk, done, noise, store, whole};

const LEN: usize = 100_000;
/// Whoever takes this long hangs.
const HANGS: Duration = Duration::from_secs(90);

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
    let pieces = |bytes| vec![segue_core::nouns::Piece { offset: 0, bytes }];
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

/// Answers the server's calls as a host would that has these chunks in its cache. Says which
/// requests came.
fn answer(client: Client, chunks: Vec<Vec<u8>>) -> mpsc::UnboundedReceiver<Request> {
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(incoming) = client.peer.accept().await {
            tell.send(incoming.request.clone()).ok();
            let reply = match &incoming.request {
                Request::Heal(heal) => {
                    let mut sent = 0;
                    for (_, name, _) in &heal.chunks {
                        let chunk = chunks.iter().find(|bytes| fingerprint(bytes) == *name);
                        let Some(chunk) = chunk else { continue };
                        client.upload(&[chunk]).await.unwrap();
                        sent += 1;
                    }
                    Reply::Healed(sent)
                }
                Request::Break(_) => Reply::Broken(()),
                other => panic!("{other:?}"),
            };
            incoming.reply(reply, Body::Empty).await.ok();
        }
    });
    told
}

/// Reads a file until it can be read.
async fn healed(client: &Client, file: (Ino, Version)) -> Vec<u8> {
    let read = async {
        loop {
            match fetch(client, file).await {
                Ok(bytes) => return bytes,
                Err(refusal) => assert_eq!(refusal, Refusal::Io),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(HANGS, read).await.expect("the file is healed")
}

/// Another host's cache heals a file that a host cannot read, in a volume whose quota is full. A
/// host that may only read is not asked.
/// Proves S18.8.
#[tokio::test]
async fn hosts_that_have_a_damaged_file_are_asked_for_it() {
    let server = Server::start().await;
    let reader = server.client("reader", Role::Reader).await;
    let mut tin = server.client("tin", Role::Writer).await;
    let zinc = server.client("zinc", Role::Writer).await;
    let chunks = [1, 3, 5].map(|seed| noise(LEN, seed));
    let source = file(&mut tin, "f", &chunks).await;
    let (dir, bytes) = (None, Some(Limit::At(3 * LEN as u64)));
    let name = "home".to_owned();
    server.admin(&AdminRequest::VolumeSet { name, dir, bytes, inodes: None }).await;
    // It is promised the file, and came first.
    reader.attr(source.0).await;
    let mut heard = answer(reader, Vec::new());
    let mut asked = answer(tin, chunks.to_vec());
    harm(&server, &chunks[1]);
    harm(&server, &chunks[2]);
    assert_eq!(fetch(&zinc, source).await, Err(Refusal::Io));
    assert_eq!(healed(&zinc, source).await, chunks.concat());
    let Some(Request::Heal(heal)) = asked.recv().await else { panic!("it was asked") };
    let (names, len) = ([1, 2].map(|n| fingerprint(&chunks[n])), LEN as u64);
    let named = vec![(len, names[0], LEN as u32), (2 * len, names[1], LEN as u32)];
    assert_eq!((heal.ino, heal.chunks), (source.0, named));
    assert!(heard.try_recv().is_err(), "a reader is asked for nothing");
    match server.admin(&AdminRequest::VolumeShow { name: "home".into() }).await {
        AdminReply::Volume(volume) => assert_eq!(volume.arrived_bytes, 0),
        other => panic!("{other:?}"),
    }
}

/// A host that never answers, one that lies, and one that sends other bytes do no harm.
/// Proves S18.8.
#[tokio::test]
async fn hosts_that_do_not_heal_harm_nobody() {
    let server = Server::start().await;
    let silent = server.client("silent", Role::Writer).await;
    let liar = server.client("liar", Role::Writer).await;
    let mut tin = server.client("tin", Role::Writer).await;
    let zinc = server.client("zinc", Role::Writer).await;
    let chunks = [1, 3].map(|seed| noise(LEN, seed));
    let source = file(&mut tin, "f", &chunks).await;
    silent.attr(source.0).await;
    liar.attr(source.0).await;
    tokio::spawn(async move {
        while let Some(incoming) = liar.peer.accept().await {
            let other = noise(LEN, 99);
            let put = Put { chunks: vec![(fingerprint(b""), LEN as u32)], ..Put::default() };
            let refused = liar.put(put, encode_block(&other)).await.unwrap_err();
            assert_eq!(refused.refusal, Refusal::Protocol);
            incoming.reply(Reply::Healed(7), Body::Empty).await.ok();
        }
    });
    let _asked = answer(tin, chunks.to_vec());
    harm(&server, &chunks[1]);
    assert_eq!(fetch(&zinc, source).await, Err(Refusal::Io));
    assert_eq!(healed(&zinc, source).await, chunks.concat());
    drop(silent);
}
