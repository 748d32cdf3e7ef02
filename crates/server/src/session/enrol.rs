//! Connections without a certificate: they may trade an invite for one, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use segue_core::namespace::{Fault, MetaSnapshot, VolumeRow, volume};
use segue_core::refusal::Refusal;
use segue_core::wire::{Enrol, Enrolled, Reply, Request};
use segue_rpc::{Body, CloseCode, Peer};
use tokio::time::timeout;

use super::{Answer, refuse};
use crate::clock::now;
use crate::meta::StoreError;
use crate::principals::{self, InviteError, Used};
use crate::serve::Server;

/// A stranger is shown out after so long, whatever it says.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests of one stranger: a guess each.
const TRIES: usize = 3;
/// Longest name of a host, in bytes.
const HOST_MAX: usize = 255;

/// Serves a connection without identity.
pub(super) async fn run(server: &Arc<Server>, peer: &Peer) {
    let _place = match server.sessions.enter_stranger(peer) {
        Ok(place) => place,
        Err(words) => {
            tracing::warn!(address = %peer.remote_address(), "refused to enrol a host: {words}");
            return peer.close(CloseCode::Stopping, words);
        }
    };
    let serving = async {
        answer(server, peer).await;
        // Who has an answer closes.
        peer.closed().await;
    };
    if timeout(PATIENCE, serving).await.is_err() {
        peer.close(CloseCode::Denied, "this connection has no identity");
    }
}

async fn answer(server: &Arc<Server>, peer: &Peer) {
    for _ in 0..TRIES {
        let Some(incoming) = peer.accept().await else { break };
        let answer = match &incoming.request {
            Request::Enrol(request) => enrol(server, request).await,
            _ => Err(refuse(
                Refusal::NotPermitted,
                "this host has no identity on this server; mount with an invite",
            )),
        };
        let (reply, body) = answer.unwrap_or_else(|refused| (Reply::Refused(refused), Body::Empty));
        if incoming.reply(reply, body).await.is_err() {
            break;
        }
    }
}

async fn enrol(server: &Arc<Server>, ask: &Enrol) -> Answer {
    if ask.host.len() > HOST_MAX {
        return Err(refuse(Refusal::Limit, "the host's name is too long"));
    }
    let request = *blake3::hash(&ask.request_der).as_bytes();
    let (code, seconds) = (ask.code.clone(), now().secs);
    let store = &server.data.store;
    let known = store.read(move |kv| invited(kv, &code, &request, seconds)).await?;
    let invited = known.map_err(StoreError::from)?.map_err(denied)?;
    let invited = invited.ok_or_else(deleted)?;
    // Before the invite is used up.
    if invited.name != ask.volume {
        let words = format!(
            "this invite is for volume '{}', not for '{}'; it is still valid: put '{}' \
             into the URL",
            invited.name, ask.volume, invited.name
        );
        return Err(refuse(Refusal::NotFound, words));
    }
    let issued = server.data.authority.sign(&ask.request_der, &ask.host).map_err(|error| {
        refuse(Refusal::Invalid, format!("the signing request cannot be used: {error}"))
    })?;
    let (code, host) = (ask.code.clone(), ask.host.clone());
    let used = Used { request, certificate_pem: issued.certificate_pem };
    let (admission, volume) = store
        .write(move |txn| {
            let enrolled =
                principals::enrol(txn, &code, used, &issued.fingerprint, &host, seconds)?;
            let admission = match enrolled {
                Ok(admission) => admission,
                Err(error) => return Ok(Err(error)),
            };
            let volume = volume(txn, admission.volume)?;
            Ok(Ok((admission, volume)))
        })
        .await?
        .map_err(denied)?;
    let volume = volume.ok_or_else(deleted)?;
    tracing::info!(host = ask.host, volume = volume.name, "enrolled a host");
    let enrolled = Enrolled {
        certificate_pem: admission.certificate_pem,
        authority_pem: server.data.authority.certificate_pem().to_owned(),
        volume: volume.name,
        role: admission.role,
    };
    Ok((Reply::Enrolled(enrolled), Body::Empty))
}

/// The volume of an invite, if `request` may use it at `now`.
fn invited<S: MetaSnapshot>(
    snapshot: &mut S,
    code: &str,
    request: &[u8; 32],
    now: i64,
) -> Result<Result<Option<VolumeRow>, InviteError>, Fault<S::Error>> {
    match principals::valid(snapshot, code, request, now)? {
        Ok(invite) => Ok(Ok(volume(snapshot, invite.volume)?)),
        Err(error) => Ok(Err(error)),
    }
}

fn deleted() -> segue_core::wire::Refused {
    refuse(Refusal::NotFound, "the volume of this invite was deleted")
}

fn denied(error: InviteError) -> segue_core::wire::Refused {
    refuse(Refusal::NotPermitted, error.to_string())
}
