//! `segue-bench index`: the index of the results.

use std::fs;
use std::path::PathBuf;

use segue_bench::index::{FILE, index, overfull};

use super::{Outcome, text};

/// Writes INDEX.md: for each experiment its latest run and one line of outcome.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory of the results.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

pub(crate) fn run(Arguments { out }: &Arguments) -> Outcome {
    let path = out.join(FILE);
    fs::write(&path, index(out).map_err(text)?)
        .map_err(|error| format!("write {}: {error}", path.display()))?;
    for experiment in overfull(out).map_err(text)? {
        eprintln!("segue-bench: {experiment}; two stay, the others are in git");
    }
    Ok(())
}
