use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use segue_core::nouns::{ClientId, Role};
use segue_core::wire::{Hello, Welcome};
use tokio::runtime::Runtime;

use super::relay::Relay;
use super::*;

/// How often each call was carried out.
type Counts = Arc<Mutex<BTreeMap<u64, usize>>>;

fn hello() -> Hello {
    Hello {
        volume: "home".into(),
        client: ClientId([1; 16]),
        incarnation: 1,
        host: "laptop".into(),
        acked_below: 0,
        next: u64::MAX,
        known: None,
        was: None,
        fresh_start: true,
    }
}

fn greeting() -> Greeting {
    Arc::new(|peer| Box::pin(async move { greet(&peer, hello()).await }))
}

fn welcome() -> Reply {
    Reply::Welcome(Welcome {
        volume_uuid: [2; 16],
        epoch: 1,
        role: Role::Writer,
        grants: Vec::new(),
        nonce: [3; 32],
        commit: 7,
        history: None,
    })
}

/// Greets, counts calls by number, and answers with the number.
async fn serve(listener: Arc<Listener>, counts: Counts) {
    while let Some(peer) = listener.accept().await {
        let counts = counts.clone();
        tokio::spawn(async move {
            while let Some(incoming) = peer.accept().await {
                let reply = match &incoming.request {
                    Request::Hello(_) => welcome(),
                    Request::Getattr(ino) => {
                        *counts.lock().unwrap().entry(ino.0).or_default() += 1;
                        answer(ino.to_string())
                    }
                    other => answer(other.name()),
                };
                let _ = incoming.reply(reply, Body::Empty).await;
            }
        });
    }
}

/// A server in a runtime of its own, so that it can die like a process.
struct Process {
    runtime: Runtime,
    listener: Arc<Listener>,
}

impl Process {
    fn start(world: &World, address: SocketAddr, counts: &Counts) -> Process {
        let runtime = Runtime::new().unwrap();
        let entered = runtime.enter();
        let listener = Arc::new(listen_again(world, address));
        drop(entered);
        runtime.spawn(serve(listener.clone(), counts.clone()));
        Process { runtime, listener }
    }

    /// Ends, and leaves it to chance whether anybody is told.
    async fn kill(self) {
        drop(self.listener);
        let ended = move || self.runtime.shutdown_timeout(PATIENCE);
        tokio::task::spawn_blocking(ended).await.unwrap();
    }
}

