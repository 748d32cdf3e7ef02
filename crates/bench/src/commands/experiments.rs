//! The experiments of `segue-bench run`: each has its name, its line in the list, and its function.

use segue_bench::beside;
use segue_bench::contention::{self, Experiment as Contention};
use segue_bench::edit_big;
use segue_bench::fuse_floor::{self, Variant};
use segue_bench::measurement::Effort;
use segue_bench::replay::{self, Experiment as Replay};
use segue_bench::small_writes;
use segue_bench::store;
use segue_bench::transport::{self, System, Varying, speed};

use super::run::{Arguments, LIMIT};
use super::text;

pub(super) const FUSE_FLOOR: &str = "fuse-floor";
const STORE: &str = "store";
const DENSE: &str = "dense";
const STORM: &str = "storm";

/// The scale of [`DENSE`] if none is given: a file of 1 GB.
const DENSE_SCALE: f64 = 0.01;

/// The text of the results, or the reason for which there are none.
pub(super) type Table = Result<String, String>;

/// A measurement of its own kind, which runs alone.
pub(super) struct Experiment {
    pub(super) name: &'static str,
    /// One line for the list.
    pub(super) about: &'static str,
    /// Measures, writes the results and returns their text.
    pub(super) run: fn(&Arguments) -> Table,
}

impl Experiment {
    /// The experiment called `name`.
    pub(super) fn named(name: &str) -> Option<&'static Experiment> {
        EXPERIMENTS.iter().find(|experiment| experiment.name == name)
    }

    const fn varying(varying: Varying, run: fn(&Arguments) -> Table) -> Experiment {
        Experiment { name: varying.name(), about: varying.about(), run }
    }

    const fn contention(contention: Contention, run: fn(&Arguments) -> Table) -> Experiment {
        Experiment { name: contention.name(), about: contention.about(), run }
    }

    const fn replay(replay: Replay, run: fn(&Arguments) -> Table) -> Experiment {
        Experiment { name: replay.name(), about: replay.about(), run }
    }
}

/// All of them, in the order of the list.
pub(super) static EXPERIMENTS: [Experiment; 18] = [
    Experiment {
        name: FUSE_FLOOR,
        about: "the cost of FUSE itself, by binding and by kind of request",
        run: run_fuse_floor,
    },
    Experiment {
        name: STORE,
        about: "the server's store below any mount, beside SQLite alone",
        run: run_store,
    },
    Experiment {
        name: DENSE,
        about: "the server's store with a file of 100 GB and one of 8 TiB, once",
        run: run_dense,
    },
    Experiment {
        name: STORM,
        about: "many hosts that cache a directory while another host fills it",
        run: run_storm,
    },
    Experiment {
        name: edit_big::NAME,
        about: "the bytes on the wire for a change of 1 KB in a large file",
        run: run_edit_big,
    },
    Experiment {
        name: beside::NAME,
        about: "a mount's share of a link beside another program's TCP",
        run: run_beside,
    },
    Experiment {
        name: transport::NAME,
        about: "a question beside a bulk transfer, on links of any rate",
        run: run_transport,
    },
    Experiment {
        name: speed::NAME,
        about: "calls and bytes a second of the transport alone",
        run: run_speed,
    },
    Experiment {
        name: small_writes::NAME,
        about: "many small files on long and slow links",
        run: run_small_writes,
    },
    Experiment::varying(Varying::Fig2, |run| run_varying(Varying::Fig2, run)),
    Experiment::varying(Varying::Fig7a, |run| run_varying(Varying::Fig7a, run)),
    Experiment::varying(Varying::Train, |run| run_varying(Varying::Train, run)),
    Experiment::contention(Contention::Table2, |run| run_contention(Contention::Table2, run)),
    Experiment::contention(Contention::Fig3, |run| run_contention(Contention::Fig3, run)),
    Experiment::contention(Contention::Shared, |run| run_contention(Contention::Shared, run)),
    Experiment::contention(Contention::Fig4, |run| run_contention(Contention::Fig4, run)),
    Experiment::replay(Replay::Table3, run_traces),
    Experiment::replay(Replay::Fig5, run_replay),
];

fn run_fuse_floor(run: &Arguments) -> Table {
    let usual = || fuse_floor::ALL.iter().filter(|variant| variant.usual).copied().collect();
    let variants = if run.has_peers() { run.systems(FUSE_FLOOR, Variant::named)? } else { usual() };
    let plan = fuse_floor::Plan { variants, repeats: run.repeats(), scale: run.scale(1.0)? };
    plan.run(&run.out, run.context()?).map_err(text)
}

/// An error if file systems are named for an experiment of the server alone.
fn expect_no_peers(name: &str, run: &Arguments) -> Result<(), String> {
    if run.has_peers() {
        return Err(format!("{name} measures Segue's server alone; leave out --peer"));
    }
    Ok(())
}

fn run_store(run: &Arguments) -> Table {
    expect_no_peers(STORE, run)?;
    let plan = store::Plan { repeats: run.repeats(), scale: run.scale(1.0)? };
    plan.run(&run.out, run.context()?).map_err(text)
}

