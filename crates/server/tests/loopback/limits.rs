//! Hosts that want more than their share: each is told so, and others go on working.

use std::time::Duration;

use segue_core::chunk::fingerprint;
use segue_core::nouns::{Base, Ino, Outcome, Record, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::{
    APPLY_BODY_MAX, APPLY_MAX, Apply, Fetch, Limit, OFFER_MAX, Offer, Put, Reply, Request,
};
use segue_rpc::codec::encode_block;
use segue_rpc::{Body, CallError, CloseReason, Peer, Target, dial};

use crate::harness::{Client, Server, apply, call, chunk, done, inline, noise, shut_out, store};

/// Connections of one identity, and of strangers at one address: as in docs/limits.md.
const OF_IDENTITY_MAX: usize = 16;
const OF_ADDRESS_MAX: usize = 8;
/// Longer than a stranger, or a host without a hello, is borne with.
const PATIENCE: Duration = Duration::from_secs(60);

async fn stranger(server: &Server) -> Peer {
    let url = server.invite(Role::Writer, 3600).await;
    let target = Target::new(&url, &url.invite().unwrap().authority);
    dial(&target, None, PATIENCE).await.unwrap()
}

/// `client` is served like ever.
async fn goes_on(client: &mut Client, name: &str) {
    let bytes = noise(50_000, name.len() as u64);
    client.upload(&[&bytes]).await.unwrap();
    let (ino, version) = client.create(name).await;
    done(&client.apply(store(ino, version, 50_000, vec![chunk(0, &bytes)])).await, ino);
    assert_eq!(client.content(ino).await, bytes);
}

#[tokio::test]
async fn one_identity_has_so_many_connections() {
    let server = Server::start().await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    let tin = server.host("tin", Role::Writer).await;
    let mut held = Vec::new();
    for number in 0..OF_IDENTITY_MAX {
        held.push(tin.client(u8::try_from(number).unwrap() + 1).await);
    }
    let words = shut_out(&tin.dial().await).await;
    assert!(words.contains("has reached its limit of connections"), "{words}");
    goes_on(&mut zinc, "while").await;
    held.pop().unwrap().peer.close(segue_rpc::CloseCode::Done, "");
    // The server hears of it a moment later.
    while shut_out_or_in(&tin.dial().await).await.is_err() {}
    goes_on(&mut held[0], "after").await;
}

/// Ok if the host is let in.
async fn shut_out_or_in(peer: &Peer) -> Result<(), String> {
    match peer.call(&Request::Statfs(Ino::ROOT), Body::Empty).await {
        Ok(_) => Ok(()),
        Err(CallError::Lost(reason)) => Err(reason.to_string()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn strangers_are_few_and_stay_briefly() {
    let server = Server::start().await;
    let tin = server.host("tin", Role::Writer).await;
    let mut client = tin.client(1).await;
    let silent = tin.dial().await;
    let mut held = Vec::new();
    for _ in 0..OF_ADDRESS_MAX {
        held.push(stranger(&server).await);
    }
    let words = shut_out(&stranger(&server).await).await;
    assert!(words.contains("too many hosts"), "{words}");
    goes_on(&mut client, "while").await;
    for (peer, said) in
        held.iter().map(|peer| (peer, "no identity")).chain([(&silent, "sent no Hello")])
    {
        let reason = tokio::time::timeout(PATIENCE, peer.closed()).await.unwrap();
        let CloseReason::Closed { words, .. } = reason else { panic!("{reason:?}") };
        assert!(words.contains(said), "{words}");
    }
    let next = stranger(&server).await;
    assert!(matches!(call(&next, &Request::Statfs(Ino::ROOT)).await, Reply::Refused(_)));
    goes_on(&mut client, "after").await;
}

#[tokio::test]
async fn requests_over_a_limit_are_refused_with_words_and_nothing_else() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let names = || (0..=OFFER_MAX as u64).map(|n| fingerprint(&n.to_le_bytes()));
    let offer = Offer { chunks: names().map(|name| (name, name)).collect() };
    let put = Put { chunks: names().map(|name| (name, 1)).collect(), ..Put::default() };
    let records = (0..=APPLY_MAX).map(|n| {
        let (_, creation) = tin.creation(&format!("file-{n}"));
        tin.stamp(creation)
    });
    let records = apply(records.collect());
    let long: Vec<_> = (0..3).map(|seed| noise(APPLY_BODY_MAX / 2, seed)).collect();
    let chunks = long.iter().map(|bytes| (fingerprint(bytes), bytes.len() as u32)).collect();
    let heavy =
        Request::Apply(Apply { records: Vec::new(), chunks, acked_below: 0, ..Apply::default() });
    let body: Vec<u8> = long.iter().flat_map(|bytes| encode_block(bytes)).collect();
    for (request, body) in [
        (Request::Offer(offer), Body::Empty),
        (Request::Put(put), Body::Empty),
        (records, Body::Empty),
        (heavy, Body::from(body)),
    ] {
        let reply = tin.peer.call(&request, body).await.unwrap().reply;
        let Reply::Refused(refused) = reply else { panic!("{reply:?}") };
        assert_eq!(refused.refusal, Refusal::Limit);
        assert!(refused.words.contains("at most"), "{}", refused.words);
    }
    goes_on(&mut tin, "after").await;
}

/// Answers that nobody reads hold what one session may hold, and no more.
#[tokio::test]
async fn a_host_that_reads_no_answer_keeps_only_itself_waiting() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let parts: Vec<_> = (0..64).map(|seed| noise(64 << 10, seed)).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    tin.upload(&slices).await.unwrap();
    let (ino, version) = tin.create("large").await;
    let pieces = (0..).zip(&parts).map(|(n, bytes)| chunk(n * (64 << 10), bytes)).collect();
    let attr = done(&tin.apply(store(ino, version, 64 * (64 << 10), pieces)).await, ino);
    let (version, len) = (attr.data_version, attr.size);
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let (peer, ask) = (tin.peer.clone(), Fetch { ino, version, offset: 0, len });
            tokio::spawn(async move { peer.call(&Request::Fetch(ask), Body::Empty).await })
        })
        .collect();
    let mut zinc = server.client("zinc", Role::Writer).await;
    for name in ["some", "more", "names"] {
        goes_on(&mut zinc, name).await;
        assert_eq!(zinc.attr(Ino::ROOT).await.nlink, 2);
    }
    asking.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A host had one file of many small extents cloned a hundred times in one APPLY, and the server
/// held all rows of that in memory. It stops, and the rest is sent again.
#[tokio::test]
async fn what_one_batch_writes_has_an_end() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (from, mut version) = tin.create("from").await;
    for part in 0..10 {
        let at = |number: u64| (part * 120 + number) * 8_000;
        let pieces = (0..120).map(|number| inline(at(number), &noise(8_000, number))).collect();
        version = done(&tin.apply(store(from, version, at(120), pieces)).await, from).data_version;
    }
    let mut records = Vec::new();
    for number in 0..4 {
        let (ino, creation) = tin.creation(&format!("copy-{number}"));
        records.push(tin.stamp(creation));
        let base = Base::Result(tin.seq);
        records.push(tin.stamp(Record::Clone { ino, base, from, version }));
    }
    let mut counts = Vec::new();
    while !records.is_empty() {
        let outcomes = tin.send(records.clone()).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done { .. })));
        counts.push(outcomes.len());
        records.drain(..outcomes.len());
    }
    assert_eq!(counts, [2, 2, 2, 2]);
    let copy = tin.lookup("copy-3").await.unwrap();
    assert_eq!(copy.size, 120 * 10 * 8_000);
}

