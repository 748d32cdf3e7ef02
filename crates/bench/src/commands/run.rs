//! `segue-bench run`: workloads on file systems, or one experiment.

use std::path::PathBuf;
use std::time::Duration;

use segue_bed::peer::{self, Kind};
use segue_bench::measurement::Effort;
use segue_bench::record::{Context, Measurement};
use segue_bench::report::Report;
use segue_bench::run::Plan;
use segue_bench::side_by_side;
use segue_bench::transport::{self, speed};
use segue_bench::workload::{self, Workload};

use super::experiments::{self, Experiment};
use super::{Outcome, text};

/// Seconds after which one measurement counts as failed, if none are given.
pub(super) const LIMIT: u64 = 1800;
/// Runs of each measurement, if no number is given.
const REPEATS: u32 = 3;
/// A link as fast as the machine.
const UNLIMITED: &str = "unlimited";
/// Every workload.
const ALL: &str = "all";

/// Runs workloads, or one experiment, and writes the results.
///
/// The results name the commit of the work tree. A tree with changes that are in no commit is
/// refused, unless --dirty is given.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Workloads by name, `all` of them, or one experiment: `segue-bench list` names them. Those
    /// whose link changes (`mfs-fig2`, `mfs-fig7a`, `train`) take --repeat, --scale (of the trace,
    /// from its beginning), --limit and --out.
    #[arg(required = true)]
    names: Vec<String>,
    /// A file system to measure; several times for several. All if none is named.
    #[arg(long = "peer")]
    pub(super) peers: Vec<String>,
    /// Rates of the client's link in KB/s (1 KB = 1024 bytes), or `unlimited`. `atp-latency` takes
    /// fractions. `atp-latency`, `mfs-table2`, `mfs-fig4` and `mfs-fig5` have rates of their own.
    #[arg(long, value_delimiter = ',', default_value = UNLIMITED)]
    rates: Vec<String>,
    /// Milliseconds that the link adds to a round trip.
    #[arg(long, default_value_t = 0)]
    rtt: u64,
    /// Runs of each measurement [default: 3; mfs-table2 and mfs-fig4: 10].
    #[arg(long)]
    pub(super) repeat: Option<u32>,
    /// The directory for the results.
    #[arg(long, default_value = "bench/results")]
    pub(super) out: PathBuf,
    /// Seconds after which one measurement counts as failed [default: 1800; mfs-fig5: 3600].
    #[arg(long)]
    limit: Option<u64>,
    /// Does not wait until the server has every change: at 64 KB/s that takes long.
    #[arg(long)]
    no_drain: bool,
    /// Share of the standard size, at most 1, to try something out [default: 1; dense: 0.01, a
    /// file of 1 GB].
    #[arg(long)]
    scale: Option<f64>,
    /// Measures a work tree with changes; the results name its commit with "-dirty".
    #[arg(long)]
    dirty: bool,
    /// Sizes of files in `edit-big`, in MB.
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    pub(super) megabytes: Vec<u32>,
    #[command(flatten)]
    pub(super) transport: transport::Options,
    #[command(flatten)]
    pub(super) speed: speed::Options,
    #[command(flatten)]
    pub(super) side_by_side: side_by_side::Options,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let table = match arguments.names.as_slice() {
        [name] => match Experiment::named(name) {
            Some(experiment) => (experiment.run)(arguments)?,
            None => arguments.run_workloads()?,
        },
        names => match names.iter().find(|name| Experiment::named(name).is_some()) {
            Some(name) => return Err(format!("{name} is an experiment, which runs alone")),
            None => arguments.run_workloads()?,
        },
    };
    println!("{table}");
    Ok(())
}

impl Arguments {
    fn run_workloads(&self) -> experiments::Table {
        let plan = self.plan()?;
        let title = self.names.join("+");
        let mut report = Report::create(&self.out, &title, self.context()?).map_err(text)?;
        let measured = plan.run(|measurement| {
            eprintln!("{}", progress(&measurement));
            report.add(measurement)
        });
        measured.map_err(text)?;
        report.finish().map_err(text)
    }

