//! Where a client's process connects, as it is told.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use segue_rpc::identity::Identities;
use segue_rpc::{Peer, Target};

use super::pair::VOLUME;
use super::variant::Variant;
use super::wrong;
use segue_bed::Result;

/// When to give up on connecting: a handshake is 6 KB, and a slow link takes 1 KB a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Which server, and who asks.
#[derive(Debug, clap::Args)]
pub(super) struct Dial {
    /// Where the server listens.
    server: SocketAddr,
    /// Fingerprint of its authority.
    authority: String,
    /// Directory with an identity for it.
    identities: PathBuf,
    /// Which transport.
    #[arg(long, value_enum)]
    variant: Variant,
}

impl Dial {
    /// Connects.
    pub(super) async fn peer(&self) -> Result<Peer> {
        let identities = Identities::at(&self.identities);
        let identity = identities.load(&self.authority, VOLUME).map_err(wrong)?;
        let identity = identity.ok_or_else(|| wrong("no identity for the server"))?;
        let target = Target {
            host: self.server.ip().to_string(),
            port: self.server.port(),
            authority: self.authority.clone(),
            options: self.variant.options(),
        };
        segue_rpc::dial(&target, Some(&identity), PATIENCE).await.map_err(wrong)
    }

    /// Tells all of it to a command.
    pub(super) fn tell(
        command: &mut Command,
        variant: Variant,
        server: &str,
        authority: &str,
        identities: &Path,
    ) {
        command.arg(server).arg(authority).arg(identities);
        command.args(["--variant", variant.name()]);
    }
}