/// The port is free once the last task of the server before is gone.
fn listen_again(world: &World, address: SocketAddr) -> Listener {
    for _ in 0..1000 {
        match Listener::bind(address, &world.authority, &Options::default()) {
            Ok(listener) => return listener,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("{address} stays taken");
}

async fn until(link: &Link, wanted: impl Fn(&LinkState) -> bool) -> LinkState {
    link.watch().wait_for(|state| wanted(state)).await.unwrap().clone()
}

fn generation(state: &LinkState) -> u64 {
    match state {
        LinkState::Online { generation, .. } => *generation,
        _ => 0,
    }
}

/// Calls with numbers from `range` until each has its answer.
async fn call_all(link: Link, range: std::ops::Range<u64>) {
    for number in range {
        let response = link.call(&getattr(number), Bytes::new(), PATIENCE).await.unwrap();
        assert_eq!(response.reply, answer(number.to_string()));
    }
}

/// Whoever waited for a change of the link was told at once of what it was already: a mount with
/// changes tried 150 times a second to send them after its identity was revoked.
#[tokio::test]
async fn what_the_link_is_already_is_no_change() {
    let world = World::new();
    let process = Process::start(&world, loopback(0), &Counts::default());
    let address = process.listener.local_address();
    let link = Link::open(world.target(address), world.identity.clone(), greeting());
    until(&link, |state| generation(state) == 1).await;
    let mut watch = link.watch();
    assert!(!watch.has_changed().unwrap());
    process.listener.close(CloseCode::Stopping, "stopping").await;
    watch.changed().await.unwrap();
    assert!(matches!(link.state(), LinkState::Offline { .. }));
    process.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_or_answered_wrongly_when_the_server_restarts() {
    let world = World::new();
    let counts = Counts::default();
    let mut process = Process::start(&world, loopback(0), &counts);
    let address = process.listener.local_address();
    let link = Link::open(world.target(address), world.identity.clone(), greeting());
    until(&link, |state| generation(state) == 1).await;
    let (tasks, each) = (4, 2000);
    let calls: Vec<_> = (0..tasks)
        .map(|task| tokio::spawn(call_all(link.clone(), task * each..(task + 1) * each)))
        .collect();
    for restart in 0..3 {
        // Let some calls through, so that others are under way.
        let before = counts.lock().unwrap().len();
        while counts.lock().unwrap().len() < before + 100 {
            tokio::task::yield_now().await;
        }
        if restart % 2 == 0 {
            process.listener.close(CloseCode::Stopping, "restarting").await;
        }
        process.kill().await;
        process = Process::start(&world, address, &counts);
    }
    for call in calls {
        call.await.unwrap();
    }
    process.kill().await;
    let counts = counts.lock().unwrap();
    assert_eq!(counts.len() as u64, tasks * each);
    // Each task has one call under way, so each restart can repeat at most one of each.
    let repeated: usize = counts.values().map(|count| count - 1).sum();
    assert!(repeated as u64 <= 3 * tasks, "{repeated} calls were repeated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_died_silently_is_noticed_when_it_is_back() {
    let world = World::new();
    let counts = Counts::default();
    let process = Process::start(&world, loopback(0), &counts);
    let address = process.listener.local_address();
    let relay = Relay::to(address).await;
    let link = Link::open(world.target(relay.address), world.identity.clone(), greeting());
    until(&link, |state| generation(state) == 1).await;
    let peer = link.peer().unwrap();
    relay.cut();
    process.kill().await;
    let process = Process::start(&world, address, &counts);
    relay.mend().await;
    let response = link.call(&getattr(7), Bytes::new(), PATIENCE).await.unwrap();
    assert_eq!(response.reply, answer("7"));
    // On a slow machine the silence is noticed before the restart.
    let reason = peer.closed().await;
    let restarted = CloseReason::Broken("the other side has restarted".into());
    assert!(reason == restarted || reason == CloseReason::Here, "{reason:?}");
    process.kill().await;
}

/// A link that was down for long left a connection that asks ever more rarely. It must not be
/// waited for when another gets through.
#[tokio::test]
async fn silent_connection_is_replaced_without_going_offline() {
    let world = World::new();
    let listener = Arc::new(world.listen());
    let address = listener.local_address();
    tokio::spawn(serve(listener, Counts::default()));
    let relay = Relay::to(address).await;
    let link = Link::open(world.target(relay.address), world.identity.clone(), greeting());
    until(&link, |state| generation(state) == 1).await;
    let peer = link.peer().unwrap();
    relay.turn_deaf();
    let response = link.call(&getattr(7), Bytes::new(), PATIENCE).await.unwrap();
    assert_eq!(response.reply, answer("7"));
    assert_eq!(generation(&link.state()), 2);
    // Not by the idle timeout.
    assert_eq!(peer.closed().await, CloseReason::Here);
}

/// A server that dies in the middle of a handshake says nothing to the rest of it when it is back.
#[tokio::test]
async fn a_connection_that_falls_silent_at_the_greeting_is_given_up() {
    let world = World::new();
    let listener = Arc::new(world.listen());
    let address = listener.local_address();
    tokio::spawn(serve(listener, Counts::default()));
    let relay = Arc::new(Relay::to(address).await);
    let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let (at_hello, is_first) = (relay.clone(), AtomicBool::new(true));
    let greeting: Greeting = Arc::new(move |peer| {
        if is_first.swap(false, Ordering::Relaxed) {
            at_hello.turn_deaf();
            ends.send(peer.clone()).unwrap();
        }
        Box::pin(async move { greet(&peer, hello()).await })
    });
    let link = Link::open(world.target(relay.address), world.identity.clone(), greeting);
    until(&link, |state| generation(state) == 1).await;
    // Not by the idle timeout.
    assert_eq!(ended.recv().await.unwrap().closed().await, CloseReason::Here);
}

/// What the keeper sends while a call waits is heard of again, and no call to the server.
#[tokio::test]
async fn a_probe_is_acknowledged_and_is_no_call() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let before = client.traffic();
    client.probe().await;
    while client.traffic().heard == before.heard {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(client.traffic().asked > before.asked);
    assert!(!before.waits && !client.traffic().waits);
    let call = tokio::spawn(async move { client.call(&getattr(7), Body::Empty).await });
    let incoming = server.accept().await.unwrap();
    assert_eq!(incoming.request, getattr(7));
    incoming.reply(answer("7"), Body::Empty).await.unwrap();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn connection_survives_a_new_address() {
    let world = World::new();
    let listener = world.listen();
    let relay = Relay::to(listener.local_address()).await;
    let client = world.dial(relay.address).await;
    let server = listener.accept().await.unwrap();
    let before = server.remote_address();
    tokio::spawn(echo(server.clone()));
    client.call(&getattr(1), Body::Empty).await.unwrap();
    relay.cut();
    relay.mend().await;
    let body = Bytes::from(vec![7; 100_000]);
    let response = client.call(&getattr(2), body.clone().into()).await.unwrap();
    assert_eq!(response.body.collect(body.len()).await.unwrap(), body);
    assert_ne!(server.remote_address(), before);
}

#[tokio::test]
async fn call_without_connection_ends_when_patience_does() {
    let world = World::new();
    let gone = std::net::UdpSocket::bind(loopback(0)).unwrap().local_addr().unwrap();
    let link = Link::open(world.target(gone), world.identity.clone(), greeting());
    let patience = Duration::from_millis(20);
    let error = link.call(&getattr(1), Bytes::new(), patience).await.unwrap_err();
    assert!(matches!(error, CallError::Offline { .. }), "{error:?}");
    assert!(link.stats().is_none());
}

#[tokio::test]
async fn denied_host_hears_why() {
    let world = World::new();
    let listener = world.listen();
    let address = listener.local_address();
    tokio::spawn(async move {
        while let Some(peer) = listener.accept().await {
            peer.close(CloseCode::Denied, "this host is revoked");
        }
    });
    let link = Link::open(world.target(address), world.identity.clone(), greeting());
    let error = link.call(&getattr(1), Bytes::new(), PATIENCE).await.unwrap_err();
    assert_eq!(error, CallError::Refused { why: "this host is revoked".into() });
    assert_eq!(link.state(), LinkState::Refused { why: "this host is revoked".into() });
}

#[tokio::test]
async fn refused_greeting_is_final_and_a_passing_one_is_repeated() {
    let world = World::new();
    let listener = world.listen();
    let address = listener.local_address();
    tokio::spawn(async move {
        let mut greetings = 0;
        while let Some(peer) = listener.accept().await {
            let incoming = peer.accept().await.unwrap();
            greetings += 1;
            let refusal = if greetings == 1 { Refusal::Io } else { Refusal::Access };
            let words = "not this volume".to_owned();
            let reply = Reply::Refused(Refused { refusal, words });
            incoming.reply(reply, Body::Empty).await.unwrap();
            peer.closed().await;
        }
    });
    let link = Link::open(world.target(address), world.identity.clone(), greeting());
    let state = until(&link, |state| matches!(state, LinkState::Offline { .. })).await;
    assert!(matches!(state, LinkState::Offline { why, .. } if why == "not this volume"));
    until(&link, |state| matches!(state, LinkState::Refused { .. })).await;
}

#[tokio::test]
async fn last_link_dropped_closes_the_connection() {
    let world = World::new();
    let listener = world.listen();
    let address = listener.local_address();
    let link = Link::open(world.target(address), world.identity.clone(), greeting());
    let peer = listener.accept().await.unwrap();
    peer.accept().await.unwrap().reply(welcome(), Body::Empty).await.unwrap();
    until(&link, |state| generation(state) == 1).await;
    drop(link);
    assert!(matches!(peer.closed().await, CloseReason::Closed { code: CloseCode::Done, .. }));
}

/// A process that ends right after it left has told the server, which does not take it for one that
/// was cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_is_gone_at_once() {
    let world = World::new();
    let listener = world.listen();
    let (target, identity) = (world.target(listener.local_address()), world.identity.clone());
    let process = std::thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let link = Link::open(target, identity, greeting());
            until(&link, |state| generation(state) == 1).await;
            link.leave().await;
        });
        // Nothing of it runs any more.
        runtime.shutdown_background();
    });
    let peer = listener.accept().await.unwrap();
    peer.accept().await.unwrap().reply(welcome(), Body::Empty).await.unwrap();
    let left = peer.closed().await;
    assert!(matches!(left, CloseReason::Closed { code: CloseCode::Done, .. }), "{left:?}");
    process.join().unwrap();
}
