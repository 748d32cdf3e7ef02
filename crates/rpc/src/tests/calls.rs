use bytes::Bytes;
use segue_core::nouns::Class;
use segue_core::wire::{Offer, Put};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::hostile::{framed, raw};
use super::*;
use crate::body::BUFFER_BYTES;
use crate::transport::STREAMS_MAX;

const LARGE: usize = 64 << 20;

/// `length` bytes that tell where they belong.
fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<u8>>().into()
}

#[tokio::test]
async fn both_sides_may_call() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(client.clone()));
    tokio::spawn(echo(server.clone()));
    for (peer, number) in [(&client, 1), (&server, 2), (&client, 3)] {
        let body = pattern(100 * number);
        let response = peer.call(&getattr(number as u64), body.clone().into()).await.unwrap();
        assert_eq!(response.reply, answer(number.to_string()));
        assert_eq!(response.body.collect(1000).await.unwrap(), body);
    }
    assert_eq!(server.identity().unwrap().name, "laptop");
    assert_eq!(server.identity().unwrap().fingerprint, world.identity.fingerprint());
}

/// Each call told the other side twice to stop what had ended already, its request's stream and
/// its reply's: two packets, and two that acknowledge them.
#[tokio::test]
async fn what_has_ended_is_not_stopped() {
    let world = World::new();
    let listener = world.listen();
    let client = raw(&world, listener.local_address()).await;
    let server = listener.accept().await.unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            incoming.reply(answer("here"), Body::Empty).await.unwrap();
        }
    });
    for number in 0..10 {
        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write_all(&framed(0, &getattr(number).encode().unwrap())).await.unwrap();
        send.finish().unwrap();
        let reply = receive.read_to_end(1000).await.unwrap();
        assert_eq!(Reply::decode(&reply[5..]).unwrap(), answer("here"));
    }
    assert_eq!(client.stats().frame_rx.stop_sending, 0);
}

#[tokio::test]
async fn large_message_needs_no_body() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(server));
    let pair = (segue_core::nouns::Fingerprint([7; 32]), segue_core::nouns::Fingerprint([9; 32]));
    let request = Request::Offer(Offer { chunks: vec![pair; 100_000] });
    let response = client.call(&request, Body::Empty).await.unwrap();
    assert_eq!(response.reply, answer("Offer"));
    let request = Request::Offer(Offer { chunks: vec![pair; 300_000] });
    let error = client.call(&request, Body::Empty).await.unwrap_err();
    assert_eq!(error, CallError::TooLarge);
}

#[tokio::test]
async fn large_bodies_stream_both_ways_in_bounded_memory() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(server));
    let (sender, body) = Body::channel();
    let piece = pattern(1 << 20);
    let produced = tokio::spawn({
        let (piece, client) = (piece.clone(), client.clone());
        async move {
            for _ in 0..LARGE / piece.len() {
                sender.send(piece.clone()).await.unwrap();
                // The body's buffer waits, not the body.
                let queued: u64 = client.stats().queued.iter().sum();
                assert!(queued <= 2 * BUFFER_BYTES as u64, "{queued}");
            }
            sender.finish().await.unwrap();
        }
    });
    let response = client.call_at(Class::StoreData, &getattr(1), body).await.unwrap();
    let (mut hash, mut length, mut body) = (blake3::Hasher::new(), 0, response.body);
    while let Some(piece) = body.next().await.unwrap() {
        hash.update(&piece);
        length += piece.len();
    }
    produced.await.unwrap();
    assert_eq!(length, LARGE);
    let mut expected = blake3::Hasher::new();
    (0..LARGE / piece.len()).for_each(|_| {
        expected.update(&piece);
    });
    assert_eq!(hash.finalize(), expected.finalize());
    let stats = client.stats();
    assert!(stats.sent[Class::StoreData as usize] >= LARGE as u64);
    assert_eq!(stats.body_bytes, LARGE as u64);
    assert_eq!(stats.queued, [0; 6]);
}

#[tokio::test]
async fn many_calls_at_once_get_their_own_replies() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(server));
    let calls: Vec<_> = (0..4 * STREAMS_MAX as usize)
        .map(|number| {
            let client = client.clone();
            let class = Class::ALL[number % Class::ALL.len()];
            tokio::spawn(async move {
                let body = pattern(number * 10);
                let request = getattr(number as u64);
                let response = client.call_at(class, &request, body.clone().into()).await.unwrap();
                assert_eq!(response.reply, answer(number.to_string()));
                assert_eq!(response.body.collect(1 << 20).await.unwrap(), body);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn body_that_breaks_off_is_cut_and_not_short() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let (sender, body) = Body::channel();
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call(&getattr(1), body).await }
    });
    sender.send(pattern(1000)).await.unwrap();
    let Incoming { mut body, responder, .. } = server.accept().await.unwrap();
    body.next().await.unwrap().unwrap();
    drop(sender);
    assert_eq!(body.collect(2000).await.unwrap_err(), BodyError::Cut);
    responder.reply(answer("cut"), Body::Empty).await.unwrap();
    assert_eq!(calling.await.unwrap().unwrap().reply, answer("cut"));
}

