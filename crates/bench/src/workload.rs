//! Workloads: what is done in a mounted directory and how long it takes.
//!
//! A workload has three parts. `seed` writes what must be on the server before; `warm` brings
//! the client's caches into the state that is asked about; both run on an unlimited link.
//! `measure` runs on the link of the experiment, and is the only part that is timed.

mod checkout;
pub(crate) mod content;
mod offline;
mod small_files;
mod stat_storm;
pub(crate) mod untar;
mod warm_read;

use std::path::{Path, PathBuf};
use std::time::Instant;

use segue_bed::{Error, Host, Result};

/// The directory in which a workload runs.
#[derive(Debug, Clone)]
pub struct WorkloadDir {
    /// The host that the file system is mounted on.
    pub host: Host,
    /// A directory on it, inside the file system under test.
    pub dir: PathBuf,
    /// A share of the standard size; 1 outside of tests.
    pub scale: f64,
}

impl WorkloadDir {
    /// `standard` at this place's scale, at least one.
    fn scaled(&self, standard: u32) -> u32 {
        scaled(standard, self.scale)
    }
}

/// `standard` times `scale`, at least one.
pub(crate) fn scaled(standard: u32, scale: f64) -> u32 {
    // Never out of range: scales above 1 are refused on the command line.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let share = (f64::from(standard) * scale) as u32;
    share.max(1)
}

/// One of the standard workloads.
pub trait Workload: Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// What it does, in a line.
    fn about(&self) -> &'static str;

    /// Writes into the empty directory `dir` what must be there before.
    fn seed(&self, dir: &Path, scale: f64) -> Result<()> {
        let _ = (dir, scale);
        Ok(())
    }

    /// Brings the caches of the client into the state that the measurement is about.
    fn warm(&self, place: &WorkloadDir) -> Result<()> {
        let _ = place;
        Ok(())
    }

    /// The work itself: how long its user waits.
    fn measure(&self, place: &WorkloadDir) -> Result<Waited>;

    /// Whether it leaves changes behind, so that the time until the server has them counts.
    fn writes(&self) -> bool;

    /// Whether it asks what is cached, so that how it is after a restart is asked, too.
    fn is_of_caches(&self) -> bool {
        false
    }
}

/// What a user waited for.
#[derive(Debug, Clone, Copy)]
pub struct Waited {
    /// How long, in seconds.
    pub seconds: f64,
    /// From when the time counts until the server has every change.
    pub since: Instant,
}

/// Every workload.
pub fn all() -> &'static [&'static dyn Workload] {
    &[
        &warm_read::WarmRead,
        &stat_storm::StatStorm,
        &untar::SOURCES,
        &untar::PACKAGES,
        &checkout::Checkout,
        &small_files::SmallFiles,
        &offline::Offline,
    ]
}

/// The workload called `name`.
pub fn named(name: &str) -> Option<&'static dyn Workload> {
    all().iter().copied().find(|workload| workload.name() == name)
}

/// How long `work` takes.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<Waited> {
    let since = Instant::now();
    work()?;
    Ok(Waited { seconds: since.elapsed().as_secs_f64(), since })
}

/// A file system that answers wrongly has failed, however fast it was.
pub(crate) fn expect(right: bool, wrong: impl FnOnce() -> String) -> Result<()> {
    if right { Ok(()) } else { Err(Error::Wrong(wrong())) }
}
