//! `segue-bench fuse-floor`: a mirror over another library's binding.

use std::path::PathBuf;
use std::time::Duration;

use super::{Outcome, text};

/// Mirrors SOURCE at MOUNTPOINT over fuser, and does nothing else.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    source: PathBuf,
    mountpoint: PathBuf,
    /// Seconds for which the kernel may rely on names and attributes.
    #[arg(long, default_value_t = 3600)]
    ttl: u64,
}

pub(crate) fn run(Arguments { source, mountpoint, ttl }: &Arguments) -> Outcome {
    segue_bench::floor::mount(source, mountpoint, Duration::from_secs(*ttl)).map_err(text)
}
