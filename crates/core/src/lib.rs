//! Everything in Segue that can be decided without waiting, for client and server alike.
//!
//! The contract of each machine here:
//!
//! 1. `&mut self`, synchronous, runs to completion. No `async`, `Arc`, `Mutex`, threads.
//! 2. Everything non-deterministic is an argument: time, new inode numbers, random bytes.
//!    Ordered maps, so that iteration is part of the test.
//! 3. Payload bytes stay outside: machines handle keys, ranges, lengths and fingerprints.
//!    (`chunk` is the exception: it cuts and fingerprints slices.)
//! 4. Every collection has a limit given at construction; reaching it is a value, not growth.
//! 5. Actions come out in the order in which they must take effect: persist before the send
//!    that depends on it.
//! 6. A programmer's error asserts, also in release; the outside world's errors are values.
//!
//! Verbs and `handle_*(.., now)` put things in; `poll_*` take actions out until `None`;
//! `next_deadline()` says when to call `handle_deadline(now)`; getters have no `get_`.

#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

pub mod backoff;
pub mod chunk;
pub mod delta;
pub mod healing;
pub mod host;
pub mod namespace;
pub mod nouns;
pub mod persist;
pub mod promise;
pub mod quantity;
pub mod refusal;
pub mod sched;
pub mod sharing;
#[cfg(test)]
mod testing;
pub mod upkeep;
pub mod upload;
pub mod wire;
