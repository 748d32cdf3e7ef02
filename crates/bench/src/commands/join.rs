//! `segue-bench join`: one table of several runs.

use std::path::PathBuf;

use segue_bench::contention::Experiment;
use segue_bench::record::Context;

use super::{Outcome, text};

/// Makes one table of several runs of `mfs-table2` or `mfs-fig4`, each of some rates or tests.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The experiment.
    name: String,
    /// The files of lines (.jsonl) that the runs have written.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The directory for the table, the plot and all lines.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

pub(crate) fn run(Arguments { name, files, out }: &Arguments) -> Outcome {
    let experiment = Experiment::named(name).ok_or(format!(
        "runs of {name} are not joined: only those of mfs-table2, mfs-table2-shared and mfs-fig4"
    ))?;
    // The commits are those of the runs, so changes in the tree do not matter.
    println!("{}", experiment.join(files, out, Context::now()).map_err(text)?);
    Ok(())
}