/// A host may limit what is sent to it from before its hello on. Whatever it says it is sent a KiB
/// a second, and others are served as ever.
#[tokio::test]
async fn a_host_is_sent_no_more_than_it_wants_and_some_in_any_case() {
    let server = Server::start().await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    let (small, large) = (noise(1_500, 1), noise(200_000, 2));
    zinc.upload(&[&small, &large]).await.unwrap();
    let mut files = Vec::new();
    for (name, bytes) in [("small", &small), ("large", &large)] {
        let (ino, version) = zinc.create(name).await;
        let size = bytes.len() as u64;
        done(&zinc.apply(store(ino, version, size, vec![chunk(0, bytes)])).await, ino);
        files.push(ino);
    }
    let tin = server.host("tin", Role::Writer).await;
    let peer = tin.dial().await;
    let limit = |bytes_per_second| Request::Limit(Limit { bytes_per_second, is_background: false });
    assert_eq!(call(&peer, &limit(Some(1))).await, Reply::Limited(()));
    let Reply::Welcome(welcome) = call(&peer, &Request::Hello(tin.hello(7))).await else {
        panic!("not welcome");
    };
    let tin = Client { next_ino: welcome.grants[0].first, welcome, peer: peer.clone(), seq: 0 };
    assert_eq!(tin.content(files[0]).await, small);
    {
        let waiting = tin.content(files[1]);
        tokio::pin!(waiting);
        // It would take minutes.
        tokio::select! {
            bytes = &mut waiting => panic!("{} bytes came at once", bytes.len()),
            () = goes_on(&mut zinc, "while") => {}
        }
        assert_eq!(call(&peer, &limit(None)).await, Reply::Limited(()));
        assert_eq!(waiting.await, large);
    }
}
