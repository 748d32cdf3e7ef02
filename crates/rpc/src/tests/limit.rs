use std::time::Instant;

use segue_core::nouns::Class;
use segue_core::sched::Discipline;

use super::*;

const BULK: usize = 300_000;
const RATE: u64 = 200_000;

/// Sends `BULK` bytes at the class of write-back, and gets them back.
async fn store(client: &Peer) {
    let body = Body::from(vec![0x5a; BULK]);
    let response = client.call_at(Class::StoreData, &getattr(1), body).await.unwrap();
    assert_eq!(response.body.collect(BULK).await.unwrap().len(), BULK);
}

/// Bulk takes the time that the limit gives it, whichever side sends, and questions are answered
/// meanwhile, as on a link that is as fast. Without a limit it goes on at once.
#[tokio::test]
async fn a_limit_holds_for_bulk_and_is_lifted() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(server.clone()));
    client.limit(Some(RATE));
    let began = Instant::now();
    let storing = tokio::spawn({
        let client = client.clone();
        async move { store(&client).await }
    });
    let mut asked = 0;
    while !storing.is_finished() {
        client.call(&getattr(2), Body::Empty).await.unwrap();
        asked += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let taken = began.elapsed();
    // A fiftieth of a second may go at once.
    assert!(taken > Duration::from_secs_f64(BULK as f64 / RATE as f64 - 0.05), "{taken:?}");
    assert!(asked > 10, "{asked}");

    let storing = tokio::spawn({
        let client = client.clone();
        client.limit(Some(1_000));
        async move { store(&client).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!storing.is_finished() && client.stats().queued[Class::StoreData as usize] > 0);
    client.limit(None);
    storing.await.unwrap();
}

/// Both ends report their sent bytes and messages of each class.
#[tokio::test]
async fn messages_are_counted_by_class() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(echo(server.clone()));
    store(&client).await;
    for number in 0..3 {
        client.call(&getattr(number), Body::Empty).await.unwrap();
    }
    for stats in [client.stats(), server.stats()] {
        assert_eq!(stats.sent_messages, [3, 0, 0, 0, 1, 0]);
        assert!(stats.sent[Class::Validate as usize] > 0);
        assert!(stats.base_rtt.is_some());
    }
}

/// Small answers of the server had a class of their own although its client was uniform.
#[tokio::test]
async fn uniform_on_both_sides_has_one_class() {
    let world = World::new();
    let options = Options { discipline: Discipline::Uniform, ..Options::default() };
    let listener = Listener::bind(loopback(0), &world.authority, &options).unwrap();
    let target = Target { options, ..world.target(listener.local_address()) };
    let client = dial(&target, Some(&world.identity), PATIENCE).await.unwrap();
    let server = listener.accept().await.unwrap();
    tokio::spawn(echo(server.clone()));
    store(&client).await;
    client.call(&getattr(1), Body::Empty).await.unwrap();
    for stats in [client.stats(), server.stats()] {
        for (class, messages) in Class::ALL.into_iter().zip(stats.sent_messages) {
            assert_eq!(messages > 0, class == Class::Fetch, "{class:?}: {messages}");
        }
    }
}
