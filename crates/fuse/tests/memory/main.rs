//! The binding under a real kernel: a whole POSIX file system in memory is mounted, and what the
//! kernel and its users see of it is compared with what they must see.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod calls;
mod conformance;
mod data;
mod ends;
mod faults;
mod files;
mod interrupts;
mod locks;
mod mounted;
mod node;
mod notifications;
mod passthrough;
mod place;
mod rounds;
mod tree;
mod waiting;
