//! `segue-sim`: runs seeds, and shows how one failed.

use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use segue_sim::{Bug, Failure, Only, Options, Summary, run, run_only, shorten};

/// Runs simulations of a server and its clients, each from a seed.
#[derive(Parser, Debug)]
struct Arguments {
    /// The seed to run
    #[arg(required_unless_present = "seeds", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run many seeds: FROM..TO, or the first N
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Operations before the faults stop
    #[arg(long, default_value_t = Options::default().steps)]
    steps: u64,
    /// Print each step of it
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
    /// Have the threads of a host be process groups and sessions of their own, and sync files
    #[arg(long)]
    sessions: bool,
    /// Put back and clone disks of hosts, and put back the server's
    #[arg(long)]
    copies: bool,
    /// Have each run draw more from its seed: power loss, promises, narrow links, clocks that are
    /// wrong, hosts that sleep, disks that are full or cannot be read, chunks, up to five clients
    #[arg(long, conflicts_with_all = ["power_loss", "plain", "promises"])]
    swarm: bool,
    /// Let only these of its operations and faults happen, and nothing to messages unless they end
    /// with n
    #[arg(long, value_name = "1,2,3,n", value_parser = only, conflicts_with = "seeds")]
    only: Option<Only>,
    /// Plant a bug, to see how it is found
    #[arg(long, hide_possible_values = true)]
    bug: Option<Bug>,
}

/// So many seeds take some seconds.
const PROGRESS: usize = 1000;

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or(("0", text));
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn only(text: &str) -> Result<Only, String> {
    let (numbers, noise) = match text.strip_suffix('n') {
        Some(rest) => (rest.trim_end_matches(','), true),
        None => (text, false),
    };
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let numbers = numbers.split(',').filter(|text| !text.is_empty()).map(number);
    Ok(Only { numbers: numbers.collect::<Result<_, _>>()?, noise })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seeds.or(arguments.seed.map(|seed| seed..seed + 1)).unwrap_or(0..0);
    let Arguments {
        steps, trace, power_loss, plain, promises, sessions, copies, swarm, bug, ..
    } = arguments;
    let given = Options {
        steps,
        trace,
        power_loss,
        plain,
        promises,
        sessions,
        copies,
        swarm,
        bug,
        remnants: false,
    };
    let (mut total, mut failed) = (Summary::default(), 0);
    let count = seeds.end.saturating_sub(seeds.start);
    for (done, seed) in seeds.enumerate() {
        if done > 0 && done % PROGRESS == 0 {
            eprintln!("{done} of {count} seeds, {failed} failed");
        }
        let options = if swarm { given.swarm(seed) } else { given };
        let result = match &arguments.only {
            Some(only) => run_only(seed, options, only),
            None => run(seed, options),
        };
        match result {
            Ok(summary) => total.add(&summary),
            Err(failure) => {
                failed += 1;
                println!("seed {seed} failed: {}", failure.what);
                if count == 1 && !trace && arguments.only.is_none() {
                    tell_least(seed, options, failure);
                }
            }
        }
    }
    println!("{count} seeds, {failed} failed; {}", words(&total));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells the least of a run that fails in the same way.
fn tell_least(seed: u64, options: Options, failure: Failure) {
    let of = failure.numbers;
    let (only, failure) = shorten(seed, options, failure);
    failure.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {seed} failed: {}", failure.what);
    let numbers = only.numbers.iter().map(u64::to_string);
    let noise = only.noise.then(|| "n".to_owned());
    let again: Vec<String> = numbers.chain(noise).collect();
    let left = only.numbers.len();
    println!("{left} of {of} operations and faults are left: --only {}", again.join(","));
}

fn words(total: &Summary) -> String {
    format!(
        "{:.1} virtual hours, {} operations, {} records, {} cancelled, {} superseded, {} \
         stores in one, {} taken back, {} conflicts, {} merged, {} refused, {} files passed \
         through, {} stores of maps, {} leaves, {} differences, {} uploads ahead; faults: {} \
         messages lost, {} duplicated, {} partitions, \
         {} client crashes, {} server crashes, {} broken recoveries, {} sleeps, {} clocks \
         set, {} full disks, {} limits set, {} disk errors, {} caches put back, {} cloned, {} \
         servers put back, {} other servers met; {} breaks heard, {} pulls, {} sessions \
         resumed, {} hosts renamed, {} histories told",
        total.virtual_time.as_secs_f64() / 3600.0,
        total.operations,
        total.records,
        total.cancelled,
        total.superseded,
        total.amended,
        total.taken_back,
        total.conflicts,
        total.merged,
        total.refused,
        total.passed_through,
        total.map_stores,
        total.leaves,
        total.differences,
        total.uploads_ahead,
        total.lost,
        total.duplicated,
        total.partitions,
        total.client_crashes,
        total.server_crashes,
        total.broken_recoveries,
        total.sleeps,
        total.jumps,
        total.full_disks,
        total.limits,
        total.disk_errors,
        total.put_back,
        total.cloned,
        total.servers_put_back,
        total.other_servers,
        total.breaks,
        total.pulls,
        total.resumed,
        total.renamed,
        total.histories,
    )
}
