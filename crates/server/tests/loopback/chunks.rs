//! Chunks that hosts bring, and those they only claim to have.

use segue_core::chunk::{fingerprint, possession_proof};
use segue_core::namespace::{leaf_name, leaf_of};
use segue_core::nouns::{Outcome, Role};
use segue_core::promise::Promising;
use segue_core::refusal::Refusal;
use segue_core::wire::{Applied, Apply, Fetch, Leaf, LeafPart, Put, Reply, Request, Stage};
use segue_rpc::Body;
use segue_rpc::codec::encode_block;
use segue_server::admin::{AdminReply, AdminRequest, Limit};

use crate::harness::{Server, call, chunk, done, noise, store, whole};

#[tokio::test]
async fn presence_counts_only_with_proof() {
    let server = Server::start().await;
    let secret = noise(50_000, 9);
    let tin = server.client("tin", Role::Writer).await;
    assert_eq!(tin.offer(&[&secret]).await, [0]);
    tin.upload(&[&secret]).await.unwrap();
    assert!(tin.offer(&[&secret]).await.is_empty());

    let mut zinc = server.client("zinc", Role::Writer).await;
    let name = fingerprint(&secret);
    let (ino, version) = zinc.create("f").await;
    let link = store(ino, version, 50_000, vec![chunk(0, &secret)]);
    let missing = Outcome::Missing { chunks: vec![name] };
    assert_eq!(zinc.apply(link.clone()).await, missing);
    let stale = possession_proof(&tin.welcome.nonce, &secret);
    assert_eq!(zinc.offer_with(vec![(name, stale), (name, name)]).await, [0, 1]);
    assert_eq!(zinc.apply(link.clone()).await, missing);
    assert!(zinc.offer(&[&secret]).await.is_empty());
    done(&zinc.apply(link).await, ino);
    assert_eq!(zinc.content(ino).await, secret);
}

#[tokio::test]
async fn records_may_bring_along_the_chunks_that_they_need() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let bytes = noise(50_000, 7);
    let (ino, version) = tin.create("f").await;
    let stamped = tin.stamp(store(ino, version, 50_000, vec![chunk(0, &bytes)]));
    let chunks = vec![(fingerprint(&bytes), 50_000)];
    let request = Request::Apply(Apply {
        records: vec![stamped],
        chunks,
        acked_below: 0,
        ..Apply::default()
    });
    let body = Body::from(encode_block(&bytes));
    let reply = tin.peer.call(&request, body).await.unwrap().reply;
    let Reply::Applied(Applied { outcomes, .. }) = reply else { panic!("{reply:?}") };
    done(&outcomes[0], ino);
    assert_eq!(tin.content(ino).await, bytes);
}

#[tokio::test]
async fn a_chunk_that_is_not_what_it_is_called_is_refused() {
    let server = Server::start().await;
    let tin = server.client("tin", Role::Writer).await;
    let put = |bytes: &[u8], len| Put { chunks: vec![(fingerprint(bytes), len)], ..Put::default() };
    for (put, blocks) in [
        (put(b"true", 5), encode_block(b"false")),
        (put(b"true", 4), encode_block(b"true.")),
        (put(b"true", 4), Vec::new()),
        (put(b"", 0), encode_block(b"")),
    ] {
        assert_eq!(tin.put(put, blocks).await.unwrap_err().refusal, Refusal::Protocol);
    }
    assert_eq!(tin.offer(&[b"true"]).await, [0]);
}

#[tokio::test]
async fn two_hosts_may_bring_one_chunk_at_once() {
    let server = Server::start().await;
    let bytes = noise(100_000, 4);
    let mut tin = server.client("tin", Role::Writer).await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    let chunks: [&[u8]; 1] = [&bytes];
    let (one, two) = tokio::join!(tin.upload(&chunks), zinc.upload(&chunks));
    assert_eq!((one, two), (Ok(()), Ok(())));
    for (client, name) in [(&mut tin, "a"), (&mut zinc, "b")] {
        let (ino, version) = client.create(name).await;
        done(&client.apply(store(ino, version, 100_000, vec![chunk(0, &bytes)])).await, ino);
        assert_eq!(client.content(ino).await, bytes);
    }
}

#[tokio::test]
async fn damage_is_refused_and_healed_by_the_next_upload() {
    let server = Server::start().await;
    let bytes = noise(100_000, 5);
    let mut tin = server.client("tin", Role::Writer).await;
    tin.upload(&[&bytes]).await.unwrap();
    let (ino, version) = tin.create("f").await;
    let outcome = tin.apply(store(ino, version, 100_000, vec![chunk(0, &bytes)])).await;
    let version = done(&outcome, ino).data_version;

    let pack = server.data().join("packs/00000001.pack");
    let mut stored = std::fs::read(&pack).unwrap();
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
    std::fs::write(&pack, stored).unwrap();
    let ask = Fetch { ino, version, offset: 0, len: 100_000 };
    let refused = tin.fetch(ask).await.unwrap_err();
    assert_eq!(refused.refusal, Refusal::Io);

    let zinc = server.client("zinc", Role::Writer).await;
    assert_eq!(zinc.offer(&[&bytes]).await, [0]);
    zinc.upload(&[&bytes]).await.unwrap();
    assert_eq!(tin.content(ino).await, bytes);
}

