//! What is told by where it stands in a file, and what as a difference from that.

use std::ops::Range;

use segue_core::chunk::fingerprint;
use segue_core::namespace::{leaf_name, leaf_of, leaf_wanted};
use segue_core::nouns::{Fingerprint, Ino, Outcome, Piece, PieceBytes, Role, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{
    DICTIONARY_MAX, Delta, Leaf, LeafPart, Outline, Outlined, Put, Reply, Request, Stage, Staged,
    Stored,
};
use segue_rpc::Body;
use segue_rpc::codec::{block_from_stored, difference, encode_block};

use crate::harness::{Client, Server, call, chunk, done, inline, noise, store, whole};

const LEN: usize = 50_000;

/// A file of three chunks, its version, and what they are.
async fn file(client: &mut Client, name: &str, seed: u64) -> (Ino, Version, [Vec<u8>; 3]) {
    let chunks = [0, 1, 2].map(|n| noise(LEN, seed + 2 * n));
    client.upload(&chunks.each_ref().map(Vec::as_slice)).await.unwrap();
    let (ino, version) = client.create(name).await;
    let pieces = (0..).zip(&chunks).map(|(n, bytes)| chunk(n * LEN as u64, bytes)).collect();
    let stored = client.apply(store(ino, version, 3 * LEN as u64, pieces)).await;
    (ino, done(&stored, ino).data_version, chunks)
}

fn named(bytes: &[u8]) -> (Fingerprint, u32) {
    (fingerprint(bytes), bytes.len() as u32)
}

async fn stage(client: &Client, leaf: Leaf) -> Staged {
    let stage = Stage { leaves: vec![leaf], files: Vec::new() };
    match call(&client.peer, &Request::Stage(stage)).await {
        Reply::Staged(staged) => staged,
        other => panic!("{other:?}"),
    }
}

/// A leaf called as if it had `chunks`.
fn leaf(chunks: &[&[u8]], parts: Vec<LeafPart>) -> Leaf {
    let chunks: Vec<_> = chunks.iter().map(|bytes| named(bytes)).collect();
    Leaf { name: leaf_name(&leaf_of(&chunks)).unwrap(), parts }
}

async fn put(client: &Client, bytes: &[u8], delta: Delta, block: Vec<u8>) -> Vec<u32> {
    let put = Put { chunks: vec![named(bytes)], files: Vec::new(), deltas: vec![delta] };
    match client.peer.call(&Request::Put(put), Body::from(block)).await.unwrap().reply {
        Reply::Stored(Stored { lacking }) => lacking,
        other => panic!("{other:?}"),
    }
}

/// A host that may read a file names its chunks by where they stand, and needs none of them.
#[tokio::test]
async fn a_leaf_is_made_of_what_stands_in_a_file() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, version, [one, two, three]) = file(&mut tin, "f", 1).await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    let outlined = call(&zinc.peer, &Request::Outline(Outline { ino, version, offset: 0 })).await;
    let part = |bytes: &[u8]| (LEN as u64, Some((&fingerprint(bytes)).into()));
    let parts = vec![part(&one), part(&two), part(&three)];
    assert_eq!(outlined, Reply::Outlined(Outlined { size: 3 * LEN as u64, start: 0, parts }));

    let new = noise(1000, 99);
    zinc.upload(&[&new]).await.unwrap();
    let (name, len) = named(&new);
    let run = LeafPart::Run { ino, version, range: LEN as u64..3 * LEN as u64 };
    let wanted = leaf(&[&new, &two, &three], vec![LeafPart::Chunk(name, len), run]);
    assert_eq!(stage(&zinc, wanted.clone()).await, Staged::default());
    let (copy, base) = zinc.create("copy").await;
    let size = 1000 + 2 * LEN as u64;
    let bytes = PieceBytes::Leaf { leaf: wanted.name, len: size };
    let stored = zinc.apply(store(copy, base, size, vec![Piece { offset: 0, bytes }])).await;
    done(&stored, copy);
    assert_eq!(zinc.content(copy).await, [new, two.clone(), three.clone()].concat());

    // By that it has shown to possess no chunk by its name.
    let plain = leaf_wanted(&[named(&two)]).unwrap();
    assert_eq!(stage(&zinc, plain).await.missing, [fingerprint(&two)]);
}

