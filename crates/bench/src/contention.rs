//! The experiments `mfs-table2` with `mfs-fig3`, and `mfs-fig4`: what somebody waits for beside
//! write-back [MFS 3.4].
//!
//! ```text
//!   foreground   G: grep over what is cached     R: read what is not cached
//!   background   C: compile what is not cached   W: copy files into the mount
//!                └─ a link of 64 to 1,024 KB/s ─┘
//! ```
//!
//! Configurations differ in the calls that wait for a write, and in the order of sending. Each test
//! is measured in each configuration, on a bed of its own, at most two beds side by side. Then each
//! activity is measured alone, and in a plain directory, with no other bed beside it. A foreground
//! is to take at most 1.1 times its time alone.

mod activity;
mod cell;
mod fig4;
mod measure;
mod paper;
mod part;
mod passes;
mod savings;
mod table2;
mod tree;

use std::path::{Path, PathBuf};

use self::cell::{Cell, Start, Test};
use self::measure::{Figures, measure};
use crate::measurement::{Effort, Group, Run};
use crate::plot::dots::Panel;
use crate::record::Context;
use crate::side_by_side::Options;
use segue_bed::peer::system::{CONFIGURATIONS, System};
use segue_bed::{Error, Result};

/// The configuration in which activities are measured alone, and what has no link.
const ALONE: &str = "async-priorities";
const LOCAL: &str = "local";

/// Two beds have a processor each on the machine that this is measured on.
const BEDS_MAX: usize = 2;

/// How often each is measured if nothing is said: as in the paper.
pub const REPEATS: u32 = 10;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// Segue's configurations against each other.
    Table2,
    /// The same, whose curves are another figure of the paper.
    Fig3,
    /// The same on a link whose rate both directions share.
    Shared,
    /// Segue against others.
    Fig4,
}

impl Experiment {
    /// Each of them.
    pub const ALL: [Experiment; 4] =
        [Experiment::Table2, Experiment::Fig3, Experiment::Shared, Experiment::Fig4];

    /// The one called `name`.
    pub fn named(name: &str) -> Option<Experiment> {
        Experiment::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Table2 => "mfs-table2",
            Experiment::Fig3 => "mfs-fig3",
            Experiment::Shared => "mfs-table2-shared",
            Experiment::Fig4 => "mfs-fig4",
        }
    }

    /// What it is, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Experiment::Table2 => "grep or read beside compile or write, as in table 2 of MFS",
            Experiment::Fig3 => "mfs-table2 by another name: its plot has the curves of figure 3",
            Experiment::Shared => "mfs-table2 on a link whose rate both directions share",
            Experiment::Fig4 => {
                "grep or read beside a write that close waits for, and in other file systems"
            }
        }
    }

    /// Makes one table of what several runs of it have measured, each of some rates or tests, and
    /// returns it.
    pub fn join(self, files: &[PathBuf], out: &Path, context: Context) -> Result<String> {
        self.finish(Run::join(files, out, self.title(), context)?)
    }

    fn finish(self, run: Run<Cell, Figures>) -> Result<String> {
        let Run { results, measured, .. } = run;
        if self == Experiment::Fig4 {
            let text = fig4::markdown(results.context(), &measured) + &results.joined();
            results.finish(&text, &Panel::parts(fig4::panels(&measured)))?;
            return Ok(text);
        }
        let is_shared = self == Experiment::Shared;
        let text = table2::markdown(results.context(), &measured, is_shared) + &results.joined();
        results.finish(&text, &table2::parts(&measured))?;
        Ok(text)
    }

    /// What its files are named by.
    fn title(self) -> &'static str {
        if self == Experiment::Fig3 { Experiment::Table2.name() } else { self.name() }
    }

    fn rates(self) -> &'static [u64] {
        match self {
            Experiment::Table2 | Experiment::Fig3 | Experiment::Shared => {
                &[64, 128, 256, 512, 1024]
            }
            Experiment::Fig4 => &[32, 64, 128, 256, 512],
        }
    }

    fn systems(self) -> Vec<&'static str> {
        match self {
            Experiment::Table2 | Experiment::Fig3 | Experiment::Shared => {
                CONFIGURATIONS.iter().map(|one| one.name).collect()
            }
            Experiment::Fig4 => {
                vec!["close-priorities", "moosefs", "juicefs", "rclone", "sshfs-cached"]
            }
        }
    }
}

