//! `segue-bench`: runs workloads on Segue and on other file systems, side by side.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use segue_bed::Error;
use segue_bed::peer::{self, Kind};
use segue_bench::contention::{self, Experiment};
use segue_bench::edit_big;
use segue_bench::fuse_floor::{self, Variant};
use segue_bench::measurement::Effort;
use segue_bench::mirror;
use segue_bench::record::{Context, Measurement};
use segue_bench::replay;
use segue_bench::report::Report;
use segue_bench::run::Plan;
use segue_bench::side_by_side;
use segue_bench::transport::{self, System, Varying, speed};
use segue_bench::workload::{self, Workload};
use segue_bench::{small_writes, store};

/// The experiment that has file systems of its own.
const FUSE_FLOOR: &str = "fuse-floor";
/// The experiment that speaks to the server itself.
const STORE: &str = "store";
/// The one with a large file.
const DENSE: &str = "dense";
/// Its scale if none is given: a file of 1 GB.
const DENSE_SCALE: f64 = 0.01;
/// The one with many hosts.
const STORM: &str = "storm";
/// Seconds after which one measurement counts as failed, if nothing is said.
const LIMIT: u64 = 1800;
/// How often each is measured if nothing is said.
const REPEATS: u32 = 3;
/// A link as fast as the machine.
const UNLIMITED: &str = "unlimited";

/// Measures Segue and its peers on links of any quality, in network namespaces of its own.
#[derive(Parser)]
#[command(name = "segue-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the workloads and the file systems.
    List,
    /// Runs workloads; `all` runs every one.
    Run(Run),
    /// Makes one table of several runs of `mfs-table2` or `mfs-fig4`, each of some rates or tests.
    Join {
        /// The experiment.
        name: String,
        /// The files of lines (.jsonl) that the runs have written.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Where to write the table, with all lines.
        #[arg(long, default_value = "bench/results")]
        out: PathBuf,
    },
    /// Mirrors SOURCE at MOUNTPOINT and does nothing else.
    #[command(hide = true)]
    FuseFloor {
        source: PathBuf,
        mountpoint: PathBuf,
        /// Seconds for which the kernel may rely on names and attributes.
        #[arg(long, default_value_t = 3600)]
        ttl: u64,
    },
    /// The same over Segue's own binding.
    #[command(hide = true)]
    Mirror {
        source: PathBuf,
        mountpoint: PathBuf,
        #[command(flatten)]
        options: mirror::Options,
    },
    /// The server of `atp-latency`.
    #[command(hide = true)]
    TransportServe(transport::Serve),
    /// Its client: prints what it found, as JSON.
    #[command(hide = true)]
    TransportDrive(transport::Drive),
    /// One end of `rpc-speed`.
    #[command(hide = true, subcommand)]
    Speed(speed::End),
}

