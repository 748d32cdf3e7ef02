use segue_core::nouns::Class;
use tokio::task::JoinSet;

use super::*;

#[tokio::test]
async fn answers_find_who_asked_in_whatever_order_they_come() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(incoming) = server.accept().await {
            held.push(incoming);
            if held.len() == 10 {
                for incoming in held.drain(..).rev() {
                    let Request::Getattr(ino) = incoming.request else { panic!() };
                    let reply = answer(ino.0.to_string());
                    incoming.reply(reply, Body::Empty).await.unwrap();
                }
            }
        }
    });
    let mut asking = JoinSet::new();
    for number in 0..1000 {
        let client = client.clone();
        asking.spawn(async move {
            let response = client.call(&getattr(number), Body::Empty).await.unwrap();
            assert_eq!(response.reply, answer(number.to_string()));
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test]
async fn unanswered_small_call_ends_and_the_next_is_answered() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    tokio::spawn(async move {
        drop(server.accept().await.unwrap());
        // Other messages are no small answers.
        let incoming = server.accept().await.unwrap();
        incoming.reply(answer("x"), vec![0; 10].into()).await.unwrap_err();
        echo(server).await;
    });
    for _ in 0..2 {
        let error = client.call(&getattr(1), Body::Empty).await.unwrap_err();
        assert_eq!(error, CallError::NoAnswer);
    }
    assert_eq!(client.call(&getattr(2), Body::Empty).await.unwrap().reply, answer("2"));
}

#[tokio::test]
async fn small_calls_end_with_their_connection() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.call(&getattr(1), Body::Empty).await.map(drop) }
    });
    let _unanswered = server.accept().await.unwrap();
    server.close(CloseCode::Stopping, "so");
    assert!(matches!(waiting.await.unwrap(), Err(CallError::Lost(_))));
    let error = client.call(&getattr(2), Body::Empty).await.unwrap_err();
    assert!(matches!(error, CallError::Lost(_)), "{error:?}");
}

#[tokio::test]
async fn caller_that_reads_no_answers_is_read_no_further() {
    let world = World::new();
    let listener = world.listen();
    let hostile = hostile::raw(&world, listener.local_address()).await;
    let server = listener.accept().await.unwrap();
    let (mut send, _unread) = hostile.open_bi().await.unwrap();
    send.write_all(&hostile::framed(255, b"")).await.unwrap();
    // More calls than may be under way, none of which is answered.
    let message = getattr(1).encode().unwrap();
    let length = u32::try_from(message.len() + 5).unwrap().to_le_bytes();
    for number in 0..1000_u32 {
        let frame = [&length[..], &[0], &number.to_le_bytes(), &message].concat();
        send.write_all(&frame).await.unwrap();
    }
    let mut held = Vec::new();
    while held.len() < crate::lane::CALLS_MAX {
        held.push(server.accept().await.unwrap());
    }
    let next = tokio::time::timeout(Duration::from_millis(200), server.accept()).await;
    assert!(next.is_err(), "more than {} calls are held", held.len());
    // Others are not concerned.
    let client = world.dial(listener.local_address()).await;
    tokio::spawn(echo(listener.accept().await.unwrap()));
    client.call_at(Class::Fetch, &getattr(6), Body::Empty).await.unwrap();
}
