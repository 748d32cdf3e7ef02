//! `segue-bench mirror`: a mirror over Segue's own binding.

use std::path::PathBuf;

use segue_bench::mirror;

use super::{Outcome, text};

/// Mirrors SOURCE at MOUNTPOINT over Segue's own binding.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    source: PathBuf,
    mountpoint: PathBuf,
    #[command(flatten)]
    options: mirror::Options,
}

pub(crate) fn run(Arguments { source, mountpoint, options }: Arguments) -> Outcome {
    mirror::serve(&source, &mountpoint, options).map_err(text)
}