/// What does not lead to what a leaf is called makes none.
#[tokio::test]
async fn a_leaf_that_would_be_another_one_is_not_made() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, old, [one, two, three]) = file(&mut tin, "f", 1).await;
    let stored = tin.apply(store(ino, old, 3 * LEN as u64, vec![inline(10, b"new")])).await;
    let version = done(&stored, ino).data_version;
    let len = LEN as u64;
    let other = Ino(ino.0 + 1000);
    for (ino, version, range, chunks) in [
        // Another version, a file that is not there, and a directory.
        (ino, old, len..3 * len, vec![&two, &three]),
        (other, version, len..3 * len, vec![&two, &three]),
        (Ino::ROOT, version, len..3 * len, vec![&two, &three]),
        // Not at chunks' edges, or not of whole chunks.
        (ino, version, len + 1..3 * len, vec![&two, &three]),
        (ino, version, len..3 * len - 1, vec![&two, &three]),
        (ino, version, 0..3 * len, vec![&one, &two, &three]),
        (ino, version, 0..len, vec![&one]),
        // Behind the end, nothing at all, and nonsense.
        (ino, version, len..4 * len, vec![&two, &three]),
        (ino, version, len..u64::MAX, vec![&two, &three]),
        (ino, version, len..len, vec![]),
        (ino, version, Range { start: 3 * len, end: len }, vec![&two, &three]),
        // Other chunks than it is called for.
        (ino, version, len..3 * len, vec![&three, &two]),
    ] {
        let chunks: Vec<&[u8]> = chunks.into_iter().map(Vec::as_slice).collect();
        let wanted = leaf(&chunks, vec![LeafPart::Run { ino, version, range: range.clone() }]);
        let name = wanted.name;
        let staged = stage(&tin, wanted).await;
        assert_eq!(staged, Staged { missing: Vec::new(), astray: vec![0] }, "{range:?}");
        let bytes = PieceBytes::Leaf { leaf: name, len: 2 * len };
        let (file, base) = tin.create(&format!("{range:?} {}", version.counter + ino.0)).await;
        let linked = tin.apply(whole(file, base, vec![Piece { offset: 0, bytes }])).await;
        assert_eq!(linked, Outcome::Missing { chunks: vec![name] }, "{range:?}");
    }
    let run = LeafPart::Run { ino, version, range: len..3 * len };
    let wanted = leaf(&[&two, &three], vec![run.clone()]);
    assert_eq!(stage(&tin, wanted).await, Staged::default(), "the rest is there");
    let many = Stage {
        leaves: vec![Leaf { name: fingerprint(b""), parts: vec![run; 1025] }],
        files: Vec::new(),
    };
    let Reply::Refused(refused) = call(&tin.peer, &Request::Stage(many)).await else { panic!() };
    assert_eq!(refused.refusal, Refusal::Limit);
}

/// Few parts may stand for more than a leaf has.
#[tokio::test]
async fn a_leaf_has_no_more_than_it_may() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, version, [one, two, three]) = file(&mut tin, "f", 1).await;
    let run = LeafPart::Run { ino, version, range: 0..3 * LEN as u64 };
    let all: Vec<&[u8]> = [&one[..], &two, &three].repeat(342);
    let staged = stage(&tin, leaf(&all, vec![run.clone(); 342])).await;
    assert_eq!(staged.astray, [0]);
    let staged = stage(&tin, leaf(&all[..1023], vec![run; 341])).await;
    assert_eq!(staged, Staged::default());
}

/// A chunk comes as what differs from a part of a file that both sides have.
#[tokio::test]
async fn a_chunk_comes_as_a_difference() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, version, chunks) = file(&mut tin, "f", 1).await;
    let base = chunks.concat();
    let range = 10_000..130_000;
    let new = [&base[40_000..60_000], b"inserted", &base[60_000..90_000]].concat();
    let stored = difference(&new, &base[10_000..130_000]).unwrap();
    assert!(stored.len() < 100, "{}", stored.len());
    let block = block_from_stored(new.len(), &stored);
    let delta = Delta { index: 0, ino, version, range };
    assert!(put(&tin, &new, delta.clone(), block.clone()).await.is_empty());
    assert!(tin.offer(&[&new]).await.is_empty());
    let (copy, first) = tin.create("copy").await;
    let outcome = tin.apply(store(copy, first, new.len() as u64, vec![chunk(0, &new)])).await;
    done(&outcome, copy);
    assert_eq!(tin.content(copy).await, new);

    // Those that lead elsewhere, or nowhere, have to come whole, and others beside them count.
    let other = noise(40_000, 77);
    let wrong = [
        Delta { version: Version { counter: version.counter + 1, ..version }, ..delta.clone() },
        Delta { ino: Ino(ino.0 + 1000), ..delta.clone() },
        Delta { range: 10_001..130_001, ..delta.clone() },
        Delta { range: 200_000..300_000, ..delta.clone() },
    ];
    for delta in wrong {
        let mut new = new.clone();
        new[0] ^= 1;
        let put = Put {
            chunks: vec![named(&new), named(&other)],
            files: Vec::new(),
            deltas: vec![delta],
        };
        let blocks = [block.clone(), encode_block(&other)].concat();
        let reply = tin.peer.call(&Request::Put(put), Body::from(blocks)).await.unwrap().reply;
        assert_eq!(reply, Reply::Stored(Stored { lacking: vec![0] }));
        assert_eq!(tin.offer(&[&new, &other]).await, [0]);
    }
}

/// Differences that no host sends are refused, and none makes more than its chunk has.
#[tokio::test]
async fn a_difference_is_bounded() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, version, chunks) = file(&mut tin, "f", 1).await;
    let bytes = noise(LEN, 55);
    let delta = |index, range| Delta { index, ino, version, range };
    for deltas in [
        vec![delta(0, 0..DICTIONARY_MAX + 1)],
        vec![delta(0, 9..9)],
        vec![delta(0, Range { start: 9, end: 5 })],
        vec![delta(1, 0..9)],
        vec![delta(0, 0..9), delta(0, 0..9)],
    ] {
        let put = Put { chunks: vec![named(&bytes)], files: Vec::new(), deltas };
        let refused = tin.put(put, encode_block(&bytes)).await.unwrap_err();
        assert_eq!(refused.refusal, Refusal::Protocol);
    }
    // A frame of a gigabyte of zeros that is called a small chunk, and garbage.
    let bomb = zstd::bulk::compress(&vec![0; 1 << 30], 3).unwrap();
    let small = vec![0; bomb.len() + 1];
    let whole = delta(0, 0..chunks.concat().len() as u64);
    let block = block_from_stored(small.len(), &bomb);
    assert_eq!(put(&tin, &small, whole.clone(), block).await, [0]);
    let block = block_from_stored(bytes.len(), &noise(1000, 5));
    assert_eq!(put(&tin, &bytes, whole, block).await, [0]);
}