#[derive(clap::Args)]
struct Run {
    /// Workloads by name, or one experiment: `segue-bench list` names them. Those whose link
    /// changes (`mfs-fig2`, `mfs-fig7a`, `train`) take --repeat, --scale (of the trace, from its
    /// beginning), --limit and --out.
    #[arg(required = true)]
    names: Vec<String>,
    /// A file system to measure, several times for several; all if none is named.
    #[arg(long = "peer")]
    peers: Vec<String>,
    /// Rates of the client's link in KB/s (1 KB = 1024 bytes), or `unlimited`. `atp-latency` takes
    /// fractions; it, `mfs-table2`, `mfs-fig4` and `mfs-fig5` have rates of their own if none is
    /// given.
    #[arg(long, value_delimiter = ',', default_value = UNLIMITED)]
    rates: Vec<String>,
    /// Milliseconds that the link adds to a round trip.
    #[arg(long, default_value_t = 0)]
    rtt: u64,
    /// How often to measure each: 3 times if nothing is said, `mfs-table2` and `mfs-fig4` 10.
    #[arg(long)]
    repeat: Option<u32>,
    /// Where to write the results.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
    /// Seconds after which one measurement counts as failed: 1800 if nothing is said, in `mfs-fig5`
    /// 3600.
    #[arg(long)]
    limit: Option<u64>,
    /// Does not wait until the server has everything: at 64 KB/s that takes long.
    #[arg(long)]
    no_drain: bool,
    /// Share of the workloads' standard size, at most 1: to try something out. `dense` alone
    /// has 0.01, 1 GB, if none is given.
    #[arg(long)]
    scale: Option<f64>,
    /// Sizes of files in `edit-big`, in MB.
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    megabytes: Vec<u32>,
    #[command(flatten)]
    transport: transport::Options,
    #[command(flatten)]
    speed: speed::Options,
    #[command(flatten)]
    side_by_side: side_by_side::Options,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run(run) if run.names == [FUSE_FLOOR] => run_fuse_floor(&run),
        Command::Run(run) if run.names == [STORE] => run_store(&run),
        Command::Run(run) if run.names == [DENSE] => run_dense(&run),
        Command::Run(run) if run.names == [STORM] => run_storm(&run),
        Command::Run(run) if run.names == [edit_big::NAME] => run_edit_big(&run),
        Command::Run(run) if run.names == [transport::NAME] => run_transport(&run),
        Command::Run(run) if run.names == [speed::NAME] => run_speed(&run),
        Command::Run(run) if run.names == [small_writes::NAME] => run_small_writes(&run),
        Command::Run(run) => match run.names.as_slice() {
            [name] => run_named(name, &run),
            _ => run_workloads(&run),
        },
        Command::Join { name, files, out } => join(&name, &files, &out),
        Command::FuseFloor { source, mountpoint, ttl } => {
            segue_bench::floor::mount(&source, &mountpoint, Duration::from_secs(ttl))
                .map_err(|error| error.to_string())
        }
        Command::Mirror { source, mountpoint, options } => {
            mirror::serve(&source, &mountpoint, options).map_err(|error| error.to_string())
        }
        Command::TransportServe(options) => {
            transport::serve(&options, || println!("{}", transport::SERVING))
                .map_err(|error| error.to_string())
        }
        Command::TransportDrive(options) => drive_transport(&options),
        Command::Speed(end) => end.act().map_err(|error| error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What has more than one experiment, or a workload.
fn run_named(name: &str, run: &Run) -> Result<(), String> {
    if let Some(varying) = Varying::named(name) {
        return run_varying(varying, run);
    }
    if let Some(experiment) = Experiment::named(name) {
        return run_contention(experiment, run);
    }
    match replay::Experiment::named(name) {
        Some(replay::Experiment::Table3) => run_traces(run),
        Some(replay::Experiment::Fig5) => run_replay(run),
        None => run_workloads(run),
    }
}

fn list() {
    println!("workloads:");
    for workload in workload::all() {
        println!("  {:<12} {}", workload.name(), workload.about());
    }
    println!("file systems:");
    for kind in peer::all() {
        println!("  {:<12} {}", kind.name, kind.about);
    }
    println!("experiments, run alone:");
    println!("  {FUSE_FLOOR:<12} what FUSE itself costs, by binding and by kind of request");
    println!("  {STORE:<12} the server's store below any mount, beside SQLite alone");
    println!("  {DENSE:<12} the server's store with a file of 100 GB and one of 8 TiB, once");
    println!("  {STORM:<12} many hosts that have a directory cached which another one fills");
    println!("  {:<12} what a change of 1 KB in a large file costs on the wire", edit_big::NAME);
    println!("  {:<12} a question beside a bulk transfer, on links of any rate", transport::NAME);
    println!("  {:<12} calls and bytes a second of the transport alone", speed::NAME);
    println!("  {:<12} many small files on long and slow links", small_writes::NAME);
    for varying in Varying::ALL {
        println!("  {:<12} {}", varying.name(), varying.about());
    }
    for experiment in Experiment::ALL {
        println!("  {:<12} {}", experiment.name(), experiment.about());
    }
    for experiment in replay::Experiment::ALL {
        println!("  {:<12} {}", experiment.name(), experiment.about());
    }
    println!("file systems of {FUSE_FLOOR} (*: measured when none is named):");
    for variant in fuse_floor::ALL {
        let mark = if variant.usual { '*' } else { ' ' };
        println!("{mark} {:<26} {}", variant.name, variant.about);
    }
    println!("systems of {}:", transport::NAME);
    for system in System::all() {
        println!("  {:<12} {}", system.name(), system.about());
    }
    println!("systems of {}:", speed::NAME);
    for system in speed::System::ALL {
        println!("  {:<12} {}", system.name(), system.about());
    }
}

fn run_workloads(run: &Run) -> Result<(), String> {
    let plan = plan(run)?;
    let title = run.names.join("+");
    let text = |error: Error| error.to_string();
    let mut report = Report::create(&run.out, &title, Context::now()).map_err(text)?;
    let measured = plan.run(|measurement| {
        eprintln!("{}", progress(&measurement));
        report.add(measurement)
    });
    measured.map_err(text)?;
    println!("{}", report.finish().map_err(text)?);
    Ok(())
}

fn run_fuse_floor(run: &Run) -> Result<(), String> {
    let named = |name: &String| {
        Variant::named(name).ok_or(format!("{FUSE_FLOOR} has no file system called {name}"))
    };
    let usual = || fuse_floor::ALL.iter().filter(|variant| variant.usual).copied().collect();
    let variants = match run.peers.as_slice() {
        [] => usual(),
        names => names.iter().map(named).collect::<Result<_, _>>()?,
    };
    let plan = fuse_floor::Plan { variants, repeats: repeats(run), scale: scale(run, 1.0)? };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn run_store(run: &Run) -> Result<(), String> {
    if !run.peers.is_empty() {
        return Err(format!("{STORE} measures what it measures; leave out --peer"));
    }
    let plan = store::Plan { repeats: repeats(run), scale: scale(run, 1.0)? };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn run_dense(run: &Run) -> Result<(), String> {
    if !run.peers.is_empty() {
        return Err(format!("{DENSE} measures Segue's server alone; leave out --peer"));
    }
    let table = store::dense::run(&run.out, Context::now(), scale(run, DENSE_SCALE)?);
    println!("{}", table.map_err(|error| error.to_string())?);
    Ok(())
}

fn run_storm(run: &Run) -> Result<(), String> {
    if !run.peers.is_empty() {
        return Err(format!("{STORM} measures Segue's server alone; leave out --peer"));
    }
    let table = store::storm::run(&run.out, Context::now(), repeats(run), scale(run, 1.0)?);
    println!("{}", table.map_err(|error| error.to_string())?);
    Ok(())
}

fn run_edit_big(run: &Run) -> Result<(), String> {
    let named = |name: &String| {
        edit_big::system(name).ok_or(format!("{} has nothing called {name}", edit_big::NAME))
    };
    let plan = edit_big::Plan {
        systems: run.peers.iter().map(named).collect::<Result<_, _>>()?,
        megabytes: run.megabytes.clone(),
        repeats: repeats(run),
        scale: scale(run, 1.0)?,
        limit: limit(run, LIMIT),
    };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn run_transport(run: &Run) -> Result<(), String> {
    let named = |name: &String| {
        System::named(name).ok_or(format!("{} has nothing called {name}", transport::NAME))
    };
    let systems = match run.peers.as_slice() {
        [] => System::all(),
        names => names.iter().map(named).collect::<Result<_, _>>()?,
    };
    if run.rtt != 0 {
        return Err(format!("{} has --rtts, not --rtt", transport::NAME));
    }
    let plan = transport::Plan {
        systems,
        rates: transport_rates(&run.rates)?,
        options: run.transport.clone(),
        effort: effort(run)?,
    };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn run_speed(run: &Run) -> Result<(), String> {
    let named = |name: &String| {
        speed::System::named(name).ok_or(format!("{} has nothing called {name}", speed::NAME))
    };
    let systems = match run.peers.as_slice() {
        [] => speed::System::ALL.to_vec(),
        names => names.iter().map(named).collect::<Result<_, _>>()?,
    };
    let plan = speed::Plan { systems, options: run.speed.clone(), effort: effort(run)? };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn run_contention(experiment: Experiment, run: &Run) -> Result<(), String> {
    let plan = contention::Plan {
        experiment,
        rates: contended_rates(experiment.name(), run)?,
        options: run.side_by_side.clone(),
        effort: Effort { repeats: run.repeat.unwrap_or(contention::REPEATS), ..effort(run)? },
    };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn join(name: &str, files: &[PathBuf], out: &Path) -> Result<(), String> {
    let experiment = Experiment::named(name);
    let experiment = experiment.ok_or(format!("runs of {name} are not joined: it takes one"))?;
    let table = experiment.join(files, out, Context::now());
    println!("{}", table.map_err(|error| error.to_string())?);
    Ok(())
}

fn run_replay(run: &Run) -> Result<(), String> {
    let plan = replay::Plan {
        rates: contended_rates(replay::Experiment::Fig5.name(), run)?,
        options: run.side_by_side.clone(),
        effort: Effort { limit: limit(run, replay::LIMIT), ..effort(run)? },
    };
    println!("{}", plan.run(&run.out, Context::now()).map_err(|error| error.to_string())?);
    Ok(())
}

fn run_traces(run: &Run) -> Result<(), String> {
    let name = replay::Experiment::Table3.name();
    if !run.peers.is_empty() || run.rates != [UNLIMITED] || run.rtt != 0 || run.repeat.is_some() {
        return Err(format!("{name} plays nothing; it takes --scale and --out"));
    }
    let table = replay::table3(&run.out, Context::now(), scale(run, 1.0)?);
    println!("{}", table.map_err(|error| error.to_string())?);
    Ok(())
}

/// Those of an experiment whose activities contend for the link; none of them, where none was given.
fn contended_rates(name: &str, run: &Run) -> Result<Vec<u64>, String> {
    if !run.peers.is_empty() || run.rtt != 0 || run.no_drain {
        return Err(format!("{name} has --configurations; leave out --peer, --rtt and --no-drain"));
    }
    let rates = match run.rates.as_slice() {
        [word] if word == UNLIMITED => return Ok(Vec::new()),
        words => words.iter().map(|word| parse_rate(word)).collect::<Result<Vec<_>, _>>()?,
    };
    let slow = || format!("{name}: on an unlimited link nothing contends");
    rates.into_iter().map(|rate| rate.ok_or_else(slow)).collect()
}

fn run_small_writes(run: &Run) -> Result<(), String> {
    let name = small_writes::NAME;
    if run.rates != [UNLIMITED] || run.rtt != 0 || run.no_drain {
        return Err(format!("{name} has links of its own; leave out --rates, --rtt, --no-drain"));
    }
    let named = if run.peers.is_empty() { Vec::new() } else { kinds(&run.peers)? };
    let table = small_writes::run(named, &effort(run)?, &run.out, Context::now());
    println!("{}", table.map_err(|error| error.to_string())?);
    Ok(())
}

fn run_varying(varying: Varying, run: &Run) -> Result<(), String> {
    let name = varying.name();
    if !run.peers.is_empty() || run.rates != [UNLIMITED] || run.rtt != 0 {
        return Err(format!("{name} has a link of its own; leave out --peer, --rates and --rtt"));
    }
    let table = varying.run(&effort(run)?, &run.out, Context::now());
    println!("{}", table.map_err(|error| error.to_string())?);
    Ok(())
}

fn effort(run: &Run) -> Result<Effort, String> {
    Ok(Effort { repeats: repeats(run), scale: scale(run, 1.0)?, limit: limit(run, LIMIT) })
}

/// None of them, where none was given.
fn transport_rates(words: &[String]) -> Result<Vec<f64>, String> {
    if words == [UNLIMITED] {
        return Ok(Vec::new());
    }
    let rate = |word: &String| word.parse().map_err(|_| format!("--rates {word}: not KB/s"));
    words.iter().map(rate).collect()
}

fn drive_transport(options: &transport::Drive) -> Result<(), String> {
    let driven = transport::drive(options).map_err(|error| error.to_string())?;
    println!("{}", serde_json::to_string(&driven).map_err(|error| error.to_string())?);
    Ok(())
}

fn repeats(run: &Run) -> u32 {
    run.repeat.unwrap_or(REPEATS)
}

fn limit(run: &Run, usual: u64) -> Duration {
    Duration::from_secs(run.limit.unwrap_or(usual))
}

fn scale(run: &Run, usual: f64) -> Result<f64, String> {
    let scale = run.scale.unwrap_or(usual);
    let right = scale > 0.0 && scale <= 1.0;
    let wrong = || format!("--scale {scale}: must be above 0 and at most 1");
    if right { Ok(scale) } else { Err(wrong()) }
}

fn plan(run: &Run) -> Result<Plan, String> {
    let rates = run.rates.iter().map(|rate| parse_rate(rate)).collect::<Result<_, _>>()?;
    Ok(Plan {
        workloads: workloads(&run.names)?,
        kinds: kinds(&run.peers)?,
        rates,
        rtt: Duration::from_millis(run.rtt),
        repeats: repeats(run),
        scale: scale(run, 1.0)?,
        limit: limit(run, LIMIT),
        drains: !run.no_drain,
    })
}

fn workloads(names: &[String]) -> Result<Vec<&'static dyn Workload>, String> {
    if names == ["all"] {
        return Ok(workload::all().to_vec());
    }
    let named =
        |name: &String| workload::named(name).ok_or(format!("no workload is called {name}"));
    names.iter().map(named).collect()
}

fn kinds(names: &[String]) -> Result<Vec<Kind>, String> {
    if names.is_empty() {
        return Ok(peer::all().to_vec());
    }
    let named = |name: &String| peer::named(name).ok_or(format!("no file system is called {name}"));
    names.iter().map(named).collect()
}

fn parse_rate(word: &str) -> Result<Option<u64>, String> {
    if word == UNLIMITED {
        return Ok(None);
    }
    let rate = word.parse().ok().filter(|rate| *rate > 0);
    rate.map(Some).ok_or(format!("--rates {word}: neither KB/s nor \"unlimited\""))
}

fn progress(measurement: &Measurement) -> String {
    let Measurement { workload, file_system, repeat, rate_kb_per_s, .. } = measurement;
    let rate = rate_kb_per_s.map_or(String::new(), |rate| format!(" {rate} KB/s"));
    let outcome = match &measurement.figures {
        Ok(figures) => format!("{:.3} s", figures.seconds),
        Err(error) => format!("failed: {error}"),
    };
    format!("{workload} {file_system}{rate} #{repeat}: {outcome}")
}
