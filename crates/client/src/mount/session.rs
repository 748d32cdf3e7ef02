//! Getting through the server's door: which identity, which cache, which connection.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use segue_core::types::ClientId;
use segue_core::wire::{Hello, Welcome};
use segue_rpc::identity::{Identities, Identity, MountUrl};
use segue_rpc::{
    CallError, ConnectError, EnrolError, Greeting, Link, LinkState, Peer, Target, enrol, greet,
};

use super::MountPlan;
use super::start::PARTING;
use crate::error::MountError;
use crate::state::{StateDirectory, known_volume};

/// The first connection must be there within this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a session as the identity that this host has for the volume. With an invite a host
/// that has none, or whose own is not accepted any more, is enrolled first.
pub(super) async fn session(
    plan: &MountPlan,
    url: &str,
    base: &Path,
) -> Result<(Link, Arc<Welcome>, State), MountError> {
    let identities = Identities::at(plan.paths.identities());
    let Some(invite) = plan.url.invite() else {
        let authority = known_authority(plan, &identities)?;
        let identity = load(plan, &identities, &authority)?.ok_or_else(|| not_enrolled(plan))?;
        return open_session(plan, url, base, &Target::new(&plan.url, &authority), identity).await;
    };
    let target = Target::new(&plan.url, &invite.authority);
    // The same line again is harmless on a host that is enrolled, also at a new address.
    if let Some(identity) = load(plan, &identities, &invite.authority)? {
        match open_session(plan, url, base, &target, identity).await {
            Err(MountError::Denied { reason, .. }) => {
                tracing::info!("enrolling again: {reason}");
            }
            Ok(session) => {
                let remembered = identities.remember(&plan.url, &invite.authority);
                remembered.map_err(|error| identities_error(plan, &error))?;
                return Ok(session);
            }
            other => return other,
        }
    }
    enrol(&plan.url, &identities, &plan.host, CONNECT_TIMEOUT)
        .await
        .map_err(|error| enrol_error(&server_name(&plan.url), error))?;
    let identity = load(plan, &identities, &invite.authority)?;
    let identity = identity.ok_or_else(|| not_enrolled(plan))?;
    open_session(plan, url, base, &target, identity).await
}

fn identities_error(plan: &MountPlan, error: &dyn std::fmt::Display) -> MountError {
    MountError::State { path: plan.paths.identities(), reason: error.to_string() }
}

fn load(
    plan: &MountPlan,
    identities: &Identities,
    authority: &str,
) -> Result<Option<Identity>, MountError> {
    let loaded = identities.load(authority, plan.url.volume());
    loaded.map_err(|error| identities_error(plan, &error))
}

fn known_authority(plan: &MountPlan, identities: &Identities) -> Result<String, MountError> {
    let known = identities.lookup(&plan.url).map_err(|error| identities_error(plan, &error))?;
    known.ok_or_else(|| not_enrolled(plan))
}

fn not_enrolled(plan: &MountPlan) -> MountError {
    let volume = plan.url.volume();
    MountError::Denied {
        host: server_name(&plan.url),
        reason: format!(
            "this host is not enrolled for volume '{volume}': ask for an invite (on the server: \
             segue invite --volume {volume}) and mount its URL once"
        ),
    }
}

fn server_name(url: &MountUrl) -> String {
    format!("{}:{}", url.host(), url.port())
}

fn enrol_error(host: &str, error: EnrolError) -> MountError {
    let host = host.to_string();
    match error {
        EnrolError::Connect(error) => connect_error(host, &error),
        EnrolError::Late | EnrolError::Call(CallError::Lost(_) | CallError::NoAnswer) => {
            MountError::Offline { host, reason: error.to_string() }
        }
        error => MountError::Denied { host, reason: error.to_string() },
    }
}

fn connect_error(host: String, error: &ConnectError) -> MountError {
    let reason = error.to_string();
    match error {
        ConnectError::Resolve(_) | ConnectError::Unreachable(_) => {
            MountError::Offline { host, reason }
        }
        ConnectError::OtherVersion(_) => MountError::Protocol { host, reason },
        _ => MountError::Denied { host, reason },
    }
}

