//! The bench of Segue: workloads and experiments, and the tables and plots of their results.
//!
//! It talks to mounted paths and to the `segue` program only, so it measures any file system. The
//! hosts, links and file systems that it runs them on are those of the test bed, `segue_bed`.

pub mod beside;
pub mod contention;
pub mod edit_big;
pub mod floor;
pub mod fuse_floor;
pub mod index;
pub mod measurement;
pub mod mirror;
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
pub mod tree;
pub mod workload;
