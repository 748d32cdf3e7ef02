//! The adaptive transport: QUIC connections that carry core's messages in core's order.
//!
//! A call is one bidirectional stream: a head (length, class, encoded message), then a body to the
//! stream's end. The reply has the same form on the other half. Both sides may call. The calls and
//! replies of a side pass through one [scheduler](segue_core::sched) and one task, so that the most
//! urgent of all waiting bytes leave first:
//!
//! ```text
//!  call, reply ──▶ Outbox ──events──▶ Writer (owns the scheduler) ──quanta──▶ QUIC stream
//!  body producers ──(bounded)──┘                                               │
//!  Response, Incoming ◀── head, BodyReader ◀───────────────────────────────────┘
//! ```
//!
//! [`Peer`] is one connection. [`Listener`] and [`dial`] make them; [`Link`] keeps one alive for a
//! client. [`identity`] has keys, certificates and invites; [`codec`] compresses bodies.
//!
//! The transport decides nothing about files. It retries only calls without an answer, and sets no
//! absolute deadline on a transfer.

mod asked;
mod body;
mod close;
pub mod codec;
pub mod congestion;
mod dial;
mod enrol;
mod frame;
mod handshakes;
pub mod identity;
mod incoming;
mod keeper;
mod lane;
mod limit;
mod link;
mod listener;
mod options;
mod outbox;
mod paths;
mod peer;
pub mod places;
mod random;
mod rate;
mod record;
mod rpc;
mod silence;
mod stats;
mod tls;
mod transport;
mod version;
mod writer;

pub use body::{Body, BodyError, BodyReader, BodySender, BodySource, Stopped};
pub use close::{CallError, CloseCode, CloseReason};
pub use dial::{ConnectError, Target, dial};
pub use enrol::{EnrolError, GreetError, enrol, greet};
pub use incoming::{Calls, Incoming, Responder};
pub use link::{Greeting, Link, LinkState};
pub use listener::{ListenError, Listener};
pub use options::{Control, Options};
pub use paths::PathKnowledge;
pub use peer::{Peer, Response};
pub use record::Recorder;
pub use rpc::Rpc;
pub use stats::LinkStats;
pub use tls::TlsError;
pub use transport::{dialing, name_connections};

#[cfg(test)]
mod tests;