/// What is measured, by what may go on at the same time.
#[derive(Debug)]
struct Cells {
    /// Two activities each: other beds may be beside theirs.
    beside: Vec<Cell>,
    /// One activity each, with which others are compared: no other bed is beside theirs.
    calm: Vec<Cell>,
}

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// Which of them.
    pub experiment: Experiment,
    /// Rates of the client's link in KB a second; the experiment's own if there are none.
    pub rates: Vec<u64>,
    /// What else is asked.
    pub options: Options,
    /// How much.
    pub effort: Effort,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let beds = self.options.beds;
        if !(1..=BEDS_MAX).contains(&beds) {
            return Err(Error::Wrong(format!("--beds {beds}: 1 or {BEDS_MAX} beds at once")));
        }
        let Cells { beside, calm } = self.cells()?;
        let groups = [Group { all: &beside, beds }, Group { all: &calm, beds: 1 }];
        let mut run = Run::create(out, self.experiment.title(), context, self.effort.scale)?;
        let is_shared = self.experiment == Experiment::Shared;
        let measure = |cell, repeat, effort| measure(cell, repeat, effort, is_shared);
        run.measure_all(&groups, self.effort, measure)?;
        self.experiment.finish(run)
    }

    /// Each cell once. Different tests come in turn, so that beds beside each other seldom compile
    /// at once and mostly wait for their links.
    fn cells(&self) -> Result<Cells> {
        let (tests, systems) = (self.tests()?, self.systems()?);
        let own = self.experiment.rates();
        let rates = if self.rates.is_empty() { own } else { &self.rates };
        let rates: Vec<Option<u64>> = rates.iter().copied().map(Some).collect();
        let (beside, mut calm) = (in_turn(&systems, &rates, &tests), Vec::new());
        if self.experiment != Experiment::Fig4 {
            let parts: Vec<Test> = tests.iter().flat_map(|test| test.alone()).collect();
            calm.extend(in_turn(&[System::known(ALONE)?], &rates, &parts));
            calm.extend(in_turn(&[System::known(LOCAL)?], &[None], &parts));
        }
        Ok(Cells { beside, calm })
    }

    fn tests(&self) -> Result<Vec<Test>> {
        let unknown = |name: &str| Error::Wrong(format!("no test is called {name}"));
        let find = |name: &str| Test::named(name).ok_or_else(|| unknown(name));
        match (self.experiment, self.options.tests.as_slice()) {
            (Experiment::Fig4, []) => Ok(vec![find("GW")?, find("RW")?]),
            (_, []) => Ok(Test::ALL.to_vec()),
            (_, names) => names.iter().map(|name| find(name)).collect(),
        }
    }

    fn systems(&self) -> Result<Vec<System>> {
        System::chosen(&self.options.configurations, &self.experiment.systems())
    }
}