/// What each new connection says first.
#[derive(Clone)]
struct HelloPlan {
    volume: String,
    client: ClientId,
    incarnation: u32,
    host: String,
    acked_below: Arc<AtomicU64>,
    fresh: Arc<AtomicBool>,
}

impl HelloPlan {
    fn greeting(self) -> Greeting {
        Arc::new(move |peer: Peer| {
            let plan = self.clone();
            Box::pin(async move {
                let hello = Hello {
                    volume: plan.volume,
                    client: plan.client,
                    incarnation: plan.incarnation,
                    host: plan.host,
                    acked_below: plan.acked_below.load(Ordering::Relaxed),
                    fresh_start: plan.fresh.load(Ordering::Relaxed),
                };
                let welcome = greet(&peer, hello).await?;
                plan.fresh.store(false, Ordering::Relaxed);
                Ok(welcome)
            })
        })
    }
}

/// An open cache directory, and what each new connection says of it.
pub(super) struct State {
    pub(super) directory: StateDirectory,
    pub(super) acked_below: Arc<AtomicU64>,
}

/// Connects, and opens the cache directory of the volume that is found there.
async fn open_session(
    plan: &MountPlan,
    url: &str,
    base: &Path,
    target: &Target,
    identity: Identity,
) -> Result<(Link, Arc<Welcome>, State), MountError> {
    let new_client = match known_volume(base, url) {
        Some(client) => client,
        None => ClientId(random().map_err(|error| MountError::state("/dev/urandom", error))?),
    };
    let acked_below = Arc::new(AtomicU64::new(0));
    let mut hello = HelloPlan {
        volume: plan.url.volume().to_string(),
        client: new_client,
        incarnation: 1,
        host: plan.host.clone(),
        acked_below: Arc::clone(&acked_below),
        fresh: Arc::new(AtomicBool::new(true)),
    };
    let link = Link::open(target.clone(), identity.clone(), hello.clone().greeting());
    let welcome = connected(&link, &plan.url).await?;
    let directory = StateDirectory::open(
        base,
        &welcome.volume_uuid,
        new_client,
        &plan.mountpoint,
        PARTING * 3,
    )?;
    let (client, incarnation) = (directory.client()?, directory.saved.incarnation);
    let state = State { directory, acked_below };
    if client == new_client && incarnation == 1 {
        return Ok((link, welcome, state));
    }
    // The volume is known here under another URL: go on as the cache that it has.
    drop(link);
    hello = HelloPlan { client, incarnation, fresh: Arc::new(AtomicBool::new(true)), ..hello };
    let link = Link::open(target.clone(), identity, hello.greeting());
    let welcome = connected(&link, &plan.url).await?;
    Ok((link, welcome, state))
}

fn random() -> io::Result<[u8; 16]> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Waits for the first welcome.
async fn connected(link: &Link, url: &MountUrl) -> Result<Arc<Welcome>, MountError> {
    let host = server_name(url);
    let mut watch = link.watch();
    let waiting = async {
        loop {
            let state = watch.borrow_and_update().clone();
            match state {
                LinkState::Online { welcome, .. } => return Ok(welcome),
                LinkState::Refused { why } => {
                    return Err(MountError::Denied { host: host.clone(), reason: why });
                }
                LinkState::OtherVersion { why } => {
                    return Err(MountError::Protocol { host: host.clone(), reason: why });
                }
                LinkState::Offline { why, .. } => {
                    return Err(MountError::Offline { host: host.clone(), reason: why });
                }
                LinkState::Connecting => {}
            }
            if watch.changed().await.is_err() {
                let reason = "the connection was given up".into();
                return Err(MountError::Offline { host: host.clone(), reason });
            }
        }
    };
    tokio::time::timeout(CONNECT_TIMEOUT, waiting).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
        Err(MountError::Offline { host: host.clone(), reason })
    })
}
