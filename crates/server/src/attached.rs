//! Which clients were connected: a row for each, so that a server that starts again knows whom it
//! has promised something.
//!
//! A row is written with the hello and goes when the connection is over, as the server sees it: by
//! then nothing counts any more that was promised over it. A server that stops leaves them.

use std::collections::BTreeSet;

use segue_core::namespace::keys::{SERVER_TAGS, after};
use segue_core::namespace::{Fault, MetaSnapshot, MetaTxn};
use segue_core::nouns::ClientId;

use crate::meta::{Kv, MetaFault};

const ATTACHED: u8 = SERVER_TAGS + 4;

fn key(client: ClientId) -> Vec<u8> {
    [&[ATTACHED], client.0.as_slice()].concat()
}

/// `client` is connected.
pub(crate) fn enter(txn: &mut Kv<'_>, client: ClientId) -> Result<(), MetaFault> {
    txn.put(&key(client), &[]).map_err(Fault::Store)
}

/// `client` is connected no more.
pub(crate) fn leave(txn: &mut Kv<'_>, client: ClientId) -> Result<(), MetaFault> {
    txn.remove(&key(client)).map_err(Fault::Store)
}

/// The clients that were connected when the last server ended. Where that cannot be read it is
/// one that does not come back.
pub(crate) fn all(snapshot: &mut Kv<'_>) -> BTreeSet<ClientId> {
    let client = |key: &[u8]| key.get(1..)?.try_into().ok().map(ClientId);
    match snapshot.range(&[ATTACHED], &after(&[ATTACHED]), usize::MAX) {
        Ok(rows) => rows.iter().filter_map(|(key, _)| client(key)).collect(),
        Err(error) => {
            tracing::error!("cannot read which clients were connected before: {error}");
            BTreeSet::from([ClientId([0; 16])])
        }
    }
}