fn run_dense(run: &Arguments) -> Table {
    expect_no_peers(DENSE, run)?;
    let scale = run.scale(DENSE_SCALE)?;
    store::dense::run(&run.out, run.context()?, scale).map_err(text)
}

fn run_storm(run: &Arguments) -> Table {
    expect_no_peers(STORM, run)?;
    let scale = run.scale(1.0)?;
    store::storm::run(&run.out, run.context()?, run.repeats(), scale).map_err(text)
}

fn run_edit_big(run: &Arguments) -> Table {
    let plan = edit_big::Plan {
        systems: run.systems(edit_big::NAME, edit_big::system)?,
        megabytes: run.megabytes.clone(),
        repeats: run.repeats(),
        scale: run.scale(1.0)?,
        limit: run.limit(LIMIT),
    };
    plan.run(&run.out, run.context()?).map_err(text)
}

fn run_beside(run: &Arguments) -> Table {
    let all = || beside::System::ALL.to_vec();
    let systems =
        if run.has_peers() { run.systems(beside::NAME, beside::System::named)? } else { all() };
    let plan = beside::Plan {
        systems,
        repeats: run.repeats(),
        scale: run.scale(1.0)?,
        limit: run.limit(LIMIT),
    };
    plan.run(&run.out, run.context()?).map_err(text)
}

fn run_transport(run: &Arguments) -> Table {
    let name = transport::NAME;
    let systems = if run.has_peers() { run.systems(name, System::named)? } else { System::all() };
    if run.has_rtt() {
        return Err(format!("{name} has --rtts instead of --rtt"));
    }
    let plan = transport::Plan {
        systems,
        rates: run.fractional_rates()?,
        options: run.transport.clone(),
        effort: run.effort()?,
    };
    plan.run(&run.out, run.context()?).map_err(text)
}

fn run_speed(run: &Arguments) -> Table {
    let all = || speed::System::ALL.to_vec();
    let systems =
        if run.has_peers() { run.systems(speed::NAME, speed::System::named)? } else { all() };
    let plan = speed::Plan { systems, options: run.speed.clone(), effort: run.effort()? };
    plan.run(&run.out, run.context()?).map_err(text)
}

fn run_small_writes(run: &Arguments) -> Table {
    let name = small_writes::NAME;
    if run.has_rates() || run.has_rtt() || run.has_no_drain() {
        return Err(format!("{name} has links of its own; leave out --rates, --rtt, --no-drain"));
    }
    small_writes::run(run.kinds()?, &run.effort()?, &run.out, run.context()?).map_err(text)
}

fn run_varying(varying: Varying, run: &Arguments) -> Table {
    let name = varying.name();
    if run.has_peers() || run.has_rates() || run.has_rtt() {
        return Err(format!("{name} has a link of its own; leave out --peer, --rates and --rtt"));
    }
    varying.run(&run.effort()?, &run.out, run.context()?).map_err(text)
}

/// The rates of an experiment whose activities contend for the link; none, if none were given.
fn contended_rates(name: &str, run: &Arguments) -> Result<Vec<u64>, String> {
    if run.has_peers() || run.has_rtt() || run.has_no_drain() {
        return Err(format!("{name} has --configurations; leave out --peer, --rtt and --no-drain"));
    }
    run.contended_rates(name)
}

fn run_contention(experiment: Contention, run: &Arguments) -> Table {
    let plan = contention::Plan {
        experiment,
        rates: contended_rates(experiment.name(), run)?,
        options: run.side_by_side.clone(),
        effort: Effort { repeats: run.repeat.unwrap_or(contention::REPEATS), ..run.effort()? },
    };
    plan.run(&run.out, run.context()?).map_err(text)
}

fn run_traces(run: &Arguments) -> Table {
    let name = Replay::Table3.name();
    if run.has_peers() || run.has_rates() || run.has_rtt() || run.repeat.is_some() {
        return Err(format!("{name} plays no trace; it takes --scale and --out alone"));
    }
    let scale = run.scale(1.0)?;
    replay::table3(&run.out, run.context()?, scale).map_err(text)
}

fn run_replay(run: &Arguments) -> Table {
    let plan = replay::Plan {
        rates: contended_rates(Replay::Fig5.name(), run)?,
        options: run.side_by_side.clone(),
        effort: Effort { limit: run.limit(replay::LIMIT), ..run.effort()? },
    };
    plan.run(&run.out, run.context()?).map_err(text)
}

#[cfg(test)]
mod tests {
    use segue_bench::workload;

    use super::*;

    #[test]
    fn each_name_means_one_experiment_or_workload() {
        for experiment in &EXPERIMENTS {
            let same = EXPERIMENTS.iter().filter(|other| other.name == experiment.name);
            assert_eq!(same.count(), 1, "{}", experiment.name);
            assert!(workload::named(experiment.name).is_none(), "{}", experiment.name);
        }
    }

    #[test]
    fn every_experiment_of_a_family_is_in_the_table() {
        let varying = Varying::ALL.map(Varying::name);
        let contention = Contention::ALL.map(Contention::name);
        let replay = Replay::ALL.map(Replay::name);
        for name in varying.iter().chain(&contention).chain(&replay) {
            assert!(Experiment::named(name).is_some(), "{name}");
        }
    }
}