#[tokio::test]
async fn many_chunks_come_in_one_put() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let chunks: Vec<_> = (0..200).map(|seed| noise(64 << 10, seed * 2 + 1)).collect();
    let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    tin.upload(&slices).await.unwrap();
    let (ino, version) = tin.create("f").await;
    let pieces = (0..).zip(&chunks).map(|(n, bytes)| chunk(n * (64 << 10), bytes)).collect();
    done(&tin.apply(store(ino, version, 200 * (64 << 10), pieces)).await, ino);
    assert_eq!(tin.content(ino).await, chunks.concat());
}

/// What came of a volume that is full, in bytes.
async fn arrived(server: &Server) -> u64 {
    match server.admin(&AdminRequest::VolumeShow { name: "home".into() }).await {
        AdminReply::Volume(volume) => volume.arrived_bytes,
        other => panic!("{other:?}"),
    }
}

/// A host cannot fill the disk with chunks that it never names: they count as they come, and
/// those that come along with records are in a file at once, or not kept.
/// Proves S21.7.
#[tokio::test]
async fn what_comes_is_within_the_quota() {
    let server = Server::start().await;
    let (dir, bytes) = (None, Some(Limit::At(300_000)));
    let name = "home".to_owned();
    server.admin(&AdminRequest::VolumeSet { name, dir, bytes, inodes: None }).await;
    let mut tin = server.client("tin", Role::Writer).await;
    let parts: Vec<_> = (0..4).map(|seed| noise(100_000, seed * 2 + 1)).collect();
    for part in &parts[..3] {
        tin.upload(&[part]).await.unwrap();
    }
    assert_eq!(tin.upload(&[&parts[3]]).await.unwrap_err().refusal, Refusal::Quota);
    // Those that are here may come again.
    tin.upload(&[&parts[0]]).await.unwrap();
    assert_eq!(arrived(&server).await, 300_000);
    assert_eq!(tin.offer(&[&parts[3]]).await, [0]);

    let chunks = vec![(fingerprint(&parts[3]), 100_000)];
    let request =
        Request::Apply(Apply { records: Vec::new(), chunks, acked_below: 0, ..Apply::default() });
    let body = Body::from(encode_block(&parts[3]));
    let reply = tin.peer.call(&request, body).await.unwrap().reply;
    let Reply::Applied(Applied { outcomes, visible, promised, .. }) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!((outcomes, visible, promised), (Vec::new(), true, Some(Promising::default())));
    assert_eq!(arrived(&server).await, 300_000);

    let (ino, version) = tin.create("f").await;
    let pieces = (0..).zip(&parts[..3]).map(|(at, part)| chunk(at * 100_000, part)).collect();
    let version = done(&tin.apply(whole(ino, version, pieces)).await, ino).data_version;
    assert_eq!(arrived(&server).await, 0);
    // What is for a file takes the place of what it holds.
    let new = noise(300_000, 99);
    let put = |files| Put { chunks: vec![(fingerprint(&new), 300_000)], files, deltas: Vec::new() };
    let refused = tin.put(put(Vec::new()), encode_block(&new)).await;
    assert_eq!(refused.unwrap_err().refusal, Refusal::Quota);
    tin.put(put(vec![ino]), encode_block(&new)).await.unwrap();
    done(&tin.apply(whole(ino, version, vec![chunk(0, &new)])).await, ino);
    assert_eq!((arrived(&server).await, tin.content(ino).await), (0, new));
}

/// A reader could use up the quota, and fill the disk where there is none. Not as what it may not
/// do: a host whose identity became a reader's would send it again for ever.
/// Proves S17.7.
#[tokio::test]
async fn a_reader_brings_nothing() {
    let server = Server::start().await;
    let (dir, bytes) = (None, Some(Limit::At(300_000)));
    let name = "home".to_owned();
    server.admin(&AdminRequest::VolumeSet { name, dir, bytes, inodes: None }).await;
    let mut zinc = server.client("zinc", Role::Reader).await;
    let theirs = noise(300_000, 3);
    assert_eq!(zinc.upload(&[&theirs]).await.unwrap_err().refusal, Refusal::Quota);

    let (_, creation) = zinc.creation("f");
    let records = vec![zinc.stamp(creation)];
    let chunks = vec![(fingerprint(&theirs), 300_000)];
    let request = Request::Apply(Apply { records, chunks, acked_below: 0, ..Apply::default() });
    let body = Body::from(encode_block(&theirs));
    let reply = zinc.peer.call(&request, body).await.unwrap().reply;
    let Reply::Applied(Applied { outcomes, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!(outcomes, [Outcome::Refused { refusal: Refusal::ReadOnly }]);
    assert_eq!((arrived(&server).await, zinc.offer(&[&theirs]).await), (0, vec![0]));

    let ours = noise(300_000, 5);
    let mut tin = server.client("tin", Role::Writer).await;
    tin.upload(&[&ours]).await.unwrap();
    assert!(zinc.offer(&[&ours]).await.is_empty());
    let leaf = leaf_of(&[(fingerprint(&ours), 300_000)]);
    let parts = vec![LeafPart::Chunk(fingerprint(&ours), 300_000)];
    let leaves = vec![Leaf { name: leaf_name(&leaf).unwrap(), parts }];
    let stage = Request::Stage(Stage { leaves, files: Vec::new() });
    match call(&zinc.peer, &stage).await {
        Reply::Refused(refused) => assert_eq!(refused.refusal, Refusal::Quota),
        other => panic!("{other:?}"),
    }
    let (ino, version) = tin.create("f").await;
    done(&tin.apply(whole(ino, version, vec![chunk(0, &ours)])).await, ino);
    assert_eq!(tin.content(ino).await, ours);
}
