//! Which transport is under test: both ends are told, and make their connection by it.

use std::net::SocketAddr;
use std::time::Duration;

use segue_rpc::identity::{Authority, Identity};
use segue_rpc::{ConnectError, ListenError, Listener, Peer, Target};

/// A transport under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Variant {
    /// As it is.
    Segue,
}

impl Variant {
    /// Each of them, in the order of reports.
    pub const ALL: [Variant; 1] = [Variant::Segue];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Segue => "segue",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Variant::Segue => "Segue's transport as it is, without mount and disk",
        }
    }

    pub(super) fn listen(
        self,
        address: SocketAddr,
        authority: &Authority,
    ) -> Result<Listener, ListenError> {
        match self {
            Variant::Segue => Listener::bind(address, authority),
        }
    }

    pub(super) async fn dial(
        self,
        target: &Target,
        identity: &Identity,
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        match self {
            Variant::Segue => segue_rpc::dial(target, Some(identity), patience).await,
        }
    }
}
