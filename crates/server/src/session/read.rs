//! Questions about metadata, each answered from one snapshot.

use segue_core::namespace::equal::compare;
use segue_core::namespace::outline::outline;
use segue_core::namespace::{Stop, read, space};
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;
use segue_core::wire::{Found, Reply, Request};
use segue_rpc::Body;

use super::{Answer, Bound, Session, settled};
use crate::meta::Kv;
use crate::promises::Asked;

impl Session {
    pub(super) async fn read(&self, bound: &Bound, request: Request) -> Answer {
        let volume = bound.volume;
        if let Request::Getattr(ino) = request {
            return self.getattr(bound, ino).await;
        }
        let path = self.server.data.path().to_owned();
        let answer = move |snapshot: &mut Kv<'_>| match request {
            Request::Lookup(ask) => {
                read::lookup(snapshot, volume, ask.parent, &ask.name).map(Reply::Looked)
            }
            Request::Readdir(ask) => read::page(snapshot, volume, &ask).map(Reply::Page),
            Request::Xattrs(ino) => read::xattrs(snapshot, volume, ino).map(Reply::Xattrs),
            Request::Seek(ask) => read::seek(snapshot, volume, &ask).map(Reply::Sought),
            Request::Compare(ask) => compare(snapshot, volume, &ask).map(Reply::Compared),
            Request::Outline(ask) => outline(snapshot, volume, &ask).map(Reply::Outlined),
            Request::Statfs(ino) => {
                let disk = rustix::fs::statvfs(&path).map_err(|_| Stop::from(Refusal::Io))?;
                let total = disk.f_blocks.saturating_mul(disk.f_frsize);
                let free = disk.f_bavail.saturating_mul(disk.f_frsize);
                Ok(Reply::Space(space(snapshot, volume, ino, (total, free))?))
            }
            _ => Err(Refusal::Protocol.into()),
        };
        let store = &self.server.data.store;
        let asked = store.promises().ask();
        let reply = settled(store.read(answer).await)?;
        Ok((promised(reply, asked, bound), Body::Empty))
    }

    /// What is left of a removed file is not promised: it does not change, and goes without a
    /// word.
    async fn getattr(&self, bound: &Bound, ino: Ino) -> Answer {
        let (volume, store) = (bound.volume, &self.server.data.store);
        let asked = store.promises().ask();
        let found = store.read(move |kv| read::getattr_or_remnant(kv, volume, ino)).await;
        let (node, is_remnant) = settled(found)?;
        let reply = Reply::Node(Found { node, promised: None });
        if is_remnant {
            self.server.remnants.asked(volume, ino);
            return Ok((reply, Body::Empty));
        }
        Ok((promised(reply, asked, bound), Body::Empty))
    }
}

/// The reply, with a promise for what it tells of.
pub(super) fn promised(mut reply: Reply, asked: Asked<'_>, bound: &Bound) -> Reply {
    let inodes = reply.inodes();
    if !inodes.is_empty() {
        reply.promise(asked.answered(&bound.holder, &inodes));
    }
    reply
}
