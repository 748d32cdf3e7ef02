use std::sync::Arc;

use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};
use segue_core::nouns::Class;
use segue_core::wire::MESSAGE_MAX;

use tokio::time::timeout;

use super::*;
use crate::close::StreamCode;
use crate::handshakes::HANDSHAKES_MAX;
use crate::identity::SERVER_NAME;
use crate::tls::{self, Pin};

/// An enrolled host that sends arbitrary bytes.
pub(super) async fn raw(world: &World, address: SocketAddr) -> Connection {
    knock(world, address, Some(&world.identity)).await.unwrap()
}

async fn knock(
    world: &World,
    address: SocketAddr,
    identity: Option<&Identity>,
) -> Result<Connection, ConnectionError> {
    let pin = Pin::new(world.authority.fingerprint());
    let tls = tls::client(pin, identity).unwrap();
    let config = ClientConfig::new(Arc::new(tls));
    let endpoint = Endpoint::client(loopback(0)).unwrap();
    endpoint.connect_with(config, address, SERVER_NAME).unwrap().await
}

pub(super) fn framed(class: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_le_bytes()[..], &[class], message].concat()
}

/// `actual` zeros that are announced to be `announced`.
pub(super) fn packed(announced: u32, actual: usize) -> Vec<u8> {
    let stored = zstd::bulk::compress(&vec![0; actual], 3).unwrap();
    framed(0x80, &[&announced.to_le_bytes()[..], &stored].concat())
}

#[tokio::test]
async fn head_that_makes_no_sense_ends_its_stream_only() {
    let world = World::new();
    let listener = world.listen();
    let hostile = raw(&world, listener.local_address()).await;
    tokio::spawn(echo(listener.accept().await.unwrap()));
    let over = u32::try_from(MESSAGE_MAX).unwrap() + 1;
    let heads = [
        [&over.to_le_bytes()[..], &[0]].concat(),
        [&u32::MAX.to_le_bytes()[..], &[0]].concat(),
        framed(0, b""),
        framed(0, b"\xff\xff garbage"),
        framed(0, &[10, 0]),
        framed(6, &getattr(1).encode().unwrap()),
        framed(254, b""),
        // Compressed: no length, one that is not shorter, too long, no frame, another length, and a
        // bomb.
        framed(0x80, b"\x09\0"),
        framed(0x80, b"\x02\0\0\0ab"),
        framed(0x80, &[&over.to_le_bytes()[..], b"ab"].concat()),
        framed(0x80, b"\xff\0\0\0 garbage"),
        packed(1001, 1000),
        packed(1 << 20, 64 << 20),
    ];
    for head in heads {
        let (mut send, mut receive) = hostile.open_bi().await.unwrap();
        send.write_all(&head).await.unwrap();
        let error = receive.read_to_end(100).await.unwrap_err();
        let quinn::ReadToEndError::Read(quinn::ReadError::Reset(code)) = error else {
            panic!("{head:?}: {error:?}");
        };
        assert_eq!(StreamCode::from_wire(code), StreamCode::Protocol, "{head:?}");
    }
    let (mut send, mut receive) = hostile.open_bi().await.unwrap();
    send.write_all(&framed(0, &getattr(5).encode().unwrap())).await.unwrap();
    send.finish().unwrap();
    let reply = receive.read_to_end(1000).await.unwrap();
    assert_eq!(Reply::decode(&reply[5..]).unwrap(), answer("5"));
}

#[tokio::test]
async fn lane_that_makes_no_sense_ends_its_connection() {
    let world = World::new();
    let listener = world.listen();
    let lane = framed(255, b"");
    let frames = [
        b"\xff\xff\xff\xff".to_vec(),
        b"\0\0\0\0".to_vec(),
        b"\x02\0\0\0\0\0".to_vec(),
        b"\x05\0\0\0\x01\0\0\0\0".to_vec(),
        b"\x01\0\0\0\x07".to_vec(),
        b"\x0a\0\0\0\x02\0\0\0\0\0\0\0\0\x06".to_vec(),
    ];
    for frame in frames {
        let hostile = raw(&world, listener.local_address()).await;
        tokio::spawn(echo(listener.accept().await.unwrap()));
        let (mut send, _receive) = hostile.open_bi().await.unwrap();
        send.write_all(&[&lane[..], &frame].concat()).await.unwrap();
        let closed = timeout(PATIENCE, hostile.closed()).await.unwrap();
        let reason = CloseReason::from(closed);
        assert!(
            matches!(reason, CloseReason::Closed { code: CloseCode::Protocol, .. }),
            "{frame:?}: {reason:?}"
        );
    }
}

#[tokio::test]
async fn there_is_one_lane() {
    let world = World::new();
    let listener = world.listen();
    let hostile = raw(&world, listener.local_address()).await;
    tokio::spawn(echo(listener.accept().await.unwrap()));
    let (mut first, _answers) = hostile.open_bi().await.unwrap();
    first.write_all(&framed(255, b"")).await.unwrap();
    let (mut second, mut refused) = hostile.open_bi().await.unwrap();
    second.write_all(&framed(255, b"")).await.unwrap();
    refused.read_to_end(100).await.unwrap_err();
}

