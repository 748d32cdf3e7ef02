//! The start of a session: which cache, which volume, which numbers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use segue_core::namespace::{self, BindError, ClientRow, Unwelcome, get_row, keys, put_row};
use segue_core::nouns::{InoGrant, Role, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::wire::{Hello, History, Refused, Reply, Welcome};
use segue_rpc::Body;

use super::{Answer, Bound, Session, refuse};
use crate::clock::{now, now_seconds};
use crate::meta::{Kv, MetaFault};
use crate::random::random;
use crate::{connected_clients, principals};

/// Longest name of a host, in bytes.
const HOST_MAX: usize = 255;

/// What the store says to a hello.
struct Greeting {
    uuid: [u8; 16],
    epoch: u32,
    grants: Vec<InoGrant>,
    history: Option<History>,
}

impl Session {
    pub(super) async fn hello(&self, hello: Hello) -> Answer {
        if self.bound.get().is_some() {
            return Err(refuse(Refusal::Protocol, "a connection has one session"));
        }
        if hello.host.len() > HOST_MAX {
            return Err(refuse(Refusal::Limit, "the host's name is too long"));
        }
        let nonce = random().map_err(|error| {
            tracing::error!("cannot read random bytes: {error}");
            refuse(Refusal::Io, "the server cannot read random bytes")
        })?;
        let (identity, volume) = (self.fingerprint.clone(), self.identity.volume);
        let used = self.used();
        let (store, client, incarnation) =
            (&self.server.data.store, hello.client, hello.incarnation);
        let (host, fresh_start) = (hello.host.clone(), hello.fresh_start);
        let claim = self.place.claim();
        // Nothing of the client's earlier session is applied from then on: its host has heard of
        // more meanwhile than that was sent with.
        let greeting = move |txn: &mut Kv<'_>| {
            let greeting = greet(txn, &identity, volume, &hello)?;
            if greeting.is_ok() {
                principals::note_use(txn, &identity, used)?;
                claim(client);
            }
            Ok(greeting)
        };
        let greeting = store.write(greeting).await??;
        let promises = store.promises();
        // Not before: whoever is refused leaves nothing behind.
        let rights = self.identity.rights();
        let brings = rights.role != Role::Reader;
        let holder = promises.enter(volume, (client, brings), &self.peer);
        let bound = Bound { volume, client, incarnation, host, rights, nonce, holder };
        // Whoever is not welcomed yet says again that it starts afresh.
        let is_shared = promises.has_others(volume, client);
        let drop =
            move |txn: &mut Kv<'_>| namespace::drop_orphans(txn, (client, volume), is_shared);
        while fresh_start && store.write(drop).await? {}
        promises.came_back(bound.client);
        let welcome = Welcome {
            volume_uuid: greeting.uuid,
            epoch: greeting.epoch,
            role: self.identity.role,
            grants: greeting.grants,
            nonce,
            commit: promises.heard_through(&bound.holder),
            history: greeting.history,
        };
        self.bound
            .set(bound)
            .map_err(|_| refuse(Refusal::Protocol, "a connection has one session"))?;
        // Whoever saw it end did not know whose it is.
        if let Some(bound) = self.bound.get().filter(|_| self.peer.is_over()) {
            self.leave(bound);
        }
        Ok((Reply::Welcome(welcome), Body::Empty))
    }

    /// The connection is over. Unless the server is stopping: then its client may not have heard.
    pub(super) fn leave(&self, bound: &Bound) {
        if self.server.stopping.load(Ordering::Acquire) {
            return;
        }
        let store = &self.server.data.store;
        let (promises, client, id) = (Arc::clone(store.promises()), bound.client, bound.holder.id);
        let (identity, used) = (self.fingerprint.clone(), self.used());
        store.write_later(move |txn| {
            principals::note_use(txn, &identity, used)?;
            match promises.is_attached(client, Some(id)) {
                true => Ok(()),
                false => connected_clients::leave(txn, client),
            }
        });
    }

    /// That its identity is in use now, and from where.
    fn used(&self) -> (i64, IpAddr) {
        (now().secs, self.peer.remote_address().ip().to_canonical())
    }

    pub(super) async fn grant(&self, bound: &Bound) -> Answer {
        let client = bound.client;
        let granted =
            self.server.data.store.write(move |txn| namespace::grant(txn, client)).await?;
        let grant = granted
            .ok_or_else(|| refuse(Refusal::Limit, "this cache has too many inode numbers"))?;
        Ok((Reply::Granted(grant), Body::Empty))
    }
}

/// A cache whose identity was revoked, or was never of this server (the volume was restored
/// here), belongs to the one that its host got afterwards: what it has not sent yet need not be
/// lost with a lost key.
///
/// Of this volume, and no earlier life of its log: who is refused takes nothing over.
fn take_over(
    txn: &mut Kv<'_>,
    hello: &Hello,
    identity: &str,
    volume: VolumeId,
) -> Result<(), MetaFault> {
    let key = keys::client(hello.client);
    let Some(row) = get_row::<_, ClientRow>(txn, &key, "a client")? else { return Ok(()) };
    if row.volume != volume || row.incarnation > hello.incarnation {
        return Ok(());
    }
    let owner = principals::identity(txn, &row.identity)?;
    if row.identity != identity && owner.is_none_or(|owner| owner.revoked.is_some()) {
        put_row(txn, &key, &ClientRow { identity: identity.to_owned(), ..row })?;
    }
    Ok(())
}

fn greet(
    txn: &mut Kv<'_>,
    identity: &str,
    volume: VolumeId,
    hello: &Hello,
) -> Result<Result<Greeting, Refused>, MetaFault> {
    let (found, row) = match namespace::find_volume(txn, &hello.volume)? {
        Some(found) => found,
        None => {
            let words = format!("this server has no volume '{}'", hello.volume);
            return Ok(Err(refuse(Refusal::NotFound, words)));
        }
    };
    if found != volume {
        let words = format!(
            "this host's identity is not for volume '{}'; get an invite from the server: segue \
             invite --volume {}",
            hello.volume, hello.volume
        );
        return Ok(Err(refuse(Refusal::NotPermitted, words)));
    }
    let client = hello.client;
    take_over(txn, hello, identity, volume)?;
    let greeted = match namespace::greet(txn, hello, identity, volume)? {
        Ok(greeted) => greeted,
        Err(Unwelcome::Copied) => return Ok(Err(refuse(Refusal::Copied, ""))),
        Err(Unwelcome::Unbound(error)) => return Ok(Err(unbound(error))),
    };
    if let (Some(known), Some(_)) = (hello.known, &greeted.history) {
        tracing::warn!(
            host = hello.host,
            "a host knows version {known}, which this server does not"
        );
    }
    namespace::seen(txn, client, now_seconds())?;
    connected_clients::enter(txn, client)?;
    let namespace::Greeted { grants, history } = greeted;
    Ok(Ok(Greeting { uuid: row.uuid, epoch: row.epoch, grants, history }))
}

/// The refusal of a cache that is not this host's, with what to do about it.
fn unbound(error: BindError) -> Refused {
    let hint = match error {
        BindError::OtherIdentity => "revoke that identity (segue identity revoke) or ",
        BindError::OtherVolume | BindError::OldIncarnation => "",
        BindError::TooMany => {
            let words = format!(
                "{error}; mount with one of them, or get a new invite from the server: segue invite"
            );
            return refuse(Refusal::NotPermitted, words);
        }
    };
    let words = format!("{error}; {hint}mount with another cache directory: -o cache-dir=DIR");
    refuse(Refusal::NotPermitted, words)
}
