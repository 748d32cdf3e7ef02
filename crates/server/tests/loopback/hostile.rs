//! An enrolled host that sends what is almost right: it is answered, refused or shut out, no task
//! of the server panics, others are served, and the volume fits together afterwards.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use segue_core::chunk::fingerprint;
use segue_core::nouns::{Outcome, Role, Version};
use segue_core::wire::{Apply, Put, Reply, Request, Stored};
use segue_rpc::codec::{BLOCK_MAX, encode_block};
use segue_rpc::{Body, CallError};
use tokio::time::timeout;

use crate::harness::{Client, Server, apply, chunk, done, http, noise, store};

#[path = "../../../rpc/src/tests/mutation.rs"]
mod mutation;

/// Requests that wait for what never comes are let go after so long.
const WAIT: Duration = Duration::from_millis(100);
/// Whoever takes this long hangs.
const HANGS: Duration = Duration::from_secs(60);
/// A request in so many lets somebody else ask, too.
const OTHERS: usize = 20;

/// How often the code of the server, or any task beside the tests, has panicked so far.
fn panics() -> u64 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Tests that fail are reported as such.
            if panic.location().is_none_or(|place| !place.file().contains("tests/")) {
                PANICS.fetch_add(1, Relaxed);
            }
            tell(panic);
        }));
    });
    PANICS.load(Relaxed)
}

/// Every request of `core/tests/wire.golden`, and some that this session may well send.
fn requests(client: &mut Client) -> Vec<Vec<u8>> {
    let golden = include_str!("../../../core/tests/wire.golden");
    let hex = |digits: &str| -> Vec<u8> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.as_bytes().chunks(2).map(|pair| byte(pair).unwrap()).collect()
    };
    let lines = golden.lines().filter(|line| line.starts_with("request "));
    let mut requests: Vec<Vec<u8>> =
        lines.map(|line| hex(line.rsplit(' ').next().unwrap())).collect();
    for name in ["one", "two", "three"] {
        let (ino, creation) = client.creation(name);
        let creation = client.stamp(creation);
        let pieces = vec![chunk(0, &noise(100, 1))];
        let version = Version::default();
        let stored = client.stamp(store(ino, version, 100, pieces));
        requests.push(apply(vec![creation, stored]).encode().unwrap());
    }
    requests
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let block = encode_block(&noise(100, 1));
    prop_oneof![
        2 => Just(Vec::new()),
        1 => mutation::mutated(vec![block, encode_block(&[7; 9_000]), Vec::new()]),
    ]
}

/// Hears that what was promised has changed, as every host does: one that does not is shut out.
fn hear_breaks(client: &Client) {
    let peer = client.peer.clone();
    tokio::spawn(async move {
        while let Some(incoming) = peer.accept().await {
            // It fails when the server has gone away.
            let _ = incoming.reply(Reply::Broken(()), Body::Empty).await;
        }
    });
}

/// A file of somebody else can be written and read.
async fn goes_on(client: &mut Client, name: &str) {
    let bytes = noise(5_000, name.len() as u64);
    client.upload(&[&bytes]).await.unwrap();
    let (ino, version) = client.create(name).await;
    done(&client.apply(store(ino, version, 5_000, vec![chunk(0, &bytes)])).await, ino);
    assert_eq!(client.content(ino).await, bytes);
}