#[tokio::test]
async fn truncated_heads_end_their_streams() {
    let world = World::new();
    let listener = world.listen();
    let hostile = raw(&world, listener.local_address()).await;
    tokio::spawn(echo(listener.accept().await.unwrap()));
    let whole = framed(0, &getattr(5).encode().unwrap());
    for length in 0..whole.len() {
        let (mut send, mut receive) = hostile.open_bi().await.unwrap();
        send.write_all(&whole[..length]).await.unwrap();
        send.finish().unwrap();
        receive.read_to_end(100).await.unwrap_err();
    }
}

#[tokio::test]
async fn heads_that_never_end_hold_up_nobody_else() {
    let world = World::new();
    let listener = world.listen();
    let hostile = raw(&world, listener.local_address()).await;
    tokio::spawn(echo(listener.accept().await.unwrap()));
    let longest = u32::try_from(MESSAGE_MAX).unwrap();
    let mut held = Vec::new();
    for _ in 0..100 {
        let (mut send, receive) = hostile.open_bi().await.unwrap();
        send.write_all(&[&longest.to_le_bytes()[..], &[0], &[0; 100]].concat()).await.unwrap();
        held.push((send, receive));
    }
    // On the same connection small messages pass, and others see nothing of it.
    let (mut send, mut receive) = hostile.open_bi().await.unwrap();
    send.write_all(&framed(0, &getattr(5).encode().unwrap())).await.unwrap();
    send.finish().unwrap();
    receive.read_to_end(1000).await.unwrap();
    let client = world.dial(listener.local_address()).await;
    tokio::spawn(echo(listener.accept().await.unwrap()));
    client.call(&getattr(6), Body::Empty).await.unwrap();
}

#[tokio::test]
async fn reply_that_makes_no_sense_is_an_error() {
    let world = World::new();
    let listener = world.listen();
    let hostile = raw(&world, listener.local_address()).await;
    let peer = listener.accept().await.unwrap();
    for reply in [framed(0, b"\xff\xff"), vec![0xff; 10], vec![1, 0]] {
        let calling = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call_at(Class::Fetch, &getattr(1), Body::Empty).await.map(drop) }
        });
        let (mut send, _receive) = hostile.accept_bi().await.unwrap();
        send.write_all(&reply).await.unwrap();
        send.finish().unwrap();
        let error = calling.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Protocol(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_stranger_sends_no_long_messages() {
    let world = World::new();
    let listener = world.listen();
    let stranger = knock(&world, listener.local_address(), None).await.unwrap();
    tokio::spawn(echo(listener.accept().await.unwrap()));
    let (mut send, mut receive) = stranger.open_bi().await.unwrap();
    send.write_all(&packed((64 << 10) + 1, (64 << 10) + 1)).await.unwrap();
    receive.read_to_end(100).await.unwrap_err();
    for (length, is_taken) in [(64_u32 << 10, true), ((64 << 10) + 1, false)] {
        let (mut send, mut receive) = stranger.open_bi().await.unwrap();
        send.write_all(&[&length.to_le_bytes()[..], &[0]].concat()).await.unwrap();
        if is_taken {
            // Its bytes are waited for.
            continue;
        }
        receive.read_to_end(100).await.unwrap_err();
    }
    let (mut send, mut receive) = stranger.open_bi().await.unwrap();
    send.write_all(&framed(0, &getattr(5).encode().unwrap())).await.unwrap();
    send.finish().unwrap();
    receive.read_to_end(1000).await.unwrap();
}

/// So long somebody who gets no place is waited for.
const KNOCKS: Duration = Duration::from_secs(3);

#[tokio::test]
async fn hosts_beyond_what_can_shake_hands_are_refused_and_come_in_later() {
    let world = Arc::new(World::new());
    let listener = world.listen();
    let address = listener.local_address();
    let mut knocking = Vec::new();
    for _ in 0..HANDSHAKES_MAX + 100 {
        let world = world.clone();
        knocking.push(tokio::spawn(async move {
            tokio::time::timeout(KNOCKS, knock(&world, address, None))
                .await
                .is_ok_and(|in_| in_.is_ok())
        }));
    }
    let mut inside = Vec::new();
    for knocking in knocking {
        inside.push(knocking.await.unwrap());
    }
    assert!(inside.contains(&false), "nobody accepts, and all are in");
    tokio::spawn(async move {
        while let Some(peer) = listener.accept().await {
            tokio::spawn(echo(peer));
        }
    });
    let client = loop {
        match dial(&world.target(address), Some(&world.identity), PATIENCE).await {
            Ok(client) => break client,
            Err(error) => assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}"),
        }
    };
    client.call(&getattr(6), Body::Empty).await.unwrap();
}
