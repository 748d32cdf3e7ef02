//! The simulator: a server and its clients under one seed, with everything between them failing.
//!
//! Real logic (`core`'s namespace and client) runs over a simulated network, disk and clock.
//! A run ends quiet, and then: every record took effect once; nothing acknowledged is lost;
//! each client sees the server's tree; and the tree is a tree. A host that was alone ends up
//! with exactly what its applications were told, and whenever it starts it shows, before it has
//! heard from the server, nothing else.
//!
//! A seed that fails is a regression test: `segue-sim SEED` shows what is left of it when all is
//! left out that can be, `--trace` the whole run.

mod apps;
mod check;
mod client;
mod disk;
pub mod history;
mod model;
pub mod path;
mod plan;
mod remote;
mod rng;
mod server;
mod shorten;
mod store;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use plan::{Bug, Options};
pub use shorten::{Only, shorten};
use world::World;

/// What happened in a run, or in many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// On the simulated clock.
    pub virtual_time: Duration,
    /// Begun by applications.
    pub operations: u64,
    /// With a final outcome.
    pub records: u64,
    /// Whose change stands beside the server's.
    pub conflicts: u64,
    /// Records that were not sent because they cancelled out.
    pub cancelled: u64,
    /// Those of files that others were renamed over.
    pub superseded: u64,
    /// Stores that became part of one that waited.
    pub amended: u64,
    /// Stores of files that were removed before their turn.
    pub taken_back: u64,
    /// Conflict copies that became one with what they stood beside.
    pub merged: u64,
    /// Limits that were set.
    pub limits: u64,
    /// Records that the server refused.
    pub refused: u64,
    /// Messages that never arrived.
    pub lost: u64,
    /// Messages that arrived twice.
    pub duplicated: u64,
    /// Times that a client was cut off.
    pub partitions: u64,
    /// Times that a client's process died.
    pub client_crashes: u64,
    /// Recoveries of clients that died in the middle of them.
    pub broken_recoveries: u64,
    /// Times that the server died.
    pub server_crashes: u64,
    /// Times that a client heard of changes.
    pub breaks: u64,
    /// Opens that waited for other hosts' changes.
    pub pulls: u64,
    /// Sessions that went on in the next one.
    pub resumed: u64,
    /// Times that a host slept.
    pub sleeps: u64,
    /// Times that a host's wall clock was set.
    pub jumps: u64,
    /// Times that a disk was full.
    pub full_disks: u64,
    /// What hosts' disks refused.
    pub disk_errors: u64,
    /// Files that a kernel read by itself.
    pub passed_through: u64,
    /// Writes of memory maps.
    pub map_stores: u64,
    /// Leaves that were made for stores.
    pub leaves: u64,
    /// Chunks that went as differences.
    pub differences: u64,
    /// Uploads before the turn of their changes.
    pub uploads_ahead: u64,
    /// Times that a host's disk was put back.
    pub put_back: u64,
    /// Hosts that were made from another one's disk.
    pub cloned: u64,
    /// Times that the server's disk was put back.
    pub servers_put_back: u64,
    /// Times that a host found another server.
    pub other_servers: u64,
    /// Times that a host became another client.
    pub renamed: u64,
    /// Times that a host was told of a lost history.
    pub histories: u64,
}

impl Summary {
    /// Adds another run.
    pub fn add(&mut self, other: &Summary) {
        self.virtual_time += other.virtual_time;
        self.operations += other.operations;
        self.records += other.records;
        self.conflicts += other.conflicts;
        self.cancelled += other.cancelled;
        self.superseded += other.superseded;
        self.amended += other.amended;
        self.taken_back += other.taken_back;
        self.merged += other.merged;
        self.limits += other.limits;
        self.refused += other.refused;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.partitions += other.partitions;
        self.client_crashes += other.client_crashes;
        self.broken_recoveries += other.broken_recoveries;
        self.server_crashes += other.server_crashes;
        self.breaks += other.breaks;
        self.pulls += other.pulls;
        self.resumed += other.resumed;
        self.sleeps += other.sleeps;
        self.jumps += other.jumps;
        self.full_disks += other.full_disks;
        self.disk_errors += other.disk_errors;
        self.passed_through += other.passed_through;
        self.map_stores += other.map_stores;
        self.leaves += other.leaves;
        self.differences += other.differences;
        self.uploads_ahead += other.uploads_ahead;
        self.put_back += other.put_back;
        self.cloned += other.cloned;
        self.servers_put_back += other.servers_put_back;
        self.other_servers += other.other_servers;
        self.renamed += other.renamed;
        self.histories += other.histories;
    }
}

/// Something that must never happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation(pub(crate) String);

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub what: String,
    /// Operations and faults until then.
    pub numbers: u64,
    /// The last steps before, oldest first.
    pub trace: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Summary, Failure> {
    run_some(seed, options, None)
}

/// Runs one seed, but of its operations and faults only some.
pub fn run_only(seed: u64, options: Options, only: &Only) -> Result<Summary, Failure> {
    run_some(seed, options, Some(only.clone()))
}

fn run_some(seed: u64, options: Options, only: Option<Only>) -> Result<Summary, Failure> {
    let failed = |what, numbers, trace| Failure { seed, what, numbers, trace };
    let mut world = match World::new(seed, options, only) {
        Ok(world) => world,
        Err(Violation(what)) => return Err(failed(what, 0, Vec::new())),
    };
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let what = match result {
        Ok(Ok(())) => return Ok(world.summary),
        Ok(Err(Violation(what))) => what,
        Err(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(words), _) => format!("panic: {words}"),
            (_, Some(words)) => format!("panic: {words}"),
            _ => "panic".to_owned(),
        },
    };
    Err(failed(what, world.numbers, world.trace.into()))
}