/// What the volume's check says.
async fn check(server: &Server) {
    let request = r#"{"volume":"home","quick":false,"rate_bytes":null}"#;
    let answer = http(&server.data(), "POST", "/v1/check", request).await;
    assert!(answer.contains(r#""ok":true"#), "{answer}");
}

#[tokio::test]
async fn requests_that_are_almost_right_harm_nobody() {
    let before = panics();
    let server = Server::start().await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    hear_breaks(&zinc);
    let tin = server.host("tin", Role::Writer).await;
    let mut ids = 3..u8::MAX;
    let mut hostile = tin.client(1).await;
    let strategy = (mutation::mutated(requests(&mut hostile)), body());
    let mut runner = TestRunner::deterministic();
    let (mut sent, mut ended) = (0, 0);
    while sent < Config::default().cases as usize {
        let (bytes, body) = strategy.new_tree(&mut runner).unwrap().current();
        // What does not decode goes no further than its stream (`segue-rpc`, attacks).
        let Ok(request) = Request::decode(&bytes) else { continue };
        sent += 1;
        match timeout(WAIT, hostile.peer.call(&request, body.into())).await {
            Ok(Err(CallError::Lost(_))) => {
                ended += 1;
                // It may have ended because there seemed to be two of it.
                let id = ids.next().unwrap();
                hostile = timeout(HANGS, tin.client(id)).await.unwrap();
            }
            Ok(Ok(response)) => drop(timeout(WAIT, response.body.collect(BLOCK_MAX)).await),
            // It waits for changes, or its body is not there.
            _ => {}
        }
        if sent % OTHERS == 0 {
            timeout(HANGS, goes_on(&mut zinc, &format!("zinc-{sent}"))).await.unwrap();
        }
    }
    eprintln!("{sent} requests, {ended} of which ended the session");
    assert_eq!(panics(), before, "a task of the server panicked");
    // Of the cache that sent all this the server may keep outcomes of its own records.
    goes_on(&mut tin.client(2).await, "tin-after").await;
    check(&server).await;
}

/// Bodies that do not go with their requests.
#[tokio::test]
async fn bodies_that_are_not_what_was_said_are_refused() {
    let before = panics();
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let bytes = noise(9_000, 3);
    let (name, long) = (fingerprint(&bytes), bytes.len() as u32);
    let whole = encode_block(&bytes);
    let put = |chunks: Vec<_>| Request::Put(Put { chunks, ..Put::default() });
    let records = || {
        let chunks = vec![(name, long)];
        Request::Apply(Apply { records: Vec::new(), chunks, acked_below: 0, ..Apply::default() })
    };
    let longest = u32::try_from(BLOCK_MAX).unwrap().to_le_bytes();
    let wrong = [
        // Nothing at all, a part, and less than was named.
        (put(vec![(name, long)]), Vec::new()),
        (put(vec![(name, long)]), whole[..whole.len() - 1].to_vec()),
        (put(vec![(name, long), (name, long)]), whole.clone()),
        (records(), Vec::new()),
        // Another length than was named, and lengths that no block has.
        (put(vec![(name, long - 1)]), whole.clone()),
        (put(vec![(name, u32::MAX)]), whole.clone()),
        (put(vec![(name, long)]), vec![0xff; 4_000]),
        // The longest block, of which nothing comes.
        (put(vec![(name, u32::from_le_bytes(longest))]), [longest, longest].concat()),
    ];
    for (number, (request, body)) in wrong.into_iter().enumerate() {
        let answer = timeout(HANGS, tin.peer.call(&request, Body::from(body))).await.unwrap();
        let is_refused =
            matches!(&answer, Ok(response) if matches!(response.reply, Reply::Refused(_)));
        assert!(is_refused || answer.is_err(), "{number}: {answer:?}");
    }
    // More than was named is nobody's.
    let more = [whole.clone(), whole].concat();
    let answer = tin.peer.call(&put(vec![(name, long)]), more.into()).await.unwrap().reply;
    assert_eq!(answer, Reply::Stored(Stored::default()));
    assert_eq!(panics(), before, "a task of the server panicked");
    goes_on(&mut tin, "after").await;
    check(&server).await;
}

/// One request that comes a hundred times, and many at a time, is done once.
#[tokio::test]
async fn requests_that_come_again_and_again_are_done_once() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let bytes = noise(9_000, 3);
    let (ino, creation) = tin.creation("once");
    let records = vec![tin.stamp(creation)];
    let long = bytes.len() as u32;
    let request =
        Request::Apply(Apply { records, chunks: Vec::new(), acked_below: 0, ..Apply::default() });
    let put = Request::Put(Put { chunks: vec![(fingerprint(&bytes), long)], ..Put::default() });
    let calling: Vec<_> = (0..100)
        .map(|_| {
            let (peer, put, body) = (tin.peer.clone(), put.clone(), encode_block(&bytes));
            let request = request.clone();
            tokio::spawn(async move {
                let stored = peer.call(&put, body.into()).await.unwrap().reply;
                assert_eq!(stored, Reply::Stored(Stored::default()));
                peer.call(&request, Body::Empty).await.unwrap().reply
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for calling in calling {
        match calling.await.unwrap() {
            Reply::Applied(applied) => outcomes.extend(applied.outcomes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(outcomes.len(), 100);
    let first = &outcomes[0];
    assert!(matches!(first, Outcome::Done { .. }), "{first:?}");
    assert!(outcomes.iter().all(|outcome| outcome == first), "{outcomes:?}");
    let version = done(first, ino).data_version;
    done(&tin.apply(store(ino, version, long.into(), vec![chunk(0, &bytes)])).await, ino);
    assert_eq!(tin.content(ino).await, bytes);
    assert_eq!(tin.lookup("once").await.unwrap().nlink, 1);
    check(&server).await;
}
