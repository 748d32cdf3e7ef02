use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use segue_core::nouns::Class;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::relay::Relay;
use super::*;

const BULK: usize = 8 << 20;

/// Both ends of a connection over a link that bulk takes a while on.
struct Slow {
    client: Peer,
    server: Peer,
    _listener: Listener,
    _relay: Relay,
}

impl Slow {
    async fn new(world: &World) -> Slow {
        let listener = world.listen();
        let relay = Relay::to(listener.local_address()).await;
        let client = world.dial(relay.address).await;
        let server = listener.accept().await.unwrap();
        Slow { client, server, _listener: listener, _relay: relay }
    }
}

/// Reads a body, and returns once it has begun: its bytes as they arrive.
async fn begun(mut body: BodyReader) -> Arc<AtomicUsize> {
    let (count, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counting, beginning) = (count.clone(), begun.clone());
    tokio::spawn(async move {
        while let Ok(Some(piece)) = body.next().await {
            counting.fetch_add(piece.len(), SeqCst);
            beginning.notify_one();
        }
    });
    begun.notified().await;
    count
}

/// Answers calls of these classes with bulk, and others with none.
async fn give_bulk(server: Peer, classes: &'static [Class]) {
    while let Some(incoming) = server.accept().await {
        let is_bulk = classes.contains(&incoming.class);
        let body = if is_bulk { bulk() } else { Body::Empty };
        tokio::spawn(incoming.reply(answer("x"), body));
    }
}

fn bulk() -> Body {
    vec![0x5a; BULK].into()
}

/// Begins to store bulk, which goes on for as long as the task and the responder are kept; the
/// bytes of it that have arrived.
async fn store_bulk(client: &Peer, server: &Peer) -> (Arc<AtomicUsize>, (JoinSet<()>, Responder)) {
    let mut storing = JoinSet::new();
    let client = client.clone();
    storing.spawn(async move {
        // It is given up with the test.
        client.call_at(Class::StoreData, &getattr(1), bulk()).await.ok();
    });
    let Incoming { body, responder, .. } = server.accept().await.unwrap();
    (begun(body).await, (storing, responder))
}

#[tokio::test]
async fn urgent_call_overtakes_a_bulk_request() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    let (arrived, _storing) = store_bulk(&client, &server).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.call(&getattr(2), Body::Empty).await.map(drop) }
    });
    let incoming = server.accept().await.unwrap();
    assert_eq!(incoming.request, getattr(2));
    // All that may be ahead of it had left the host; the rest of the bulk had not.
    let ahead = arrived.load(SeqCst);
    assert!(ahead < BULK / 2, "{ahead} bytes of bulk came first");
    incoming.reply(answer("2"), Body::Empty).await.unwrap();
    asking.await.unwrap().unwrap();
}

/// Or the link would bring nothing while something goes up.
#[tokio::test]
async fn a_question_ahead_of_time_overtakes_a_bulk_request() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    let (arrived, _storing) = store_bulk(&client, &server).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.call_at(Class::Prefetch, &getattr(2), Body::Empty).await.map(drop) }
    });
    let incoming = server.accept().await.unwrap();
    // Its answer comes at its class all the same.
    assert_eq!((incoming.request.clone(), incoming.class), (getattr(2), Class::Prefetch));
    let ahead = arrived.load(SeqCst);
    assert!(ahead < BULK / 2, "{ahead} bytes of bulk came first");
    incoming.reply(answer("2"), Body::Empty).await.unwrap();
    asking.await.unwrap().unwrap();
}

#[tokio::test]
async fn urgent_reply_overtakes_a_bulk_reply() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    tokio::spawn(give_bulk(server, &[Class::Prefetch]));
    let prefetch = client.call_at(Class::Prefetch, &getattr(1), Body::Empty).await.unwrap();
    let arrived = begun(prefetch.body).await;
    client.call(&getattr(2), Body::Empty).await.unwrap();
    let ahead = arrived.load(SeqCst);
    assert!(ahead < BULK / 2, "{ahead} bytes of bulk came first");
}

