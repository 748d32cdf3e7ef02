//! The protocol's bytes: what the kernel sends and what it is sent, compared with bytes that
//! were laid out by hand.
//!
//! Answers and notifications are read where the kernel would read them: a session does not
//! notice that its device is a socket.

#![allow(clippy::unwrap_used)]

mod answers;
mod examples;
mod kernel;
mod notifications;
mod requests;

use segue_fuse::abi::{FileLock, InHeader, InitIn};
use segue_fuse::{Call, Dialect, Lock, SetAttr, SetTime};
