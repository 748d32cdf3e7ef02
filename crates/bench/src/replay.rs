//! The experiments `mfs-table3` and `mfs-fig5`: traces of whole machines, played on a slow link
//! [MFS 3.5].
//!
//! ```text
//!   mostly reads, mostly writes, heavy load   made anew with the parameters of table 3
//!                   │ played by as many applications as the trace has
//!   close or async write-back  ×  uniform or with priorities  ×  64, 512 KB/s
//! ```
//!
//! What is asked is when the last file has been read, and when the server has the last one that was
//! written.

mod fig5;
mod generate;
mod load;
mod measure;
mod play;
mod table3;
mod trace;

use std::path::Path;

use self::load::Load;
use self::measure::{Cell, Measurement, measure};
use crate::measurement::{Effort, Group, Run};
use crate::plot::dots::Panel;
use crate::record::Context;
use crate::side_by_side::Options;
use segue_bed::peer::system::System;
use segue_bed::{Error, Result};

/// KB a second, where none are given.
const RATES: [u64; 2] = [64, 512];
/// Those that the paper shows.
const CONFIGURATIONS: [&str; 4] =
    ["close-uniform", "close-priorities", "async-uniform", "async-priorities"];

/// Seconds after which a measurement counts as failed, if nothing is said: the heaviest trace takes
/// half an hour at 64 KB/s.
pub const LIMIT: u64 = 3600;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// What the traces are like.
    Table3,
    /// How long they take.
    Fig5,
}

impl Experiment {
    /// Each of them.
    pub const ALL: [Experiment; 2] = [Experiment::Table3, Experiment::Fig5];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Table3 => "mfs-table3",
            Experiment::Fig5 => "mfs-fig5",
        }
    }

    /// What it is, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Experiment::Table3 => "the traces of mfs-fig5 counted, beside table 3 of MFS",
            Experiment::Fig5 => "traces of whole machines played on slow links, as in figure 5",
        }
    }
}

/// Counts what is in the traces, writes that into `out` and returns the table.
pub fn table3(out: &Path, context: Context, scale: f64) -> Result<String> {
    table3::run(out, context, scale)
}

/// What `mfs-fig5` is to measure.
#[derive(Debug)]
pub struct Plan {
    /// Rates of the client's link in KB a second; its own if there are none.
    pub rates: Vec<u64>,
    /// What else is asked; its tests are traces.
    pub options: Options,
    /// How much.
    pub effort: Effort,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the tables.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let cells = self.cells()?;
        let mut run = Run::create(out, Experiment::Fig5.name(), context, self.effort.scale)?;
        let group = Group { all: &cells, beds: self.options.beds };
        run.measure_all(&[group], self.effort, measure)?;
        let Run { results, measured, .. } = run;
        let measured: Vec<Measurement> = measured;
        let text = fig5::markdown(results.context(), &measured);
        results.finish(&text, &Panel::parts(fig5::panels(&measured)))?;
        Ok(text)
    }

    /// Once, what takes longest first.
    fn cells(&self) -> Result<Vec<Cell>> {
        let systems = System::chosen(&self.options.configurations, &CONFIGURATIONS)?;
        let unknown = |name: &str| Error::Wrong(format!("no trace is called {name}"));
        let named = |name: &String| Load::named(name).ok_or_else(|| unknown(name));
        let loads = match self.options.tests.as_slice() {
            [] => Load::ALL.to_vec(),
            names => names.iter().map(named).collect::<Result<_>>()?,
        };
        let mut rates = if self.rates.is_empty() { RATES.to_vec() } else { self.rates.clone() };
        rates.sort_unstable();
        let mut cells = Vec::new();
        for rate in rates {
            for &load in loads.iter().rev() {
                cells.extend(systems.iter().map(|&system| Cell { load, system, rate }));
            }
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_trace_is_played_in_four_configurations_at_two_rates() {
        let effort = Effort { repeats: 1, scale: 1.0, limit: Duration::from_secs(1) };
        let options = Options { beds: 1, tests: Vec::new(), configurations: Vec::new() };
        let plan = Plan { rates: Vec::new(), options, effort };
        let cells = plan.cells().unwrap();
        assert_eq!(cells.len(), 3 * 4 * 2);
        let of = |load: Load| cells.iter().filter(|cell| cell.load == load).count();
        assert_eq!(Load::ALL.map(of), [8, 8, 8]);
        let options = Options { tests: vec!["GW".into()], ..plan.options };
        assert!(Plan { options, ..plan }.cells().is_err());
    }
}
