//! `segue-sim`: runs seeds, and shows how one failed.

use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use segue_sim::{Bug, Failure, Options, Summary, run};

/// Runs simulations of a server and its clients, each from a seed.
#[derive(Parser, Debug)]
struct Arguments {
    /// The seed to run
    #[arg(required_unless_present = "seeds", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run many seeds, FROM..TO
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Operations before the faults stop
    #[arg(long, default_value_t = Options::default().steps)]
    steps: u64,
    /// Print each step
    #[arg(long)]
    trace: bool,
    /// Have hosts lose power when they go down
    #[arg(long)]
    power_loss: bool,
    /// Have no process die in the middle of a change of its disk, and let caches hold everything
    #[arg(long)]
    plain: bool,
    /// Have the server promise to tell of changes
    #[arg(long)]
    promises: bool,
    /// Plant a bug, to see how it is found
    #[arg(long, hide_possible_values = true)]
    bug: Option<Bug>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("not FROM..TO")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seeds.or(arguments.seed.map(|seed| seed..seed + 1)).unwrap_or(0..0);
    let Arguments { steps, trace, power_loss, plain, promises, bug, .. } = arguments;
    let options = Options { steps, trace, power_loss, plain, promises, bug };
    let (mut total, mut failed) = (Summary::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        match run(seed, options) {
            Ok(summary) => total.add(&summary),
            Err(failure) => {
                failed += 1;
                tell(&failure, count == 1 && !options.trace);
            }
        }
    }
    println!("{count} seeds, {failed} failed; {}", words(&total));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(failure: &Failure, whole: bool) {
    if whole {
        failure.trace.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {} failed: {}", failure.seed, failure.what);
}

fn words(total: &Summary) -> String {
    format!(
        "{:.1} virtual hours, {} operations, {} records, {} conflicts, {} refused; faults: {} \
         messages lost, {} duplicated, {} partitions, {} client crashes, {} server crashes, \
         {} broken recoveries; {} breaks heard, {} sessions resumed",
        total.virtual_time.as_secs_f64() / 3600.0,
        total.operations,
        total.records,
        total.conflicts,
        total.refused,
        total.lost,
        total.duplicated,
        total.partitions,
        total.client_crashes,
        total.server_crashes,
        total.broken_recoveries,
        total.breaks,
        total.resumed,
    )
}
