//! The adaptive transport: QUIC connections that carry core's messages in core's order.
//!
//! A call is one bidirectional stream: a head (length, class, encoded message), then a body to
//! the stream's end, and the same for the reply on the other half. Both sides may call. What a
//! side sends, calls and replies alike, passes through one [scheduler](segue_core::sched) and
//! one task, so that of all bytes that want to leave, the most urgent leave first:
//!
//! ```text
//!  call, reply ──▶ Outbox ──events──▶ Writer (owns the scheduler) ──quanta──▶ QUIC stream
//!  body producers ──(bounded)──┘                                               │
//!  Response, Incoming ◀── head, BodyReader ◀───────────────────────────────────┘
//! ```
//!
//! [`Peer`] is one connection. [`Listener`] and [`dial`] make them; [`Link`] keeps one alive
//! for a client. [`identity`] says who is who, [`codec`] compresses bodies.
//!
//! What it does not do: it decides nothing about files, retries nothing but calls that had no
//! answer, and sets no absolute deadline on a transfer.

mod asked;
mod backoff;
mod body;
mod close;
pub mod codec;
pub mod congestion;
mod dial;
mod enrol;
mod frame;
pub mod identity;
mod incoming;
mod keeper;
mod lane;
mod limit;
mod link;
mod listener;
mod options;
mod outbox;
mod peer;
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
pub use peer::{Peer, Response};
pub use record::Recorder;
pub use rpc::Rpc;
pub use stats::LinkStats;
pub use tls::TlsError;

#[cfg(test)]
mod tests;
