//! Files as hosts see them.

use segue_core::nouns::{Ino, Outcome, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Reply, Request};

use crate::harness::{
    Server, apply, call, chunk, done, http, inline, noise, shut_out, store, whole,
};

#[tokio::test]
async fn what_one_host_stores_another_reads() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (text, noise) = (vec![b'a'; 200_000], noise(100_000, 1));
    let (ino, version) = tin.create("f").await;
    tin.upload(&[&text, &noise]).await.unwrap();
    let pieces = vec![inline(0, b"head"), chunk(4, &text), chunk(300_000, &noise)];
    let outcome = tin.apply(store(ino, version, 500_000, pieces)).await;
    let attr = done(&outcome, ino);
    assert_eq!((attr.size, attr.allocated), (500_000, 300_004));

    let zinc = server.client("zinc", Role::Reader).await;
    let expected = [b"head", &text[..], &[0; 99_996], &noise, &[0; 100_000]].concat();
    assert_eq!(zinc.lookup("f").await.unwrap().size, 500_000);
    assert_eq!(zinc.content(ino).await, expected);
    let ask = Fetch { ino, version: attr.data_version, offset: 199_999, len: 150_000 };
    let (bytes, segments) = zinc.fetch(ask).await.unwrap();
    assert_eq!(bytes, &expected[199_999..349_999]);
    assert_eq!(segments, [(5, true), (99_996, false), (49_999, true)]);
    let metrics = http(&server.data(), "GET", "/v1/metrics", "").await;
    assert!(metrics.contains("\nsegue_server_sessions 2.0\n"), "{metrics}");
    assert!(metrics.contains("\nsegue_server_chunks_received_total 2\n"), "{metrics}");
}

#[tokio::test]
async fn range_stores_splice_into_what_is_there() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, version) = tin.create("f").await;
    let mut expected = noise(300_000, 2);
    tin.upload(&[&expected]).await.unwrap();
    let outcome = tin.apply(store(ino, version, 300_000, vec![chunk(0, &expected)])).await;
    let mut version = done(&outcome, ino).data_version;
    for (offset, len) in [(0, 10), (299_990, 10), (100, 8192), (150_000, 1), (150_001, 5000)] {
        let new = noise(len, offset as u64 + 3);
        let outcome = tin.apply(store(ino, version, 300_000, vec![inline(offset as u64, &new)]));
        version = done(&outcome.await, ino).data_version;
        expected[offset..offset + len].copy_from_slice(&new);
    }
    assert_eq!(tin.content(ino).await, expected);
}

#[tokio::test]
async fn a_fetch_of_another_version_is_refused() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, old) = tin.create("f").await;
    tin.apply(store(ino, old, 1, vec![inline(0, b"x")])).await;
    let refused = tin.fetch(Fetch { ino, version: old, offset: 0, len: 1 }).await.unwrap_err();
    assert_eq!(refused.refusal, Refusal::Changed);
}

/// Proves S9.1, S9.3.
#[tokio::test]
async fn a_conflict_keeps_both() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    let (ino, base) = tin.create("f").await;
    tin.apply(store(ino, base, 6, vec![inline(0, b"theirs")])).await;
    assert_eq!(zinc.apply(store(ino, base, 1, vec![inline(0, b"o")])).await, Outcome::NeedsWhole);
    let outcome = zinc.apply(whole(ino, base, vec![inline(0, b"ours")])).await;
    let Outcome::Conflict { name, copy, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(name.to_string(), "f.conflict-zinc-20261121-083959");
    assert_eq!(tin.content(ino).await, b"theirs");
    assert_eq!(tin.content(copy).await, b"ours");
    assert_eq!(tin.lookup(&name.to_string()).await.unwrap().ino, copy);
}

/// Proves S7.9.
#[tokio::test]
async fn a_batch_that_comes_again_is_applied_once() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let records: Vec<_> = (0..100)
        .map(|number| {
            let (_, record) = tin.creation(&format!("f{number}"));
            tin.stamp(record)
        })
        .collect();
    let first = tin.send(records.clone()).await;
    assert_eq!(first.len(), 100);
    let before = tin.attr(Ino::ROOT).await;
    assert_eq!(tin.send(records).await, first);
    assert_eq!(tin.attr(Ino::ROOT).await, before);
}

/// A store is read from the container each time it is sent: after a crash its bytes may have
/// been overwritten by a later change, which the log has too. The client was taken for a copy
/// of itself then, and shut out.
#[tokio::test]
async fn a_store_that_comes_again_with_later_bytes_is_the_same_store() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, base) = tin.create("f").await;
    let mut first = tin.stamp(store(ino, base, 5, vec![inline(0, b"first")]));
    let outcome = tin.send(vec![first.clone()]).await;
    done(&outcome[0], ino);
    first.record = store(ino, base, 5, vec![inline(0, b"fi"), inline(3, b"XX")]);
    assert_eq!(tin.send(vec![first]).await, outcome);
    assert_eq!(tin.content(ino).await, b"first");
}

#[tokio::test]
async fn a_batch_ends_at_the_first_record_that_is_not_final() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, version) = tin.create("f").await;
    let (_, create) = tin.creation("g");
    let missing = store(ino, version, 5, vec![chunk(0, b"never")]);
    let records = [create.clone(), missing, create].map(|record| tin.stamp(record));
    let outcomes = tin.send(records.into()).await;
    assert_eq!(outcomes.len(), 2);
    assert!(matches!(outcomes[1], Outcome::Missing { .. }));
}

#[tokio::test]
async fn a_copied_cache_is_told_so() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, _) = tin.create("f").await;
    let (_, other) = tin.creation("g");
    tin.seq = 0;
    let stamped = tin.stamp(other);
    // Either the answer or the end of the connection arrives first.
    let _ = tin.peer.call(&apply(vec![stamped]), segue_rpc::Body::Empty).await;
    let words = shut_out(&tin.peer).await;
    assert!(words.contains("this cache directory was copied"), "{words}");
    let zinc = server.client("zinc", Role::Writer).await;
    assert_eq!(zinc.lookup("f").await.unwrap().ino, ino);
    assert_eq!(zinc.lookup("g").await, None);
}

/// Proves S17.7.
#[tokio::test]
async fn a_reader_reads_only() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Reader).await;
    let (_, create) = tin.creation("f");
    let refusal = Refusal::ReadOnly;
    assert_eq!(tin.apply(create).await, Outcome::Refused { refusal });
}

#[tokio::test]
async fn space_is_that_of_the_disk() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    tin.create("f").await;
    match call(&tin.peer, &Request::Statfs(Ino::ROOT)).await {
        Reply::Space(space) => {
            assert!(space.total_bytes >= space.free_bytes && space.total_bytes > 0);
            assert_eq!(space.inodes, 2);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn more_numbers_follow_when_asked() {
    let server = Server::start().await;
    let tin = server.client("tin", Role::Writer).await;
    let first = tin.welcome.grants[0];
    match call(&tin.peer, &Request::Grant(())).await {
        Reply::Granted(more) => assert!(more.first >= first.first + first.count),
        other => panic!("{other:?}"),
    }
}
