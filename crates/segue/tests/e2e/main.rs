//! End to end: real programs on real mounts, on hosts in network namespaces.
//!
//! Each test begins with the promise that it checks. Waits are bounded and say what they
//! waited for; no time is asserted. Contents are compared by hash, on the host that wrote them
//! and on one that did not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod attributes;
mod background;
mod backup;
mod big;
mod build;
mod bwlimit;
mod cache;
mod check;
mod client_crash;
mod clone;
mod conflicts;
mod conformance;
mod copied;
mod crash;
mod data;
mod deltas;
mod directories;
mod editors;
mod enrol;
mod fio;
mod first_hour;
mod formats;
mod git;
mod healing;
mod history;
mod holes;
mod hosts;
mod interrupts;
mod json;
mod kernel_caches;
mod lanes;
mod levels;
mod listings;
mod make_run;
mod metrics;
mod names;
mod network;
mod offline;
mod offline_day;
mod open_files;
mod options;
mod others;
mod passthrough;
mod permissions;
mod power;
mod printed;
mod promises;
mod quota;
mod reference;
mod remount;
mod replaced;
mod rsync;
mod sample;
mod saves;
mod server_disk;
mod space;
mod sqlite;
mod starts;
mod tree;
mod twins;
mod unmounted;
mod unsent;
mod urgency;
mod uring;
mod versions;
mod watch;
mod worker;
mod world;
mod write_back;
