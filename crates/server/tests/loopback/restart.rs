//! What is there after a start, however the server ended before.

use std::io::Write;
use std::time::Duration;

use segue_core::namespace::keys::SERVER_TAGS;
use segue_core::nouns::{ClientId, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::{Applied, Apply, Hello, Refused, Reply, Request};
use segue_rpc::{Body, CloseCode};
use tokio::time::sleep;

use crate::harness::{Server, apply, call, chunk, done, inline, noise, store};

/// Proves S13.8.
#[tokio::test]
async fn everything_answered_is_there_after_a_restart_with_a_torn_pack() {
    let mut server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    let mut tin = host.client(1).await;
    let bytes = noise(70_000, 6);
    tin.upload(&[&bytes]).await.unwrap();
    let (ino, version) = tin.create("f").await;
    let record = store(ino, version, 70_000, vec![chunk(0, &bytes)]);
    let stamped = tin.stamp(record);
    let outcomes = tin.send(vec![stamped.clone()]).await;
    done(&outcomes[0], ino);

    server.stop().await;
    let pack = server.data().join("packs/00000001.pack");
    let mut pack = std::fs::OpenOptions::new().append(true).open(pack).unwrap();
    pack.write_all(b"CHNK and then the power went").unwrap();
    drop(pack);
    server.begin().await;

    let mut again = host.client(1).await;
    assert_eq!(again.welcome.grants, tin.welcome.grants);
    assert_eq!(again.welcome.volume_uuid, tin.welcome.volume_uuid);
    assert_eq!(again.send(vec![stamped]).await, outcomes);
    assert_eq!(again.content(ino).await, bytes);
    (again.seq, again.next_ino) = (tin.seq, tin.next_ino);
    let more = noise(70_000, 7);
    again.upload(&[&more]).await.unwrap();
    let (ino, version) = again.create("g").await;
    done(&again.apply(store(ino, version, 70_000, vec![chunk(0, &more)])).await, ino);
    assert_eq!(again.content(ino).await, more);
}

/// A host sends a change again of which it has said that it knows the outcome: it is a copy of
/// that host. Nothing of its log is taken for the other one's, and it goes on as another client.
#[tokio::test]
async fn a_copy_of_a_host_goes_on_as_another_client() {
    let server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    let mut tin = host.client(1).await;
    let (ino, version) = tin.create("f").await;
    let first = tin.stamp(store(ino, version, 3, vec![inline(0, b"one")]));
    let outcome = tin.send(vec![first.clone()]).await.remove(0);
    let version = done(&outcome, ino).data_version;
    let next = tin.stamp(store(ino, version, 3, vec![inline(0, b"two")]));
    let knows = Apply {
        records: Vec::new(),
        chunks: Vec::new(),
        acked_below: next.seq,
        ..Apply::default()
    };
    let reply = call(&tin.peer, &Request::Apply(knows)).await;
    assert!(matches!(reply, Reply::Applied(Applied { .. })), "{reply:?}");
    assert!(tin.peer.call(&apply(vec![first, next.clone()]), Body::Empty).await.is_err());
    let hello = Hello { client: ClientId([2; 16]), was: Some(ClientId([1; 16])), ..host.hello(1) };
    for (hello, is_welcome) in [(host.hello(1), false), (hello, true)] {
        let peer = host.dial().await;
        match call(&peer, &Request::Hello(hello)).await {
            Reply::Welcome(_) if is_welcome => {
                let reply = call(&peer, &apply(vec![next.clone()])).await;
                let Reply::Applied(Applied { outcomes, .. }) = reply else { panic!("{reply:?}") };
                done(&outcomes[0], ino);
            }
            Reply::Refused(Refused { refusal: Refusal::Copied, .. }) if !is_welcome => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_fresh_start_drops_what_was_open_without_a_name() {
    let server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    let mut tin = host.client(1).await;
    let (ino, _) = tin.create("f").await;
    let name = segue_core::nouns::Name::new("f").unwrap();
    let parent = segue_core::nouns::Ino::ROOT;
    tin.apply(segue_core::nouns::Record::Unlink { parent, name, ino, open: true }).await;
    let again = host.client(1).await;
    assert_eq!(again.attr(ino).await.nlink, 0);
    let mut hello = host.hello(1);
    hello.fresh_start = true;
    let peer = host.dial().await;
    assert!(matches!(call(&peer, &Request::Hello(hello)).await, Reply::Welcome(_)));
    assert!(matches!(call(&peer, &Request::Getattr(ino)).await, Reply::Refused(_)));
}

#[tokio::test]
async fn a_stopped_server_leaves_one_file_of_metadata_and_no_socket() {
    let mut server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    tin.create("f").await;
    server.stop().await;
    let names = std::fs::read_dir(server.data()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    // It comes as soon as the server has time.
    names.retain(|name| name != "reserve");
    assert_eq!(names, ["VERSION", "identity", "lock", "meta.db", "packs"]);
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let server = Server::start().await;
    let data = server.dir.path().join("other");
    let listen = server.address;
    let options = segue_server::ServeOptions {
        data,
        listen,
        record_calls: None,
        priorities: Default::default(),
    };
    let failed = segue_server::serve(options, |_| panic!("it serves"), std::future::pending());
    let words = failed.await.unwrap_err().to_string();
    let expected = format!("cannot listen on {listen}: another program uses this port");
    assert!(words.starts_with(&expected), "{words}");
}

/// A host that broke off while it was greeted counted as connected for good: after the next start
/// of the server nothing changed until it had been waited for.
#[tokio::test]
async fn who_breaks_off_while_it_is_greeted_is_not_waited_for() {
    let server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    for id in 1..=50 {
        let (peer, hello) = (host.dial().await, Request::Hello(host.hello(id)));
        let asked = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call(&hello, Body::Empty).await.is_ok() }
        });
        // The commit is a moment that differs.
        sleep(Duration::from_micros(u64::from(id) * 100)).await;
        peer.close(CloseCode::Done, "");
        asked.await.unwrap();
    }
    let rows = || {
        let db = rusqlite::Connection::open(server.data().join("meta.db")).unwrap();
        let (attached, next) = ([SERVER_TAGS + 4], [SERVER_TAGS + 5]);
        let count = "SELECT count(*) FROM kv WHERE k > ?1 AND k < ?2";
        db.query_row(count, [attached, next], |row| row.get::<_, u32>(0)).unwrap()
    };
    for _ in 0..100 {
        if rows() == 0 {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("{} count as connected", rows());
}
