//! What outcomes promise.

use std::collections::BTreeSet;

use segue_core::nouns::{Ino, Name, Record, Role};
use segue_core::wire::{Marked, Reply, Request};
use segue_rpc::Body;

use crate::harness::{Server, apply, call};

#[tokio::test]
async fn an_author_is_promised_what_it_is_told_unless_that_is_repeated() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let mut zinc = server.client("zinc", Role::Writer).await;
    let (ino, record) = tin.creation("f");
    let create = tin.stamp(record);
    let told = call(&tin.peer, &apply(vec![create.clone()])).await;
    let unmarked = |inodes: BTreeSet<Ino>| Some((inodes, Marked::new()));
    assert_eq!(told.promised(), unmarked([Ino::ROOT, ino].into()));
    let again = call(&tin.peer, &apply(vec![create])).await;
    assert_eq!(again.promised(), unmarked(BTreeSet::new()));

    zinc.create("g").await;
    let heard = tin.peer.accept().await.unwrap();
    let Request::Break(broken) = &heard.request else { panic!("{:?}", heard.request) };
    assert_eq!(broken.inodes, [Ino::ROOT]);
    heard.reply(Reply::Broken(()), Body::Empty).await.unwrap();
}

#[tokio::test]
async fn what_was_made_and_removed_at_once_is_not_promised() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (ino, create) = tin.creation("f");
    let name = Name::new("f").unwrap();
    let remove = Record::Unlink { parent: Ino::ROOT, name, ino, open: false };
    let records = vec![tin.stamp(create), tin.stamp(remove)];
    let told = call(&tin.peer, &apply(records)).await;
    assert_eq!(told.promised(), Some((BTreeSet::from([Ino::ROOT]), Marked::new())));
}