/// Each test as it can begin, at each rate, in each system.
fn in_turn(systems: &[System], rates: &[Option<u64>], tests: &[Test]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &system in systems {
        for &rate in rates {
            for &test in tests {
                // What is not mounted anew has its promises, whatever they are.
                let can_begin = |start: &&Start| **start == Start::Held || system.keeps_its_cache();
                for &start in test.starts().iter().filter(can_begin) {
                    let cell = Cell { test, start, system, rate };
                    // An activity is part of two tests.
                    if !cells.contains(&cell) {
                        cells.push(cell);
                    }
                }
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn plan(experiment: Experiment) -> Plan {
        let effort = Effort { repeats: 1, scale: 1.0, limit: Duration::from_secs(1) };
        let options = Options { beds: 1, tests: Vec::new(), configurations: Vec::new() };
        Plan { experiment, rates: Vec::new(), options, effort }
    }

    #[test]
    fn each_part_is_measured_alone_and_locally_once() {
        let Cells { beside, calm } = plan(Experiment::Table2).cells().unwrap();
        let count =
            |cells: &[Cell], keep: &dyn Fn(&&Cell) -> bool| cells.iter().filter(keep).count();
        // Two tests begin in two ways.
        assert_eq!(count(&beside, &|cell| cell.test.name == "GW"), 2 * 6 * 5);
        assert_eq!(count(&beside, &|cell| cell.test.name == "RW"), 6 * 5);
        assert_eq!(count(&calm, &|cell| cell.test.name == "grep" && cell.rate.is_some()), 2 * 5);
        assert_eq!(count(&calm, &|cell| cell.test.name == "write" && cell.rate.is_some()), 5);
        assert_eq!(count(&calm, &|cell| cell.rate.is_none()), 4);
        // What others are compared with has a calm machine, and nothing else has.
        assert!(beside.iter().all(|cell| cell.test.activities().count() == 2));
        assert!(calm.iter().all(|cell| cell.test.activities().count() == 1));
    }

    #[test]
    fn at_most_two_beds_are_at_work() {
        let dir = tempfile::tempdir().unwrap();
        for beds in [0, 3, 6] {
            let options = Options { beds, ..plan(Experiment::Table2).options };
            let plan = Plan { options, ..plan(Experiment::Table2) };
            let refused = plan.run(dir.path(), Context::of_test()).unwrap_err().to_string();
            assert!(refused.contains("1 or 2 beds at once"), "{refused}");
        }
    }

    #[test]
    fn figure_4_has_others_and_no_baseline() {
        let Cells { beside, calm } = plan(Experiment::Fig4).cells().unwrap();
        let of = |name| beside.iter().filter(|cell| cell.system.name() == name).count();
        // Segue's greps begin in two ways.
        assert_eq!(of("close-priorities"), 3 * 5);
        let others = ["moosefs", "juicefs", "rclone", "sshfs-cached"];
        assert_eq!(others.map(of), [2 * 5; 4]);
        assert!(calm.is_empty());
    }

    /// Puts what a test took at some rate, twice, into a file of its own.
    fn measured(dir: &Path, date: &str, rate: u64, scale: f64) -> PathBuf {
        let commit = format!("c{date}");
        let context = Context { date: date.into(), commit, ..Context::of_test() };
        let mut run = Run::create(dir, "part", context, scale).unwrap();
        let system = System::known(ALONE).unwrap();
        let cell = Cell { test: Test::ALL[3], start: Start::Held, system, rate: Some(rate) };
        let alone = Cell { test: cell.test.alone().next().unwrap(), ..cell };
        let figures = |seconds| Figures { foreground_seconds: Some(seconds), ..Figures::default() };
        run.add(cell, 1, Ok(figures(12.0))).unwrap();
        run.add(cell, 2, Err(Error::Wrong("gone".into()))).unwrap();
        run.add(alone, 1, Ok(figures(10.0))).unwrap();
        dir.join(format!("{date}-part.jsonl"))
    }

    #[test]
    fn runs_of_several_rates_make_one_table() {
        let dir = tempfile::tempdir().unwrap();
        let parts =
            [("1", 64), ("2", 512)].map(|(date, rate)| measured(dir.path(), date, rate, 1.0));
        let join = |parts: &[PathBuf]| {
            let context = Context { date: "3".into(), ..Context::of_test() };
            Experiment::Table2.join(parts, dir.path(), context)
        };
        let text = join(&parts).unwrap();
        for row in [
            "## 64 KB/s",
            "## 512 KB/s",
            "| RW | read | 12.0 | 10.0 | - |",
            "| RW | 512 | **1.20** |",
            "RW, async-priorities, 64 KB/s #2 failed: wrong answer: gone",
            "3, commit c1, c2\n",
            "* 1, commit c1: `x`\n* 2, commit c2: `x`\n",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        // Joined again they say the same.
        let lines = |path: &Path| std::fs::read_to_string(path).unwrap();
        let all = dir.path().join("3-mfs-table2.jsonl");
        assert_eq!(lines(&all), lines(&parts[0]) + &lines(&parts[1]));
        std::fs::rename(&all, dir.path().join("all.jsonl")).unwrap();
        assert_eq!(join(&[dir.path().join("all.jsonl")]).unwrap(), text);
    }

    #[test]
    fn what_does_not_compare_is_not_joined() {
        let dir = tempfile::tempdir().unwrap();
        let whole = measured(dir.path(), "1", 64, 1.0);
        let refused = |parts: &[PathBuf]| {
            let to = dir.path().join("joined");
            let refused = Experiment::Table2.join(parts, &to, Context::of_test());
            assert!(!to.exists());
            refused.unwrap_err().to_string()
        };
        let half = measured(dir.path(), "2", 64, 0.5);
        assert!(
            refused(&[whole.clone(), half]).contains("the run of 2, at 0.5 of the standard size")
        );
        assert!(refused(&[]).contains("no line"));
        std::fs::write(dir.path().join("odd"), "{}\n").unwrap();
        assert!(refused(&[whole, dir.path().join("odd")]).contains("odd, line 1: missing field"));
    }
}
