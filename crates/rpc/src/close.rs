//! The ends of connections and calls that fail.

use quinn::{ConnectionError, VarInt};

/// Why one side closes a connection, as it tells the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseCode {
    /// Nothing more to say.
    Done,
    /// The other side may not be here: revoked, not enrolled.
    Denied,
    /// The other side does not keep to the protocol.
    Protocol,
    /// The process ends, and may return.
    Stopping,
    /// The other side speaks another version of the protocol.
    OtherVersion,
    /// Another connection of the same cache has taken its place.
    Replaced,
}

impl CloseCode {
    pub(crate) fn to_wire(self) -> VarInt {
        VarInt::from_u32(match self {
            CloseCode::Done => 0,
            CloseCode::Denied => 1,
            CloseCode::Protocol => 2,
            CloseCode::Stopping => 3,
            CloseCode::OtherVersion => 4,
            CloseCode::Replaced => 5,
        })
    }

    fn from_wire(code: VarInt) -> CloseCode {
        match code.into_inner() {
            0 => CloseCode::Done,
            1 => CloseCode::Denied,
            3 => CloseCode::Stopping,
            4 => CloseCode::OtherVersion,
            5 => CloseCode::Replaced,
            _ => CloseCode::Protocol,
        }
    }
}

/// Why a connection is over.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseReason {
    /// This side closed it.
    #[error("closed by this side")]
    Here,
    /// The other side closed it.
    #[error("closed by the other side{}{words}", if .words.is_empty() { "" } else { ": " })]
    Closed {
        /// Why.
        code: CloseCode,
        /// For a person.
        words: String,
    },
    /// Nothing was heard for longer than the idle timeout.
    #[error("the other side is silent")]
    Silent,
    /// It broke.
    #[error("{0}")]
    Broken(String),
}

/// TLS alerts that mean "your certificate is not accepted here".
const CERTIFICATE_ALERTS: [u8; 9] = [42, 43, 44, 45, 46, 48, 49, 51, 116];
/// The TLS alert for "no protocol in common".
const ALPN_ALERT: u8 = 120;

/// The TLS alert that ended a handshake, if one did. QUIC carries it as code 0x100 + alert.
fn tls_alert(error: &ConnectionError) -> Option<u8> {
    let code = match error {
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        ConnectionError::TransportError(error) => u64::from(error.code),
        _ => return None,
    };
    u8::try_from(code.checked_sub(0x100)?).ok()
}

/// True if both sides have no protocol, or no version of QUIC, in common.
pub(crate) fn is_other_protocol(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::VersionMismatch) || tls_alert(error) == Some(ALPN_ALERT)
}

impl From<ConnectionError> for CloseReason {
    fn from(error: ConnectionError) -> CloseReason {
        let by_peer = matches!(error, ConnectionError::ConnectionClosed(_));
        if by_peer && tls_alert(&error).is_some_and(|alert| CERTIFICATE_ALERTS.contains(&alert)) {
            let words = "the certificate of this host is not accepted".to_owned();
            return CloseReason::Closed { code: CloseCode::Denied, words };
        }
        match error {
            ConnectionError::LocallyClosed => CloseReason::Here,
            ConnectionError::TimedOut => CloseReason::Silent,
            ConnectionError::ApplicationClosed(close) => CloseReason::Closed {
                code: CloseCode::from_wire(close.error_code),
                words: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            ConnectionError::Reset => CloseReason::Broken("the other side has restarted".into()),
            other => CloseReason::Broken(format!("the connection broke: {other}")),
        }
    }
}

/// Why one message ended early, as the other side is told by RESET_STREAM or STOP_SENDING.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamCode {
    /// Its sender or its reader lost interest.
    Cancelled,
    /// Its body could not be produced to the end.
    Cut,
    /// It makes no sense.
    Protocol,
    /// The request will not be answered.
    NoAnswer,
}

impl StreamCode {
    pub(crate) fn to_wire(self) -> VarInt {
        VarInt::from_u32(match self {
            StreamCode::Cancelled => 0,
            StreamCode::Cut => 1,
            StreamCode::Protocol => 2,
            StreamCode::NoAnswer => 3,
        })
    }

    pub(crate) fn from_wire(code: VarInt) -> StreamCode {
        match code.into_inner() {
            0 => StreamCode::Cancelled,
            1 => StreamCode::Cut,
            3 => StreamCode::NoAnswer,
            _ => StreamCode::Protocol,
        }
    }
}

/// Why a call has no reply, or a reply could not be sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The connection is over. Whether the call had an effect is unknown: repeat it.
    #[error("connection lost: {0}")]
    Lost(CloseReason),
    /// The other side ended the call without an answer.
    #[error("the other side did not answer")]
    NoAnswer,
    /// The other side cancelled.
    #[error("cancelled by the other side")]
    Cancelled,
    /// One side sent bytes that the other does not understand.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The message is longer than `MESSAGE_MAX`.
    #[error("the message is too long")]
    TooLarge,
    /// As many messages as one connection may have are being sent.
    #[error("too many calls at the same time")]
    Busy,
    /// No connection came within the patience of the caller.
    #[error("offline: {why}")]
    Offline {
        /// The error of the last attempt.
        why: String,
    },
    /// The server does not want this host, or speaks another version.
    #[error("refused by the server: {why}")]
    Refused {
        /// The server's words.
        why: String,
    },
}

impl From<ConnectionError> for CallError {
    fn from(error: ConnectionError) -> CallError {
        CallError::Lost(error.into())
    }
}
