//! Connections, where disks are copied: a host has one, and so has a client. Else two hosts that
//! are one client for a while would hold one session.

use std::collections::BTreeMap;

use segue_core::nouns::ClientId;
use segue_core::promise::SessionId;

/// The sender of a request: a host, the client that it is, and the number of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) host: usize,
    pub(crate) client: ClientId,
    pub(crate) connection: u64,
}

/// A session that is told of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) host: usize,
    pub(crate) client: ClientId,
    pub(crate) session: SessionId,
}

/// The connections that count.
#[derive(Debug, Default)]
pub(super) struct Doors {
    latest: BTreeMap<usize, u64>,
    of: BTreeMap<ClientId, (usize, u64)>,
}

impl Doors {
    /// True if a request counts. A host that says hello has closed its earlier connection.
    pub(super) fn admits(&mut self, from: Origin, is_hello: bool) -> bool {
        if !is_hello {
            return self.of.get(&from.client) == Some(&(from.host, from.connection));
        }
        let latest = self.latest.entry(from.host).or_default();
        let is_new = from.connection > *latest;
        if is_new {
            *latest = from.connection;
            self.of.retain(|_, (host, _)| *host != from.host);
        }
        is_new
    }

    /// The client of a connection is welcome: an earlier one of the same client is closed.
    pub(super) fn enter(&mut self, from: Origin) {
        self.of.insert(from.client, (from.host, from.connection));
    }

    /// The server went down.
    pub(super) fn close(&mut self) {
        self.of.clear();
    }
}
