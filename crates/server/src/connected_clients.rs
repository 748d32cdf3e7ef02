//! Connected clients: a row for each, so that the next server process knows the clients that may
//! hold promises.
//!
//! The hello writes the row. It goes when the server sees the end of the connection, because
//! promises over that connection do not count any more. A server that stops leaves the rows.

use std::collections::BTreeSet;

use segue_core::namespace::keys::{SERVER_TAGS, after};
use segue_core::namespace::{Fault, MetaSnapshot, MetaTxn};
use segue_core::nouns::ClientId;

use crate::meta::{Kv, MetaFault};

const CONNECTED: u8 = SERVER_TAGS + 4;

fn key(client: ClientId) -> Vec<u8> {
    [&[CONNECTED], client.0.as_slice()].concat()
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
    match snapshot.range(&[CONNECTED], &after(&[CONNECTED]), usize::MAX) {
        Ok(rows) => rows.iter().filter_map(|(key, _)| client(key)).collect(),
        Err(error) => {
            tracing::error!("cannot read which clients were connected before: {error}");
            BTreeSet::from([ClientId([0; 16])])
        }
    }
}