#[tokio::test]
async fn body_over_the_limit_is_refused_by_its_reader() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(server));
    let response = client.call(&getattr(1), pattern(1001).into()).await.unwrap();
    let error = response.body.collect(1000).await.unwrap_err();
    assert_eq!(error, BodyError::TooLong { limit: 1000 });
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_other_side() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let (_sender, body) = Body::channel();
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call(&getattr(1), body).await.map(drop) }
    });
    let Incoming { mut body, responder, .. } = server.accept().await.unwrap();
    calling.abort();
    assert_eq!(body.next().await.unwrap_err(), BodyError::Cut);
    // The answer finds nobody, sooner or later: its stream was stopped.
    let (sender, reply) = Body::channel();
    let replied = tokio::spawn(responder.reply(answer("late"), reply));
    while sender.send(pattern(1000)).await.is_ok() {}
    assert_eq!(replied.await.unwrap().unwrap_err(), CallError::Cancelled);
    // Others go on.
    tokio::spawn(echo(server));
    client.call(&getattr(2), Body::Empty).await.unwrap();
}

#[tokio::test]
async fn dropped_reply_body_stops_its_sender() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let replied = tokio::spawn(async move {
        let incoming = server.accept().await.unwrap();
        let (sender, body) = Body::channel();
        let replied = tokio::spawn(incoming.reply(answer("long"), body));
        while sender.send(pattern(100_000)).await.is_ok() {}
        replied.await.unwrap()
    });
    let mut response = client.call_at(Class::Fetch, &getattr(1), Body::Empty).await.unwrap();
    response.body.next().await.unwrap().unwrap();
    drop(response);
    assert_eq!(replied.await.unwrap().unwrap_err(), CallError::Cancelled);
}

#[tokio::test]
async fn request_without_answer_ends() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(async move { while server.accept().await.is_some() {} });
    let put = Request::Put(Put::default());
    let error = client.call(&put, pattern(10 << 20).into()).await.unwrap_err();
    assert_eq!(error, CallError::NoAnswer);
}

#[tokio::test]
async fn reader_that_stops_delays_nobody_else() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    // Three bodies are accepted and not read; they fill their windows.
    let stalled: Vec<_> = (0..3)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let body = pattern(LARGE).into();
                client.call_at(Class::Validate, &getattr(number), body).await.map(drop)
            })
        })
        .collect();
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(server.accept().await.unwrap());
    }
    tokio::spawn(echo(server));
    let request = getattr(9);
    let calling = client.call_at(Class::Prefetch, &request, pattern(1 << 20).into());
    let response = timeout(PATIENCE, calling).await.unwrap().unwrap();
    assert_eq!(response.body.collect(1 << 20).await.unwrap().len(), 1 << 20);
    stalled.iter().for_each(|call| call.abort());
}

/// What is read ahead is answered when nobody waits for anything, and held the places of write-back
/// until then.
#[tokio::test]
async fn prefetch_that_is_not_answered_delays_no_write_back() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let mut ahead = JoinSet::new();
    for number in 0..300 {
        let client = client.clone();
        ahead.spawn(async move {
            client.call_at(Class::Prefetch, &getattr(number), Body::Empty).await.map(drop)
        });
    }
    let mut unanswered = vec![server.accept().await.unwrap()];
    tokio::task::yield_now().await;
    for class in [Class::StoreAttr, Class::StoreFast, Class::StoreData] {
        let request = getattr(1000 + class as u64);
        let calling = tokio::spawn({
            let (client, request) = (client.clone(), request.clone());
            async move { client.call_at(class, &request, Body::Empty).await.map(drop) }
        });
        loop {
            let incoming = timeout(PATIENCE, server.accept()).await.unwrap().unwrap();
            if incoming.request == request {
                incoming.reply(answer("x"), Body::Empty).await.unwrap();
                break;
            }
            unanswered.push(incoming);
        }
        calling.await.unwrap().unwrap();
    }
    // Nor does it take the places of demand fetches.
    assert!(unanswered.len() <= 64, "{}", unanswered.len());
}

#[tokio::test]
async fn words_of_a_close_reach_the_other_side() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call(&getattr(1), Body::Empty).await.map(drop) }
    });
    let _incoming = server.accept().await.unwrap();
    server.close(CloseCode::Denied, "revoked");
    let reason = CloseReason::Closed { code: CloseCode::Denied, words: "revoked".into() };
    assert_eq!(calling.await.unwrap().unwrap_err(), CallError::Lost(reason.clone()));
    assert_eq!(client.closed().await, reason);
    assert_eq!(server.closed().await, CloseReason::Here);
    assert!(server.accept().await.is_none());
}

#[tokio::test]
async fn last_handle_dropped_closes_the_connection() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    drop(client);
    let reason = CloseReason::Closed { code: CloseCode::Done, words: String::new() };
    assert_eq!(server.closed().await, reason);
}