    fn plan(&self) -> Result<Plan, String> {
        let rates = self.rates.iter().map(|rate| parse_rate(rate)).collect::<Result<_, _>>()?;
        Ok(Plan {
            workloads: self.workloads()?,
            kinds: if self.peers.is_empty() { peer::all().to_vec() } else { self.kinds()? },
            rates,
            rtt: Duration::from_millis(self.rtt),
            repeats: self.repeats(),
            scale: self.scale(1.0)?,
            limit: self.limit(LIMIT),
            drains: !self.no_drain,
        })
    }

    fn workloads(&self) -> Result<Vec<&'static dyn Workload>, String> {
        if self.names == [ALL] {
            return Ok(workload::all().to_vec());
        }
        let unknown =
            |name: &String| format!("no workload or experiment is called {name}: see `list`");
        let named = |name: &String| workload::named(name).ok_or_else(|| unknown(name));
        self.names.iter().map(named).collect()
    }

    /// The place and time of this run: an error if the work tree has changes, unless that is
    /// allowed.
    pub(super) fn context(&self) -> Result<Context, String> {
        if self.dirty { Ok(Context::now()) } else { Context::committed() }
    }

    /// The file systems that are named.
    pub(super) fn kinds(&self) -> Result<Vec<Kind>, String> {
        self.systems("segue-bench", peer::named)
    }

    /// The systems that are named, of those that `owner` has.
    pub(super) fn systems<T>(
        &self,
        owner: &str,
        named: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, String> {
        let unknown = |name: &String| format!("{owner} has no system called {name}: see `list`");
        let find = |name: &String| named(name).ok_or_else(|| unknown(name));
        self.peers.iter().map(find).collect()
    }

    pub(super) fn repeats(&self) -> u32 {
        self.repeat.unwrap_or(REPEATS)
    }

    pub(super) fn limit(&self, usual: u64) -> Duration {
        Duration::from_secs(self.limit.unwrap_or(usual))
    }

    pub(super) fn scale(&self, usual: f64) -> Result<f64, String> {
        let scale = self.scale.unwrap_or(usual);
        let right = scale > 0.0 && scale <= 1.0;
        let wrong = || format!("--scale {scale}: a scale is above 0 and at most 1");
        if right { Ok(scale) } else { Err(wrong()) }
    }

    pub(super) fn effort(&self) -> Result<Effort, String> {
        let (repeats, scale, limit) = (self.repeats(), self.scale(1.0)?, self.limit(LIMIT));
        Ok(Effort { repeats, scale, limit })
    }

    /// The given rates of links that may be slower than 1 KB/s; none, if none were given.
    pub(super) fn fractional_rates(&self) -> Result<Vec<f64>, String> {
        if !self.has_rates() {
            return Ok(Vec::new());
        }
        let wrong = |word: &String| format!("--rates {word}: not a number of KB/s");
        let rate = |word: &String| word.parse().map_err(|_| wrong(word));
        self.rates.iter().map(rate).collect()
    }

    /// The given rates of links that activities contend for; none, if none were given.
    pub(super) fn contended_rates(&self, name: &str) -> Result<Vec<u64>, String> {
        if !self.has_rates() {
            return Ok(Vec::new());
        }
        let unlimited = || format!("{name}: on an unlimited link nothing contends");
        let rate = |word: &String| parse_rate(word)?.ok_or_else(unlimited);
        self.rates.iter().map(rate).collect()
    }

    pub(super) fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    pub(super) fn has_rates(&self) -> bool {
        self.rates != [UNLIMITED]
    }

    pub(super) fn has_rtt(&self) -> bool {
        self.rtt != 0
    }

    pub(super) fn has_no_drain(&self) -> bool {
        self.no_drain
    }
}

fn parse_rate(word: &str) -> Result<Option<u64>, String> {
    if word == UNLIMITED {
        return Ok(None);
    }
    let rate = word.parse().ok().filter(|rate| *rate > 0);
    rate.map(Some).ok_or(format!("--rates {word}: neither a number of KB/s nor \"unlimited\""))
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
