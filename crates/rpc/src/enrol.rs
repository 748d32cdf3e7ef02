//! The first two conversations: getting a certificate, and opening a session.

use std::time::Duration;

use segue_core::refusal::Refusal;
use segue_core::wire::{Enrol, Enrolled, Hello, Refused, Reply, Request, Welcome};
use tokio::time::timeout;

use crate::body::Body;
use crate::close::{CallError, CloseCode, CloseReason};
use crate::dial::{ConnectError, Target, dial};
use crate::identity::{Identities, IdentityError, KeyRequest, MountUrl};
use crate::peer::Peer;

/// Why an invite failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The URL is not an invite.
    #[error("the URL is not an invite; get one from the server: segue invite")]
    NoInvite,
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server does not accept the invite; its words.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error(transparent)]
    Call(CallError),
    /// The server did not answer in time.
    #[error("the server did not answer in time")]
    Late,
    /// The identity cannot be kept here.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl From<CallError> for EnrolError {
    fn from(error: CallError) -> EnrolError {
        match error {
            CallError::Lost(CloseReason::Closed { code: CloseCode::Denied, words }) => {
                EnrolError::Refused(words)
            }
            CallError::Lost(CloseReason::Closed { code: CloseCode::OtherVersion, words }) => {
                EnrolError::Connect(ConnectError::OtherVersion(words))
            }
            other => EnrolError::Call(other),
        }
    }
}

/// Trades the invite in `url` for a certificate. Keeps it with the key in `identities`, and
/// remembers the server there.
///
/// `patience` bounds the connection attempt, and then the answer.
pub async fn enrol(
    url: &MountUrl,
    identities: &Identities,
    host: &str,
    patience: Duration,
) -> Result<Enrolled, EnrolError> {
    let invite = url.invite().ok_or(EnrolError::NoInvite)?;
    let key = KeyRequest::generate()?;
    let peer = dial(&Target::new(url, &invite.authority), None, patience).await?;
    let request = Request::Enrol(Enrol {
        code: invite.code.clone(),
        request_der: key.request_der.clone(),
        host: host.to_owned(),
        volume: url.volume().to_owned(),
    });
    let call = timeout(patience, peer.call(&request, Body::Empty));
    match call.await.map_err(|_| EnrolError::Late)??.reply {
        Reply::Enrolled(enrolled) => {
            let place = (invite.authority.as_str(), url.volume());
            identities.store(place, &key, &enrolled.certificate_pem, enrolled.role)?;
            identities.remember(url, &invite.authority)?;
            Ok(enrolled)
        }
        Reply::Refused(refused) => Err(EnrolError::Refused(words(&refused))),
        other => Err(CallError::Protocol(format!("{} is no answer to Enrol", other.name())).into()),
    }
}

/// Why a session was not opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GreetError {
    /// The next attempt may succeed.
    #[error("{0}")]
    Again(String),
    /// No attempt succeeds until a person changes something.
    #[error("{0}")]
    Refused(String),
    /// No attempt succeeds until one side is upgraded.
    #[error("{0}")]
    OtherVersion(String),
    /// There are two copies of this host's cache: this one may go on as another client.
    #[error("{0}")]
    Copied(String),
}

impl From<CallError> for GreetError {
    fn from(error: CallError) -> GreetError {
        match error {
            CallError::Lost(CloseReason::Closed { code: CloseCode::Denied, words }) => {
                GreetError::Refused(words)
            }
            CallError::Lost(CloseReason::Closed { code: CloseCode::OtherVersion, words }) => {
                GreetError::OtherVersion(words)
            }
            other => GreetError::Again(other.to_string()),
        }
    }
}

/// Opens a session on a new connection.
pub async fn greet(peer: &Peer, hello: Hello) -> Result<Welcome, GreetError> {
    match peer.call(&Request::Hello(hello), Body::Empty).await?.reply {
        Reply::Welcome(welcome) => Ok(welcome),
        Reply::Refused(refused) if is_passing(refused.refusal) => {
            Err(GreetError::Again(words(&refused)))
        }
        Reply::Refused(refused) if refused.refusal == Refusal::Copied => {
            Err(GreetError::Copied(words(&refused)))
        }
        Reply::Refused(refused) => Err(GreetError::Refused(words(&refused))),
        other => Err(GreetError::Again(format!("{} is no answer to Hello", other.name()))),
    }
}

/// True if the server may recover from it by itself.
fn is_passing(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Io | Refusal::NoSpace | Refusal::Limit | Refusal::Changed | Refusal::Unreachable
    )
}

fn words(refused: &Refused) -> String {
    if refused.words.is_empty() { refused.refusal.to_string() } else { refused.words.clone() }
}