#[tokio::test]
async fn raised_request_overtakes() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    let rpcs = [Rpc::new(Class::StoreData), Rpc::new(Class::StoreData)];
    let storing = rpcs.clone().map(|rpc| {
        let client = client.clone();
        tokio::spawn(async move { client.call_as(&rpc, &getattr(1), bulk()).await.map(drop) })
    });
    let Incoming { body, responder: _unanswered, .. } = server.accept().await.unwrap();
    let first = begun(body).await;
    rpcs[1].raise(Class::Fetch);
    let second = server.accept().await.unwrap();
    second.body.collect(BULK).await.unwrap();
    let ahead = first.load(SeqCst);
    assert!(ahead < BULK / 2, "{ahead} bytes came first");
    for storing in storing {
        storing.abort();
    }
}

#[tokio::test]
async fn raised_reply_overtakes_while_it_is_sent() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    tokio::spawn(give_bulk(server, &[Class::Fetch, Class::Prefetch]));
    let rpcs = [Rpc::new(Class::Prefetch), Rpc::new(Class::Prefetch)];
    let reply = client.call_as(&rpcs[0], &getattr(1), Body::Empty).await.unwrap();
    let first = begun(reply.body).await;
    let asking = tokio::spawn({
        let (client, rpc) = (client.clone(), rpcs[1].clone());
        async move {
            let reply = client.call_as(&rpc, &getattr(2), Body::Empty).await.unwrap();
            reply.body.collect(BULK).await.unwrap()
        }
    });
    // Its request may be on its way still, or its answer begun.
    tokio::task::yield_now().await;
    rpcs[1].raise(Class::Fetch);
    asking.await.unwrap();
    let ahead = first.load(SeqCst);
    assert!(ahead < BULK / 2, "{ahead} bytes came first");
}

#[tokio::test]
async fn cancelled_reply_leaves_its_place() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    tokio::spawn(give_bulk(server, &[Class::Fetch, Class::Prefetch]));
    let mut first = client.call_at(Class::Fetch, &getattr(1), Body::Empty).await.unwrap().body;
    first.next().await.unwrap().unwrap();
    let received = client.stats().received_bytes;
    drop(first);
    let second = client.call_at(Class::Fetch, &getattr(2), Body::Empty).await.unwrap();
    second.body.collect(BULK).await.unwrap();
    let received = client.stats().received_bytes - received;
    assert!(received < (BULK + BULK / 2) as u64, "{received} bytes came for {BULK}");
}

#[tokio::test]
async fn small_answer_to_bulk_does_not_wait_for_bulk_the_other_way() {
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    tokio::spawn(give_bulk(server, &[Class::Fetch]));
    let fetched = client.call_at(Class::Fetch, &getattr(1), Body::Empty).await.unwrap();
    let arrived = begun(fetched.body).await;
    client.call_at(Class::StoreData, &getattr(2), vec![1; 1000].into()).await.unwrap();
    let ahead = arrived.load(SeqCst);
    assert!(ahead < BULK / 2, "{ahead} bytes of bulk came first");
}

/// A batch of records is answered with more than a packet, and the next one waits for that.
/// Write-back stood still for as long as others read.
#[tokio::test]
async fn an_answer_to_a_store_comes_while_others_fetch_without_end() {
    const FETCHES: usize = 200;
    let world = World::new();
    let Slow { client, server, _listener, _relay } = Slow::new(&world).await;
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let (words, body) = match incoming.class {
                Class::Fetch => ("x".to_owned(), vec![0x5a; 64 << 10].into()),
                _ => ("y".repeat(4 << 10), Body::Empty),
            };
            tokio::spawn(incoming.reply(answer(words), body));
        }
    });
    let fetched = Arc::new(AtomicUsize::new(0));
    let mut fetching = JoinSet::new();
    // One is always on its way while another begins.
    for _ in 0..4 {
        let (client, fetched) = (client.clone(), fetched.clone());
        fetching.spawn(async move {
            while fetched.fetch_add(1, SeqCst) < FETCHES {
                let reply = client.call_at(Class::Fetch, &getattr(1), Body::Empty).await.unwrap();
                reply.body.collect(BULK).await.unwrap();
            }
        });
    }
    while fetched.load(SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    client.call_at(Class::StoreAttr, &getattr(2), Body::Empty).await.unwrap();
    let ahead = fetched.load(SeqCst);
    assert!(ahead < FETCHES / 2, "{ahead} fetches came first");
}
