//! The bench of Segue: hosts in network namespaces, links of any quality, workloads, and the
//! file systems that Segue is compared with.
//!
//! It talks to mounted paths and to the `segue` program only, so it measures any file system.
//! End-to-end tests use its [`bed`]; the program `segue-bench` runs its workloads.

pub mod bed;
pub mod contention;
pub mod disk;
pub mod edit_big;
pub mod floor;
pub mod fuse_floor;
pub mod measurement;
pub mod mirror;
pub mod peer;
mod plot;
pub mod record;
pub mod replay;
pub mod report;
mod results;
pub mod run;
pub mod samples;
pub mod side_by_side;
pub mod small_writes;
mod spread;
pub mod store;
pub mod transport;
pub mod workload;
