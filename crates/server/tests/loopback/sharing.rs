//! Files that one host has changed and another one opens; and hosts that lie about that.

use segue_core::nouns::{Ino, Role, Timestamp};
use segue_core::promise::Inodes;
use segue_core::refusal::Refusal;
use segue_core::sharing::{Announced, Mark, Marked};
use segue_core::wire::{APPLY_MAX, Apply, DIRTY_MAX, Dirty, Opened, Reply, Request};
use segue_rpc::{Body, CloseCode, Peer};

use crate::harness::{Client, Server, call};

fn changed(inodes: impl IntoIterator<Item = Ino>) -> Dirty {
    let changed = inodes.into_iter().map(|ino| (ino, Mark::default())).collect();
    Dirty { changed, ..Dirty::default() }
}

fn announced(ino: Ino, size: u64) -> Marked {
    let announced = Announced { size, mtime: Timestamp { secs: 1_700_000_000, nanos: 0 } };
    [(ino, Mark { announced: Some(announced) })].into()
}

/// The reply to an open, and the answer that the writer's host gives when it is asked.
async fn open(reader: &Client, ino: Ino, writer: &Peer, answer: Reply) -> Opened {
    let answering = async {
        let pull = writer.accept().await.unwrap();
        assert_eq!(pull.request, Request::Pull(ino));
        pull.reply(answer, Body::Empty).await.unwrap();
    };
    let request = Request::Open(ino);
    let (opened, ()) = tokio::join!(call(&reader.peer, &request), answering);
    match opened {
        Reply::Opened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

async fn refusal(client: &Client, request: &Request) -> Refusal {
    match call(&client.peer, request).await {
        Reply::Refused(refused) => refused.refusal,
        other => panic!("{other:?}"),
    }
}

/// Proves S6.26, S6.27.
#[tokio::test]
async fn an_open_waits_for_the_host_that_has_marked_the_file() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let zinc = server.client("zinc", Role::Writer).await;
    let (file, _) = tin.create("f").await;
    let told = announced(file, 300);
    let dirty = Dirty { changed: told.clone(), ..Dirty::default() };
    call(&tin.peer, &Request::Dirty(dirty)).await;
    let opened = open(&zinc, file, &tin.peer, Reply::Pulled(true)).await;
    let marked = opened.found.promised.as_ref().unwrap().marked.clone();
    assert!(!opened.is_hidden && marked == told, "its host has not said that it is clean");
    // A host that sends nothing, and says so, or talks of something else.
    for answer in [Reply::Pulled(false), Reply::Broken(())] {
        assert!(open(&zinc, file, &tin.peer, answer).await.is_hidden);
    }
    // To its own host it is not marked.
    let own = call(&tin.peer, &Request::Open(file)).await;
    assert!(matches!(own, Reply::Opened(Opened { is_hidden: false, .. })), "{own:?}");
    tin.peer.close(CloseCode::Done, "away");
    let hidden = |reply: &Reply| match reply {
        Reply::Opened(opened) => opened.is_hidden,
        other => panic!("{other:?}"),
    };
    // Whether the server has noticed or not: nobody answers.
    assert!(hidden(&call(&zinc.peer, &Request::Open(file)).await));
    let lead = server.client("lead", Role::Writer).await;
    let all = Dirty { is_all: true, clean: [file].into_iter().collect(), ..Dirty::default() };
    call(&lead.peer, &Request::Dirty(all)).await;
    let still = call(&zinc.peer, &Request::Open(file)).await;
    assert!(hidden(&still), "nobody takes another host's marks away");
}

/// Whoever may not write marks nothing, and nobody marks without end.
#[tokio::test]
async fn marks_of_liars_are_refused() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let reader = server.client("reader", Role::Reader).await;
    let (file, _) = tin.create("f").await;
    let dirty = Request::Dirty(changed([file]));
    assert_eq!(refusal(&reader, &dirty).await, Refusal::Access);
    // All numbers that there are, in a few bytes.
    let endless: Inodes =
        postcard::from_bytes(&postcard::to_stdvec(&vec![(0_u64, u64::MAX)]).unwrap()).unwrap();
    let many = changed((0..=DIRTY_MAX as u64).map(Ino));
    for dirty in [many, Dirty { clean: endless, ..Dirty::default() }] {
        assert_eq!(refusal(&tin, &Request::Dirty(dirty)).await, Refusal::Limit);
    }
    let awaited = changed((0..=APPLY_MAX as u64).map(Ino)).changed;
    let apply = Request::Apply(Apply { awaited, ..Apply::default() });
    assert_eq!(refusal(&tin, &apply).await, Refusal::Limit);
    // Longer than a file can be.
    let endless = announced(file, u64::MAX);
    let dirty = Request::Dirty(Dirty { changed: endless.clone(), ..Dirty::default() });
    assert_eq!(refusal(&tin, &dirty).await, Refusal::Invalid);
    let apply = Request::Apply(Apply { awaited: endless, ..Apply::default() });
    assert_eq!(refusal(&tin, &apply).await, Refusal::Invalid);
    // Nothing of that is marked: nobody is asked.
    let opened = call(&reader.peer, &Request::Open(file)).await;
    assert!(matches!(opened, Reply::Opened(Opened { is_hidden: false, .. })), "{opened:?}");
    let unknown = Request::Dirty(changed([Ino(1 << 40)]));
    assert_eq!(call(&tin.peer, &unknown).await, Reply::Marked(()));
}
